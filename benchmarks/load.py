"""Pods for a scheduler, on nodes that no kubelet runs: nodes, devices, claims, gangs, and the time to their bindings.

Everything that pods need is created before the first of them, and one pod is bound before it counts. The clock runs
from the first pod's creation to the last binding that a watch shows; a pod's own from the start of its creation. Each
run has a namespace of its own and leaves nothing behind but the nodes, which the runs of one load share.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from benchmarks.cluster import kind
from benchmarks.processes import Meter, Used
from haru.client.api import ApiClient, path_of
from haru.client.transport import LineSplitter
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind

Obj = dict[str, Any]
Scenario = Literal["plain", "claims", "templates", "gangs", "one-gang"]
SCENARIOS: tuple[Scenario, ...] = ("plain", "claims", "templates", "gangs", "one-gang")
AT_ONCE = 32
CREATED_AT_ONCE = 16
PATIENCE_SECONDS = 600
LIMIT_SECONDS = 600.0
SETTLE_SECONDS = 3.0
CLIENT_SECONDS = 600.0
"""For an answer: to delete thousands of pods in one request takes a server a while."""
DRIVER = "gpu.example.com"
CLASS_NAME = "gpu.example.com"
FIRST = "first"
SHARD = "benchmark.haru.dev/shard"

POD, NODE, CLASS = kind("", "pods"), kind("", "nodes"), kind("resource.k8s.io", "deviceclasses")
SLICE, TEMPLATE = kind("resource.k8s.io", "resourceslices"), kind("resource.k8s.io", "resourceclaimtemplates")
CLAIM, NAMESPACE, ACCOUNT = (
    kind("resource.k8s.io", "resourceclaims"),
    kind("", "namespaces"),
    kind("", "serviceaccounts"),
)
_ONE_DEVICE: Obj = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS_NAME}}]}}


def _gang_kind() -> Kind:
    found = kinds.lookup("scheduling.k8s.io", "v1alpha2", "podgroups")
    assert found is not None
    return found


GANG = _gang_kind()


@dataclass(frozen=True)
class Load:
    """So many pods, on so many nodes with so many devices each, beside so many busy processes.

    With a profile the devices are the cards of that one, as their driver publishes them.
    """

    name: str
    scenario: Scenario
    nodes: int
    pods: int
    devices: int = 8
    size: int = 8
    beside: int = 0
    profile: str = ""

    @property
    def claims(self) -> bool:
        """Whether each pod has a claim of one device."""
        return self.scenario != "plain"

    @property
    def gang_size(self) -> int:
        """Pods of a gang; 0: no gangs."""
        return {"gangs": self.size, "one-gang": self.pods}.get(self.scenario, 0)

    def describe(self) -> str:
        """In words, for a table."""
        what = {
            "plain": f"{self.pods:,} plain pods",
            "claims": f"{self.pods:,} pods with a claim each",
            "templates": f"{self.pods:,} pods with a claim each from a template",
            "gangs": f"{self.pods // self.size:,} gangs of {self.size}",
            "one-gang": f"one gang of {self.pods:,}",
        }[self.scenario]
        nodes = f"{self.nodes:,} nodes" + (f" × {self.devices}" if self.claims else "")
        nodes += f" of {self.profile}" if self.profile else ""
        return f"{what}, {nodes}" + (f", beside {self.beside} busy" if self.beside else "")


@dataclass(frozen=True)
class Measured:
    """One run of a load: seconds from the first creation, and what the processes took meanwhile."""

    load: str
    pods: int
    bound: int
    seconds: float
    create_seconds: float
    p50: float
    p99: float
    used: dict[str, Used] = field(default_factory=dict)
    requests: dict[str, float] = field(default_factory=dict)
    """Requests that the server counted meanwhile, a pod: `PUT resourceclaims/status`; only if it says so."""

    @property
    def rate(self) -> float:
        """Pods bound per second."""
        return self.bound / self.seconds


async def each(count: int, work: Callable[[int], Awaitable[Any]], at_once: int = AT_ONCE) -> None:
    """Do it for each number, so many at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, count)):
            group.create_task(worker())


async def furnish(
    client: ApiClient, nodes: int, devices: int, prefix: str = "node", shards: int = 0, profile: str = ""
) -> None:
    """Create the nodes, ready and without taints, with devices if there are any, and their DeviceClass.

    With shards every node has the label `SHARD`, a number below that; with a profile the devices are its cards.
    """
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110"}

    async def add(number: int) -> None:
        name = f"{prefix}-{number:05}"
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        labels |= {SHARD: str(number % shards)} if shards else {}
        await client.create(NODE, {"metadata": {"name": name, "labels": labels}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        await client.patch(NODE, name, {"status": status}, subresource="status")
        await client.patch(NODE, name, {"spec": {"taints": None}})
        if devices:
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            listed = _cards(profile, name) if profile else [_device(number, index) for index in range(devices)]
            spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": listed}
            await client.create(SLICE, {"metadata": {"name": name}, "spec": spec})

    if devices:
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        await _create_once(client, CLASS, {"metadata": {"name": CLASS_NAME}, "spec": {"selectors": [selector]}})
    await each(nodes, add)


def _device(node: int, index: int) -> Obj:
    attributes = {"model": {"string": "h100"}, "index": {"int": index}, "uuid": {"string": f"GPU-{node}-{index}"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}


def _cards(profile: str, node: str) -> list[Obj]:
    slices = resource_slices(load_profile(profile), node, "", {}, 1)
    return [device for item in slices for device in item["spec"]["devices"]]


async def remove_nodes(client: ApiClient, nodes: int, prefix: str) -> None:
    """Delete what `furnish` created, except the DeviceClass."""

    async def remove(number: int) -> None:
        for which in (SLICE, NODE):
            with contextlib.suppress(StatusError):
                await client.delete(which, f"{prefix}-{number:05}")

    await each(nodes, remove)


async def _create_once(client: ApiClient, which: Kind, obj: Obj, namespace: str = "") -> None:
    try:
        await client.create(which, obj, namespace)
    except StatusError as error:
        if error.code != 409:
            raise


def template() -> Obj:
    """A template of claims of one device, named `one`."""
    return {"metadata": {"name": "one"}, "spec": {"spec": _ONE_DEVICE}}


def pod(name: str, *, claim: str = "", from_template: bool = False, gang: str = "", scheduler: str = "") -> Obj:
    """A pod: with this claim, or one from the template `one`; in this gang."""
    container: Obj = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec: Obj = {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
    if claim or from_template:
        container["resources"]["claims"] = [{"name": "gpu"}]
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "one"}
        spec["resourceClaims"] = [{"name": "gpu", **source}]
    if gang:
        spec["schedulingGroup"] = {"podGroupName": gang}
    if scheduler:
        spec["schedulerName"] = scheduler
    return {"metadata": {"name": name}, "spec": spec}


_ERROR, _DELETED, _NODE_NAME = b'{"type":"ERROR"', b'{"type":"DELETED"', b'"nodeName":"'
_NAME = re.compile(rb'\{"type":"\w+","object":\{"kind":"Pod","apiVersion":"v1","metadata":\{"name":"([^"\\]+)"').match
_JSON = {"content-type": "application/json"}
_COUNTER = re.compile(r"apiserver_request_total\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


async def _requests(client: ApiClient) -> dict[str, float]:
    """Requests so far, by verb, resource and subresource, from the server's metrics; nothing where they are refused."""
    status, _, body = await client.raw("GET", "/metrics")
    found: defaultdict[str, float] = defaultdict(float)
    for line in body.decode().splitlines() if status == 200 else ():
        if (match := _COUNTER.match(line)) is not None:
            labels = dict(_LABEL.findall(match[1]))
            resource = "/".join(filter(None, (labels.get("resource"), labels.get("subresource"))))
            found[f"{labels['verb']} {resource}"] += float(match[2])
    return dict(found)


class Bindings:
    """When a watch showed each pod bound, one name left out."""

    def __init__(self, ignored: str = "") -> None:
        self.bound: dict[str, float] = {}
        self._ignored = ignored

    async def follow(self, client: ApiClient, namespace: str, since: str, count: int) -> None:
        """Watch until so many pods are bound; go on where a watch ends."""
        while len(self.bound) < count:
            query = [("watch", "true"), ("resourceVersion", since), ("timeoutSeconds", "300")]
            splitter, last = LineSplitter(), b""
            async with aclosing(client.stream_raw(path_of(POD, namespace), query)) as stream:
                async for chunk in stream:
                    for last in splitter.feed(chunk):
                        if self._shows_bound(last) and len(self.bound) >= count:
                            return
            since = _version_in(last) or since

    def _shows_bound(self, line: bytes) -> bool:
        """Take in an event: only the name of a bound pod is read of it, as the time for it is not the scheduler's."""
        if line.startswith(_ERROR):
            raise StatusError.from_status(orjson.loads(line)["object"])
        if _NODE_NAME not in line or line.startswith(_DELETED):
            return False
        found = _NAME(line)
        name = found[1].decode() if found is not None else orjson.loads(line)["object"]["metadata"]["name"]
        if name != self._ignored:
            self.bound.setdefault(name, time.perf_counter())
        return True


def _version_in(line: bytes) -> str:
    return str(orjson.loads(line)["object"]["metadata"]["resourceVersion"]) if line else ""


async def bound(client: ApiClient, count: int, since: str, namespace: str = "default") -> None:
    """Wait until so many pods are bound after a revision."""
    await Bindings().follow(client, namespace, since, count)


_numbers = itertools.count()


@contextlib.asynccontextmanager
async def _namespace(client: ApiClient, load: Load) -> AsyncIterator[str]:
    """A namespace of its own with all that the pods of the load need; emptied when the block is left."""
    name = f"b{int(time.time())}-{next(_numbers)}"
    await client.create(NAMESPACE, {"metadata": {"name": name}})
    await _create_once(client, ACCOUNT, {"metadata": {"name": "default"}}, name)
    if load.scenario == "templates":
        await client.create(TEMPLATE, template(), name)
    elif load.claims:
        await each(
            load.pods + 1,
            lambda number: client.create(CLAIM, {"metadata": {"name": f"c-{number}"}, "spec": _ONE_DEVICE}, name),
        )
    if size := load.gang_size:
        policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
        await each(
            load.pods // size,
            lambda number: client.create(GANG, {"metadata": {"name": f"g-{number}"}, "spec": policy}, name),
        )
    try:
        yield name
    finally:
        await _empty(client, name, (POD, GANG, CLAIM) if load.gang_size else (POD, CLAIM))


async def _empty(client: ApiClient, namespace: str, which: tuple[Kind, ...]) -> None:
    """Delete all objects of these kinds, and take off the finalizers that no controller takes off."""
    for own in which:
        await client.delete_collection(own, namespace)
        while items := (await client.list(own, namespace))["items"]:
            names = [item["metadata"]["name"] for item in items]

            async def release(number: int, own: Kind = own, names: list[str] = names) -> None:
                with contextlib.suppress(StatusError):
                    await client.patch(own, names[number], {"metadata": {"finalizers": None}}, namespace)

            await each(len(names), release)


def _pod_of(load: Load, number: int, scheduler: str) -> Obj:
    """The pod of this number; the one after the last is `first`, a member of no gang."""
    size = load.gang_size if number < load.pods else 0
    return pod(
        f"p-{number}" if number < load.pods else FIRST,
        claim=f"c-{number}" if load.claims and load.scenario != "templates" else "",
        from_template=load.scenario == "templates",
        gang=f"g-{number // size}" if size else "",
        scheduler=scheduler,
    )


async def drive(
    client: ApiClient,
    load: Load,
    processes: dict[str, int],
    schedulers: Sequence[str] = ("",),
    settle: float = SETTLE_SECONDS,
    limit: float = LIMIT_SECONDS,
) -> Measured:
    """Create the load's pods and wait until all are bound, or the limit has passed. The nodes are there already.

    The pods go to these schedulerNames in turn, the one before them to the first.
    """
    async with _namespace(client, load) as namespace:
        since = await _revision(client, namespace)
        await client.create(POD, _pod_of(load, load.pods, schedulers[0]), namespace)
        try:
            await asyncio.wait_for(bound(client, 1, since, namespace), PATIENCE_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{load.name}: the first pod is not bound after {PATIENCE_SECONDS} s") from error
        await asyncio.sleep(settle)
        since = await _revision(client, namespace)
        return await _timed(client, load, namespace, since, processes, schedulers, limit)


async def _revision(client: ApiClient, namespace: str) -> str:
    return str((await client.list(POD, namespace))["metadata"]["resourceVersion"])


async def _timed(
    client: ApiClient,
    load: Load,
    namespace: str,
    since: str,
    processes: dict[str, int],
    schedulers: Sequence[str],
    limit: float,
) -> Measured:
    bindings, created, path = Bindings(FIRST), dict[str, float](), path_of(POD, namespace)

    async def create(number: int) -> None:
        body = _pod_of(load, number, schedulers[number % len(schedulers)])
        data = orjson.dumps({"apiVersion": "v1", "kind": "Pod", **body})
        created[body["metadata"]["name"]] = time.perf_counter()
        status, _, answer = await client.raw("POST", path, headers=_JSON, body=data)
        if status >= 300:
            raise StatusError.from_status(orjson.loads(answer))

    requests, meter = await _requests(client), Meter(processes)
    follow = asyncio.create_task(bindings.follow(client, namespace, since, load.pods))
    begun = time.perf_counter()
    await each(load.pods, create, CREATED_AT_ONCE)
    made = time.perf_counter()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(follow, limit)
    used = meter.used()
    requests = {name: count - requests.get(name, 0) for name, count in (await _requests(client)).items()}
    times = sorted(at - created[name] for name, at in bindings.bound.items() if name in created)
    if not times:
        raise RuntimeError(f"{load.name}: no pod was bound within {limit:g} s")
    return Measured(
        load.name,
        load.pods,
        len(times),
        max(bindings.bound.values()) - begun,
        made - begun,
        times[len(times) // 2],
        times[int(len(times) * 0.99)],
        used,
        {name: count / len(times) for name, count in requests.items() if count * 100 >= len(times)},
    )
