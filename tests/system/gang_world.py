"""A cluster in one process and in virtual time, with people and machines that do unexpected things to it.

Real: the API server over its store, the scheduler, and the controllers of claims and garbage. Played: nodes and
devices, which are written into the API directly, and the users. A `World` is told a seed and runs by it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from gang_history import BUCKETS, History, is_evicted
from gang_pods import CLAIM_SPECS, DRIVER, EXTENDED, FLAVOURS, PARTS, card_limit, claim_entries, gang_pod, group_claim
from gang_resources import CARD, SLICE_CPU, cards_of, plugin_cards

import virtual_time
from faulty_api import FaultyApi
from haru.client.api import ApiClient
from haru.client.event_series import SeriesRecorder
from haru.controllers.manager import ControllerManager
from haru.controllers.objects import (
    CLAIM_TEMPLATES,
    CLAIMS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    SERVICE_ACCOUNTS,
    SLICES,
)
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, known_kind
from haru.scheduler.config import scheduler_config
from haru.scheduler.scheduler import Scheduler
from haru.scheduler.settings import Fairness
from virtual_server import started_server

Obj = dict[str, Any]
NS = "default"
CONTROLLERS = (
    "resourceclaim-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "podgroup-protection-controller",
)
CARDS, LANES = 4, 6
CLASSES = {"card": "card-", "slice": "slice-", "lane": "lane-"}


DEVICE_CLASSES = known_kind("resource.k8s.io/v1", "DeviceClass")
PRIORITY_CLASSES = known_kind("scheduling.k8s.io/v1", "PriorityClass")


def device_use(result: Obj) -> tuple[str, int, int]:
    """What a device of `slices_of` draws from: itself, the memory of a card, or the lanes of a shared one."""
    pool, device = result["pool"], result["device"]
    if device.startswith("slice-"):
        return f"{pool}/memory of the cut card", int(device.split("-")[1]), PARTS
    if device.startswith("lane-"):
        return f"{pool}/{device}", int((result.get("consumedCapacity") or {}).get("lanes", LANES)), LANES
    return f"{pool}/{device}", 1, 1


def slices_of(node: str) -> Obj:
    """A node's devices: whole cards, overlapping slices of one more card, and one that claims share by lanes."""
    kinds = {"type": {"string": "card"}}
    devices: list[Obj] = [{"name": f"card-{i}", "attributes": kinds} for i in range(CARDS)]
    for size, count in ((PARTS // 4, 4), (PARTS // 2, 2), (PARTS, 1)):
        for number in range(count):
            counter = {"counterSet": "cut", "counters": {"memory": {"value": str(size)}}}
            kind = {"type": {"string": "slice"}, "size": {"int": size}}
            made = {"name": f"slice-{size}-{number}", "attributes": kind, "consumesCounters": [counter]}
            devices.append({**made, "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": SLICE_CPU}}})
    lanes = {"lanes": {"value": str(LANES), "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}}
    shared = {"allowMultipleAllocations": True, "capacity": lanes, "attributes": {"type": {"string": "lane"}}}
    devices.append({"name": "lane-0", **shared})
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    base = {"driver": DRIVER, "pool": pool, "nodeName": node}
    counters = [{"name": "cut", "counters": {"memory": {"value": str(PARTS)}}}]
    return {
        f"{node}-counters": {**base, "sharedCounters": counters},
        f"{node}-devices": {**base, "devices": devices},
    }


class World:
    """One run. Use as `await World(seed).play(...)` inside `virtual_time.run`."""

    def __init__(self, seed: int, fault_rate: float = 0.08) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.gates = FeatureGates.accelerator_defaults()
        self.fault_rate = fault_rate
        self.history = History(device_use)
        self.restarts = 0
        self.steps: list[str] = []
        self._numbers = itertools.count()
        self._nodes: set[str] = set()
        self._gangs: dict[str, list[str]] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._deeds: set[asyncio.Task[None]] = set()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.server = await started_server(self.gates)
        self.faulty = FaultyApi(self.server, random.Random(self.seed + 1), 0.0)
        self.admin = ApiClient.in_process(self.server, "admin", rng=random.Random(self.seed))
        await self._furnish()
        self._watches = {name: self.server.objects.store.watch(f"{_bucket(name)}/", 1) for name in BUCKETS}
        self._tasks["kubelets"] = asyncio.create_task(self._bury(random.Random(self.seed + 2)))
        await self.start_controllers()
        await self.start_scheduler()

    async def stop(self) -> None:
        await self.kill_scheduler()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.server.stop()

    async def start_controllers(self) -> None:
        """Those of claims and garbage, over the same bad line."""
        client = ApiClient.in_process(self.faulty, "admin", rng=random.Random(self.seed))
        manager = ControllerManager(
            client, self.gates, CONTROLLERS, clock=virtual_time.clock(), rng=random.Random(self.seed)
        )
        self._tasks["controllers"] = asyncio.create_task(manager.run())

    async def start_scheduler(self) -> None:
        """A new one; where it ends since it does not learn what its server serves, another one follows it."""
        self._tasks["scheduler"] = asyncio.create_task(self._keep_scheduling())

    async def _keep_scheduling(self) -> None:
        while True:
            self.scheduler = self._new_scheduler()
            try:
                await self.scheduler.run()
            except StatusError:  # of its start: whatever comes later is in a group
                await asyncio.sleep(1)

    def _new_scheduler(self) -> Scheduler:
        """With an empty memory; it talks to the API over a bad line."""
        client = ApiClient.in_process(self.faulty, "admin", rng=random.Random(self.seed))
        config = scheduler_config(
            self.gates,
            ["default-scheduler"],
            seed=self.seed,
            fairness=Fairness(backfill=self.seed % 2 == 1),
            clock=virtual_time.now,
            monotonic=_monotonic,
        )
        return Scheduler(client, config, SeriesRecorder(self.admin, "scheduler", now=virtual_time.now))

    async def kill_scheduler(self) -> None:
        await self._kill("scheduler")

    async def _kill(self, name: str) -> None:
        task = self._tasks.pop(name)
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def restart(self) -> None:
        """Kill it wherever it is."""
        await self.kill_scheduler()
        await self.start_scheduler()
        self.restarts += 1

    async def restart_amid_an_eviction(self) -> None:
        """Kill it between the deletions of a group that goes whole; who came for its place may have gone by then."""
        store = self.server.objects.store
        pods = store.watch("pods/", store.revision)
        self.faulty.only, self.faulty.rate = lambda method, _: method == "DELETE", 0.6  # so that there is such a time
        urgent = await self.add_single(urgent=True)
        until = _monotonic() + 2
        while (left := until - _monotonic()) > 0:
            if any(event.new is not None and is_evicted(json.loads(event.new.value)) for event in pods.pending()):
                break
            await pods.wait(left)
        pods.close()
        for _ in range(self.rng.choice((0, 1, 5))):
            await asyncio.sleep(0)
        await self.kill_scheduler()
        self.faulty.only, self.faulty.rate = None, 0.0
        if self.rng.random() < 0.5:
            await _maybe(self.admin.delete(PODS, urgent, NS, grace_period_seconds=0))
        await self.start_scheduler()
        self.restarts += 1
        await asyncio.sleep(0.2)  # before others are evicted together with those that were left
        self.record()
        self.history.problems += [f"after a restart {text}" for text in self.history.half_evicted()]
        self.faulty.rate = self.fault_rate

    async def restart_controllers(self) -> None:
        """The same for the controllers."""
        await self._kill("controllers")
        await self.start_controllers()
        self.restarts += 1

    def record(self) -> None:
        """Take in what has happened since the last call, in the order in which it did."""
        events = [(e.revision, name, e) for name, watch in self._watches.items() for e in watch.pending()]
        for revision, name, event in sorted(events, key=lambda entry: entry[0]):
            key = f"{name}/{event.key.partition('/')[2]}"
            self.history.apply(name, key, event.new.value if event.new is not None else None, revision)

    # -- what people and machines do -----------------------------------------------------------------------------------

    async def _furnish(self) -> None:
        for name in (NS, "kube-system"):
            await _maybe(self.create(NAMESPACES, {"metadata": {"name": name}}))
        await _maybe(self.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}))
        for name in CLASSES:
            expression = f'device.attributes["{DRIVER}"].type == "{name}"'
            selected: Obj = {"selectors": [{"cel": {"expression": expression}}]}
            if name == "card":
                selected["extendedResourceName"] = CARD
            await self.create(DEVICE_CLASSES, {"metadata": {"name": name}, "spec": selected})
        await self.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        for name, requests in CLAIM_SPECS.items():
            spec = {"spec": {"devices": {"requests": requests}}}
            await self.create(CLAIM_TEMPLATES, {"metadata": {"name": name}, "spec": spec})

    async def create(self, kind: Kind, obj: Obj) -> Obj:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return await self.admin.create(kind, body, NS if kind.namespaced else "")

    async def add_node(self, cpu: int = 4) -> None:
        number = next(self._numbers)
        gone = [f"node-{n}" for n in range(number) if f"node-{n}" not in self._nodes]
        name = self.rng.choice(gone) if gone and self.rng.random() < 0.3 else f"node-{number}"
        self._nodes.add(name)
        self.steps.append(f"add {name}")
        labels = {"kubernetes.io/hostname": name}
        await _maybe(self.create(NODES, {"metadata": {"name": name, "labels": labels}}))
        amounts = {"cpu": str(cpu), "memory": "16Gi", "pods": "30"}
        if plugin_cards(name):
            amounts[CARD] = str(plugin_cards(name))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
        await _maybe(self.admin.patch(NODES, name, status, subresource="status"))
        await _maybe(self.admin.patch(NODES, name, {"spec": {"taints": None}}))
        for slice_name, spec in slices_of(name).items():
            await _maybe(self.create(SLICES, {"metadata": {"name": slice_name}, "spec": spec}))

    async def lose_node(self) -> None:
        if len(self._nodes) < 2:
            return
        name = self.rng.choice(sorted(self._nodes))
        self._nodes.discard(name)
        self.steps.append(f"lose {name}")
        await _maybe(self.admin.delete(NODES, name))
        for slice_name in slices_of(name):
            await _maybe(self.admin.delete(SLICES, slice_name))
        for pod in (await self.admin.list(PODS, NS))["items"]:
            if pod["spec"].get("nodeName") == name:  # their kubelet is gone: nobody else would end them
                await _maybe(self.admin.delete(PODS, pod["metadata"]["name"], NS, grace_period_seconds=0))

    async def add_gang(self) -> None:
        name = f"gang-{next(self._numbers)}"
        minimum = self.rng.randint(2, 4)
        size = minimum + self.rng.choice((0, 0, 1, 2))
        flavour = self.rng.choice(FLAVOURS)
        self.steps.append(f"{name}: {minimum} of {size}, {flavour}")
        group: Obj = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        group["disruptionMode"] = self.rng.choice(("Pod", "PodGroup", "PodGroup"))
        claims = claim_entries(flavour, name)
        if flavour == "group":
            group["resourceClaims"] = claims
        if flavour == "named":
            spec = {"devices": {"requests": CLAIM_SPECS["one-card"]}}
            await _maybe(self.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}))
        make_group = partial(self.create, POD_GROUPS, {"metadata": {"name": name}, "spec": group})
        urgent = self.rng.random() < 0.25
        if urgent and self.rng.random() < 0.8:
            group["priorityClassName"] = "high"
        pods = [f"{name}-{i}" for i in range(size)]
        works: list[Callable[[], Awaitable[Any]]] = [make_group]
        cards = EXTENDED.get(flavour, 0)
        works += [partial(self.create, PODS, gang_pod(pod, name, claims, urgent, cards)) for pod in pods]
        self.rng.shuffle(works)
        self._gangs[name] = pods
        for work in works:
            await _maybe(work())
            await asyncio.sleep(self.rng.choice((0, 0, 0.001, 0.02)))

    async def add_single(self, urgent: bool = False) -> str:
        name = f"single-{next(self._numbers)}"
        flavour = self.rng.choice([f for f in FLAVOURS if f not in ("group", "named")])
        self.steps.append(f"{name}: {flavour}")
        claims, cards = claim_entries(flavour, name), EXTENDED.get(flavour, 0)
        await _maybe(self.create(PODS, gang_pod(name, "", claims, urgent or self.rng.random() < 0.3, cards)))
        return name

    async def delete_pod(self) -> None:
        pods = (await self.admin.list(PODS, NS))["items"]
        if not pods:
            return
        pod = self.rng.choice(pods)
        name, group = pod["metadata"]["name"], (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        self.steps.append(f"delete {name}")
        await _maybe(self.admin.delete(PODS, name, NS, grace_period_seconds=0))
        if group and self.rng.random() < 0.8:
            await asyncio.sleep(self.rng.choice((0, 0.001, 0.05)))
            claims = list(pod["spec"].get("resourceClaims") or ())
            await _maybe(self.create(PODS, gang_pod(name, group, claims, False, cards_of(pod))))

    async def _bury(self, rng: random.Random) -> None:
        """What kubelets do for pods that are being deleted; some come again, as if a controller had made them."""
        while True:
            await asyncio.sleep(rng.choice((0.1, 0.5, 3)))
            for pod in (await self.admin.list(PODS, NS))["items"]:
                metadata, spec = pod["metadata"], pod["spec"]
                if not metadata.get("deletionTimestamp") or rng.random() < 0.3:
                    continue
                await _maybe(self.admin.delete(PODS, metadata["name"], NS, grace_period_seconds=0))
                group = (spec.get("schedulingGroup") or {}).get("podGroupName", "")
                if group and rng.random() < 0.5:
                    claims = list(spec.get("resourceClaims") or ())
                    await _maybe(self.create(PODS, gang_pod(metadata["name"], group, claims, False, card_limit(spec))))

    async def delete_gang(self) -> None:
        if not self._gangs:
            return
        name = self.rng.choice(sorted(self._gangs))
        self.steps.append(f"delete {name}")
        for pod in self._gangs.pop(name):
            await _maybe(self.admin.delete(PODS, pod, NS, grace_period_seconds=0))
        await _maybe(self.admin.delete(POD_GROUPS, name, NS))

    # -- the run ------------------------------------------------------------------------------------------------------

    async def play(self, steps: int) -> Sequence[str]:
        """So many deeds, then peace and room for everybody; answers with what was wrong."""
        await self.start()
        try:
            for _ in range(2):
                await self.add_node()
            self.faulty.rate = self.fault_rate
            deeds = (
                [self.add_gang] * 6 + [self.add_single] * 3 + [self.restart] * 3 + [self.restart_amid_an_eviction] * 2
            )
            deeds += [
                self.restart_controllers,
                self.add_node,
                self.lose_node,
                self.delete_pod,
                self.delete_pod,
                self.delete_gang,
            ]
            one_by_one = (self.restart, self.restart_amid_an_eviction, self.restart_controllers)
            for _ in range(steps):
                deed = self.rng.choice(deeds)
                if deed in one_by_one or self.rng.random() < 0.5:
                    await deed()
                else:  # beside whatever follows
                    task = asyncio.create_task(deed())
                    self._deeds.add(task)
                    task.add_done_callback(self._deeds.discard)
                for _ in range(self.rng.choice((0, 1, 5, 20))):
                    await asyncio.sleep(0)
                await asyncio.sleep(self.rng.choice((0, 0.001, 0.01, 0.1, 1.5)))
                self.record()
            if self._deeds:
                await asyncio.wait(self._deeds)
            await self._rest()
            return [*self.history.problems, *self.history.at_rest(), *self._undone()]
        finally:
            await self.stop()

    async def _rest(self) -> None:
        """No more faults; first with what room there is, then with room for all."""
        self.faulty.rate = 0.0
        await self.restart()
        await asyncio.sleep(60)
        self.record()
        self.history.problems += [f"without more room: {text}" for text in self.history.at_rest()]
        for _ in range(2 + len(self.history.objects["pods"]) // 2):
            await self.add_node(cpu=24)
        await asyncio.sleep(60)
        self.record()

    def _undone(self) -> list[str]:
        """There is room now, so every gang that is complete must run, and every single pod."""
        waiting = []
        pods = self.history.objects["pods"]
        alive: dict[str, int] = {}
        for pod in pods.values():
            group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
            alive[group] = alive.get(group, 0) + 1
        for path, pod in pods.items():
            group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
            known = f"podgroups/{NS}/{group}" in self.history.objects["podgroups"]
            complete = not group or (known and alive[group] >= self.history.minimum(f"{NS}/{group}"))
            named = any(
                f"resourceclaims/{NS}/{c.get('resourceClaimName', '')}" in self.history.objects["resourceclaims"]
                for c in pod["spec"].get("resourceClaims") or ()
            )
            # Who shares a card that was allocated on a small node must go there, room or not.
            if complete and not named and not pod["spec"].get("nodeName") and not group_claim(pod):
                condition = [c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"]
                waiting.append(f"{path} waits although there is room: {condition}")
        return waiting


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _bucket(plural: str) -> str:
    groups = {"resourceclaims": "resource.k8s.io", "podgroups": "scheduling.k8s.io"}
    return f"{plural}.{groups[plural]}" if plural in groups else plural


async def _maybe(work: Awaitable[Any]) -> None:
    """A user whose request is refused shrugs: the thing was gone, or already there."""
    try:
        await work
    except StatusError as error:
        if error.code not in (404, 409):
            raise
