"""What is done once: the result that is kept, and who may compute it."""
