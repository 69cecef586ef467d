"""Draw the histories that docs/site/scenes.py has lived through in the simulator. `./task site picture history`.

Knows what a history has: lanes, beliefs, faults and messages. Must not know the protocol. Each picture can be drawn again
from the committed history, to the last byte.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frame import Frame  # beside this file

ROOT = Path(__file__).parents[2]
HISTORIES = ROOT / "docs/site/histories"
FOLDER = Path(__file__).parent
DRAWN = ("queue", "lost", "fenced", "guarded", "rolling")  # those that a page shows as a picture
WIDTH, LEFT, RIGHT = 880, 128, 852
TOP, STEP, FOOT = 116, 54, 84
SENT = {
    "ask": "requests and renewals",
    "yes": "grants",
    "no": "refusals",
    "give": "releases",
    "push": "wake-ups",
    "taken": "writes",
}
TOLD = ("state", "fault", "taken", "refused", "bad")  # the kinds of steps that a screen reader reads
STYLE = """
    .hf .message { stroke-width: 1.4; stroke-opacity: .8 } .hf .end { stroke: none }
    .hf .ask, .hf .renew { stroke: var(--blue); fill: var(--blue) } .hf .yes { stroke: var(--green); fill: var(--green) }
    .hf .no { stroke: var(--grey); fill: var(--grey) } .hf .give { stroke: var(--purple); fill: var(--purple) }
    .hf .taken { stroke: var(--ink); fill: var(--ink); stroke-width: 2 }
    .hf .refused, .hf .bad { stroke: var(--red); fill: var(--red); stroke-width: 2 } .hf .refused { stroke-dasharray: 5 3 }
    .hf .push, .hf .make { stroke: var(--orange); fill: var(--orange) } .hf .never { stroke-dasharray: 3 4 }
    .hf .has { fill: var(--green) } .hf .wants { fill: var(--card); stroke: var(--tick); stroke-dasharray: 4 3 }
    .hf .gone, .hf .wrong { fill: var(--red) } .hf .A { fill: var(--blue) } .hf .B { fill: var(--purple) } .hf .C { fill: var(--orange) }
    .hf .fault { fill: var(--broken); stroke: var(--red); stroke-dasharray: 5 4 }
    .hf .alone { fill: var(--warned); stroke: var(--warn); stroke-dasharray: 6 4 }
    .hf text.alone-text { fill: var(--warn); font-size: 13px }
    .hf text.fault-text { fill: var(--red); font-size: 13px; font-weight: 600 }"""


def spans(history: dict[str, Any], lane: str) -> list[tuple[float, float, str, str]]:
    """What a lane believed: since when, until when, its state, and its words."""
    known = history["beliefs"][lane]
    ends = [it[0] for it in known[1:]] + [history["seconds"]]
    return [(since, end, state, words) for (since, state, words), end in zip(known, ends, strict=True)]


def draw(history: dict[str, Any]) -> str:
    """The picture of a history."""
    lanes = {lane: TOP + STEP * at for at, lane in enumerate(history["lanes"])}
    height = TOP + STEP * len(lanes) + FOOT - STEP // 2
    frame = Frame(WIDTH, height, history["title"], history["shows"])

    def x(at: float) -> float:
        seconds: float = history["seconds"]
        return round(LEFT + (RIGHT - LEFT) * min(at, seconds) / seconds, 1)

    for lane, y in lanes.items():
        frame.text("name", 24, y + 5, lane)
        frame.line("lane", LEFT, y, RIGHT, y)
    for fault in history["faults"]:
        y, wide = lanes[fault["lane"]], x(fault["ends"]) - x(fault["begins"])
        frame.box("fault", x(fault["begins"]), y - 20, max(wide, 4), 40)
    # Bars of nodes lie under the messages, and bars of clients above them, so that both can be read.
    for above in (False, True):
        for lane, y in lanes.items():
            for since, end, state, words in spans(history, lane):
                if lane.startswith("node") is not above:
                    _bar(frame, x(since), x(end), y, state, words)
        if not above:
            for it in history["messages"]:
                _message(frame, x, lanes, it)
    for fault in history["faults"]:
        y, at = lanes[fault["lane"]], x(fault["begins"])
        right = at > (LEFT + RIGHT) * 0.7
        frame.text("fault-text right" if right else "fault-text", x(fault["ends"]) if right else at, y - 23, fault["text"])
    for it in history["steps"]:
        if it["kind"] in ("refused", "bad"):
            frame.text("fault-text right", x(it["at"]) - 6, lanes[it["lane"]] - 18, it["text"])
    axis = height - 66
    _axis(frame, x, axis, history["seconds"])
    _legend(frame, height - 18, history)
    return frame.done(history["name"], described(history), "docs/pictures/history.py (`./task site picture history`)", STYLE)


def _bar(frame: Frame, left: float, right: float, y: float, state: str, words: str) -> None:
    """What is believed for a while."""
    wide = right - left
    if state == "asks":
        frame.box("wants", left, y - 12, wide, 24)
        if wide > 110:
            frame.text("small", left + 8, y + 5, "waits")
    elif state == "guarded":
        frame.box("alone", left, y - 12, wide, 24)
        if wide > 250:
            frame.text("alone-text", left + 8, y + 5, words)
        elif wide > 80:
            frame.text("alone-text", left + 8, y + 5, "left alone")
    elif state in ("held", "bad"):
        who = next((it for it in "ABC" if words == f"has {it}'s lease"), "")
        high = 14 if who else 24
        kind = who or ("wrong" if state == "bad" else "has")
        frame.box(kind, left, y - high / 2, wide, high)
        for shown in () if who else (words, words.rpartition(", ")[2]):
            if wide > 7.5 * len(shown) + 12:
                frame.text("in", left + 8, y + 5, shown)
                break
    elif state == "lost":
        frame.box("gone", left, y - 12, 6, 24)
        if wide > 7 * len(words) + 12:
            frame.text("small", left + 12, y + 5, words)


def _message(frame: Frame, x: Any, lanes: dict[str, int], it: dict[str, Any]) -> None:
    """A message on its way."""
    y1, y2 = lanes[it["from"]], lanes[it["to"]]
    if it["lands"] is None:
        left = x(it["leaves"])
        frame.line(f"message never {it['kind']}", left, y1, min(left + 6, RIGHT), round(y1 + (y2 - y1) / 3, 1))
        return
    frame.line(f"message {it['kind']}", x(it["leaves"]), y1, x(it["lands"]), y2)
    frame.put(f'<circle class="end {it["kind"]}" cx="{x(it["lands"]):g}" cy="{y2}" r="2.6"/>')


def _axis(frame: Frame, x: Any, y: float, seconds: float) -> None:
    """Time."""
    frame.line("tick", LEFT, y, RIGHT, y)
    step = next(it for it in (0.1, 0.2, 0.5, 1, 2, 5) if seconds / it <= 10)
    for at in range(int(seconds / step) + 1):
        frame.line("tick", x(at * step), y, x(at * step), y + 5)
        frame.text("small mid", x(at * step), y + 20, f"{at * step:g} s" if at == 0 else f"{at * step:g}")


def _legend(frame: Frame, y: float, history: dict[str, Any]) -> None:
    """What the colours of messages and of nodes' bars mean."""
    left = 24.0
    for kind, label in SENT.items():
        if any(it["kind"] == kind for it in history["messages"]):
            frame.put(f'<circle class="end {kind}" cx="{left + 5:g}" cy="{y - 5:g}" r="5"/>')
            frame.text("small", left + 15, y, label)
            left += 32 + 7 * len(label)
    for who in "ABC":
        if who in history["lanes"]:
            frame.box(who, left, y - 11, 16, 12)
            frame.text("small", left + 22, y, f"{who}'s lease")
            left += 100


def described(history: dict[str, Any]) -> str:
    """The history in sentences."""
    told = [f"After {it['at']:.2f} s, {it['text']}." for it in history["steps"] if it["kind"] in TOLD]
    return " ".join([history["about"], *told, history["shows"]])


def read(name: str) -> dict[str, Any]:
    """A committed history."""
    found: dict[str, Any] = json.loads((HISTORIES / f"{name}.json").read_text())
    return found


def main() -> None:
    """Draw the pictures of docs/pictures from the committed histories."""
    for name in DRAWN:
        (FOLDER / f"{name}.svg").write_text(draw(read(name)))
        print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
