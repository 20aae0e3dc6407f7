"""The reference's search written down naively, on plain objects: no pruning, no memory, no sharing of work.

It knows one driver, attributes given as scalars, selectors out of a small table, and nothing of pools beyond their
order. What it answers is what the allocator must answer, choice by choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from device_objects import DRIVER

Obj = dict[str, Any]

SELECTORS = {
    f"device.attributes['{DRIVER}'].?model.orValue('') == 'x'": lambda d: d.get("model") == "x",
    f"'root' in device.attributes['{DRIVER}']": lambda d: "root" in d,
}
FAULTY = f"device.attributes['{DRIVER}'].model == 'x'"


class Abort(Exception):
    """The attempt ends in an error."""


class TooMany(Exception):
    """Only the limit of 32 stands in the way."""


@dataclass
class World:
    """Devices in order, as plain dicts, and what is taken."""

    devices: list[Obj]
    counters: dict[str, int]
    allocated: set[str]
    claims: list[Obj]
    limit: int = 32
    picks: list[list[tuple[str, str]]] = field(default_factory=list)
    shares: dict[str, int] = field(default_factory=dict)

    def solve(self) -> list[list[tuple[str, str]]] | None:
        self.picks = [[] for _ in self.claims]
        for claim in self.claims:
            self._check(claim)
        try:
            return self.picks if self._claim(0) else None
        except TooMany:
            return None

    def _check(self, claim: Obj) -> None:
        least = 0
        for request in claim["spec"]["devices"]["requests"]:
            asks = self._asks(request)
            for _, ask in asks:
                if ask["allocationMode"] == "All":
                    ask["all"] = [d for d in self.devices if self._selected(d, ask) and self._room(d, ask)]
            least += min(self._needed(ask) for _, ask in asks)
        if least > self.limit:
            raise Abort("limit")

    def _asks(self, request: Obj) -> list[tuple[str, Obj]]:
        if "exactly" in request:
            return [(request["name"], request["exactly"])]
        return [(f"{request['name']}/{ask['name']}", ask) for ask in request["firstAvailable"]]

    def _needed(self, ask: Obj) -> int:
        return len(ask["all"]) if ask["allocationMode"] == "All" else ask["count"]

    def _claim(self, number: int) -> bool:
        if number == len(self.claims):
            return True
        try:
            return self._request(number, 0)
        except TooMany:
            if number == 0:
                raise
            return False

    def _request(self, claim: int, number: int) -> bool:
        requests = self.claims[claim]["spec"]["devices"]["requests"]
        if number == len(requests):
            return self._claim(claim + 1)
        asks = self._asks(requests[number])
        if "exactly" in requests[number]:
            return self._device(claim, number, *asks[0], 0, 0)
        limited = True
        for name, ask in asks:
            try:
                if self._device(claim, number, name, ask, 0, 0):
                    return True
                limited = False
            except TooMany:
                continue
        if limited:
            raise TooMany
        return False

    def _device(self, claim: int, request: int, name: str, ask: Obj, done: int, start: int) -> bool:
        every = ask["allocationMode"] == "All"
        if every and not ask["all"]:
            return False
        needed = self._needed(ask)
        if done == needed:
            return self._request(claim, request + 1)
        if len(self.picks[claim]) + needed - done > self.limit:
            raise TooMany
        for index, device in self._candidates(ask, done, start):
            if self._in_use(claim, device, ask):
                if every:
                    return False
                continue
            if not every and not (self._selected(device, ask) and self._room(device, ask)):
                continue
            # Whether one of all devices has room for another share is asked after the constraints, which may abort.
            if not self._allowed(claim, name, device, ask, must=every) or not self._room(device, ask):
                if every:
                    return False
                continue
            self._pick(claim, name, device, ask, 1)
            try:
                if self._device(claim, request, name, ask, done + 1, index + 1):
                    return True
            except TooMany:
                self._pick(claim, name, device, ask, -1)
                raise
            self._pick(claim, name, device, ask, -1)
            if every:
                return False
        return False

    def _candidates(self, ask: Obj, done: int, start: int) -> Iterator[tuple[int, Obj]]:
        if ask["allocationMode"] == "All":
            yield 0, ask["all"][done]
        else:
            yield from list(enumerate(self.devices))[start:]

    def _in_use(self, claim: int, device: Obj, ask: Obj) -> bool:
        name = device["name"]
        if device.get("slots") is not None:
            return name in self.allocated and not ask.get("adminAccess")
        if ask.get("adminAccess"):
            return any(name == picked for _, picked in self.picks[claim])
        return name in self.allocated or any(name == picked for picks in self.picks for _, picked in picks)

    def _selected(self, device: Obj, ask: Obj) -> bool:
        for selector in ask.get("selectors", ()):
            expression = selector["cel"]["expression"]
            if expression == FAULTY:
                if "model" not in device["attributes"]:
                    raise Abort("no such key: model")
                if device["attributes"]["model"] != "x":
                    return False
            elif not SELECTORS[expression](device["attributes"]):
                return False
        return True

    def _wanted(self, device: Obj, ask: Obj) -> int:
        slots: int = device.get("slots") or 0
        asked: int | None = ask.get("capacity", {}).get("requests", {}).get("slots")
        return slots if asked is None else int(asked)

    def _room(self, device: Obj, ask: Obj) -> bool:
        if ask.get("capacity") and device.get("slots") is None:
            return False
        if device.get("slots") is None:
            return True
        used: int = self.shares.get(device["name"], 0)
        return used + self._wanted(device, ask) <= device["slots"]

    def _allowed(self, claim: int, name: str, device: Obj, ask: Obj, must: bool) -> bool:
        for counter, amount in device["consumes"].items():
            if self.counters[counter] < amount:
                return False
        if device.get("taint") and not ask.get("tolerations"):
            return False
        for constraint in self.claims[claim]["spec"]["devices"].get("constraints", ()):
            listed = constraint.get("requests")
            if listed and name not in listed and name.split("/")[0] not in listed:
                continue
            attribute = (constraint.get("matchAttribute") or constraint["distinctAttribute"]).split("/")[1]
            others = [
                next(d for d in self.devices if d["name"] == picked)["attributes"].get(attribute)
                for picker, picked in self.picks[claim]
                if not listed or picker in listed or picker.split("/")[0] in listed
            ]
            value = device["attributes"].get(attribute)
            agrees = all(o == value for o in others) if "matchAttribute" in constraint else value not in others
            if value is None or not agrees:
                if must:
                    raise Abort("claim constraint")
                return False
        return True

    def _pick(self, claim: int, name: str, device: Obj, ask: Obj, sign: int) -> None:
        for counter, amount in device["consumes"].items():
            self.counters[counter] -= sign * amount
        if device.get("slots") is not None:
            used = self.shares.get(device["name"], 0)
            self.shares[device["name"]] = used + sign * self._wanted(device, ask)
        if sign > 0:
            self.picks[claim].append((name, device["name"]))
        else:
            self.picks[claim].pop()
