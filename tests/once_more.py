"""Which tests have just failed, and may be asked once more, alone: those that wait for servers or clocks, on a machine that was busy.

Prints them, one a line, with those that failed beside them: what a failed test leaves open is collected in the middle of another one, whose
fault it then seems. Exit status 1 if none has such an excuse, or too many failed: then nothing is asked again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# Where nothing waits for a server or a clock: whatever fails there is a fault.
PURE = tuple(f"tests/{it}/" for it in ("protocol", "wire", "engine", "model", "sim", "swarm"))
CACHE = ".pytest_cache"  # where pytest notes what failed, unless an argument names another folder
MOST = 5  # more than these are no bad luck


def excused(failed: list[str]) -> bool:
    """May they be asked once more?"""
    return len(failed) <= MOST and not all(it.startswith(PURE) for it in failed)


if __name__ == "__main__":
    noted = Path(*(sys.argv[1:] or [CACHE]), "v/cache/lastfailed")
    failed = sorted(json.loads(noted.read_text())) if noted.exists() else []
    print("\n".join(failed))
    sys.exit(not excused(failed))
