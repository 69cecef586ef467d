"""Latches and barriers."""
