"""What must hold at every revision of a cluster that schedules gangs, checked on the full history of a store.

A group that was hit from outside (a member deleted, the node of a member gone) is excused while it is under way:
nobody can take back what the world does between two bindings. It counts again once no member of it has a place.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from gang_resources import (
    SLICE_CPU,
    cards_of,
    claimed_milli_cpu,
    milli_cpu,
    owner_of,
    plugin_cards,
    recorded_claim,
    slices_in,
)

from haru.kube.quantity import parse_quantity

Obj = dict[str, Any]
FINALIZER = "resource.kubernetes.io/delete-protection"
BUCKETS = ("pods", "resourceclaims", "podgroups", "nodes")


class History:
    """Replays events by revision; `problems` says what was wrong, and at which revision."""

    def __init__(self, device_use: Callable[[Obj], tuple[str, int, int]]) -> None:
        """`device_use(result)`: what a device draws from, how much of it, and how much there is."""
        self._device_use = device_use
        self.objects: dict[str, dict[str, Obj]] = {bucket: {} for bucket in BUCKETS}
        self._members: dict[str, set[str]] = defaultdict(set)
        self._hit: set[str] = set()
        self.problems: list[str] = []
        self._doomed: set[str] = set()
        self.highest = 1000
        self.evictions = 0
        self.revisions = 0
        self.half_bound = 0

    def apply(self, bucket: str, key: str, value: bytes | None, revision: int) -> None:
        """One change."""
        known = self.objects[bucket]
        old = known.get(key)
        new = json.loads(value) if value is not None else None
        if new is None:
            known.pop(key, None)
        else:
            known[key] = new
        self.revisions += 1
        getattr(self, f"_{bucket}")(key, old, new, revision)
        self._check_groups(self._touched(bucket, key, old, new), revision)

    def _touched(self, bucket: str, key: str, old: Obj | None, new: Obj | None) -> Iterable[str]:
        """The groups whose places may be others now: a node or a claim may be anybody's."""
        if bucket == "pods":
            return {group for pod in (old, new) if pod is not None and (group := _group(pod)) is not None}
        return [key.removeprefix("podgroups/")] if bucket == "podgroups" else self._members

    def take(self, objects: dict[str, dict[str, Obj]], revision: int) -> None:
        """A whole state at once, as it was found."""
        self.objects = {bucket: dict(objects.get(bucket) or {}) for bucket in BUCKETS}
        self._members.clear()
        for key, pod in self.objects["pods"].items():
            if (group := _group(pod)) is not None:
                self._members[group].add(key)
        self._hit.clear()
        for key, claim in self.objects["resourceclaims"].items():
            self._resourceclaims(key, None, claim, revision)
        self._check_groups(self._members, revision)

    # -- one kind each ------------------------------------------------------------------------------------------------

    def _pods(self, key: str, old: Obj | None, new: Obj | None, revision: int) -> None:
        if new is not None and new["spec"].get("nodeName") and not (old or {"spec": {}})["spec"].get("nodeName"):
            self._bound(key, new, revision)
        group = _group(new or old or {})
        if group is None:
            if new is not None and is_evicted(new) and not is_evicted(old):
                self._evicted(key, new, None, revision)
            return
        if new is None:
            self._members[group].discard(key)
        else:
            self._members[group].add(key)
        if new is not None and is_evicted(new) and not is_evicted(old):
            self._evicted(key, new, group, revision)
        replaced = old is not None and new is not None and _uid(old) != _uid(new)
        if new is None or replaced or new["metadata"].get("deletionTimestamp"):
            self._hit.add(group)

    def _bound(self, key: str, pod: Obj, revision: int) -> None:
        """A pod came to its node: with a claim for its extended resources, or within what a plugin has."""
        node = pod["spec"]["nodeName"]
        self._cpu(key, pod, node, revision)
        if not cards_of(pod):
            return
        if not plugin_cards(node):
            claim = self.objects["resourceclaims"].get(self._claim_key(pod, recorded_claim(pod)))
            uids = [entry["uid"] for entry in ((claim or {}).get("status") or {}).get("reservedFor") or ()]
            if claim is None or not _allocation(claim) or uids != [_uid(pod)]:
                self.problems.append(f"{revision}: {key} is bound without the devices of its extended resource")
        elif recorded_claim(pod):
            self.problems.append(f"{revision}: {key} is bound to a plugin's node, and with a claim")
        pods = self.objects["pods"].values()
        used = sum(cards_of(p) for p in pods if p["spec"].get("nodeName") == node and not recorded_claim(p))
        if used > plugin_cards(node):
            self.problems.append(f"{revision}: {node}: {used} cards of a plugin are given, it has {plugin_cards(node)}")

    def _cpu(self, key: str, pod: Obj, node: str, revision: int) -> None:
        """Every pod asks for one cpu, and slices of cards take some more; no node has too little for all."""
        slices = sum(slices_in(claim) for claim in self.claims_of(pod) if claim is not None)
        if claimed_milli_cpu(pod) != slices * parse_quantity(SLICE_CPU).milli():
            self.problems.append(f"{revision}: {key} has {slices} slices, and its status tells of something else")
        known = self.objects["nodes"].get(f"nodes/{node}")
        here = [p for p in self.objects["pods"].values() if p["spec"].get("nodeName") == node]
        used = sum(1000 + claimed_milli_cpu(p) for p in here)
        if known is not None and used > milli_cpu(known):
            self.problems.append(f"{revision}: {node}: {used}m of {milli_cpu(known)}m cpu are taken")

    def _evicted(self, key: str, pod: Obj, group: str | None, revision: int) -> None:
        """Somebody is evicted for somebody else, who must be more important; a unit goes whole."""
        found = self.objects["podgroups"].get(f"podgroups/{group}") if group is not None else None
        priority = (found or pod)["spec"].get("priority") or 0
        if priority >= self.highest:
            self.problems.append(f"{revision}: {key} of priority {priority} is evicted: nobody is more important")
        self.evictions += 1
        if found is not None and found["spec"].get("disruptionMode") == "PodGroup":
            members = (self.objects["pods"][member] for member in self._members[group or ""])
            self._doomed.update(_uid(p) for p in members if p["spec"].get("nodeName"))

    def _nodes(self, key: str, old: Obj | None, new: Obj | None, revision: int) -> None:
        return None

    def _podgroups(self, key: str, old: Obj | None, new: Obj | None, revision: int) -> None:
        path = key.removeprefix("podgroups/")
        if old is not None and (new is None or new["metadata"].get("deletionTimestamp")):
            self._hit.add(path)
        before, after = _scheduled(old), _scheduled(new)
        if before == "True" and new is not None and after != "True" and _uid(old) == _uid(new):
            self.problems.append(f"{revision}: group {path}: PodGroupScheduled went from True to {after}")

    def _resourceclaims(self, key: str, old: Obj | None, new: Obj | None, revision: int) -> None:
        if new is not None and _allocation(new) and FINALIZER not in (new["metadata"].get("finalizers") or ()):
            self.problems.append(f"{revision}: claim {key} is allocated without its finalizer")
        if _allocation(old) == _allocation(new):
            return
        used: dict[str, int] = defaultdict(int)
        users: dict[str, list[str]] = defaultdict(list)
        for path, claim in self.objects["resourceclaims"].items():
            for result in (_allocation(claim).get("devices") or {}).get("results") or ():
                source, amount, total = self._device_use(result)
                used[source] += amount
                users[source].append(path)
                if used[source] > total:
                    self.problems.append(f"{revision}: {source} is overdrawn ({used[source]}/{total}): {users[source]}")

    # -- groups -------------------------------------------------------------------------------------------------------

    def _check_groups(self, groups: Iterable[str], revision: int) -> None:
        for path in groups:
            pods = [self.objects["pods"][key] for key in self._members.get(path, ())]
            placed = [p for p in pods if self._place(p)]
            if any(f"nodes/{self._place(p)}" not in self.objects["nodes"] for p in placed):
                self._hit.add(path)
            if not placed:
                self._hit.discard(path)
            minimum = self.minimum(path)
            bound = [p for p in pods if p["spec"].get("nodeName")]
            if not 0 < len(bound) < minimum or path in self._hit:
                continue
            self.half_bound += 1
            waiting = [p for p in pods if not p["spec"].get("nodeName")]
            lacking = [(p["metadata"]["name"], why) for p in waiting if (why := self._lacks(p))]
            if len(waiting) - len(lacking) + len(bound) < minimum:
                text = f"{revision}: group {path}: {len(bound)} of {minimum} bound, not reserved: {lacking}"
                self.problems.append(text)

    def minimum(self, group: str) -> int:
        """A gang's minCount; 1 for any other group."""
        policy = self.objects["podgroups"].get(f"podgroups/{group}", {}).get("spec", {}).get("schedulingPolicy") or {}
        return int((policy.get("gang") or {}).get("minCount") or 1)

    def _place(self, pod: Obj) -> str:
        told = pod["spec"].get("nodeName") or (pod.get("status") or {}).get("nominatedNodeName")
        return told or next(filter(None, (_reserved_node(claim, pod) for claim in self._named_claims(pod))), "")

    def _lacks(self, pod: Obj) -> str:
        """What an unbound member lacks to be reserved in the API; empty if nothing."""
        if f"nodes/{self._place(pod)}" not in self.objects["nodes"]:
            return "a nominated node"
        holders = {_uid(pod), _uid(self.objects["podgroups"].get(f"podgroups/{_group(pod)}", {}))}
        for claim in self.claims_of(pod):
            if claim is None or not _allocation(claim):
                return "an allocated claim"
            if not holders & {entry["uid"] for entry in claim["status"].get("reservedFor") or ()}:
                return "a reservation"
        return ""

    def _named_claims(self, pod: Obj) -> list[Obj | None]:
        names = {
            s["name"]: s.get("resourceClaimName") for s in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        }
        found = []
        for entry in pod["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimName") or names.get(entry["name"])
            found.append(self.objects["resourceclaims"].get(self._claim_key(pod, name)))
        return found

    def claims_of(self, pod: Obj) -> list[Obj | None]:
        """The claims that a pod uses, None for one that is not there."""
        found = self._named_claims(pod)
        if cards_of(pod) and not plugin_cards(self._place(pod)):
            found.append(self.objects["resourceclaims"].get(self._claim_key(pod, recorded_claim(pod))))
        return found

    def _claim_key(self, pod: Obj, name: str | None) -> str:
        return f"resourceclaims/{pod['metadata']['namespace']}/{name}"

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_rest(self) -> Iterable[str]:
        """What is wrong once nothing moves any more."""
        live = {_uid(obj) for bucket in ("pods", "podgroups") for obj in self.objects[bucket].values()}
        for path, claim in self.objects["resourceclaims"].items():
            for entry in (claim.get("status") or {}).get("reservedFor") or ():
                if entry["uid"] not in live:
                    yield f"{path} is reserved for {entry['name']}, which is gone"
            if not _allocation(claim) and FINALIZER in (claim["metadata"].get("finalizers") or ()):
                yield f"{path} is not allocated but has its finalizer"
        yield from self.half_evicted()
        for path, keys in self._members.items():
            bound = sum(1 for key in keys if self.objects["pods"][key]["spec"].get("nodeName"))
            if path not in self._hit and 0 < bound < self.minimum(path):
                yield f"group {path} is at rest with {bound} of {self.minimum(path)} bound"
        for path, pod in self.objects["pods"].items():
            for claim in self.claims_of(pod) if pod["spec"].get("nodeName") else ():
                if claim is None or not _allocation(claim):
                    yield f"{path} is bound without an allocated claim"
        yield from self._unused()

    def half_evicted(self) -> Iterable[str]:
        """Pods that nobody has deleted of groups that go whole, of which one was deleted."""
        for path, pod in self.objects["pods"].items():
            if _uid(pod) in self._doomed and not pod["metadata"].get("deletionTimestamp"):
                yield f"{path} runs although its group was evicted as a whole"

    def _unused(self) -> Iterable[str]:
        """Claims for extended resources that no pod has, or more than one for a pod."""
        pods = {_uid(pod): pod for pod in self.objects["pods"].values()}
        seen: dict[str, str] = {}
        for path, claim in self.objects["resourceclaims"].items():
            if not (owner := owner_of(claim)):
                continue
            pod = pods.get(owner)
            if pod is None:
                yield f"{path} was made for a pod that is gone"
            elif pod["spec"].get("nodeName") and path != self._claim_key(pod, recorded_claim(pod)):
                yield f"{path} was made for {pod['metadata']['name']}, which is bound without it"
            elif seen.setdefault(owner, path) != path:
                yield f"{path} and {seen[owner]} were both made for {pod['metadata']['name']}"


def is_evicted(pod: Obj | None) -> bool:
    """Whether its scheduler has deleted it, which leaves it time to end: people here delete at once.

    With one whom a person deletes an eviction's mark may go before others have it: a scheduler that is started again
    then has nothing to tell by that the eviction had begun.
    """
    if pod is None or not pod["metadata"].get("deletionGracePeriodSeconds"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "DisruptionTarget" and c.get("reason") == "PreemptionByScheduler" for c in conditions)


def _group(pod: Obj) -> str | None:
    name = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return f"{pod['metadata']['namespace']}/{name}" if name else None


def _uid(obj: Obj | None) -> str:
    return str(((obj or {}).get("metadata") or {}).get("uid") or "")


def _allocation(claim: Obj | None) -> Obj:
    return ((claim or {}).get("status") or {}).get("allocation") or {}


def _reserved_node(claim: Obj | None, pod: Obj) -> str:
    """The only node that a claim can be used from which is reserved for a pod."""
    terms = (_allocation(claim).get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    entries = ((claim or {}).get("status") or {}).get("reservedFor") or ()
    if len(terms) != 1 or all(entry["uid"] != _uid(pod) for entry in entries):
        return ""
    return next((str(field["values"][0]) for field in terms[0].get("matchFields") or ()), "")


def _scheduled(group: Obj | None) -> str | None:
    conditions = ((group or {}).get("status") or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == "PodGroupScheduled"), None)
