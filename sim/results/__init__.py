"""What a run leaves: the tables, their columns, and the folder that holds them."""
