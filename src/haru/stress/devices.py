"""Who holds which device, counted from the allocations of claims and from ResourceSlices alone. Pure.

A device has one claim, unless it allows several: then their consumed capacities together stay within what it has. What
the held devices of a counter set draw stays within the set. Admin access holds nothing.
Source: KEP-4381, KEP-4815 (counters), KEP-5075 (consumable capacity), KEP-5018 (admin access).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from haru.kube.meta import Obj, allocation_of, key_of
from haru.kube.quantity import Quantity, parse_quantity


class DeviceId(NamedTuple):
    """A device of a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class Holding(NamedTuple):
    """One result of an allocation."""

    claim: str
    share: str
    consumed: tuple[tuple[str, Quantity], ...]


class DeviceBook:
    """Devices with their holders, kept up to date by the events of claims and slices."""

    def __init__(self) -> None:
        self._slices: dict[str, Obj] = {}
        self._devices: dict[DeviceId, tuple[int, Obj, str]] = {}
        self._counters: dict[tuple[str, str, str], dict[str, Quantity]] = {}
        self._holders: dict[DeviceId, list[Holding]] = defaultdict(list)
        self._of_claim: dict[str, list[DeviceId]] = {}
        self._of_pool: dict[tuple[str, str], set[DeviceId]] = defaultdict(set)

    # -- slices -------------------------------------------------------------------------------------------------------

    def slice_changed(self, name: str, new: Obj | None) -> None:
        """Take in a slice, or its deletion (None)."""
        old = self._slices.pop(name, None)
        if new is not None:
            self._slices[name] = new
        drivers = {(one["spec"]["driver"], one["spec"]["pool"]["name"]) for one in (old, new) if one is not None}
        for driver, pool in drivers:
            self._read_pool(driver, pool)

    def _read_pool(self, driver: str, pool: str) -> None:
        for identity in [one for one in self._devices if one[:2] == (driver, pool)]:
            del self._devices[identity]
        for key in [one for one in self._counters if one[:2] == (driver, pool)]:
            del self._counters[key]
        slices = [
            s["spec"]
            for s in self._slices.values()
            if (s["spec"]["driver"], s["spec"]["pool"]["name"]) == (driver, pool)
        ]
        newest = max((spec["pool"].get("generation", 0) for spec in slices), default=0)
        for spec in slices:
            if spec["pool"].get("generation", 0) != newest:
                continue
            for device in spec.get("devices") or ():
                flat = {**device, **(device.get("basic") or {})}
                self._devices[DeviceId(driver, pool, device["name"])] = (newest, flat, spec.get("nodeName") or "")
            for counters in spec.get("sharedCounters") or ():
                self._counters[driver, pool, counters["name"]] = _amounts(counters.get("counters"))

    # -- claims -------------------------------------------------------------------------------------------------------

    def claim_changed(self, key: str, new: Obj | None) -> list[str]:
        """Take in a claim, or its deletion (None); what is held beyond what there is since then."""
        for device in self._of_claim.pop(key, ()):
            left = [holding for holding in self._holders[device] if holding.claim != key]
            self._holders[device] = left
            if not left:
                del self._holders[device]
                self._of_pool[device[:2]].discard(device)
        if new is None:
            return []
        held = list(_holdings(new))
        self._of_claim[key] = [device for device, _ in held]
        for device, holding in held:
            self._holders[device].append(holding)
            self._of_pool[device[:2]].add(device)
        devices = dict.fromkeys(self._of_claim[key])
        problems = [text for device in devices if (text := self._problem(device))]
        return problems + list(self._overdrawn({device[:2] for device in devices}))

    def _problem(self, device: DeviceId) -> str:
        """What is wrong with the holders of a device; empty for nothing."""
        holders = self._holders[device]
        if len(holders) < 2:
            return ""
        known = self._devices.get(device)
        several = bool(known[1].get("allowMultipleAllocations")) if known is not None else all(h.share for h in holders)
        if not several:
            return f"device {device} is held {len(holders)} times: by {_names(h.claim for h in holders)}"
        shares = [holding.share for holding in holders]
        if len(set(shares)) < len(shares):
            return f"device {device}: two holders have one shareID: {_names(h.claim for h in holders)}"
        capacity = _amounts(known[1].get("capacity")) if known is not None else {}
        for name, total in capacity.items():
            used = sum((dict(h.consumed).get(name, Quantity(0)) for h in holders), Quantity(0))
            if used > total:
                return f"device {device}: {used} of {total} {name} are held: by {_names(h.claim for h in holders)}"
        return ""

    def _overdrawn(self, pools: Iterable[tuple[str, str]]) -> Iterator[str]:
        for driver, pool in pools:
            drawn: dict[str, dict[str, Quantity]] = defaultdict(lambda: defaultdict(lambda: Quantity(0)))
            for device in self._of_pool[driver, pool]:
                known = self._devices.get(device)
                for use in (known[1].get("consumesCounters") or ()) if known is not None else ():
                    for name, amount in _amounts(use.get("counters")).items():
                        drawn[use["counterSet"]][name] += amount
            for counter_set, amounts in drawn.items():
                there = self._counters.get((driver, pool, counter_set), {})
                for name, used in amounts.items():
                    if name in there and used > there[name]:
                        yield f"counter set {driver}/{pool}/{counter_set}: {used} of {there[name]} {name} are held"

    # -- what is free -------------------------------------------------------------------------------------------------

    def held(self) -> int:
        """How many devices are held."""
        return len(self._holders)

    def free_by_node(self) -> dict[str, list[tuple[DeviceId, Obj]]]:
        """Devices of each node that are certainly free: whole, without taints and counters, held by nobody."""
        found: dict[str, list[tuple[DeviceId, Obj]]] = defaultdict(list)
        for device, (_, spec, node) in self._devices.items():
            plain = not (spec.get("taints") or spec.get("consumesCounters") or spec.get("allowMultipleAllocations"))
            if plain and node and device not in self._holders:
                found[node].append((device, spec))
        return found


def _holdings(claim: Obj) -> Iterator[tuple[DeviceId, Holding]]:
    allocation = allocation_of(claim) or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        if not result.get("adminAccess"):
            consumed = tuple(
                (name, parse_quantity(value)) for name, value in (result.get("consumedCapacity") or {}).items()
            )
            holding = Holding(key_of(claim), result.get("shareID") or "", consumed)
            yield DeviceId(result["driver"], result["pool"], result["device"]), holding


def _amounts(values: Mapping[str, Any] | None) -> dict[str, Quantity]:
    return {name: parse_quantity(value["value"]) for name, value in (values or {}).items()}


def _names(claims: Iterable[str]) -> str:
    return ", ".join(sorted(set(claims)))
