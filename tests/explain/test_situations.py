"""Every situation has exactly the short form that is recorded for it, in five lines."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
from situations import Situation

HERE = Path(__file__).parent
MODULES = sorted(path.stem for path in HERE.glob("situations_*.py"))
BY_MODULE: dict[str, list[Situation]] = {name: importlib.import_module(name).SITUATIONS for name in MODULES}
EVERY = [(module, one) for module, listed in BY_MODULE.items() for one in listed]
HEAD = "== "


def recorded(module: str) -> dict[str, str]:
    """The text of each situation of a module, by its name."""
    path = HERE / f"{module}.txt"
    found: dict[str, str] = {}
    for part in f"\n{path.read_text() if path.exists() else ''}".split(f"\n{HEAD}")[1:]:
        name, _, text = part.partition("\n")
        found[name] = text.strip("\n")
    return found


def short_form(one: Situation) -> str:
    return one.explanation().short()


def test_names_of_situations_are_unique() -> None:
    names = [one.name for _, one in EVERY]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("module", MODULES)
def test_recorded_situations_are_those_of_the_module(module: str) -> None:
    if os.environ.get("HARU_RECORD") == "1":
        text = "\n".join(f"{HEAD}{one.name}\n{short_form(one)}\n" for one in BY_MODULE[module])
        (HERE / f"{module}.txt").write_text(text)
    assert list(recorded(module)) == [one.name for one in BY_MODULE[module]]


@pytest.mark.parametrize(("module", "one"), EVERY, ids=[one.name for _, one in EVERY])
def test_situation_has_recorded_short_form(module: str, one: Situation) -> None:
    text = short_form(one)
    assert text == recorded(module).get(one.name), "HARU_RECORD=1 pytest tests/explain/test_situations.py records it"
    assert len(text.splitlines()) <= 5
