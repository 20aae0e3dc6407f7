"""The page of controllers and the code name the same ones."""

from __future__ import annotations

import re
from pathlib import Path

from haru.controllers.manager import CONTROLLERS

PAGE = Path(__file__).parents[2] / "docs/reference/controllers.md"
OWN = {"stale-gang-controller"}


def test_page_says_which_controllers_of_kubernetes_are_here() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (yes|no) \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    names = [name for name, _, _ in rows]
    assert names == sorted(set(names))
    assert {name for name, here, _ in rows if here == "yes"} == CONTROLLERS.keys() - OWN
    assert all(bool(why.strip()) == (here == "no") for _, here, why in rows)


def test_page_has_a_row_for_each_controller_of_1_36() -> None:
    assert len(re.findall(r"^\| `", PAGE.read_text(), re.MULTILINE)) == 49
