"""The simulator: from a trace, a cluster and a policy to the tables of a run."""
