"""Runs side by side, in parts. The door is `analysis.compare`."""
