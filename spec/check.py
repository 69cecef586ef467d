"""Checks the model of the lock protocol with Spin: `./task spec`. Exits with 1 unless every verdict is the expected one.

Each run translates `spec/lock.pml`, compiles the verifier and visits every state within the bounds of the run. The first
runs are of the whole protocol, and must find nothing. In each of the others one rule is missing, and Spin must find the
property that this rule is for. `--whole` adds larger runs, which take long and up to `MEMORY` megabytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).parent / "lock.pml"
MEMORY = 6000  # megabytes for one run
DEFAULTS = {"CLIENTS": 2, "N": 3, "FENCES": 1, "BREAKS": 0, "RESTARTS": 0, "RENEWALS": 0, "LAPSES": 0}
HOLDS = "holds"


@dataclass(frozen=True)
class Run:
    """One run of the verifier: its bounds, the rule that is missing, and the verdict that is expected.

    `cycles` looks for endless runs, and for nothing else.
    """

    name: str
    bounds: dict[str, int]
    without: str = "0"
    expected: str = HOLDS
    cycles: bool = False


@dataclass(frozen=True)
class Result:
    """What the verifier found, and what it took."""

    verdict: str
    states: int
    depth: int
    seconds: float


NONE: dict[str, int] = {}
THREE = {"CLIENTS": 3}
THREE_SMALL = {"CLIENTS": 3, "FENCES": 0}
BREAK = {"BREAKS": 1, "FENCES": 0}
EXTENSION = {"RENEWALS": 1, "LAPSES": 1, "FENCES": 0}
QUICK = [
    Run("no faults", NONE),
]
LARGE = [
    Run("a break and fences", {"BREAKS": 1}),
]
# rule: bounds of the run in which it is missing, and the property that fails then.
MISSING: dict[str, tuple[dict[str, int], str]] = {
    "C1": (NONE, "S1"),
    "C2": (EXTENSION, "V"),
    "C3": (EXTENSION, "V"),
    "C5": (EXTENSION, "V"),
    "C6": (EXTENSION, "S2"),
    "F1": (NONE, "S2"),
    "F1_floor": ({"RESTARTS": 1}, "S2"),
    "F8": (NONE, "S2"),
    "F9": (NONE, "served"),
    "G1": ({"RESTARTS": 1, "FENCES": 0}, "S1"),
    "K5": ({"BREAKS": 1, "RENEWALS": 1, "LAPSES": 1, "FENCES": 0}, "V"),
    "Q1": (THREE_SMALL, "cycle"),
    "Q3": (NONE, "served"),
    "Q4": (NONE, "served"),
    "Q5": ({"BREAKS": 1, "RENEWALS": 1, "LAPSES": 1, "FENCES": 0}, "V"),
    "Q7": (THREE_SMALL, "served"),
    "Q8": (THREE_SMALL, "served"),
    "Q9": ({"RENEWALS": 1, "FENCES": 0}, "V"),
    "Q10": (BREAK, "V"),
    "Q11": ({"N": 1, "BREAKS": 1, "FENCES": 0}, "served"),
    "Q12": ({"BREAKS": 1, "FENCES": 0}, "served"),
    "Q16": (NONE, "V"),
    "T1": (NONE, "served"),
}
