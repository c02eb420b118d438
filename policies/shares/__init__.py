"""Which share of its time each job deserves on each GPU type: linear programs as pure functions over arrays."""
