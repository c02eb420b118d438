"""Schedulers that decide who goes first: each file is one, and its name is the policy's name."""
