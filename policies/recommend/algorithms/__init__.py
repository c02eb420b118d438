"""Algorithms that know no truth: arrays in, cuts, shares and placements out."""
