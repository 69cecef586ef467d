"""Frameworks: what a decorator alone cannot do there. One module for each.

Each module knows its own framework and the public names of holdfast. Nothing is imported here: a
program imports the module of the framework that it uses.
"""
