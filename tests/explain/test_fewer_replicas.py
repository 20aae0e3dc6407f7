"""A remedy that scales a ReplicaSet or its Deployment down knows which pods its controller will let go."""

from __future__ import annotations

import pytest
from engine_objects import Obj, allocation, claim, device_class, node, pod, resource_slice

from haru.engine import SchedulerCache
from haru.explain import Remedy, explain
from haru.kube.pod_removal import DELETION_COST


def replica(name: str, device: str, *, ready: bool, cost: str = "") -> list[Obj]:
    made = pod(name, node="a", claims=[device])
    made["metadata"]["ownerReferences"] = [OWNER]
    made["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    if cost:
        made["metadata"]["annotations"] = {DELETION_COST: cost}
    held: Obj = {
        "allocation": allocation("a", device),
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
    }
    return [made, {**claim(device), "status": held}]


OWNER: Obj = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
ABOVE: Obj = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}


def replica_set(name: str, uid: str, replicas: int, *owners: Obj) -> Obj:
    meta = {"name": name, "namespace": "default", "uid": uid, "ownerReferences": list(owners)}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"replicas": replicas}}


def scaled_down(*objects: Obj, owner: Obj) -> list[Remedy]:
    there = [node("a"), device_class(), resource_slice("a", 2), owner, *objects]
    told = explain(SchedulerCache.of(there).snapshot(), "pod", pod("p", claims=["d"]))
    return [remedy for remedy in told.remedies if remedy.kind == "ScaleDown"]


def test_pod_that_is_not_ready_goes_before_the_cheapest() -> None:
    wanted = [claim("d", selectors=['device.attributes["gpu.example.com"].index == 0']), pod("p", claims=["d"])]
    pods = [*replica("r", "gpu-0", ready=True), *replica("s", "gpu-1", ready=False)]
    (remedy,) = scaled_down(*pods, *wanted, owner=replica_set("web", "rs", 2, ABOVE))
    assert remedy.summary.startswith("scale deployment/web to 0 (frees")
    assert remedy.costs == "2 running pods lost: r, s"


def test_pod_is_made_cheaper_than_every_other_one() -> None:
    wanted = [claim("d", selectors=['device.attributes["gpu.example.com"].index == 0']), pod("p", claims=["d"])]
    pods = [*replica("r", "gpu-0", ready=True), *replica("s", "gpu-1", ready=True, cost="-7")]
    (remedy,) = scaled_down(*pods, *wanted, owner=replica_set("web", "rs", 2))
    mark, scale = remedy.changes
    assert mark["target"]["metadata"]["name"] == "r"
    assert mark["patch"]["metadata"]["annotations"] == {DELETION_COST: "-8"}
    assert scale["patch"] == {"spec": {"replicas": 1}}


def test_deployment_is_not_scaled_down_while_it_rolls_out() -> None:
    pods = [*replica("r", "gpu-0", ready=True), *replica("s", "gpu-1", ready=True), claim("d"), pod("p", claims=["d"])]
    new = replica_set("web-new", "rs2", 1, ABOVE)
    assert scaled_down(*pods, owner=replica_set("web", "rs", 2, ABOVE))
    assert not scaled_down(*pods, new, owner=replica_set("web", "rs", 2, ABOVE))
    assert scaled_down(*pods, {**new, "spec": {"replicas": 0}}, owner=replica_set("web", "rs", 2, ABOVE))
    written_by_hand = {**new, "metadata": {"name": "other", "namespace": "default"}}
    assert scaled_down(*pods, written_by_hand, owner=replica_set("web", "rs", 2, ABOVE))


def of_template(name: str, device: str) -> list[Obj]:
    """A replica with a claim of its own, which the next one gets anew."""
    made, held = replica(name, device, ready=True)
    made["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    made["status"]["resourceClaimStatuses"] = [{"name": "c", "resourceClaimName": device}]
    held["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}]
    return [made, held]


@pytest.mark.parametrize(("needed", "confirmed"), ((1, [True]), (2, [])))
def test_next_replica_may_take_what_the_first_of_several_gives_back(needed: int, confirmed: list[bool]) -> None:
    """Pods end one after the other: what is made for the first fits there before the work does."""
    there = [node("a"), device_class(), resource_slice("a", 2), replica_set("web", "rs", 2, ABOVE), claim("d", needed)]
    held = [*of_template("r", "gpu-0"), *of_template("s", "gpu-1")]
    waiting = pod("p", claims=["d"], priority=10)
    told = explain(SchedulerCache.of([*there, *held, waiting]).snapshot(), "pod", waiting)
    assert [remedy.kind for remedy in told.remedies if remedy.kind == "ScaleDown"] == ["ScaleDown"]
    assert [remedy.confirmed for remedy in told.remedies if remedy.kind == "Evict"] == confirmed
