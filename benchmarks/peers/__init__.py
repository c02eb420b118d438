"""Other simulators beside this one: the same jobs, GPUs and policy; what each takes, how far answers differ."""
