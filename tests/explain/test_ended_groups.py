"""Who ends the last pod of a PodGroup with claims of its own has to end the PodGroup: it keeps them (KEP-5729)."""

from __future__ import annotations

from engine_objects import Obj, allocation, claim, device_class, node, pod, pod_group, resource_slice

from haru.engine import SchedulerCache
from haru.explain import Remedy, explain

ENTRY = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-group-g"}


def held_by_group(*members: Obj) -> list[Obj]:
    """The only device is held by a claim of the group `g`, and `p` waits for it."""
    status = {"allocation": allocation("a", "gpu-0"), "reservedFor": [ENTRY]}
    group = pod_group("g", 1, [{"name": "c", "resourceClaimName": "c"}])
    there = [node("a"), device_class(), resource_slice("a", 1), group, {**claim("c"), "status": status}, *members]
    return [*there, claim("d"), pod("p", claims=["d"])]


def evictions(objects: list[Obj]) -> list[Remedy]:
    told = explain(SchedulerCache.of(objects).snapshot(), "pod", objects[-1])
    return [remedy for remedy in told.remedies if remedy.kind in ("Evict", "MoveWork")]


def test_end_of_the_last_pod_of_a_group_with_claims_ends_the_group() -> None:
    (remedy,) = evictions(held_by_group(pod("m", group="g", node="a", claims=["c"])))
    assert remedy.confirmed
    ended = [(change["action"], change["object"]["kind"]) for change in remedy.changes]
    assert ended == [("delete", "Pod"), ("delete", "PodGroup")]
    assert remedy.command.endswith("kubectl delete podgroups.scheduling.k8s.io g -n default")


def test_group_whose_pods_have_claims_of_their_own_is_left() -> None:
    objects = held_by_group(pod("m", group="g", node="a", claims=["c"]))
    held = next(obj for obj in objects if obj["kind"] == "ResourceClaim")
    held["status"]["reservedFor"] = [{"resource": "pods", "name": "m", "uid": "uid-m"}]
    objects[3]["spec"]["resourceClaims"] = []
    assert [change["object"]["kind"] for remedy in evictions(objects) for change in remedy.changes] == ["Pod"]


def test_members_that_wait_end_with_the_group_which_they_would_keep() -> None:
    (remedy,) = evictions(held_by_group(pod("m", group="g", node="a", claims=["c"]), pod("w", group="g", claims=["c"])))
    assert remedy.confirmed and remedy.summary.startswith(
        "end podgroup/g pod m and PodGroup g, which would keep its claims, with w"
    )
    ended = [(change["object"]["kind"], change["object"]["metadata"]["name"]) for change in remedy.changes]
    assert ended == [("Pod", "m"), ("Pod", "w"), ("PodGroup", "g")]
