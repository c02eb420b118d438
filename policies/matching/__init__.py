"""Which job gets which GPUs: assignments and integer programs as pure functions over arrays."""
