"""What a decision allocates, added up from the definitions alone: holders, counters, capacity, reach, taints.

Source: KEP-4381 (pools and their generations, exclusive devices), KEP-4815 (shared counters), KEP-5075 (shares),
KEP-5055 (taints). Nothing of the engine is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

Obj = dict[str, Any]
Key = tuple[str, str]
"""Pool and device."""


def pools_of(objects: Mapping[Any, Obj], node: Obj) -> dict[str, list[Obj]]:
    """The slices of each pool that a node sees in full: those of the newest generation that concern it.

    Like kube-scheduler, a node keeps to an older generation that is complete for it while none of a newer one's slices
    concerns it.
    """
    found: dict[str, list[Obj]] = {}
    every = [one["spec"] for one in objects.values() if one["kind"] == "ResourceSlice"]
    for name in {spec["pool"]["name"] for spec in every}:
        listed = [spec for spec in every if spec["pool"]["name"] == name]
        near = [spec for spec in listed if _concerns(spec, node)]
        if not near:
            continue
        newest = max(spec["pool"]["generation"] for spec in near)
        count = next(spec["pool"]["resourceSliceCount"] for spec in near if spec["pool"]["generation"] == newest)
        mine = [spec for spec in near if spec["pool"]["generation"] == newest]
        if len(mine) < count:
            mine = [spec for spec in listed if spec["pool"]["generation"] == newest]
            if len(mine) < count or any(spec["pool"]["generation"] > newest for spec in listed):
                continue
        found[name] = mine
    return found


def _results(claim: Obj) -> list[Obj]:
    allocation = (claim.get("status") or {}).get("allocation")
    found: list[Obj] = allocation["devices"]["results"] if allocation else []
    return found


def _concerns(spec: Obj, node: Obj) -> bool:
    if spec.get("sharedCounters"):
        return True
    places = spec.get("devices") or () if spec.get("perDeviceNodeSelection") else (spec,)
    return any(reaches(place, node) for place in places)


def problems(objects: Mapping[Any, Obj], decision: Any) -> list[str]:
    """What is wrong with the places and devices of a decision to bind."""
    new = {one.path: (objects["Node", member.node], one) for member in decision.placed for one in member.allocations}
    results = [
        (f"default/{claim['metadata']['name']}", result, None)
        for claim in objects.values()
        if claim["kind"] == "ResourceClaim" and f"default/{claim['metadata']['name']}" not in new
        for result in _results(claim)
    ]
    given = [
        (path, result, node) for path, (node, one) in new.items() for result in one.allocation["devices"]["results"]
    ]
    found = [*_gang(objects, decision)]
    for node in {node["metadata"]["name"]: node for node, _ in new.values()}.values():
        pools = pools_of(objects, node)
        devices = {
            (pool, device["name"]): (spec, device)
            for pool, slices in pools.items() for spec in slices for device in spec.get("devices") or ()
        }  # fmt: skip
        fresh = [(path, result) for path, result, where in given if where is node]
        every = [(path, result) for path, result, _ in (*results, *given)]
        found += [*_holders(devices, every, fresh), *_counted(pools, devices, every, fresh)]
        for path, result in fresh:
            key = result["pool"], result["device"]
            if key in devices:
                found += _reached(path, node, *devices[key])
                found += _tolerated(path, objects, result, devices[key][1], key)
    return found


def _holders(devices: Mapping[Key, Any], every: list[tuple[str, Obj]], fresh: list[tuple[str, Obj]]) -> Iterator[str]:
    """Whole devices have one holder, whatever was published before; shares are only beside shares."""
    holders: dict[Key, list[tuple[str, Obj]]] = defaultdict(list)
    for path, result in every:
        if not result.get("adminAccess"):
            holders[result["pool"], result["device"]].append((path, result))
    for path, result in fresh:
        key = result["pool"], result["device"]
        if key not in devices:
            yield f"{path} gets {key}, which nobody publishes"
        elif not result.get("adminAccess"):
            device = devices[key][1]
            if bool(device.get("allowMultipleAllocations")) != bool(result.get("shareID")):
                yield f"{path} gets {key} as {result}"
            shares = bool(result.get("shareID"))
            others = [holder for holder, other in holders[key] if not (shares and other.get("shareID"))]
            if len(others) > (not shares):
                yield f"{key} is allocated to {others}, and to {path}"
            if result.get("shareID"):
                yield from _shared(key, device, [other for _, other in holders[key]])


def _shared(key: Key, device: Obj, users: list[Obj]) -> Iterator[str]:
    if len({result.get("shareID") for result in users}) < len(users):
        yield f"{key} has two shares of one identity: {users}"
    capacity = int(((device.get("capacity") or {}).get("memory") or {"value": "0"})["value"])
    taken = sum(int((result.get("consumedCapacity") or {}).get("memory") or 0) for result in users)
    if taken > capacity:
        yield f"{key}: {taken} of {capacity} are consumed by {users}"


def _counted(
    pools: Mapping[str, list[Obj]],
    devices: Mapping[Key, Any],
    every: list[tuple[str, Obj]],
    given: list[tuple[str, Obj]],
) -> Iterator[str]:
    """Counters are not exceeded; a device counts once, however many shares it has."""
    fresh, taken = (
        {(r["pool"], r["device"]) for _, r in listed if not r.get("adminAccess")} for listed in (given, every)
    )
    used: dict[tuple[str, str, str], int] = defaultdict(int)
    touched = set()
    for key in taken & devices.keys():
        for entry in devices[key][1].get("consumesCounters") or ():
            for name, counter in entry["counters"].items():
                used[key[0], entry["counterSet"], name] += int(counter["value"])
                if key in fresh:
                    touched.add((key[0], entry["counterSet"], name))
    for pool, counter_set, name in touched:
        sets = [one for spec in pools[pool] for one in spec.get("sharedCounters") or () if one["name"] == counter_set]
        there = int(sets[0]["counters"][name]["value"]) if sets else 0
        if used[pool, counter_set, name] > there:
            yield f"{pool}: {used[pool, counter_set, name]} of {there} of {counter_set}/{name}"


def _reached(path: str, node: Obj, spec: Obj, device: Obj) -> Iterator[str]:
    where = device if spec.get("perDeviceNodeSelection") else spec
    if not reaches(where, node):
        yield f"{path} gets {device['name']}, which {node['metadata']['name']} does not reach"


def reaches(where: Obj, node: Obj) -> bool:
    """Whether devices that are published for `where` can be used on a node."""
    if where.get("allNodes") or where.get("nodeName") == node["metadata"]["name"]:
        return True
    terms = (where.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return any(all(_meets(node["metadata"]["labels"], one) for one in term["matchExpressions"]) for term in terms)


def _meets(labels: Mapping[str, str], expression: Obj) -> bool:
    inside: bool = labels.get(expression["key"]) in expression["values"]
    return inside == bool(expression["operator"] == "In")


def _tolerated(path: str, objects: Mapping[Any, Obj], result: Obj, device: Obj, key: Key) -> Iterator[str]:
    taints = [*(device.get("taints") or ()), *_of_rules(objects, key)]
    for taint in taints:
        if taint["effect"] != "None" and not any(_fits(taint, one) for one in result.get("tolerations") or ()):
            yield f"{path} gets {key} in spite of {taint}"


def _of_rules(objects: Mapping[Any, Obj], key: Key) -> Iterator[Obj]:
    for one in objects.values():
        if one["kind"] == "DeviceTaintRule":
            selector = one["spec"].get("deviceSelector")
            if selector is not None and all(
                selector.get(name) in (None, value) for name, value in zip(("pool", "device"), key, strict=True)
            ):
                yield one["spec"]["taint"]


def _fits(taint: Obj, toleration: Obj) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return bool(toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))


def _gang(objects: Mapping[Any, Obj], decision: Any) -> Iterator[str]:
    if decision.group is not None:
        minimum = objects["PodGroup", decision.group.name]["spec"]["schedulingPolicy"]["gang"]["minCount"]
        if len(decision.placed) < minimum:
            yield f"{len(decision.placed)} of at least {minimum} members have a place"
