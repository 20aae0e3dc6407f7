"""A cluster from which pods are removed equals one that never had them, and shares what is unaffected."""

from __future__ import annotations

from typing import Any

from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.dra import DeviceId, PoolKey
from haru.engine.preemption.dry_run import EvictionDryRun, claim_users, without_pods
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.decision import GroupKey

ANTI: Obj = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}


def seen(snapshot: Snapshot) -> Any:
    """What can be seen of a snapshot, as plain data."""
    pools = [PoolKey(DRIVER, f"n{i}") for i in range(2)]
    return {
        "nodes": {
            name: (sorted(info.pods), {k: v for k, v in info.requested.items() if v}, sorted(info.host_ports))
            for name, info in sorted(snapshot.nodes.items())
        },
        "pods": sorted(snapshot.pods),
        "claims": {
            path: (
                bool((obj.get("status") or {}).get("allocation")),
                sorted(e["name"] for e in (obj.get("status") or {}).get("reservedFor") or ()),
            )
            for path, obj in sorted(snapshot.claims.items())
        },
        "groups": {
            path: sorted(state.scheduled)
            for path, state in sorted(snapshot.podgroup_index.states.items())
            if state.scheduled
        },
        "taken": {str(pool): sorted(snapshot.allocated.use(pool).devices) for pool in pools},
        "holders": sorted(snapshot.allocated.devices.items()),
        "anti": sorted(snapshot.pod_index.anti_affinity),
    }


def taken_by_class(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    """The devices of each node, and those that are taken, as its device class has them."""
    known = snapshot.classified_nodes
    assert known is not None
    classes = {name: found.node_device_class for name, found in known.items() if found is not None}
    return {name: (one.devices, one.taken) for name, one in classes.items()}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Obj], list[str]]:
    """Two nodes with three devices each; claims of one or two pods, or of a group."""
    objects: list[Obj] = [device_class(), *(node(f"n{i}") for i in range(2))]
    objects += [resource_slice(f"n{i}", 3) for i in range(2)]
    objects.append(pod_group("g", 1))
    pods = []
    for i in range(draw(st.integers(1, 5))):
        more = {"affinity": ANTI} if draw(st.booleans()) else {}
        names = [f"c{k}" for k in range(6)]
        made = pod(f"p{i}", group=draw(st.sampled_from(["", "g"])), node=f"n{draw(st.integers(0, 1))}", **more)
        made["spec"]["resourceClaims"] = [{"name": n, "resourceClaimName": n} for n in names]
        pods.append(made)
    for k in range(6):
        to = allocation(f"n{k // 3}", f"gpu-{k % 3}")
        users = draw(st.lists(st.sampled_from(pods), max_size=2, unique_by=lambda o: o["metadata"]["name"]))
        made = allocated(claim(f"c{k}"), to, *users)
        if draw(st.integers(0, 3)) == 0:
            entry = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-group-g"}
            made["status"]["reservedFor"] = [entry]
        objects.append(made)
    names = draw(st.lists(st.sampled_from([p["metadata"]["name"] for p in pods]), unique=True))
    return [*objects, *pods], names


def without(objects: list[Obj], names: list[str]) -> list[Obj]:
    """The objects as if these pods had gone: claims that nobody uses any more are free."""
    kept = [o for o in objects if o["kind"] != "Pod" or o["metadata"]["name"] not in names]
    members = {
        o["metadata"]["name"] for o in objects if o["kind"] == "Pod" and o["spec"].get("schedulingGroup") is not None
    }
    result = []
    for obj in kept:
        if obj["kind"] == "ResourceClaim":
            entries = obj["status"]["reservedFor"]
            left = [e for e in entries if e["resource"] != "pods" or e["name"] not in names]
            users = {name for e in entries for name in (members if e["resource"] == "podgroups" else [e["name"]])}
            if users and users <= set(names):
                obj = {**obj, "status": {}}
            else:
                obj = {**obj, "status": {**obj["status"], "reservedFor": left}}
        result.append(obj)
    return result


@settings(deadline=None)
@given(clusters(), st.data())
def test_eviction_dry_run_equals_cluster_without_the_pods(
    case: tuple[list[Obj], list[str]], data: st.DataObject
) -> None:
    objects, names = case
    base = SchedulerCache.of(objects).snapshot()
    clearing = EvictionDryRun(base, [[base.pods[f"default/{name}"]] for name in names])
    early = clearing.snapshot()
    expected = seen(SchedulerCache.of(without(objects, names)).snapshot())
    assert seen(early) == expected
    back = data.draw(st.lists(st.sampled_from(range(len(names))), unique=True)) if names else []
    clearing.put_back(back)
    rest = [name for number, name in enumerate(names) if number not in back]
    fresh = SchedulerCache.of(without(objects, rest)).snapshot()
    assert seen(clearing.snapshot()) == seen(fresh)
    compared = without_pods(base, [base.pods[f"default/{name}"] for name in rest])
    assert seen(compared) == seen(clearing.snapshot())
    assert taken_by_class(compared) == taken_by_class(fresh)
    clearing.take(back)
    assert seen(clearing.snapshot()) == seen(early) == expected
    clearing.put_back(range(len(names)))
    assert clearing.snapshot() is base


def test_eviction_dry_run_shares_unaffected_nodes() -> None:
    objects = [node("a"), node("b"), pod("p", node="a"), pod("q", node="a"), pod("r", node="b")]
    base = SchedulerCache.of(objects).snapshot()
    clearing = EvictionDryRun(base, [[base.pods["default/p"]], [base.pods["default/q"]]])
    first = clearing.snapshot()
    assert first.nodes["b"] is base.nodes["b"]
    clearing.put_back([0])
    second = clearing.snapshot()
    clearing.take([0])
    assert clearing.snapshot().nodes["a"] is first.nodes["a"]
    assert second.nodes["a"] is not first.nodes["a"]
    clearing.put_back([0, 1])
    assert clearing.snapshot().nodes["a"] is base.nodes["a"]


def test_allocation_in_dry_run_can_use_freed_devices() -> None:
    held = allocated(claim("c"), allocation("a", "gpu-0"), pod("p", node="a"))
    base = SchedulerCache.of([device_class(), node("a"), resource_slice("a", 1), pod("p", node="a"), held]).snapshot()
    cleared = EvictionDryRun(base, [[base.pods["default/p"]]]).snapshot()
    taken = cleared.allocated.with_allocation("default/c", allocation("a", "gpu-0"))
    assert taken.holders(DeviceId(DRIVER, "a", "gpu-0")) == ("default/c",)
    assert cleared.allocated.holders(DeviceId(DRIVER, "a", "gpu-0")) == ()
    assert base.allocated.holders(DeviceId(DRIVER, "a", "gpu-0")) == ("default/c",)


def test_claim_users_lists_pods_that_must_be_evicted() -> None:
    """Not freed: by a pending pod's reservation, by one of a pod that is gone, by a pod of the same name."""
    running, other = pod("p", node="a", claims=["c"]), pod("q", node="a", group="g", claims=["c"])
    to = allocation("a", "gpu-0")
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-group-g"}
    cases: list[tuple[list[Obj], set[str] | None]] = [
        ([{"resource": "pods", "name": "p", "uid": "uid-p"}], {"default/p"}),
        ([{"resource": "pods", "name": "p", "uid": "another"}], None),
        ([{"resource": "pods", "name": "nobody", "uid": "uid-nobody"}], None),
        ([{"resource": "pods", "name": "waits", "uid": "uid-waits"}], None),
        ([group], {"default/q"}),
        ([group, {"resource": "pods", "name": "p", "uid": "uid-p"}], {"default/p", "default/q"}),
        ([], None),
    ]
    for users, expected in cases:
        held = {**claim("c"), "status": {"allocation": to, "reservedFor": users}}
        snapshot = SchedulerCache.of(
            [node("a"), running, other, pod("waits", claims=["c"]), held, pod_group("g", 1)]
        ).snapshot()
        assert claim_users(snapshot, "default/c") == expected, users
    assert snapshot.group_state(GroupKey("default", "g")).scheduled == {"default/q"}
