"""The numbers of a run: pure functions from its tables, a subject a file. The door is `analysis.metrics`."""
