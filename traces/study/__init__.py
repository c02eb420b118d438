"""What a trace is like: described, checked, summed up, compared with another."""
