"""Speeds that are not known for sure: what is believed, and which measurements are worth their cost."""
