"""From raw trace files, or published statistics, to one checked table of jobs."""
