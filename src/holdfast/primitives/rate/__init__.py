"""Limits of rates."""
