"""Which tests have just failed, and may be asked once more, alone: those that wait for real servers, on a machine that was busy.

Prints them, one a line. Exit status 1 if there is none, or one among them that has no such excuse: then nothing is asked again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

REAL = ("tests/live/", "tests/contract/", "tests/fencing/", "tests/scripts/", "tests/nemesis/", "tests/test_docs.py", "tests/test_bench.py")
FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 5  # more than these are no bad luck


def excused(failed: list[str]) -> bool:
    """May they be asked once more?"""
    return 0 < len(failed) <= MOST and all(it.startswith(REAL) for it in failed)


if __name__ == "__main__":
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    print("\n".join(failed))
    sys.exit(not excused(failed))
