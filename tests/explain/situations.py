"""Situations whose short form is golden text: each is a name and what is said of one object.

A module `situations_*.py` beside this one lists some as `SITUATIONS`; `situations_*.txt` is their text, recorded by
`HARU_RECORD=1 pytest tests/explain/test_situations.py`. Read the difference before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from explain_world import Obj, told

from haru.api.snapshot import Snapshot
from haru.explain import Explanation

Ask = Callable[[Snapshot, Sequence[Obj], str], Explanation]


def created(base: Snapshot, objects: Sequence[Obj], about: str) -> Explanation:
    """What is said once the objects are created in a cluster."""
    return told(base, *objects, about=about)


@dataclass(frozen=True)
class Situation:
    """A name that no other situation has, a cluster, what is put into it, and about what is asked."""

    name: str
    base: Callable[[], Snapshot]
    objects: tuple[Obj, ...]
    about: str
    ask: Ask = created

    def explanation(self) -> Explanation:
        return self.ask(self.base(), self.objects, self.about)

    def with_objects(self, objects: Sequence[Obj]) -> Situation:
        return replace(self, objects=tuple(objects))


def situation(name: str, base: Callable[[], Snapshot], *objects: Obj, about: str = "pod/p") -> Situation:
    """What is said of `about` once `objects` are created in a cluster."""
    return Situation(name, base, objects, about)
