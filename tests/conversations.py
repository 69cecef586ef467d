"""Conversations as data: text files that say what happens, and what is said and decided then.

    # What the file is about.

    test_a_request_that_fails_moves_no_bound
    # Why, in a sentence, with its rule: Rule C4.
    for error = READONLY | MISCONF
    waits nodes=1; 0.1: 0 denied => queued at place 2
    3: wakes => request to 0
    3.1: 0 failed $error

Behind `=>` stands all that the last step of a line leads to. A step that leads to nothing shares a line with
the next one. What is too long for one line stands in lines below it, indented.
With `for`, a conversation is played once for each text that may stand for the word.
`for word, other = a, b | c, d` has two words.

pytest collects each conversation as a test:
`tests/protocol/claim/pushes.txt::test_a_request_that_fails_moves_no_bound`.

After a change that is meant, `./task vectors --rewrite` writes what is said and decided again. Read
the difference before you commit it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

LEADS_TO = " => "
INDENT = "    "
# Columns of a line that has more than one thing.
WIDTH = 140
# A step begins with its time.
_TIME = re.compile(r"-?[\d.]+: ")
_NEXT = re.compile(rf"; (?={_TIME.pattern})")
_NAME = re.compile(r"test_\w+")
_FOR = re.compile(r"for ([\w, ]+) = (.*)")

# Lets one line happen, and returns what that leads to. It is closed at the end, if it has a `close`.
Step = Callable[[str], Sequence[str]]
# The ways of playing a conversation, by their names: each begins one.
Ways = Callable[[str], Mapping[str, Callable[[], Step]]]


@dataclass(frozen=True)
class Conversation:
    """One conversation of a file. `line`: where its name stands; `text`: the lines below."""

    name: str
    line: int
    text: tuple[str, ...]

    def variants(self) -> Iterator[dict[str, str]]:
        """Return what stands for the words of `for`, in all combinations."""
        every = []
        for names, texts in (found.groups() for it in self.text if (found := _FOR.fullmatch(it))):
            words = names.split(", ")
            every.append([dict(zip(words, it.split(", ", len(words) - 1), strict=True)) for it in texts.split(" | ")])
        for chosen in product(*every):
            yield {word: text for it in chosen for word, text in it.items()}

    def meant(self, variant: Mapping[str, str]) -> list[str]:
        """Return the lines as they stand for a variant."""
        return [re.sub(r"\$(\w+)", lambda found: variant[found[1]], it) for it in self.text]


def read(text: str) -> list[Conversation]:
    """Return the conversations of a file."""
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if _NAME.fullmatch(line)]
    ends = [*starts[1:], len(lines)]
    return [Conversation(lines[at], at + 1, tuple(lines[at + 1 : end])) for at, end in zip(starts, ends, strict=True)]


def plays(it: Conversation, ways: Ways) -> Iterator[tuple[str, list[str], Callable[[], Step]]]:
    """Return a label for each variant and way of a conversation, its lines, and what begins it."""
    for variant in it.variants():
        meant = it.meant(variant)
        for way, begins in ways("\n".join(meant)).items():
            label = "-".join(filter(None, [way, *variant.values()]))
            yield f"[{label}]" if label else "", meant, begins


def played(lines: Sequence[str], step: Step) -> list[str]:
    """Return the lines with what they lead to now."""
    found: list[str] = []
    silent = False  # has the last line led to nothing yet, so that the next step may share it?
    for line in lines:
        for it in [] if line.startswith(INDENT) else _steps(line):
            happens = bool(it) and it[0] != "#" and not _FOR.fullmatch(it)
            try:
                said = step(it) if happens else ()
            except Exception as error:
                error.add_note(f"in the line {line!r}")
                raise
            if silent and _TIME.match(it) and len(LEADS_TO.join([found[-1] + "; " + it, "; ".join(said)])) <= WIDTH:
                it = found.pop() + "; " + it
            whole = it + LEADS_TO + "; ".join(said)
            found += [whole] if said and len(whole) <= WIDTH else [it, *_filled(said)]
            silent = happens and not said
    return found


def _steps(line: str) -> list[str]:
    # What happens in a line.
    return _NEXT.split(line.split(LEADS_TO)[0])


def _filled(said: Sequence[str]) -> list[str]:
    # Indented lines, with as much in each as fits.
    lines: list[str] = []
    for it in said:
        if lines and len(lines[-1]) + len("; ") + len(it) <= WIDTH:
            lines[-1] += "; " + it
        else:
            lines.append(INDENT + it)
    return lines


def _spread(lines: Sequence[str]) -> list[str]:
    # Each step, and below it what it leads to: how long a line is differs between variants.
    apart = [line if line.startswith(INDENT) else _NEXT.sub("\n", line) for line in lines]
    return [part for line in apart for part in line.replace(LEADS_TO, f"\n{INDENT}").replace("; ", f"\n{INDENT}").split("\n")]


def rewritten(text: str, ways: Ways) -> str:
    """Return the text of a file with what is said and decided now."""
    lines = text.splitlines()
    for it in reversed(read(text)):
        variant = next(it.variants())
        begins = next(iter(ways("\n".join(it.meant(variant))).values()))
        meant = it.meant(variant)
        now = played(meant, begins())
        # Where a variant's text stands in what is said, it stays.
        kept = dict(zip(meant, it.text, strict=True))
        same = _spread(now) == _spread(meant)
        lines[it.line : it.line + len(it.text)] = it.text if same else [kept.get(line, line) for line in now]
    return "\n".join(lines) + "\n"


class File(pytest.File):
    """A file of conversations. `ways`: how they are played."""

    def __init__(self, *, ways: Ways, **options: Any) -> None:
        super().__init__(**options)
        self.ways = ways

    def collect(self) -> Iterator[Item]:
        for it in read(self.path.read_text()):
            for label, meant, begins in plays(it, self.ways):
                yield Item.from_parent(self, name=it.name + label, conversation=it, meant=meant, begins=begins)


class Item(pytest.Item):
    """A conversation that is played in one way."""

    def __init__(self, *, conversation: Conversation, meant: list[str], begins: Callable[[], Step], **options: Any) -> None:
        super().__init__(**options)
        self.conversation, self.meant, self.begins = conversation, meant, begins

    def runtest(self) -> None:
        step = self.begins()
        try:
            check(self.meant, step)
        finally:
            getattr(step, "close", bool)()

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.conversation.line - 1, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Differs) else super().repr_failure(excinfo, style)


def collects(folder: Path, ways: Ways, kind: type[File] = File) -> Callable[[Path, pytest.Collector], File | None]:
    """Return the hook that collects the conversations in the folders below this one."""

    def collect(file_path: Path, parent: pytest.Collector) -> File | None:
        if file_path.suffix != ".txt" or file_path.parent.parent != folder:
            return None
        return kind.from_parent(parent, path=file_path, ways=ways)

    return collect


class Differs(AssertionError):
    """Something else is said or decided than the file has."""


def check(meant: Sequence[str], step: Step) -> None:
    """Play a conversation, and fail if it goes in another way."""
    was, now = _spread(meant), _spread(played(meant, step))
    if now != was:
        raise Differs("\n".join(it for it in difflib.ndiff(was, now) if it[0] != "?"))


def play(folder: Path, name: str, ways: Ways) -> None:
    """Play the conversation of this name, in all variants and ways."""
    (it,) = [it for file in folder.glob("*.txt") for it in read(file.read_text()) if it.name == name]
    for _, meant, begins in plays(it, ways):
        check(meant, begins())
