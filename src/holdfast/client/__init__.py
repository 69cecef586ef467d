"""The clients: what makes all descriptions, with threads and with asyncio.

Knows every primitive and every operation. Nothing but `holdfast`, `holdfast.aio` and their guests
imports it.
"""


def at_first_use(half: str) -> dict[str, list[str]]:
    """Return the names that a client shows beside its locks, by the module that has them.

    Args:
        half: Of which half of the face: `sync` or `aio`.
    """
    return {
        f".face.{half}.semaphore": ["Semaphore"],
        f".operations.survey.{half}": ["Survey"],
        f".primitives.election.{half}": ["Election", "Leadership", "Observation"],
        f".primitives.fill.{half}": ["Fill"],
        f".primitives.latch.{half}": ["Barrier", "Latch"],
        f".primitives.once.{half}": ["Once"],
        f".primitives.rate.{half}": ["Rate"],
    }
