"""Cached values that one client computes for all."""
