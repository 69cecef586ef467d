"""All locks, a batch at a time."""
