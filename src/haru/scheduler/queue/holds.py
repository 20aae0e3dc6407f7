"""Who is held and why, found by unit and by the claims that they name: an event costs those whom it concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

UnitKey = tuple[str, str, str]
_NOBODY: Mapping[str, UnitKey] = MappingProxyType({})
_NONE: Mapping[str, None] = MappingProxyType({})


class Holds:
    """Pods that wait, by path: the claims that each names, and the message of those that are held."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self._unit_of: dict[str, UnitKey] = {}
        self._held: dict[UnitKey, dict[str, None]] = {}
        self._incomplete: dict[UnitKey, dict[str, None]] = {}
        self._claims_of: dict[str, tuple[str, ...]] = {}
        self._naming: dict[str, dict[str, UnitKey]] = {}
        self.messages: Mapping[str, str] = MappingProxyType(self._messages)

    def held_of(self, unit: UnitKey) -> Mapping[str, None]:
        """The pods of a unit that are held."""
        return self._held.get(unit, _NONE)

    def incomplete_of(self, unit: UnitKey) -> Mapping[str, None]:
        """The pods of a unit that are held because their group is missing or lacks members."""
        return self._incomplete.get(unit, _NONE)

    def naming(self, claim: str) -> Mapping[str, UnitKey]:
        """The pods that name a claim, held or not, with their units."""
        return self._naming.get(claim, _NOBODY)

    def know(self, unit: UnitKey, path: str, claims: Iterable[str]) -> None:
        """A pod of a unit waits, and names these claims."""
        named = tuple(claims)
        if self._claims_of.get(path, ()) == named and all(self._naming[claim][path] == unit for claim in named):
            return
        self._unname(path)
        if named:
            self._claims_of[path] = named
        for claim in named:
            self._naming.setdefault(claim, {})[path] = unit

    def hold(self, unit: UnitKey, path: str, message: str, *, incomplete: bool) -> None:
        """A pod of a unit is held; `incomplete`: because of its group."""
        self.free(path)
        self._messages[path] = message
        self._unit_of[path] = unit
        self._held.setdefault(unit, {})[path] = None
        if incomplete:
            self._incomplete.setdefault(unit, {})[path] = None

    def free(self, path: str) -> None:
        """A pod is held no longer."""
        if self._messages.pop(path, None) is None:
            return
        unit = self._unit_of.pop(path)
        for kept in (self._held, self._incomplete):
            paths = kept.get(unit, {})
            paths.pop(path, None)
            if not paths:
                kept.pop(unit, None)

    def forget(self, path: str) -> None:
        """A pod does not wait any more."""
        self.free(path)
        self._unname(path)

    def _unname(self, path: str) -> None:
        for claim in self._claims_of.pop(path, ()):
            naming = self._naming[claim]
            naming.pop(path, None)
            if not naming:
                del self._naming[claim]
