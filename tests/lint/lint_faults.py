"""Reads tests/data/lint/faults.txt: manifests with one planted fault each, and the finding that must be made."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "data"


class Fault(NamedTuple):
    check: str
    path: str
    suggestion: str
    text: str


def faults() -> list[Fault]:
    found = []
    for block in (DATA / "lint" / "faults.txt").read_text().split("\n=== ")[1:]:
        head, _, text = block.partition("\n")
        place, _, suggestion = head.partition(" | ")
        check, _, path = place.partition(" ")
        found.append(Fault(check, path.strip(), suggestion.strip(), text + "\n"))
    return found
