"""Made-up workloads with the statistics of published ones."""
