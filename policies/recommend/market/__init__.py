"""The cluster as a market: GPUs have prices, and a job takes the plan that costs it least."""
