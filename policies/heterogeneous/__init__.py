"""Schedulers that know how fast each job is on each GPU type."""
