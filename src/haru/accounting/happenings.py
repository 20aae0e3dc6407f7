"""What a history keeps of preemptions, evictions and faults: each once, faults with their beginning and end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from haru.explain.happenings import Happening


class HappeningMeter:
    """Tells what is new of what is observed."""

    def __init__(self) -> None:
        self._told: set[Happening] = set()
        self._lasting: dict[str, dict[tuple[str, ...], Happening]] = {}

    def moments(self, moments: Iterable[Happening]) -> list[Happening]:
        """Take all moments that are told of now; return what is new."""
        found = set(moments)
        new = sorted(found - self._told)
        self._told = found  # an event that is deleted does not come again
        return new

    def faults(self, changed: Mapping[str, Iterable[Happening]], now: int) -> list[Happening]:
        """Take the faults of what has changed, by what they are of; return what began to last and what has ended."""
        told: list[Happening] = []
        for about, faults in changed.items():
            before, lasting = self._lasting.get(about, {}), {each.key: each for each in faults}
            told += [_ended(known, now) for key, known in before.items() if key not in lasting]
            told += [each for key, each in lasting.items() if key not in before]
            kept = {key: before.get(key, each) for key, each in lasting.items()}
            if kept:
                self._lasting[about] = kept
            else:
                self._lasting.pop(about, None)
        return told

    def stop(self, now: int) -> list[Happening]:
        """End what lasts: what follows is not observed."""
        return self.faults(dict.fromkeys(list(self._lasting), ()), now)


def _ended(fault: Happening, now: int) -> Happening:
    return fault._replace(ended=max(now, fault.began + 1))
