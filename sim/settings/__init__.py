"""What is asked of a run: its settings, their bounds, and how they are read."""
