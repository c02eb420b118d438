"""From a trace to work: which jobs run, and how they advance."""
