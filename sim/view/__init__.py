"""What a policy sees: the jobs as submitted, and the cluster at one instant."""
