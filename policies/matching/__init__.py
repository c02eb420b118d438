"""Which job goes where: assignments of jobs to GPUs and to places in a sequence, as pure functions over arrays."""
