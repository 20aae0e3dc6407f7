"""A whole cluster in virtual time, left to itself but for one change: what whatif foretells is what happens there.

Real: the API server, the scheduler, the controllers, the virtual kubelets and their driver. Played: who makes gangs,
and puts back a member that has gone; and the person who changes things.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import virtual_time
from haru.api.admission import settled
from haru.api.cluster_reader import FORKED_KINDS, list_objects
from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.controllers.manager import ControllerManager
from haru.drivers.simulated.driver import SimulatedDriver
from haru.drivers.simulated.objects import node_object
from haru.drivers.simulated.profiles import Profile, described_profile
from haru.drivers.simulated.slices import resource_slices
from haru.explain.tainting import rule_manifest
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import uid_of
from haru.kube.names import format_time
from haru.scheduler.config import scheduler_config
from haru.scheduler.scheduler import Scheduler
from haru.scheduler.settings import COMPATIBLE
from haru.simulated_nodes.fleet import Fleet
from haru.whatif import AddNodes, Change, Cordon, Delete, Repartition, TaintDevice, TaintNode
from virtual_server import started_server

Obj = dict[str, Any]
NS = "default"
REST_SECONDS = 150  # more than the quarantine of lost pods (40 s) and some rounds of back-off after it (10 s)
CONTROLLERS = (
    "device-taint-eviction-controller",
    "garbage-collector-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "podgroup-protection-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "taint-eviction-controller",
)
CARDS = "cards: {model: h100-80gb, count: 2}"
SMALL = described_profile(f"node: {{cpu: '8', memory: 64Gi}}\n{CARDS}", "small", "small")
CUT = described_profile(f"node: {{cpu: '8', memory: 64Gi}}\n{CARDS}\nlayout: mig-balanced", "cut", "cut")
PLAIN = described_profile("node: {cpu: '6', memory: 32Gi}", "plain", "plain")

PODS, NODES, SLICES = (
    known_kind("v1", "Pod"),
    known_kind("v1", "Node"),
    known_kind("resource.k8s.io/v1", "ResourceSlice"),
)
GROUPS = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")
CLAIMS = known_kind("resource.k8s.io/v1", "ResourceClaim")
SETS = known_kind("apps/v1", "ReplicaSet")
RULES = known_kind("resource.k8s.io/v1beta2", "DeviceTaintRule")
PRIORITIES = known_kind("scheduling.k8s.io/v1", "PriorityClass")
TEMPLATES = known_kind("resource.k8s.io/v1", "ResourceClaimTemplate")
_BASE = (("Namespace", NS), ("Namespace", "kube-system"), ("Namespace", "kube-node-lease"), ("ServiceAccount", NS))
CLASSES = {"card": "gpu.nvidia.com", "part": "mig.nvidia.com"}


class Workload(NamedTuple):
    """`kind` is set (a ReplicaSet), gang (bare members, of which `size` are needed) or bare (one pod, nobody's)."""

    name: str
    kind: str
    size: int
    cpu: int
    claim: str
    priority: int

    def pod(self, name: str = "") -> Obj:
        container: Obj = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(self.cpu)}}}
        spec: Obj = {"containers": [container], "priorityClassName": f"p{self.priority}"}
        if self.claim:
            container["resources"]["claims"] = [{"name": "gpu"}]
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": self.claim}]
        if self.kind == "gang":
            spec["schedulingGroup"] = {"podGroupName": self.name}
        labels = {"workload": self.name}
        return {"metadata": {"labels": labels, **({"name": name} if name else {})}, "spec": spec}

    def names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.size)]

    def manifests(self) -> list[Obj]:
        """What its owner submits."""
        level: Obj = {"metadata": {"name": f"p{self.priority}"}, "value": self.priority}
        objects = [_of(PRIORITIES, level)]
        if self.kind == "set":
            selector = {"matchLabels": {"workload": self.name}}
            spec: Obj = {"replicas": self.size, "selector": selector, "template": self.pod()}
            objects.append(_of(SETS, {"metadata": {"name": self.name}, "spec": spec}))
        elif self.kind == "gang":
            spec = {"schedulingPolicy": {"gang": {"minCount": self.size}}, "priorityClassName": f"p{self.priority}"}
            spec["disruptionMode"] = ("Pod", "PodGroup")[self.priority // 2 % 2]
            objects.append(_of(GROUPS, {"metadata": {"name": self.name}, "spec": spec}))
            objects += [_of(PODS, self.pod(name)) for name in self.names()]
        else:
            objects.append(_of(PODS, self.pod(self.name)))
        return objects


def _of(kind: Kind, obj: Obj) -> Obj:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}


class Summary(NamedTuple):
    """What must be the same: of each workload how many pods have a place, wait, and lost the place they had."""

    placed: Counter[str]
    waiting: Counter[str]
    displaced: Counter[str]


def workload_of(pod: Obj) -> str:
    return str(pod["metadata"]["labels"]["workload"])


class World:
    controllers: Sequence[str] = CONTROLLERS
    fairness = COMPATIBLE

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.gates = FeatureGates.accelerator_defaults()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._gangs: dict[str, Workload] = {}

    async def start(self, nodes: Sequence[tuple[Profile, str]]) -> None:
        loop = asyncio.get_running_loop()
        self.server = await started_server(self.gates)
        self.api = self._client()
        for kind, name in _BASE:
            await self._maybe_create(known_kind("v1", kind), {"metadata": {"name": name}})
        await self.prepare()
        recorder = EventRecorder(self.api, "test", now=virtual_time.now, monotonic=loop.time)
        manager = ControllerManager(
            self._client(), self.gates, self.controllers, clock=virtual_time.clock(), rng=random.Random(self.seed)
        )
        scheduling = scheduler_config(
            self.gates,
            ["default-scheduler"],
            seed=self.seed,
            fairness=self.fairness,
            clock=virtual_time.now,
            monotonic=loop.time,
        )
        scheduler = Scheduler(self._client(), scheduling, recorder)
        fleet = Fleet(self._client(), nodes, virtual_time.clock(), recorder=recorder, renew_seconds=20.0)
        driver = SimulatedDriver(self._client(), nodes, recorder=recorder)
        self._run("controllers", manager.run())
        self._run("scheduler", scheduler.run())
        self._run("fleet", fleet.run())
        self._run("driver", driver.run())
        self._run("framework", self._keep_gangs_whole())
        await fleet.ready.wait()
        await driver.ready.wait()
        for name, count in (("one-card", 1), ("two-cards", 2)):
            await self._template(name, CLASSES["card"], count)
        await self._template("one-part", CLASSES["part"], 1)

    async def prepare(self) -> None:
        """Create what is there before scheduler and controllers are."""

    async def stop(self) -> None:
        failures = [task.exception() for task in self._tasks.values() if task.done()]
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.server.stop()
        assert not failures, failures

    def _client(self) -> ApiClient:
        return ApiClient.in_process(self.server, "admin", rng=random.Random(self.seed))

    def _run(self, name: str, work: Any) -> None:
        self._tasks[name] = asyncio.create_task(work)

    async def _template(self, name: str, device_class: str, count: int) -> None:
        request = {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": count}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        await self.create(TEMPLATES, {"metadata": {"name": name}, "spec": spec})

    async def create(self, kind: Kind, obj: Obj) -> Obj:
        return await self.api.create(kind, _of(kind, obj), NS if kind.namespaced else "")

    async def _maybe_create(self, kind: Kind, obj: Obj) -> None:
        try:
            await self.create(kind, obj)
        except StatusError as error:
            if error.code != 409:
                raise

    # -- work ----------------------------------------------------------------------------------------------------------

    async def submit(self, workload: Workload) -> None:
        for obj in workload.manifests():
            await self.create(known_kind(obj["apiVersion"], obj["kind"]), obj)
        if workload.kind == "gang":
            self._gangs[workload.name] = workload

    async def _keep_gangs_whole(self) -> None:
        """What a training framework does: a member that has gone is made again."""
        while True:
            there = {pod["metadata"]["name"] for pod in (await self.api.list(PODS, NS))["items"]}
            for gang in list(self._gangs.values()):
                for name in gang.names():
                    if name not in there:
                        await self._maybe_create(PODS, gang.pod(name))
            await asyncio.sleep(2)

    # -- the change, as a person makes it ------------------------------------------------------------------------------

    async def make(self, change: Change) -> None:
        match change:
            case Cordon(node):
                await self.api.patch(NODES, node, {"spec": {"unschedulable": True}})
            case TaintNode(node, taint):
                there = (await self.api.get(NODES, node))["spec"].get("taints") or []
                added = {"key": taint.key, "value": taint.value, "effect": taint.effect}
                await self.api.patch(NODES, node, {"spec": {"taints": [*there, added]}})
            case TaintDevice(device, taint):
                await self.create(RULES, rule_manifest(device, taint, RULES.api_version))
            case AddNodes(profile, count):
                for number in range(count):
                    node = node_object(profile, f"{profile.name}-{number}", internal_ip=f"10.9.0.{number}", now=_now())
                    await self.create(NODES, {**node, "status": {}})
            case Delete(kind, path):
                await self._delete(kind, path.rpartition("/")[2])
            case Repartition(node, profile):
                await self._repartition(node, profile)
            case _:
                raise AssertionError(f"nobody does this here: {change}")

    async def _delete(self, kind: str, name: str) -> None:
        if kind == "PodGroup":
            gang = self._gangs.pop(name)
            for pod in gang.names():
                await self.api.delete(PODS, pod, NS)
            await self.api.delete(GROUPS, name, NS)
        else:
            of = {"Node": NODES, "ReplicaSet": SETS, "Pod": PODS}[kind]
            await self.api.delete(of, name, NS if of.namespaced else "")

    async def _repartition(self, node: str, profile: Profile) -> None:
        """The driver is stopped, whoever uses what is to be no more is ended, and then the cards are cut."""
        self._tasks.pop("driver").cancel()
        uid = uid_of(await self.api.get(NODES, node))
        new = resource_slices(profile, node, uid, {}, 2)
        left = {device["name"] for item in new for device in item["spec"].get("devices") or ()}
        for item in (await self.api.list(SLICES))["items"]:
            if item["spec"].get("nodeName") == node:
                await self.api.delete(SLICES, item["metadata"]["name"])
        ended = [user for user in await self._users_of(node) if user[1] not in left]
        for user in dict(ended):
            await self.api.delete(PODS, user, NS)
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if all(device in left for _, device in await self._users_of(node)):
                break
        for item in new:
            await self.api.create(SLICES, item)

    async def _users_of(self, node: str) -> list[tuple[str, str]]:
        """Pods, each with a device of the node that it uses."""
        found = []
        for claim in (await self.api.list(CLAIMS, NS))["items"]:
            status = claim.get("status") or {}
            results = (status.get("allocation") or {}).get("devices", {}).get("results") or ()
            devices = [result["device"] for result in results if result["pool"] == node]
            found += [(user["name"], device) for user in status.get("reservedFor") or () for device in devices]
        return found

    # -- what there is -------------------------------------------------------------------------------------------------

    async def fork(self) -> list[Obj]:
        """As `haru whatif` reads a cluster."""
        objects, refused = await list_objects(self.api, FORKED_KINDS)
        assert not refused
        return settled(objects)

    async def pods(self) -> list[Obj]:
        return list((await self.api.list(PODS, NS))["items"])

    async def summary(self, ran: Iterable[Obj]) -> Summary:
        """Given the pods that had a place before the change."""
        pods = await self.pods()
        there = {uid_of(pod) for pod in pods}
        return Summary(
            Counter(workload_of(pod) for pod in pods if pod["spec"].get("nodeName")),
            Counter(workload_of(pod) for pod in pods if not pod["spec"].get("nodeName")),
            Counter(workload_of(pod) for pod in ran if uid_of(pod) not in there),
        )


def _now() -> str:
    return format_time(virtual_time.now())
