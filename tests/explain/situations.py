"""Situations whose short form is golden text: each is a name and what is said of one object.

A module `situations_*.py` beside this one lists some as `SITUATIONS`; `situations_*.txt` is their text, recorded by
`HARU_RECORD=1 pytest tests/explain/test_situations.py`. Read the difference before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from explain_world import Obj, told

from haru.api.snapshot import Snapshot
from haru.explain import Explanation


@dataclass(frozen=True)
class Situation:
    """A name that no other situation has, and how the explanation comes about."""

    name: str
    explanation: Callable[[], Explanation]
    base: Callable[[], Snapshot] | None = None
    objects: tuple[Obj, ...] = ()
    about: str = ""
    """What it consists of, where it can be played on a cluster."""


def situation(name: str, base: Callable[[], Snapshot], *objects: Obj, about: str = "pod/p") -> Situation:
    """What is said of `about` once `objects` are created in a cluster."""
    return Situation(name, lambda: told(base(), *objects, about=about), base, objects, about)
