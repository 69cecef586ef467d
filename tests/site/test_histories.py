"""The histories of the interactive page, and their pictures, are what the simulator and the drawing say, and show what they claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import build
import frame
import history
import pytest
import scenes

pytestmark = pytest.mark.pages

SVG = "{http://www.w3.org/2000/svg}"
PICTURES = Path(__file__).parents[2] / "docs/pictures"
NAMES = [it.__name__ for it in scenes.SCENES]


@pytest.mark.parametrize("make", scenes.SCENES, ids=NAMES)
def test_the_simulator_still_writes_the_committed_history(make: Any) -> None:
    lived = scenes.live(make)
    assert lived["name"] == make.__name__
    assert scenes.text(lived) == (scenes.FOLDER / f"{make.__name__}.json").read_text()
    assert list(scenes.complaints(lived)) == []


def test_without_its_guard_the_guarded_history_has_two_holders() -> None:
    def planted() -> Any:
        scene, main = scenes.unguarded()
        scene.name = "guarded"
        return scene, main

    assert any("two clients believe" in it for it in scenes.complaints(scenes.live(planted)))


@pytest.mark.parametrize("name", history.DRAWN)
def test_a_picture_is_what_its_history_looks_like(name: str) -> None:
    assert history.draw(history.read(name)) == (PICTURES / f"{name}.svg").read_text()


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda it: it.stem)
def test_all_pictures_have_one_frame_and_a_text_for_screen_readers(picture: Path) -> None:
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    labels = (root.get("aria-labelledby") or "").split()
    assert (root.get("role"), root.get("class")) == ("img", "hf")
    assert labels == [it.get("id") for it in (root.find(f"{SVG}title"), root.find(f"{SVG}desc")) if it is not None]
    assert len(root.findtext(f"{SVG}desc") or "") > 200
    # Readers without variables see the light theme.
    assert "var(" not in text.partition(f"@supports (fill: var(--ink)) {{\n    {frame.colours('.hf', frame.LIGHT)}")[0]
    assert f"prefers-color-scheme: dark) {{ {frame.colours('.hf', frame.DARK)}" in text
    assert text.count("http") == 1, "only the name space: nothing is loaded from anywhere"
    wide, high = int(root.attrib["width"]), int(root.attrib["height"])
    for line in root.iter(f"{SVG}line"):
        assert all(0 <= float(line.attrib[it]) <= most for it, most in (("x1", wide), ("x2", wide), ("y1", high), ("y2", high)))


def test_the_page_loads_all_histories_with_their_pictures() -> None:
    first, second, end = build.played().split("\n")
    assert end == ""
    assert [it["name"] for it in json.loads(first.removeprefix("var histories = "))] == NAMES
    assert list(json.loads(second.removeprefix("var pictures = "))) == NAMES
