"""What is there: nodes, GPU types, links, prices, and what changes while a run goes on."""
