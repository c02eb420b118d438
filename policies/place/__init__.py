"""Operator placement: which device runs each operator of one training step, and in which order."""
