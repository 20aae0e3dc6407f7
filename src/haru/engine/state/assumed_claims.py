"""Claims as the scheduler left them, until the watch shows as much.

An attempt (a write under way) counts beside what the API took last: when it fails that counts again, though the watch
may still show what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]


@dataclass(eq=False, slots=True)
class AssumedClaim:
    """A claim: `written` once the API has taken it; `before` is what it took before that."""

    obj: Obj
    written: bool
    before: Obj | None = None

    def is_shown_by(self, live: Obj | None) -> bool:
        """Return whether the watch shows it."""
        if live is None:
            return False
        if live["metadata"].get("uid") != self.obj["metadata"].get("uid"):
            return True
        if self.written and _revision(self.obj):
            return _revision(live) >= _revision(self.obj)
        # An attempt carries the revision of the claim that it began with: older news of an allocation is not about it.
        return allocation_of(live) is not None and not 0 < _revision(live) <= _revision(self.obj)


class AssumedClaims:
    """The claims that are assumed to be other than the watch shows them, by path."""

    def __init__(self) -> None:
        self._known: dict[str, AssumedClaim] = {}

    def get(self, path: str) -> AssumedClaim | None:
        """Return the assumption about a claim, if there is one."""
        return self._known.get(path)

    def __iter__(self) -> Iterator[AssumedClaim]:
        return iter(self._known.values())

    def put(self, path: str, claim: Obj, live: Obj | None, *, written: bool) -> None:
        """Assume a claim; what the API has taken is known already where the watch shows it, or something younger."""
        if written and live is not None and _revision(live) >= _revision(claim) > 0:
            self._known.pop(path, None)
            return
        known, before = self._known.get(path), None
        if known is not None and not written:
            before = known.obj if known.written else known.before
        self._known[path] = AssumedClaim(claim, written, before)

    def take_back(self, path: str, assumed: Obj | None, live: Obj | None) -> bool:
        """End an assumption (only the given one) and return whether there was one. What the API took before counts."""
        current = self._known.get(path)
        if current is None or (assumed is not None and current.obj is not assumed):
            return False
        del self._known[path]
        if current.before is not None and live is not None:
            taken = AssumedClaim(current.before, written=True)
            if not taken.is_shown_by(live):
                self._known[path] = taken
        return True

    def shown(self, path: str, live: Obj) -> None:
        """The watch shows a claim."""
        known = self._known.get(path)
        if known is not None and known.is_shown_by(live):
            del self._known[path]

    def drop(self, path: str) -> None:
        """The claim is gone."""
        self._known.pop(path, None)


def allocation_of(claim: Obj | None) -> Any:
    """`status.allocation`, or None."""
    return ((claim or {}).get("status") or {}).get("allocation")


def _revision(obj: Obj) -> int:
    text = obj["metadata"].get("resourceVersion") or "0"
    return int(text) if text.isdigit() else 0
