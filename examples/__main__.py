"""Lists the examples, and runs the one that is named: `./task demo naive_lock`."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
FILES = sorted(it for it in HERE.glob("*.py") if not it.name.startswith("_"))


def about(file: Path) -> str:
    """The first line of an example's docstring."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def main(words: list[str]) -> int:
    names = {it.stem: it for it in FILES}
    if not words or words[0] in ("-h", "--help"):
        print("Each example plays what breaks in a lock as people build it, then the same with holdfast:\n")
        for name, file in names.items():
            print(f"  ./task demo {name:19}  {about(file)}")
        return 0
    if words[0] not in names:
        print(f"there is no example {words[0]!r}. There are: {', '.join(names)}", file=sys.stderr)
        return 64
    file = names[words[0]]
    sys.argv = [str(file), *words[1:]]
    sys.path[0] = str(HERE)
    runpy.run_path(str(file), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
