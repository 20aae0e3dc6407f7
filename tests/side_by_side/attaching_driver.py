"""The controller of `bindings_compared`: attaches allocated devices or fails to, and notes what schedulers do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from decided_cluster import EXTENDED, KINDS, condition, name_of
from decision_verdicts import Devices, devices_of
from manifests import NAMESPACE, Obj
from random_bindings import LATE_SECONDS, Scenario, conditions, without_device
from random_volumes import BOUND, SELECTED, ephemeral_claims_of, provisioned

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind

CLAIMS, PODS, SLICES = (KINDS[kind] for kind in ("ResourceClaim", "Pod", "ResourceSlice"))
GROUPS, VOLUMES, MADE = (KINDS[kind] for kind in ("PodGroup", "PersistentVolumeClaim", "PersistentVolume"))
ENDS_SECONDS = 1.5
"""How long a pod takes to end."""
EVENTS = known_kind("events.k8s.io/v1", "Event")
_IDENTITY = ("driver", "pool", "device", "shareID")
Allocated = tuple[str, tuple[str, ...]]


@dataclass
class Trace:
    """What became of a scenario: nodes and messages by pod; by claim the allocations that it had, and its end.

    `told`: conditions of PodGroups and of victims, as they were at any time. Events are of pods: name, reason, note,
    and type, action, reporter and the other object.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    messages: dict[str, list[str]] = field(default_factory=dict)
    allocations: dict[str, list[Devices]] = field(default_factory=dict)
    events: set[tuple[str, ...]] = field(default_factory=set)
    claims: dict[str, Obj] = field(default_factory=dict)
    told: set[tuple[str, ...]] = field(default_factory=set)
    uids: dict[str, str] = field(default_factory=dict)
    """Names by the identifiers of pods and groups."""

    def lines(self) -> Iterator[str]:
        """The trace as it is printed."""
        for pod, texts in sorted(self.messages.items()):
            yield from (f"{pod}: {text}" for text in texts)
        for claim, devices in sorted(self.allocations.items()):
            yield f"{claim}: {[[one[2] for one in each] for each in devices]}"
        yield from (f"event {one}" for one in sorted(self.events))
        yield from (f"told {one}" for one in sorted(self.told))


class AttachingDriver:
    """The drivers of all scenarios of a cluster. `looks` goes on until it is cancelled."""

    def __init__(self, api: ApiClient, scenarios: Sequence[Scenario]) -> None:
        self._api = api
        self._scenarios = scenarios
        self.traces = {one.seed: Trace() for one in scenarios}
        self._times: dict[tuple[str, str], int] = {}
        """How often a device was allocated."""
        self._begun: dict[Allocated, tuple[str, float, str]] = {}
        """Allocations that are known: their timestamp, since when, and what becomes of them."""
        self._told: set[Allocated] = set()
        self._ending: dict[str, float] = {}
        """Pods that end since then, by identifier."""
        self._volumes = VolumeMaker(api)

    async def looks(self) -> None:
        """Look at the cluster again and again."""
        while True:
            await self._look()
            await asyncio.sleep(0.05)

    async def finish(self) -> None:
        """Note what there is at the end."""
        await self._look()
        for one in (await self._api.list(EVENTS, NAMESPACE))["items"]:
            if (scenario := self._owner(one["regarding"]["name"])) and one["regarding"]["kind"] == "Pod":
                other = one.get("related") or {}
                told = (one["regarding"]["name"], one["reason"], one.get("note", ""), one.get("type", ""))
                more = (one.get("action", ""), one.get("reportingController", ""))
                whose = (other.get("kind", ""), other.get("name", ""))
                self.traces[scenario.seed].events.add((*told, *more, *whose))

    def _owner(self, name: str) -> Scenario | None:
        return next((one for one in self._scenarios if one.owns(name)), None)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        for pod in (await self._api.list(PODS, NAMESPACE))["items"]:
            if scenario := self._owner(name_of(pod)):
                trace, name = self.traces[scenario.seed], name_of(pod)
                trace.nodes[name] = pod["spec"].get("nodeName") or ""
                message = condition(pod).get("message", "")
                if message and message not in trace.messages.setdefault(name, []):
                    trace.messages[name].append(message)
                await self._end(trace, pod)
                if scenario.volumes:
                    await self._volumes.claims_for(pod)
        for group in (await self._api.list(GROUPS, NAMESPACE))["items"]:
            if scenario := self._owner(name_of(group)):
                self.traces[scenario.seed].uids[group["metadata"]["uid"]] = name_of(group)
                _note(self.traces[scenario.seed], group)
        for volume in (await self._api.list(VOLUMES, NAMESPACE))["items"]:
            if scenario := self._owner(name_of(volume)):
                await self._volumes.look(volume, scenario.volumes)
        for claim in (await self._api.list(CLAIMS, NAMESPACE))["items"]:
            if scenario := self._owner(name_of(claim)):
                await self._follow(scenario, claim)

    async def _end(self, trace: Trace, pod: Obj) -> None:
        """Note what a pod is told; do what its node does: run it, and end it some time after it was deleted."""
        uid = pod["metadata"]["uid"]
        trace.uids[uid] = name_of(pod)
        _note(trace, pod, "DisruptionTarget")
        if pod["spec"].get("nodeName") and not pod["status"].get("startTime"):
            # Who has run for longer is the last to be a victim.
            began = {"phase": "Running", "startTime": f"2026-01-01T00:00:0{name_of(pod)[-1]}Z"}
            with suppress(StatusError):
                await self._api.patch(PODS, name_of(pod), {"status": began}, NAMESPACE, "merge", "status")
        if not pod["metadata"].get("deletionTimestamp"):
            return
        if time.monotonic() - self._ending.setdefault(uid, time.monotonic()) > ENDS_SECONDS:
            with suppress(StatusError):
                await self._api.delete(PODS, name_of(pod), NAMESPACE, grace_period_seconds=0)

    async def _follow(self, scenario: Scenario, claim: Obj) -> None:
        status, trace, name = claim.get("status") or {}, self.traces[scenario.seed], _stable(claim)
        trace.claims[name] = status
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        at = (status.get("allocation") or {}).get("allocationTimestamp", "")
        entries = {_identity(one) for one in status.get("devices") or ()}
        new = list(self._new(scenario, claim, results, at, entries))
        if new or (results and not trace.allocations.get(name)):
            trace.allocations.setdefault(name, []).append(devices_of(status.get("allocation")))
        more = list[Obj]()
        for result in results:
            key = claim["metadata"]["uid"], _identity(result)
            if key in self._begun and key not in self._told:
                more += await self._work(key, result)
        if more:
            kept = [one for one in status.get("devices") or () if _identity(one) not in map(_identity, more)]
            body = {"metadata": {"uid": claim["metadata"]["uid"]}, "status": {"devices": [*kept, *more]}}
            with suppress(StatusError):
                await self._api.patch(CLAIMS, name_of(claim), body, NAMESPACE, "merge", "status")

    def _new(
        self, scenario: Scenario, claim: Obj, results: Sequence[Obj], at: str, entries: set[tuple[str, ...]]
    ) -> Iterator[Allocated]:
        """The devices that are allocated anew, and what becomes of each."""
        for result in results:
            key = claim["metadata"]["uid"], _identity(result)
            known = self._begun.get(key)
            is_lost = key in self._told and _identity(result) not in entries
            if not result.get("bindingConditions") or (known and known[0] == at and not is_lost):
                continue
            device = result["pool"], result["device"]
            story, times = scenario.stories.get(device, ("true",)), self._times.get(device, 0)
            self._times[device] = times + 1
            self._told.discard(key)
            self._begun[key] = at, time.monotonic(), story[min(times, len(story) - 1)]
            yield key

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _work(self, key: Allocated, result: Obj) -> list[Obj]:
        """What there is to be told of a device."""
        _, since, word = self._begun[key]
        if word.startswith("late") and time.monotonic() - since < LATE_SECONDS:
            return []
        told = conditions(word, result)
        if not told:
            return []
        self._told.add(key)
        if word in ("tainted", "gone"):
            await self._break(result, word)
        at = {"reason": "Told", "message": word, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        found = [{"type": name, "status": status, **at} for name, status in told]
        return [{name: result[name] for name in _IDENTITY if name in result} | {"conditions": found}]

    async def _break(self, result: Obj, word: str) -> None:
        for pool in (await self._api.list(SLICES))["items"]:
            if pool["spec"]["pool"]["name"] == result["pool"]:
                await self._api.update(SLICES, without_device(pool, result["device"], word))


def _note(trace: Trace, one: Obj, only: str = "") -> None:
    """Note the conditions of an object, or those of one type."""
    for each in (one.get("status") or {}).get("conditions") or ():
        if only in ("", each["type"]):
            told = (each.get(key, "") for key in ("type", "status", "reason", "message"))
            trace.told.add((name_of(one), *told))


class VolumeMaker:
    """The controllers of volumes: of ephemeral ones, the driver that makes them, and the binder."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._made: set[str] = set()
        self._since: dict[str, float] = {}
        """Claims for which a node was selected, by identifier."""
        self._refused: dict[str, int] = {}

    async def claims_for(self, pod: Obj) -> None:
        """Make the claims for a pod's own volumes, once."""
        if pod["metadata"]["uid"] not in self._made and not pod["metadata"].get("deletionTimestamp"):
            self._made.add(pod["metadata"]["uid"])
            for claim in ephemeral_claims_of(pod):
                await self._api.create(VOLUMES, claim, NAMESPACE)

    async def look(self, claim: Obj, word: str) -> None:
        """Make the volume of a claim for which a node was selected, at once or late, or refuse the node."""
        meta = claim["metadata"]
        if claim["spec"].get("volumeName") or SELECTED not in (meta.get("annotations") or {}) or word == "never":
            return
        since = self._since.setdefault(meta["uid"], time.monotonic())
        if word == "late" and time.monotonic() - since < LATE_SECONDS:
            return
        refused = self._refused.get(meta["uid"], 0)
        with suppress(StatusError):
            if word == "refused" or (word == "refused once" and not refused):
                self._refused[meta["uid"]] = refused + 1
                nothing = {"metadata": {"annotations": {SELECTED: None}}}
                await self._api.patch(VOLUMES, name_of(claim), nothing, NAMESPACE, "merge")
                return
            made = provisioned(claim)
            await self._api.create(MADE, made)
            body = {"spec": {"volumeName": name_of(made)}, "metadata": {"annotations": BOUND}}
            await self._api.patch(VOLUMES, name_of(claim), body, NAMESPACE, "merge")
            await self._api.patch(VOLUMES, name_of(claim), {"status": {"phase": "Bound"}}, NAMESPACE, "merge", "status")


def _identity(one: Obj) -> tuple[str, ...]:
    return tuple(one.get(name) or "" for name in _IDENTITY)


def _stable(claim: Obj) -> str:
    """The claim's name; of one that a scheduler made, whose it is."""
    if EXTENDED in (claim["metadata"].get("annotations") or {}):
        return f"extended {claim['metadata']['ownerReferences'][0]['name']}"
    return name_of(claim)
