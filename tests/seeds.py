"""Which examples hypothesis draws: always the same ones, or at night those of a seed (`HOLDFAST_SEED`).

A failure of the night is repeated with the same seed: `HOLDFAST_SEED=2026331 ./task test tests/core/test_goal.py`.
"""

from __future__ import annotations

import os

FROZEN = "HOLDFAST_SEED" not in os.environ
