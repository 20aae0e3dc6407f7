"""A scheduler's partition: what it has, how it is written, and what the engine does outside it."""

from __future__ import annotations

from typing import Any

import pytest

from haru.engine import Options, SchedulerCache, decide
from haru.engine.dra import DeviceId, all_double_allocations
from haru.engine.journal import RecordedCluster, Replay
from haru.engine.state import Partition, partition_from

Obj = dict[str, Any]
DRIVER = "gpu.example.com"


def node(name: str, taints: tuple[Obj, ...] = (), **labels: str) -> Obj:
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    spec = {"taints": list(taints)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": room}}


def resource_slice(node: str, pool: str, devices: list[Obj], driver: str = DRIVER, **spec: Any) -> Obj:
    whole = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    body = {"driver": driver, "nodeName": node, "pool": whole, "devices": devices, **spec}
    metadata = {"name": f"{driver}-{pool}", "uid": f"uid-{driver}-{pool}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": body}


def device_class(name: str, **spec: Any) -> Obj:
    metadata = {"name": name, "uid": f"uid-{name}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec}


def claim(name: str, requests: list[Obj]) -> Obj:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    spec = {"devices": {"requests": requests}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def held(name: str, *results: Obj) -> Obj:
    status = {"allocation": {"devices": {"results": list(results)}}}
    return {**claim(name, []), "status": status}


def result(device: str, pool: str = "p1", **more: Any) -> Obj:
    return {"request": "r", "driver": DRIVER, "pool": pool, "device": device, **more}


def exactly(class_name: str, **more: Any) -> Obj:
    return {"name": "r", "exactly": {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": 1, **more}}


def pod(claim: str = "") -> Obj:
    spec: Obj = {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": {}}]}
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    metadata = {"name": "p", "namespace": "default", "uid": "uid-p"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def confined(partition: Partition, *objects: Obj, cache: SchedulerCache | None = None) -> SchedulerCache:
    cluster = SchedulerCache() if cache is None else cache
    cluster.confine(partition)
    for obj in objects:
        cluster.apply(obj)
    return cluster


def placed(cluster: SchedulerCache, waiting: Obj) -> Any:
    return decide(cluster.snapshot(), [waiting], group=None, options=Options())


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"nodeSelector": "team=a"},
        {"nodeSelector": "!gone,rack,team in (a,b),zone notin (z)"},
        {"nodeTaint": "team=a:NoSchedule"},
        {"pools": ["p1", "p2"], "drivers": [DRIVER], "deviceClasses": ["gpu"]},
    ],
)
def test_partition_is_written_as_it_was_read(value: Obj) -> None:
    assert partition_from(value).as_dict() == value
    assert partition_from(value).is_whole == (not value)


def test_node_selector_may_be_an_object() -> None:
    found = partition_from({"nodeSelector": {"matchLabels": {"team": "a"}}})
    assert found.as_dict() == {"nodeSelector": "team=a"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"nodeSelector": "a b"}, "parse"),
        ({"nodeTaint": ":NoSchedule"}, "KEY"),
        ({"nodeTaint": "a:Never"}, "NoExecute"),
    ],
)
def test_partition_that_makes_no_sense_is_refused(value: Obj, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        partition_from(value)


@pytest.mark.parametrize(
    ("value", "node_name"),
    [
        ({"nodeSelector": "team=b"}, "n2"),
        ({"nodeTaint": "team=b"}, "n2"),
        ({"nodeTaint": "team:NoSchedule"}, "n2"),
        ({"nodeTaint": "team:NoExecute"}, None),
        ({"nodeSelector": "team=c"}, None),
    ],
)
def test_pod_is_placed_on_nodes_of_the_partition_only(value: Obj, node_name: str | None) -> None:
    taint = {"key": "team", "value": "b", "effect": "NoSchedule"}
    cluster = confined(partition_from(value), node("n1", team="a"), node("n2", (taint,), team="b"))
    waiting = pod()
    waiting["spec"]["tolerations"] = [{"operator": "Exists"}]
    cluster.apply(waiting)
    decision = placed(cluster, waiting)
    assert decision.members[0].node == node_name
    if node_name is None:
        wanted = "0/2 nodes are available: 2 node(s) were outside this scheduler's partition."
        assert decision.members[0].message.startswith(wanted)
        assert [reason.type for reason in decision.members[0].reasons] == ["OutsidePartition"]


@pytest.mark.parametrize(
    ("value", "device"),
    [
        ({"pools": ["p2"]}, ("p2", "d0")),
        ({"drivers": ["other.example.com"]}, ("p1", "o0")),
        ({"drivers": [DRIVER], "pools": ["p3"]}, None),
        ({"deviceClasses": ["gpu"], "drivers": ["other.example.com"]}, ("p1", "o0")),
        ({"deviceClasses": ["nic"]}, None),
    ],
)
def test_claim_gets_devices_of_the_partition_only(value: Obj, device: tuple[str, str] | None) -> None:
    other = resource_slice("n1", "p1", [{"name": "o0"}], "other.example.com")
    slices = [resource_slice("n1", "p1", [{"name": "d0"}]), resource_slice("n2", "p2", [{"name": "d0"}]), other]
    cluster = confined(partition_from(value), node("n1"), node("n2"), *slices, device_class("gpu"))
    cluster.apply(held("h", result("d0")))
    waiting = pod("c")
    for obj in (claim("c", [exactly("gpu")]), waiting):
        cluster.apply(obj)
    decision = placed(cluster, waiting)
    member = decision.members[0]
    if device is None:
        assert "outside this scheduler's partition" in member.message or "cannot allocate all claims" in member.message
        assert member.status == "unschedulable"
        return
    found = member.allocations[0].allocation["devices"]["results"][0]
    assert (found["pool"], found["device"]) == device


def test_claim_that_names_a_class_outside_as_an_alternative_is_refused() -> None:
    choices = [{"name": n, "deviceClassName": n, "allocationMode": "ExactCount", "count": 1} for n in ("gpu", "nic")]
    cluster = confined(partition_from({"deviceClasses": ["gpu"]}), node("n1"), device_class("gpu"), device_class("nic"))
    waiting = pod("c")
    for obj in (claim("c", [{"name": "r", "firstAvailable": choices}]), waiting):
        cluster.apply(obj)
    member = placed(cluster, waiting).members[0]
    assert "request r/nic: device class nic is outside this scheduler's partition" in member.message
    assert [reason.type for reason in member.reasons] == ["OutsidePartition"]


def test_devices_in_mode_all_are_those_of_the_partition() -> None:
    slices = [resource_slice("n1", pool, [{"name": "d0"}, {"name": "d1"}]) for pool in ("p1", "p2")]
    cluster = confined(partition_from({"pools": ["p1"]}), node("n1"), *slices, device_class("gpu"))
    cluster.apply(held("h", result("d0", "p2")))
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
    waiting = pod("c")
    for obj in (claim("c", [request]), waiting):
        cluster.apply(obj)
    results = placed(cluster, waiting).members[0].allocations[0].allocation["devices"]["results"]
    assert {(r["pool"], r["device"]) for r in results} == {("p1", "d0"), ("p1", "d1")}


def test_replay_of_a_log_has_the_partition() -> None:
    written: list[Obj] = []
    partition = partition_from({"nodeSelector": "team=b", "pools": ["p1"]})
    confined(partition, node("n1"), cache=RecordedCluster(written.append))
    replay = Replay()
    assert list(replay.run(written)) == []
    assert replay.cluster.partition == partition


def test_partition_comes_before_the_objects() -> None:
    cluster = SchedulerCache.of([node("n1")])
    with pytest.raises(ValueError, match="before it is told of nodes"):
        cluster.confine(partition_from({"pools": ["p1"]}))


COUNTED = {
    "sharedCounters": [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}],
}


def part(name: str, memory: str) -> Obj:
    consumes = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
    return {"name": name, "consumesCounters": consumes}


SHARED = {"name": "s0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}


def share(name: str, memory: str) -> Obj:
    return held(name, result("s0", shareID=name, consumedCapacity={"memory": memory}))


@pytest.mark.parametrize(
    ("devices", "spec", "claims", "told"),
    [
        ([{"name": "d0"}], {}, [held("a", result("d0"))], None),
        (
            [{"name": "d0"}],
            {},
            [held("a", result("d0")), held("b", result("d0"))],
            "d0 is allocated to default/a and default/b",
        ),
        ([{"name": "d0"}], {}, [held("a", result("d0")), held("b", result("d0", adminAccess=True))], None),
        ([SHARED], {}, [share("a", "4Gi"), share("b", "6Gi")], None),
        ([SHARED], {}, [share("a", "5Gi"), share("b", "6Gi")], "beyond its capacity memory"),
        ([part("x", "20Gi"), part("y", "20Gi")], COUNTED, [held("a", result("x")), held("b", result("y"))], None),
        (
            [part("x", "30Gi"), part("y", "20Gi")],
            COUNTED,
            [held("a", result("x")), held("b", result("y"))],
            "beyond its counter card/memory",
        ),
    ],
    ids=["one", "two", "admin", "shares fit", "shares exceed", "partitions fit", "partitions exceed"],
)
def test_device_held_beyond_what_it_allows_is_found(
    devices: list[Obj], spec: Obj, claims: list[Obj], told: str | None
) -> None:
    cluster = SchedulerCache.of([resource_slice("n1", "p1", devices, **spec), *claims])
    found = all_double_allocations(cluster.devices, cluster.allocated)
    assert bool(found) == (told is not None)
    for conflict in found:
        assert told is not None
        assert told in str(conflict)
        assert conflict.claims == ("default/a", "default/b")
        assert isinstance(conflict.device, DeviceId)
