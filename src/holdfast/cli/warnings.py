"""What is said of an unsafe set-up, also without `-v`.

If nobody reads it, two commands may run at once. Knows the client's warnings. Must
not know verbs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events import Event, NodeEvent
from .output import VERBOSE, Output, in_shells

if TYPE_CHECKING:
    from collections.abc import Callable


def warnings_to(output: Output, name: str) -> Callable[[Event], None]:
    """Make an observer that says each warning once. Nodes that are down and the like are for `-v`.

    Args:
        output: Says it. With `-v` the library's log does.
        name: What the command is run for.
    """
    said: set[str] = set()

    def observe(event: Event) -> None:
        # Several nodes warn of the same.
        if not isinstance(event, NodeEvent) or event.state != "warned" or event.warning in said:
            return
        said.add(event.warning)
        output.note("warned", {"name": name, "node": event.node, "about": event.about, "warning": event.warning})
        if output.level < VERBOSE:
            output.clear()
            output.say(f"{event.node}: {in_shells(event.warning)}")

    return observe
