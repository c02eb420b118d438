"""What is asked of the recommender, and the world that any answer is judged in."""
