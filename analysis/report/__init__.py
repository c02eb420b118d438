"""The report: one HTML page of runs that needs nothing but itself, and the stories of single jobs."""
