"""Node lifecycle, eviction by taints (of nodes and devices) and pod garbage against the API server."""

import asyncio
import contextlib
import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from controller_cluster import in_virtual_time, pod_body

import virtual_time
from haru.client.backoff import Backoff
from haru.controllers.objects import CLAIMS, LEASES, NAMESPACES, NODES, PODS, SLICES, TAINT_RULES
from haru.kube.kinds import known_kind
from haru.kube.meta import get_condition
from haru.kube.names import format_micro_time, format_time

LIFECYCLE, TAINTS = "node-lifecycle-controller", "taint-eviction-controller"
FAST = {"node-monitor-grace-period": 0.4, "node-monitor-period": 0.05}
DEVICES = "device-taint-eviction-controller"


async def make_ready(cluster, *nodes):
    now = format_time(datetime.now(UTC))
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
    for name in nodes:
        if await cluster.get(NODES, name) is None:
            await cluster.create(NODES, {"metadata": {"name": name}})
        await cluster.client.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")


async def renew(cluster, *nodes):
    for name in nodes:
        spec = {"holderIdentity": name, "renewTime": format_micro_time(datetime.now(UTC))}
        if await cluster.get(LEASES, name, "kube-node-lease") is None:
            await cluster.create(LEASES, {"metadata": {"name": name}, "spec": spec}, "kube-node-lease")
        else:
            await cluster.client.patch(LEASES, name, {"spec": spec}, "kube-node-lease")


async def running(cluster, name, node="n1", **spec):
    pod = await cluster.create(PODS, pod_body(name, nodeName=node, **spec))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.set_status(PODS, name, status)
    return pod


def taints(node):
    return {
        (t["key"].removeprefix("node.kubernetes.io/"), t["effect"]) for t in (node.get("spec") or {}).get("taints", ())
    }


@pytest.fixture
async def lease_namespace(cluster):
    if await cluster.get(NAMESPACES, "kube-node-lease") is None:
        await cluster.create(NAMESPACES, {"metadata": {"name": "kube-node-lease"}})


@pytest.mark.usefixtures("lease_namespace")
async def test_silent_node_is_marked_unknown_tainted_and_drained(cluster):
    await make_ready(cluster, "n1", "n2")
    tolerant = [{"operator": "Exists"}]
    await running(cluster, "goes", tolerations=[{"key": "x", "operator": "Exists"}])
    await running(cluster, "stays", tolerations=tolerant)
    await running(cluster, "elsewhere", "n2")
    await cluster.start(LIFECYCLE, TAINTS, **FAST)

    async def silent():
        await renew(cluster, "n2")  # n1 says nothing
        return taints(await cluster.get(NODES, "n1")) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}

    await cluster.eventually(silent)
    ready = get_condition(await cluster.get(NODES, "n1"), "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")

    async def not_ready():
        await renew(cluster, "n2")
        return get_condition(await cluster.get(PODS, "stays"), "Ready")["status"] == "False"

    await cluster.eventually(not_ready)
    assert get_condition(await cluster.get(PODS, "elsewhere"), "Ready")["status"] == "True"
    await make_ready(cluster, "n1")

    async def back():
        await renew(cluster, "n1", "n2")
        return taints(await cluster.get(NODES, "n1")) == set()

    await cluster.eventually(back)


@pytest.mark.usefixtures("lease_namespace")
async def test_no_execute_taint_is_not_set_when_all_nodes_are_silent(cluster):
    await make_ready(cluster, "n1", "n2")
    await cluster.start(LIFECYCLE, TAINTS, **FAST)

    async def silent():
        nodes = [await cluster.get(NODES, name) for name in ("n1", "n2")]
        return all(("unreachable", "NoSchedule") in taints(node) for node in nodes) and nodes

    nodes = await cluster.eventually(silent)
    assert not any(("unreachable", "NoExecute") in taints(node) for node in nodes)


@pytest.mark.usefixtures("lease_namespace")
async def test_new_node_without_heartbeat_has_startup_grace_period(cluster):
    """Its pods stay too: it may be their kubelet that starts."""
    clock = Steps()
    await make_ready(cluster, "n2")
    await running(cluster, "early")
    manager = await cluster.start(LIFECYCLE, **SLOW, monotonic=clock)

    async def untouched():
        node = await cluster.get(NODES, "n1")
        pod = await cluster.get(PODS, "early")
        return taints(node) == {("not-ready", "NoSchedule")} and get_condition(pod, "Ready")["status"] == "True"

    await cluster.always(untouched)
    for _ in range(2):
        await renew(cluster, "n2")
        await clock.pass_time(manager, 29)
    # A node that has spoken would be silent by now.
    await renew(cluster, "n2")
    await cluster.always(untouched)
    await clock.pass_time(manager, 4)

    async def unreachable():
        # A slow machine may have missed the renewal above: as any kubelet, this one says again that it is ready.
        await renew(cluster, "n2")
        await make_ready(cluster, "n2")
        return taints(await cluster.get(NODES, "n1")) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}

    await cluster.eventually(unreachable)
    ready = get_condition(await cluster.get(NODES, "n1"), "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusNeverUpdated")


class Steps:
    """A clock that a test sets forward, in steps in which the controller has looked at its nodes."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def pass_time(self, manager, seconds: float) -> None:
        controller = manager.running[LIFECYCLE]
        for _ in range(round(seconds)):
            self.now += 1
            looks = controller.observed.looks
            async with asyncio.timeout(60):
                while controller.observed.looks < looks + 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)


SLOW = {"node-monitor-grace-period": 50, "node-startup-grace-period": 60, "node-monitor-period": 0.01}


def is_ready(node):
    return get_condition(node, "Ready")["status"] == "True"


@pytest.mark.usefixtures("lease_namespace")
async def test_blocked_controller_does_not_mark_nodes_unknown(cluster):
    """While it was not looking nobody was silent, as far as it knows."""
    clock = Steps()
    await make_ready(cluster, "n1", "n2")
    manager = await cluster.start(LIFECYCLE, **SLOW, monotonic=clock)
    for _ in range(3):
        clock.now += 200
        await clock.pass_time(manager, 2)
        for name in ("n1", "n2"):
            assert is_ready(await cluster.get(NODES, name))
    await clock.pass_time(manager, 60)

    async def given_up():
        return not is_ready(await cluster.get(NODES, "n1"))

    await cluster.eventually(given_up)


class Interruptible:
    """A transport that can be cut."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.cut = asyncio.Event()

    async def send(self, request, timeout):
        self._check()
        return await self.inner.send(request, timeout)

    @contextlib.asynccontextmanager
    async def stream(self, request, timeout):
        self._check()
        async with self.inner.stream(dataclasses.replace(request, shared=False), timeout) as stream:
            yield dataclasses.replace(stream, chunks=self._until_cut(stream.chunks))

    async def _until_cut(self, chunks):
        cut = asyncio.ensure_future(self.cut.wait())
        while True:
            chunk = asyncio.ensure_future(anext(chunks))
            try:
                await asyncio.wait({chunk, cut}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not chunk.done():
                    chunk.cancel()
            self._check()
            yield chunk.result()

    def _check(self):
        if self.cut.is_set():
            raise ConnectionError("cut")

    async def close(self):
        await self.inner.close()


@pytest.mark.usefixtures("lease_namespace")
async def test_time_without_api_server_does_not_count_as_node_silence(cluster):
    clock = Steps()
    await make_ready(cluster, "n1", "n2")
    await renew(cluster, "n1", "n2")
    client = cluster.client_of("manager")
    client._transport = transport = Interruptible(client._transport)
    manager = await cluster.start(LIFECYCLE, **SLOW, monotonic=clock)
    informers = (manager.running[LIFECYCLE].leases, manager.running[LIFECYCLE].nodes)
    for informer in informers:
        informer._backoff = Backoff(base=0.01, cap=0.02)
    transport.cut.set()

    async def interrupted():
        return all(informer.interrupted for informer in informers)

    await cluster.eventually(interrupted)
    await clock.pass_time(manager, 120)
    transport.cut.clear()

    async def seen():
        return not any(informer.interrupted for informer in informers)

    await cluster.eventually(seen)
    await clock.pass_time(manager, 30)
    assert is_ready(await cluster.get(NODES, "n1"))
    for _ in range(4):
        await renew(cluster, "n2")
        await clock.pass_time(manager, 10)

    async def given_up():
        await renew(cluster, "n2")
        return not is_ready(await cluster.get(NODES, "n1"))

    await cluster.eventually(given_up)
    assert is_ready(await cluster.get(NODES, "n2"))


@pytest.mark.usefixtures("lease_namespace")
async def test_node_with_lagging_lease_watch_is_not_marked_unknown(cluster):
    """The watch of Leases lags: what the server has is read before a node is given up."""
    clock = Steps()
    await make_ready(cluster, "n1", "n2")
    await renew(cluster, "n1", "n2")
    manager = await cluster.start(LIFECYCLE, **SLOW, monotonic=clock)
    leases = manager.running[LIFECYCLE].leases
    leases._hear = lambda type_, obj: None
    for _ in range(5):
        await clock.pass_time(manager, 20)
        await renew(cluster, "n2")
    await clock.pass_time(manager, 30)

    async def given_up():
        return not is_ready(await cluster.get(NODES, "n1"))

    await cluster.eventually(given_up)
    assert is_ready(await cluster.get(NODES, "n2"))


@pytest.mark.parametrize("dated", [True, False])
async def test_pods_on_tainted_node_are_evicted_after_toleration_seconds(cluster, dated):
    taint = {"key": "k", "effect": "NoExecute"}
    if dated:
        taint["timeAdded"] = format_time(datetime.now(UTC))
    for name, tolerations in {
        "never": [{"key": "k", "operator": "Exists"}],
        "soon": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}],
        "now": [{"key": "other", "operator": "Exists"}],
    }.items():
        await running(cluster, name, tolerations=tolerations)
    await cluster.start(TAINTS)
    await cluster.client.patch(NODES, "n1", {"spec": {"taints": [taint]}})

    async def leaving():
        return {p["metadata"]["name"] for p in await cluster.items(PODS) if p["metadata"].get("deletionTimestamp")}

    async def both():
        return await leaving() == {"now", "soon"}

    await cluster.eventually(both)
    condition = get_condition(await cluster.get(PODS, "now"), "DisruptionTarget")
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByTaintManager")


def test_taint_removed_in_time_evicts_no_pod():
    async def scenario(cluster):
        taint = {"key": "k", "effect": "NoExecute", "timeAdded": format_time(virtual_time.now())}
        minute = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        await running(cluster, "p", tolerations=[minute])
        await cluster.start(TAINTS)
        await cluster.client.patch(NODES, "n1", {"spec": {"taints": [taint]}})
        await asyncio.sleep(50)
        await cluster.client.patch(NODES, "n1", {"spec": {"taints": None}})
        await asyncio.sleep(3000)
        assert not (await cluster.get(PODS, "p"))["metadata"].get("deletionTimestamp")
        told = [(each["reason"], each["message"]) for each in await cluster.items(known_kind("v1", "Event"))]
        assert told == [("TaintManagerEviction", "Cancelling deletion of Pod ns/p")]

    in_virtual_time(scenario)


@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize("dated", [True, False])
def test_clock_that_jumps_neither_hastens_nor_delays_what_is_tolerated_for_a_while(hours, dated):
    async def scenario(cluster):
        taint = {"key": "k", "effect": "NoExecute"}
        if dated:
            taint["timeAdded"] = format_time(virtual_time.now())
        minute = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        await running(cluster, "p", tolerations=[minute])
        await cluster.start(TAINTS)
        await cluster.client.patch(NODES, "n1", {"spec": {"taints": [taint]}})
        await asyncio.sleep(20)
        cluster.ahead = timedelta(hours=hours)
        for number in range(7):  # each change of the pod has it looked at
            assert not (await cluster.get(PODS, "p"))["metadata"].get("deletionTimestamp")
            await asyncio.sleep(5)
            await cluster.client.patch(PODS, "p", {"metadata": {"labels": {"at": str(number)}}}, "ns")
        await asyncio.sleep(10)
        assert (await cluster.get(PODS, "p"))["metadata"].get("deletionTimestamp")

    in_virtual_time(scenario)


async def test_pods_of_deleted_nodes_are_deleted(cluster):
    await cluster.create(NODES, {"metadata": {"name": "n2"}})
    await running(cluster, "stays", "n1")
    await running(cluster, "goes", "n2")
    await cluster.start("pod-garbage-collector-controller", **{"node-quarantine-seconds": 0.1})
    await cluster.client.delete(NODES, "n2")

    async def gone():
        return [p["metadata"]["name"] for p in await cluster.items(PODS)] == ["stays"]

    await cluster.eventually(gone)


async def test_deleted_pods_that_never_ran_are_removed_by_pod_collector(cluster):
    body = pod_body("p")
    body["metadata"]["finalizers"] = ["test/hold"]
    await cluster.create(PODS, body)
    await cluster.client.delete(PODS, "p", "ns")
    await cluster.start("pod-garbage-collector-controller")
    await cluster.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, "ns")

    async def gone():
        return await cluster.get(PODS, "p") is None

    await cluster.eventually(gone)


# -- devices ----------------------------------------------------------------------------------------------------------


def device_slice(*taints_):
    device = {"name": "gpu-0", **({"taints": list(taints_)} if taints_ else {})}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "s"},
        "spec": {"driver": "d.example.com", "pool": pool, "nodeName": "n1", "devices": [device]},
    }


async def with_device(cluster, name="p", tolerations=()):
    exactly = (
        {"deviceClassName": "gpu", "tolerations": list(tolerations)} if tolerations else {"deviceClassName": "gpu"}
    )
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    await cluster.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})
    pod = await running(cluster, name, resourceClaims=[{"name": "c", "resourceClaimName": name}])
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    if tolerations:
        result["tolerations"] = list(tolerations)
    live = await cluster.get(CLAIMS, name)
    live["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
    }
    await cluster.client.update_status(CLAIMS, live)
    return pod


async def evicted(cluster):
    return {p["metadata"]["name"] for p in await cluster.items(PODS) if p["metadata"].get("deletionTimestamp")}


async def test_no_execute_device_taint_evicts_pods_using_device(cluster):
    await cluster.create(SLICES, device_slice())
    await with_device(cluster, "goes")
    await with_device(cluster, "stays", [{"operator": "Exists", "effect": "NoExecute"}])
    await running(cluster, "without")
    await cluster.start(DEVICES)
    live = await cluster.get(SLICES, "s")
    live["spec"]["devices"][0]["taints"] = [{"key": "bad", "effect": "NoExecute"}]
    await cluster.client.update(SLICES, live)

    async def gone():
        return await evicted(cluster) == {"goes"}

    await cluster.eventually(gone)
    condition = get_condition(await cluster.get(PODS, "goes"), "DisruptionTarget")
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    assert condition["message"] == "Device Taint manager: deleting due to NoExecute taint"


def test_device_taint_removed_in_time_evicts_no_pod():
    async def scenario(cluster):
        await cluster.create(SLICES, device_slice({"key": "bad", "effect": "NoExecute"}))
        await with_device(cluster, "p", [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}])
        await cluster.start(DEVICES)
        await asyncio.sleep(50)
        live = await cluster.get(SLICES, "s")
        live["spec"]["devices"][0].pop("taints")
        await cluster.client.update(SLICES, live)
        await asyncio.sleep(3600)
        assert not await evicted(cluster)

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("effect", "reason"), [("NoExecute", "Completed"), ("NoSchedule", "OtherEffect"), ("None", "NoEffect")]
)
async def test_device_taint_rule_status_reports_affected_pods(cluster, effect, reason):
    await cluster.create(SLICES, device_slice())
    await with_device(cluster)
    await cluster.start(DEVICES)
    spec = {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "k", "effect": effect}}
    await cluster.create(TAINT_RULES, {"metadata": {"name": "r"}, "spec": spec})

    async def told():
        return get_condition(await cluster.get(TAINT_RULES, "r"), "EvictionInProgress")

    condition = await cluster.eventually(told)
    assert condition["observedGeneration"] == 1
    if effect == "NoExecute":

        async def gone():
            return await evicted(cluster) == {"p"}

        await cluster.eventually(gone)
    else:
        assert (condition["status"], condition["reason"]) == ("False", reason)
        assert await evicted(cluster) == set()
    if effect == "None":
        assert condition["message"] == (
            "1 published device selected. 1 allocated device selected. "
            "1 pod would be evicted in 1 namespace if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )


async def test_device_taint_rule_counts_the_pods_that_have_to_go(cluster):
    toleration = {"operator": "Exists", "effect": "NoExecute"}
    await cluster.create(SLICES, device_slice())
    await with_device(cluster, tolerations=[{**toleration, "tolerationSeconds": 3000}])
    await with_device(cluster, "ever", tolerations=[toleration])
    await cluster.start(DEVICES)
    for effect in "None", "NoExecute":
        spec = {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "k", "effect": effect}}
        await cluster.create(TAINT_RULES, {"metadata": {"name": f"r-{effect.lower()}"}, "spec": spec})

    async def told(name):
        return get_condition(await cluster.get(TAINT_RULES, name), "EvictionInProgress")

    without = await cluster.eventually(lambda: told("r-none"))
    assert "2 allocated devices selected. 1 pod would be evicted in 1 namespace if" in without["message"]
    condition = await cluster.eventually(lambda: told("r-noexecute"))
    assert {key: condition[key] for key in ("status", "reason", "message")} == {
        "status": "True",
        "reason": "PodsPendingEviction",
        "message": "1 pod needs to be evicted in 1 namespace.",
    }
