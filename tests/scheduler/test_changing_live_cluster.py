"""The live scheduler on a cluster whose devices, nodes and units change at random, in virtual time.

Whenever the cluster has been quiet for longer than any backoff, and long before the queue is flushed: who would be
placed on what the API has by then is placed already, no device has two holders, and of a gang none or its quorum runs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
from changing_devices import ChangingDevices, Unit
from scheduler_bench import CLAIMS, CLASSES, GROUPS, NODES, NS, PODS, SLICES, Bench

import virtual_time
from haru.apiserver.config import UserInfo
from haru.client.api import ApiClient
from haru.controllers.manager import ControllerManager
from haru.embedded.identity import controller_user
from haru.engine import Options, SchedulerCache, decide
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from nights import tonight
from torn_api import TornApi

Obj = dict[str, Any]
_RULES = known_kind("resource.k8s.io/v1beta2", "DeviceTaintRule")
_PRIORITIES = known_kind("scheduling.k8s.io/v1", "PriorityClass")
_NAMESPACES = known_kind("v1", "Namespace")
_PUBLISHED = {"Node": NODES, "ResourceSlice": SLICES, "DeviceClass": CLASSES, "DeviceTaintRule": _RULES}
_LISTED = (*_PUBLISHED.values(), CLAIMS, PODS, GROUPS)
_CONTROLLERS = ("resourceclaim-controller", "device-taint-eviction-controller")
_ROUNDS = 12
_QUIET_SECONDS = 32
_PAUSES = (0.0, 0.01, 1.0, 5.0)


class LiveCluster:
    """What `world` publishes, and units that live in the API alone; `kubelet` runs and ends the pods."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self._bench, self._api = bench, bench.api
        self._world = ChangingDevices(Random(seed))
        self._random = self._world.random
        self._shown: dict[tuple[str, str], Obj] = {}
        self._units: dict[str, Unit] = {}

    async def prepare(self) -> None:
        for value in (0, 5, 10):
            await self._bench.create(_PRIORITIES, {"metadata": {"name": f"p{value}"}, "value": value})
            polite = {"metadata": {"name": f"p{value}-polite"}, "value": value, "preemptionPolicy": "Never"}
            await self._bench.create(_PRIORITIES, polite)
        await self._api.delete(CLASSES, "gpu")
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await self._api.patch(_NAMESPACES, NS, label)

    async def change(self) -> None:
        """Some changes of nodes and devices, and of units, with pauses in between; then quiet."""
        for _ in range(self._random.randrange(1, 5)):
            self._world.change()
        await self._publish()
        for _ in range(self._random.randrange(4)):
            await self._change_units()
        for pause in self._random.choices(_PAUSES, k=3):
            await asyncio.sleep(pause)
            await self._kubelet(failing=True)
        await self.settle()

    async def settle(self) -> None:
        """Be quiet for longer than any backoff."""
        for _ in range(4):
            await asyncio.sleep(_QUIET_SECONDS / 4)
            await self._kubelet()

    # -- nodes and devices

    async def _publish(self) -> None:
        wanted = {key: one for key, one in self._world.objects.items() if key[0] in _PUBLISHED}
        for kind, name in [key for key in self._shown if key not in wanted]:
            await self._api.delete(_PUBLISHED[kind], name)
            del self._shown[kind, name]
        for key, one in wanted.items():
            if self._shown.get(key) != one:
                await self._write(_PUBLISHED[key[0]], key[1], one, new=key not in self._shown)
                self._shown[key] = one
                await self._pause()

    async def _write(self, kind: Any, name: str, one: Obj, *, new: bool) -> None:
        metadata = {"name": name, "labels": one["metadata"].get("labels") or {}}
        if new:
            await self._bench.create(kind, {"metadata": metadata, "spec": one["spec"]})
        else:
            there = await self._api.get(kind, name)
            metadata = {**there["metadata"], "labels": metadata["labels"]}
            await self._api.update(kind, {**there, "metadata": metadata, "spec": one["spec"]})
        if kind is NODES:
            # Admission taints new nodes.
            await self._api.patch(NODES, name, {"spec": {"taints": one["spec"].get("taints")}})
            there = await self._api.get(NODES, name)
            amounts = one["status"]["allocatable"]
            status = {**(there.get("status") or {}), "allocatable": amounts, "capacity": amounts}
            await self._api.update_status(NODES, {**there, "status": status})

    async def _pause(self) -> None:
        if self._world.chance(3):
            await asyncio.sleep(self._random.choice(_PAUSES))

    # -- units

    async def _change_units(self) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in (await self._api.list(PODS, NS))["items"]}
        placed = sorted(name for name, pod in pods.items() if pod["spec"].get("nodeName"))
        gated = sorted(name for name, pod in pods.items() if pod["spec"].get("schedulingGates"))
        aspect = self._random.randrange(8)
        if aspect == 7 and placed:
            await self._resize(pods[self._random.choice(placed)])
        elif aspect < 2 and placed:
            await self._delete(PODS, self._random.choice(placed), self._random.choice((0, 1)))
        elif aspect == 2 and placed:
            ended = {"status": {"phase": "Succeeded"}}
            await self._api.patch(PODS, self._random.choice(placed), ended, NS, "merge", "status")
        elif aspect == 3 and gated:
            await self._api.patch(PODS, self._random.choice(gated), {"spec": {"schedulingGates": None}}, NS)
        elif aspect == 4 and len(self._units) > 3:
            await self._abandon(self._units.pop(self._random.choice(sorted(self._units))))
        else:
            await self._add()

    async def _resize(self, pod: Obj) -> None:
        """A container asks for another amount, and has it at once or, so far, not."""
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        asked = {**container["resources"].get("requests", {}), "cpu": str(self._random.randrange(1, 4))}
        changed = {"containers": [{"name": container["name"], "resources": {"requests": asked}}]}
        with suppress(StatusError):  # of a pod that ends, or whose own level asks for less
            await self._api.patch(PODS, name, {"spec": changed}, NS, "strategic", "resize")
            had = container["resources"].get("requests", {})
            told = {"name": container["name"], "image": "i", "imageID": "", "ready": True, "restartCount": 0}
            told |= {"resources": {"requests": had}, "allocatedResources": had}
            reason = self._random.choice(("Infeasible", "Deferred", ""))
            pending = {"type": "PodResizePending", "status": "True", "reason": reason}
            status = {"containerStatuses": [told], "conditions": [pending]} if reason else {"containerStatuses": []}
            await self._api.patch(PODS, name, {"status": status}, NS, "strategic", "status")

    async def _delete(self, kind: Any, name: str, grace: int = 0) -> None:
        with suppress(StatusError):
            await self._api.delete(kind, name, NS, grace_period_seconds=grace)

    async def _abandon(self, unit: Unit) -> None:
        for kind, names in ((PODS, unit.pods), (CLAIMS, unit.claims), (GROUPS, [unit.group] * bool(unit.group))):
            for name in names:
                await self._delete(kind, name)

    async def _add(self) -> None:
        """A unit whose objects come in any order, one after the other."""
        world = self._world
        unit = world.new_unit()
        made = [(CLAIMS, world.objects["ResourceClaim", name]) for name in unit.claims]
        made += [(PODS, world.objects["Pod", name]) for name in unit.pods]
        if unit.group:
            made.append((GROUPS, world.objects["PodGroup", unit.group]))
        for kind, one in made:
            world.take(kind.kind, one, None)
        del world.units[unit.name]
        self._units[unit.name] = unit
        if world.chance(2):
            self._random.shuffle(made)
        for kind, one in made:
            await self._bench.create(kind, self._as_written(one, unit))
            await self._pause()

    def _as_written(self, one: Obj, unit: Unit) -> Obj:
        metadata = {name: one["metadata"][name] for name in ("name", "labels") if name in one["metadata"]}
        spec = dict(one["spec"])
        if "priority" in spec:
            spec.pop("priority")
            spec["priorityClassName"] = f"p{unit.priority}" + "-polite" * unit.polite
        if one["kind"] == "Pod":
            for member in {"containers", "initContainers"} & spec.keys():
                spec[member] = [_container(each) for each in spec[member]]
            spec.pop("overhead", None)  # that of a RuntimeClass
            spec["terminationGracePeriodSeconds"] = 1
            spec.pop("hostUsers", None)  # no server takes it with the host's network
            # The claims of templates are made by hand: by name they may come before or after the pod.
            claims = [{"name": entry["name"], "resourceClaimName": name} for entry, name in _entries(one)]
            if claims:
                spec["resourceClaims"] = claims
            if self._world.chance(8):
                spec["schedulingGates"] = [{"name": "g"}]
        return {"metadata": metadata, "spec": spec}

    async def _driver(self, failing: bool) -> None:
        """Say of allocated devices that they are ready for their nodes, or of some that they will not be."""
        for claim in (await self._api.list(CLAIMS, NS))["items"]:
            results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or ()
            waited = [one for one in results if one.get("bindingConditions")]
            if not waited or claim["status"].get("devices"):
                continue
            at = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Told", "message": ""}
            condition = {"type": "failed" if failing and self._world.chance(3) else "ready", "status": "True", **at}
            keys = ("driver", "pool", "device", "shareID")
            told = [{**{key: one[key] for key in keys if key in one}, "conditions": [condition]} for one in waited]
            await self._api.patch(
                CLAIMS, claim["metadata"]["name"], {"status": {"devices": told}}, NS, "merge", "status"
            )

    async def _kubelet(self, failing: bool = False) -> None:
        await self._driver(failing)
        for pod in (await self._api.list(PODS, NS))["items"]:
            name = pod["metadata"]["name"]
            if not pod["spec"].get("nodeName"):
                continue
            if pod["metadata"].get("deletionTimestamp"):
                await self._delete(PODS, name)
            elif pod["status"].get("phase") == "Pending":
                await self._api.patch(PODS, name, {"status": {"phase": "Running"}}, NS, "merge", "status")

    # -- what must hold

    async def check(self) -> None:
        found = await self._read()
        assert not list(_held_twice(found))
        for unit in self._units.values():
            members = [found["Pod", name] for name in unit.pods if ("Pod", name) in found]
            self._check_quorum(found, unit, members)
            waiting = [pod for pod in members if not pod["spec"].get("nodeName")]
            decision = self._decision(found, unit, waiting)
            if decision == "scheduled":
                # It may have been woken just now, by the end of somebody's backoff.
                await self.settle()
                later = await self._read()
                waiting = [later["Pod", name] for name in unit.pods if ("Pod", name) in later]
                waiting = [pod for pod in waiting if not pod["spec"].get("nodeName")]
                assert self._decision(later, unit, waiting) != "scheduled", f"{unit} was not woken"

    def _check_quorum(self, found: dict[tuple[str, str], Obj], unit: Unit, members: list[Obj]) -> None:
        group = found.get(("PodGroup", unit.group))
        if group is not None and len(members) == len(unit.pods):
            bound = [pod for pod in members if pod["spec"].get("nodeName")]
            quorum = group["spec"]["schedulingPolicy"]["gang"]["minCount"]
            assert not bound or len(bound) >= quorum, f"{unit.name}: {len(bound)} of at least {quorum} are bound"

    def _decision(self, found: dict[tuple[str, str], Obj], unit: Unit, waiting: list[Obj]) -> str:
        """What becomes of those who wait, on the cluster read at once; nothing for those who are held."""
        held = any(pod["spec"].get("schedulingGates") or pod["metadata"].get("deletionTimestamp") for pod in waiting)
        missing = [name for name in unit.claims if ("ResourceClaim", name) not in found]
        group = found.get(("PodGroup", unit.group))
        if not waiting or held or missing or bool(unit.group) != (group is not None):
            return ""
        numbers = itertools.count()
        options = Options(new_share_id=lambda: f"share-{next(numbers)}")
        return decide(SchedulerCache.of(found.values()).snapshot(), waiting, group=group, options=options).status

    async def _read(self) -> dict[tuple[str, str], Obj]:
        found = {}
        for kind in _LISTED:
            for one in (await self._api.list(kind, NS if kind.namespaced else ""))["items"]:
                found[kind.kind, one["metadata"]["name"]] = {**one, "kind": kind.kind, "apiVersion": kind.api_version}
        return found


def _container(each: Obj) -> Obj:
    requests = (each.get("resources") or {}).get("requests") or {}
    extended = {name: amount for name, amount in requests.items() if "/" in name}
    return {**each, "image": "i", "resources": {"requests": requests, "limits": extended}}


def _entries(pod: Obj) -> Iterator[tuple[Obj, str]]:
    made = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        yield entry, entry.get("resourceClaimName") or made[entry["name"]]


def _held_twice(found: dict[tuple[str, str], Obj]) -> Iterator[str]:
    holders: dict[tuple[str, str], list[Obj]] = defaultdict(list)
    for (kind, _), one in found.items():
        allocation = (one.get("status") or {}).get("allocation") if kind == "ResourceClaim" else None
        for result in allocation["devices"].get("results") or () if allocation else ():
            if not result.get("adminAccess"):
                holders[result["pool"], result["device"]].append(result)
    for device, results in holders.items():
        shares = [result["shareID"] for result in results if result.get("shareID")]
        if len(results) - len(shares) > 1 or len(set(shares)) < len(shares):
            yield f"{device} is held by {results}"


@asynccontextmanager
async def _controllers(bench: Bench) -> AsyncIterator[None]:
    def client_of(controller: str) -> ApiClient:
        bench.server.admit(controller, UserInfo(*controller_user(controller)))
        return ApiClient.in_process(bench.server, controller, "tests")

    manager = ControllerManager(bench.api, bench.gates, _CONTROLLERS, clock=virtual_time.clock(), clients=client_of)
    task = asyncio.create_task(manager.run())
    try:
        yield
    finally:
        await cancelled(task)


async def _replace_scheduler(bench: Bench) -> None:
    """End it at once, and start another one until one starts, as a Deployment does."""
    await bench.kill()
    while True:
        starting = asyncio.create_task(bench.start_scheduler())
        await asyncio.sleep(0)
        await asyncio.wait({starting, bench.task}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return
        await cancelled(starting)
        assert isinstance(bench.task.exception(), (StatusError, OSError))
        await asyncio.sleep(1)


async def _torn_history(seed: int, rounds: int) -> None:
    """The scheduler's watches and reads fail meanwhile, and now and then another one takes its place at any moment."""
    bench, random = Bench(), Random(seed)
    await bench.start()
    torn = TornApi(bench.faulty, random)
    bench.way = torn
    try:
        async with _controllers(bench):
            cluster = LiveCluster(bench, seed)
            await cluster.prepare()
            for _ in range(rounds):
                torn.rate = 0.3
                changing = asyncio.create_task(cluster.change())
                await asyncio.sleep(random.choice((0.0, 1.0, 10.0)) * random.random())
                replaced = asyncio.create_task(_replace_scheduler(bench))
                await changing
                torn.rate = 0.0
                await replaced
                await cluster.settle()
                await cluster.check()
                assert not bench.task.done()
            assert sum(torn.counts.values()) > 5 * rounds, torn.counts
    finally:
        await bench.stop()


@pytest.mark.parametrize("seed", range(2))
def test_who_fits_is_placed_once_watches_and_reads_no_longer_break(seed: int) -> None:
    virtual_time.run(_torn_history(seed, _ROUNDS))


@pytest.mark.nightly
def test_who_fits_is_placed_once_watches_and_reads_no_longer_break_in_many_histories() -> None:
    for seed in tonight(range(2, 200)):
        virtual_time.run(_torn_history(seed, _ROUNDS))


async def _history(seed: int, rounds: int) -> None:
    bench = Bench()
    await bench.start()
    try:
        async with _controllers(bench):
            cluster = LiveCluster(bench, seed)
            await cluster.prepare()
            for _ in range(rounds):
                await cluster.change()
                await cluster.check()
                assert not bench.task.done()
    finally:
        await bench.stop()


@pytest.mark.parametrize("seed", range(2))
def test_who_fits_is_placed_once_cluster_is_quiet(seed: int) -> None:
    virtual_time.run(_history(seed, _ROUNDS))


@pytest.mark.nightly
def test_who_fits_is_placed_once_cluster_is_quiet_in_many_histories() -> None:
    for seed in tonight(range(2, 400)):
        virtual_time.run(_history(seed, _ROUNDS))
