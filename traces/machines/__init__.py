"""What a trace's side tables say of the cluster it ran on."""
