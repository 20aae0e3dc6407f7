"""Every choice of devices in the order of preference, each judged as a whole: the first complete one that holds wins.

Nothing is shared with the engine, and no state is kept: a choice is a list of picks, and `holds` checks all conditions
of the API on it. Choices are left out only where the picks of their first requests do not hold already. Good for up to
seven devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from device_objects import DRIVER
from small_problems import BIG, HAS_ROOT, MODEL_X

Obj = dict[str, Any]


class Pick(NamedTuple):
    claim: int
    request: str
    name: str
    ask: Obj
    device: int


class World:
    """The devices of a problem in the order in which they are tried."""

    def __init__(self, problem: Obj) -> None:
        self.devices: list[Obj] = []
        self.pools: list[str] = []
        self.counters: dict[tuple[str, str, str], int] = {}
        for item in sorted(problem["slices"], key=lambda s: (s["spec"]["pool"]["name"], s["metadata"]["name"])):
            pool = item["spec"]["pool"]["name"]
            for entry in item["spec"].get("devices", ()):
                self.devices.append(entry)
                self.pools.append(pool)
            for entry in item["spec"].get("sharedCounters", ()):
                for name, counter in entry["counters"].items():
                    self.counters[pool, entry["name"], name] = int(counter["value"])
        taken = {(t["pool"], t["device"]) for t in problem["taken"]}
        self.taken = {i for i, d in enumerate(self.devices) if (self.pools[i], d["name"]) in taken}
        self.claims: list[Obj] = problem["claims"]
        self.used: dict[int, int] = {}
        for entry in problem.get("shares", ()):
            index = next(
                i for i, d in enumerate(self.devices) if (self.pools[i], d["name"]) == (entry["pool"], entry["device"])
            )
            self.used[index] = entry["slots"]
        left = dict(self.counters)
        for index in self.taken:
            for key, amount in self.charges(index):
                left[key] -= amount
        self.overdrawn = {key[0] for key, value in left.items() if value < 0}

    def charges(self, index: int) -> list[tuple[tuple[str, str, str], int]]:
        return [
            ((self.pools[index], entry["counterSet"], name), int(counter["value"]))
            for entry in self.devices[index].get("consumesCounters", ())
            for name, counter in entry["counters"].items()
        ]

    def attribute(self, index: int, name: str) -> object:
        return self.devices[index].get("attributes", {}).get(name.removeprefix(f"{DRIVER}/"))

    def slots(self, index: int) -> int | None:
        value = self.devices[index].get("capacity", {}).get("slots")
        return None if value is None else int(value["value"])

    def shareable(self, index: int) -> bool:
        return bool(self.devices[index].get("allowMultipleAllocations"))

    def selected(self, index: int, ask: Obj) -> bool:
        for selector in ask.get("selectors", ()):
            expression = selector["cel"]["expression"]
            if expression == MODEL_X and self.attribute(index, "model") != {"string": "x"}:
                return False
            if expression == HAS_ROOT and self.attribute(index, "root") is None:
                return False
            slots = self.slots(index)
            if expression == BIG and not (9 if slots is None else slots) >= 2:
                return False
        return True

    def consumed(self, index: int, ask: Obj) -> int | None:
        """What a share takes of the only capacity; None if the device cannot serve the ask at all."""
        slots = self.slots(index)
        wanted = ask.get("capacity", {}).get("requests", {}).get("slots")
        if slots is None:
            return None if wanted is not None else 0
        amount = slots if wanted is None else int(wanted)
        return amount if amount + self.used.get(index, 0) <= slots else None

    def reordered(self, order: list[int]) -> None:
        """Try the devices in another order."""
        places = {index: place for place, index in enumerate(order)}
        self.devices = [self.devices[index] for index in order]
        self.pools = [self.pools[index] for index in order]
        self.taken = {places[index] for index in self.taken}
        self.used = {places[index]: amount for index, amount in self.used.items()}


def first(problem: Obj, order: Callable[[World], list[int]] | None = None) -> list[list[tuple[str, str, str]]] | None:
    """The first choice that holds: per claim the (request, pool, device) of every pick."""
    world = World(problem)
    if order is not None:
        world.reordered(order(world))
    picks = next(_choices(world, 0, 0, []), None)
    if picks is None:
        return None
    found: list[list[tuple[str, str, str]]] = [[] for _ in world.claims]
    for pick in picks:
        found[pick.claim].append((pick.name, world.pools[pick.device], world.devices[pick.device]["name"]))
    return found


def _choices(world: World, claim: int, request: int, before: list[Pick]) -> Iterator[list[Pick]]:
    """All complete choices that hold and begin with these picks, those of earlier preferences first."""
    if claim == len(world.claims):
        yield before
        return
    requests = world.claims[claim]["spec"]["devices"]["requests"]
    if request == len(requests):
        yield from _choices(world, claim + 1, 0, before)
        return
    raw = requests[request]
    asks = (
        [(raw["name"], raw["exactly"])]
        if "exactly" in raw
        else [(f"{raw['name']}/{ask['name']}", ask) for ask in raw["firstAvailable"]]
    )
    for name, ask in asks:
        able = [i for i in range(len(world.devices)) if able_to_serve(world, i, ask)]
        if ask["allocationMode"] == "All":
            every = [
                i for i in range(len(world.devices)) if world.selected(i, ask) and world.consumed(i, ask) is not None
            ]
            chosen = [tuple(every)] if every and every == able else []
        else:
            chosen = list(combinations(able, ask["count"]))
        for devices in chosen:
            own = [Pick(claim, raw["name"], name, ask, device) for device in devices]
            if holds(world, [*before, *own]):
                yield from _choices(world, claim, request + 1, [*before, *own])


def able_to_serve(world: World, index: int, ask: Obj) -> bool:
    """Whether a device can serve an ask if nothing else is chosen."""
    entry = world.devices[index]
    tainted = any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in entry.get("taints", ()))
    return (
        world.selected(index, ask)
        and world.consumed(index, ask) is not None
        and not (tainted and not ask.get("tolerations"))
        and (bool(ask.get("adminAccess")) or index not in world.taken)
        and not (entry.get("consumesCounters") and world.pools[index] in world.overdrawn)
    )


def holds(world: World, picks: list[Pick]) -> bool:
    """Whether a choice as a whole breaks nothing."""
    return _exclusive(world, picks) and _within(world, picks) and _constrained(world, picks)


def _exclusive(world: World, picks: list[Pick]) -> bool:
    for number, pick in enumerate(picks):
        if world.shareable(pick.device):
            continue
        before = [other for other in picks[:number] if other.device == pick.device]
        if pick.ask.get("adminAccess"):
            if any(other.claim == pick.claim for other in before):
                return False
        elif before:
            return False
    return True


def _within(world: World, picks: list[Pick]) -> bool:
    used = dict.fromkeys(world.counters, 0)
    slots = dict(world.used)
    for index in world.taken:
        for key, amount in world.charges(index):
            used[key] += amount
    touched = {key for pick in picks for key, _ in world.charges(pick.device)}
    for pick in picks:
        for key, amount in world.charges(pick.device):
            used[key] += amount
        if world.shareable(pick.device):
            slots[pick.device] = slots.get(pick.device, 0) + (world.consumed(pick.device, pick.ask) or 0)
    return all(used[key] <= world.counters[key] for key in touched) and all(
        amount <= (world.slots(index) or 0) for index, amount in slots.items()
    )


def _constrained(world: World, picks: list[Pick]) -> bool:
    for number, claim in enumerate(world.claims):
        for constraint in claim["spec"]["devices"].get("constraints", ()):
            names = constraint.get("requests")
            attribute = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            values = [
                world.attribute(pick.device, attribute)
                for pick in picks
                if pick.claim == number and (not names or pick.request in names or pick.name in names)
            ]
            if any(value is None for value in values):
                return False
            texts = [str(value) for value in values]
            if "matchAttribute" in constraint and len(set(texts)) > 1:
                return False
            if "distinctAttribute" in constraint and len(set(texts)) < len(texts):
                return False
    return True
