"""Many runs out of one file: a grid of settings, played by processes or by a Dask cluster into one dataset."""
