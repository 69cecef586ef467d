"""Which examples hypothesis draws: always the same ones, or at night those of a seed (`HOLDFAST_SEED`).

A failure of the night is repeated with the same seed: `HOLDFAST_SEED=2026331 ./task test tests/protocol/test_joint.py`.

Some examples are constants of the sources, which hypothesis reads. It leaves out files below a folder
`test` or `tests`, also if the whole clone is there. So it is told here which files are ours: what is drawn
must not depend on where a clone is.
"""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis.internal.conjecture import providers

import holdfast

FROZEN = "HOLDFAST_SEED" not in os.environ
SOURCES = Path(holdfast.__file__).parent


def is_ours(path: str) -> bool:
    """Does hypothesis draw constants of this file?"""
    return Path(path).is_relative_to(SOURCES)


assert "is_local_module_file" in vars(providers), "hypothesis has another name for it: tell it another way which files are ours"
setattr(providers, "is_local_module_file", is_ours)  # noqa: B010 (mypy knows it as a function of hypothesis's)
