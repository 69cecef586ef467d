"""What both faces share: everything but waiting.

Knows what users say and see: options, descriptions, what a lease knows of itself, events. Must not know threads or tasks.
"""
