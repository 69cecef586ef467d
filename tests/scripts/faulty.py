"""Scripts with a planted fault."""

from __future__ import annotations

from holdfast.scripts import Script, bare


def with_source(script: Script, source: bytes) -> Script:
    """Return the script with another text, and so with the digest of that text."""
    return Script(script.name, source, script.keys, script.arguments)


def planted(script: Script, text: str, other: str) -> Script:
    """Return the script with `other` in place of `text`, which it must contain exactly once.

    Both may be written as in the script's file, with indentation.
    """
    there = bare(text.encode())
    count = script.source.count(there)
    assert count == 1, f"{script.name} has {text!r} {count} times: change the planted fault with the script"
    return with_source(script, script.source.replace(there, bare(other.encode())))
