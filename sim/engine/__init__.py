"""The loop, its books, its referee, and what breaks."""
