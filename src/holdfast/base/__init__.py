"""What both faces share: everything but waiting.

Knows what users say and see: options, descriptions, what a lease knows of itself, events. Must not
know threads or tasks.
"""

# Of either face: what it shows beside the locks, by the module that has it, which is loaded when
# somebody asks for one of these.
PRIMITIVES = {
    ".election": ["Election", "Leadership", "Observation"],
    ".fill": ["Fill"],
    ".latch": ["Barrier", "Latch"],
    ".once": ["Once"],
    ".rate": ["Rate"],
    ".semaphore": ["Semaphore"],
    ".survey": ["Survey"],
}
