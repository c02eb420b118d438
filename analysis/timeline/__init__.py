"""A run as a timeline: tracks of GPUs, and the files that viewers open."""
