"""Situations in which a unit was decided, and the same with other devices: as kube-scheduler may have seen them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from decision_verdicts import Devices
from manifests import DRIVER, Obj
from random_clusters import LINKS

MAPPINGS = "nodeAllocatableResourceMappings"


@dataclass(frozen=True)
class Situation:
    """All objects before a decision, and the pods that are decided. `searches`: for places of a gang.

    `others`: pods that waited beside them and have a node afterwards, with their claims, as they are then. `placed`:
    those of the pods that have one, likewise.
    """

    objects: Sequence[Obj]
    pods: Sequence[Obj]
    group: Obj | None
    searches: bool = True
    others: Sequence[Obj] = ()
    placed: Sequence[Obj] = ()


def name(one: Obj) -> str:
    """The name of an object."""
    found: str = one["metadata"]["name"]
    return found


# -- devices ----------------------------------------------------------------------------------------------------------


def with_devices_kept(situation: Situation) -> Situation | None:
    """Allocated claims have a user that stays: devices of victims are not thought away."""
    held = [one for one in situation.objects if (one.get("status") or {}).get("allocation")]
    other = {"apiGroup": "example.com", "resource": "others", "name": "other", "uid": "other"}

    def kept(one: Obj) -> Obj:
        status = one["status"]
        return {**one, "status": {**status, "reservedFor": [*(status.get("reservedFor") or ()), other]}}

    objects = [kept(one) if one in held else one for one in situation.objects]
    return Situation(objects, situation.pods, situation.group) if held else None


def with_mapped_claims_free(situation: Situation) -> Situation | None:
    """Allocated claims of the pods take nothing of their nodes, and nobody else uses them."""
    claims = named_claims(situation.pods, situation.objects)
    held = [one for one in claims if (one.get("status") or {}).get("allocation")]
    devices = {(r["pool"], r["device"]) for one in held for r in one["status"]["allocation"]["devices"]["results"]}

    def free(one: Obj) -> Obj:
        if one in held:
            return {**one, "status": {**one["status"], "reservedFor": []}}
        return _with_devices(one, lambda each, pool: _unmapped(each) if (pool, each["name"]) in devices else each)

    world = Situation([free(one) for one in situation.objects], situation.pods, situation.group)
    return world if held and MAPPINGS in str(situation.objects) else None


def with_lists_ignored(situation: Situation) -> Situation | None:
    """A device with several links meets no constraint together with others: its link is no other's, or all others'."""
    repeats = f'"distinctAttribute": "{DRIVER}/{LINKS}"' in json.dumps([*situation.objects])

    def alone(device: Obj, pool: str) -> Obj:
        links = (device.get("attributes") or {}).get(LINKS) or {}
        if not any(kind in links for kind in ("ints", "strings")):
            return device
        own = {"bool": True} if repeats else {"string": f"{pool}/{device['name']}"}
        return {**device, "attributes": {**device["attributes"], LINKS: own}}

    objects = [_with_devices(one, alone) for one in situation.objects]
    return Situation(objects, situation.pods, situation.group) if objects != list(situation.objects) else None


def with_distinct_devices(
    situation: Situation, chosen: Mapping[str, Devices], *, spares_others: bool = True
) -> Situation | None:
    """The chosen devices of a request for several have values of their own where they have to be distinct.

    Without `spares_others` a device that had the value of some of them has that of the last: it is refused beside it.
    """
    claims = {name(one): one["spec"]["devices"] for one in named_claims(situation.pods, situation.objects)}
    repeating = dict[tuple[str, str], str]()
    for claim, devices in chosen.items():
        spec = claims.get(claim, {})
        found = [one["distinctAttribute"] for one in spec.get("constraints") or () if "distinctAttribute" in one]
        repeating |= {(pool, device): one.rpartition("/")[2] for one in found for _, pool, device, *_ in devices}
    numbers, last = itertools.count(100), dict[str, tuple[str, Obj]]()

    def alone(device: Obj, pool: str) -> Obj:
        attribute = repeating.get((pool, device["name"]), "")
        had = device.get("attributes", {}).get(attribute)
        if not had:
            return device
        own = {kind: next(numbers) if kind == "int" else f"{value}{next(numbers)}" for kind, value in had.items()}
        last[f"{attribute} {had}"] = attribute, own
        return {**device, "attributes": {**device["attributes"], attribute: own}}

    def like_the_last(device: Obj, pool: str) -> Obj:
        if (pool, device["name"]) in repeating:
            return device
        had = device.get("attributes", {})
        return {**device, "attributes": had | dict(last[key] for key in map(" ".join, _texts(had)) if key in last)}

    objects = [_with_devices(one, alone) for one in situation.objects]
    if objects == list(situation.objects):
        return None
    others = objects if spares_others else [_with_devices(one, like_the_last) for one in objects]
    return Situation(others, situation.pods, situation.group)


def _texts(attributes: Obj) -> Iterator[tuple[str, str]]:
    return ((attribute, str(value)) for attribute, value in attributes.items())


def with_counters_lost(situation: Situation) -> Iterator[Situation]:
    """Devices that take of counters are gone where they may have been tried in vain: from all pools, or from one."""
    slices = [one["spec"] for one in situation.objects if one["kind"] == "ResourceSlice"]
    pools = sorted({one["pool"]["name"] for one in slices if "consumesCounters" in str(one.get("devices"))})

    def left(one: Obj, gone: Collection[str]) -> Obj:
        if one["kind"] != "ResourceSlice" or one["spec"]["pool"]["name"] not in gone:
            return one
        kept = [each for each in one["spec"].get("devices") or () if not each.get("consumesCounters")]
        return {**one, "spec": {**one["spec"], "devices": kept}}

    for gone in [pools, *([pool] for pool in pools if len(pools) > 1)] if pools else ():
        yield replace(situation, objects=[left(one, gone) for one in situation.objects])


def named_claims(pods: Sequence[Obj], objects: Sequence[Obj]) -> list[Obj]:
    """The claims that pods name, or that were made for them."""
    entries = [
        entry
        for pod in pods
        for entry in (*(pod["spec"].get("resourceClaims") or ()), *(pod["status"].get("resourceClaimStatuses") or ()))
    ]
    used = {one.get("resourceClaimName") for one in entries}
    return [one for one in objects if one["kind"] == "ResourceClaim" and name(one) in used]


def _with_devices(one: Obj, change: Callable[[Obj, str], Obj]) -> Obj:
    """A slice with other devices, of its pool; any other object as it is."""
    if one["kind"] != "ResourceSlice" or not one["spec"].get("devices"):
        return one
    pool = one["spec"]["pool"]["name"]
    return {**one, "spec": {**one["spec"], "devices": [change(each, pool) for each in one["spec"]["devices"]]}}


def _unmapped(device: Obj) -> Obj:
    return {key: value for key, value in device.items() if key != MAPPINGS}
