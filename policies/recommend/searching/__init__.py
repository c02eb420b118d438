"""The search: from a request to plans that were judged, the best of them, and why there is none."""
