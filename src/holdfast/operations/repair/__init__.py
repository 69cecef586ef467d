"""What is kept on a majority is copied to a node that has lost it."""
