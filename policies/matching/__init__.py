"""Which job goes where: assignments and integer programs, of jobs to GPUs and to places in a sequence; arrays only."""
