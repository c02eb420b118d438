"""What keeps the house in order: its checks, and the index of its files."""
