"""What a history keeps of preemptions, evictions and faults: each once, faults with their beginning and end. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from haru.explain.happenings import Happening


class HappeningMeter:
    """Tells what is new of what is observed."""

    def __init__(self) -> None:
        self._told: set[Happening] = set()
        self._lasting: dict[tuple[str, ...], Happening] = {}

    def observe(self, moments: Iterable[Happening], faults: Iterable[Happening], now: int) -> list[Happening]:
        """Take what there is now; return what is new, what began to last and what has ended."""
        found = set(moments)
        told = sorted(found - self._told)
        self._told = found  # an event that is deleted does not come again
        lasting = {each.key: each for each in faults}
        for key in self._lasting.keys() - lasting.keys():
            known = self._lasting.pop(key)
            told.append(known._replace(ended=max(now, known.began + 1)))
        for key in lasting.keys() - self._lasting.keys():
            self._lasting[key] = lasting[key]
            told.append(lasting[key])
        return told

    def stop(self, now: int) -> list[Happening]:
        """End what lasts: what follows is not observed."""
        return self.observe(self._told, (), now)
