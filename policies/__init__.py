"""What runs where: the schedulers, one file each, and what they are made of."""
