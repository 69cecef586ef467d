"""Who holds and who waits, and a release by force."""
