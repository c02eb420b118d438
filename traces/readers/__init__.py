"""One file a format: where the public file is, what its columns mean, and what they become."""
