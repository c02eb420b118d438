"""The catalogue: GPU types and links as they are sold, each figure with its source."""
