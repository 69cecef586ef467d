"""Elections: who leads, and what the leader says."""
