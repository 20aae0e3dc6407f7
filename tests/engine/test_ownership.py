"""Whose work claims are used for, as it is followed, and as anybody would find it out."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import Obj, allocated, allocation, claim, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.state.cache import SchedulerCache
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.reserved_for import owners_of, sole_user, sole_users, workload_of

PODS, CLAIMS = ["a", "b", "c"], ["x", "y", "z"]
OWNERS: list[Obj | None] = [None, {"kind": "Job", "name": "train", "uid": "u", "controller": True}]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "pod", "claim", "claim", "free", "no pod", "no claim", "assume", "look"]),
        st.sampled_from(PODS),
        st.sampled_from(CLAIMS),
        st.sampled_from(OWNERS),
        st.sampled_from(["Running", "Running", "Succeeded"]),
        st.sampled_from(["", "", "other"]),
        st.sets(st.sampled_from(PODS)),
        st.booleans(),
    ),
    max_size=25,
)


def reserved(name: str, users: set[str], shared: bool) -> Obj:
    made = allocated(claim(name), allocation("n", "d"), *[pod(user) for user in sorted(users)])
    if shared:
        made["status"]["reservedFor"].append({"resource": "podgroups", "name": "g", "uid": "g"})
    return made


def test_sole_users_of_many_claims_are_those_of_each() -> None:
    plain = [reserved("x", {"a"}, shared=False), reserved("y", {"b"}, shared=False)]
    nameless = reserved("z", {"c"}, shared=False)
    del nameless["status"]["reservedFor"][0]["uid"]
    others = [None, claim("z"), nameless, reserved("z", {"a"}, shared=True), reserved("z", set(), shared=True)]
    for claims in (plain, *([*plain, other] for other in others)):
        assert sole_users(claims) == [sole_user(one) for one in claims]
    assert None not in sole_users(plain)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_workload_owners_follow_pods_and_claims(steps: list[Any]) -> None:
    cluster = SchedulerCache()
    for what, pod_name, claim_name, owner, phase, uid, users, shared in steps:
        made = pod(pod_name, node="n")
        made["status"]["phase"] = phase
        made["metadata"]["uid"] += uid
        if owner is not None:
            made["metadata"]["ownerReferences"] = [owner]
        if what == "pod":
            cluster.apply(made)
        elif what == "no pod":
            cluster.remove(made)
        elif what == "claim":
            cluster.apply(reserved(claim_name, users, shared))
        elif what == "assume":
            cluster.assume_claim(reserved(claim_name, users, shared))
        elif what == "free":
            cluster.apply(claim(claim_name))
        elif what == "no claim":
            cluster.remove(claim(claim_name))
        elif what == "look":
            cluster.snapshot()
    snapshot = cluster.snapshot()
    taken = {path: obj for path, obj in snapshot.claims.items() if (obj.get("status") or {}).get("allocation")}
    assert snapshot.owners is not None
    assert dict(snapshot.owners) == {path: owners_of(path, obj, snapshot.pods) for path, obj in taken.items()}


LWS_LABELS = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}
MPI_LABELS = {"training.kubeflow.org/job-name": "mpi", "training.kubeflow.org/operator-name": "mpi-operator"}


@pytest.mark.parametrize(
    ("more", "labels", "expected"),
    [
        ({}, {}, "pod/p"),
        ({"kind": "Job", "name": "train"}, {}, "job/train"),
        ({"kind": "ReplicaSet", "name": "web-5c9"}, {"pod-template-hash": "5c9"}, "deployment/web"),
        ({"kind": "ReplicaSet", "name": "web-5c9"}, {"pod-template-hash": "other"}, "replicaset/web-5c9"),
        ({"kind": "ReplicaSet", "name": "web-5c9"}, {}, "replicaset/web-5c9"),
        ({"kind": "Job", "name": "sweep-w-0"}, {"jobset.sigs.k8s.io/jobset-name": "sweep"}, "jobset/sweep"),
        ({"kind": "ReplicaSet", "name": "sweep"}, {"jobset.sigs.k8s.io/jobset-name": "sweep"}, "replicaset/sweep"),
        ({"kind": "StatefulSet", "name": "serve-0"}, LWS_LABELS, "leaderworkerset/serve"),
        ({"kind": "Job", "name": "mpi-launcher"}, MPI_LABELS, "mpijob/mpi"),
    ],
)
def test_pod_is_attributed_to_its_workload(more: Obj, labels: Obj, expected: str) -> None:
    made = pod("p")
    made["metadata"]["labels"] = labels
    if more:
        made["metadata"]["ownerReferences"] = [{**more, "uid": "u", "controller": True}]
    assert workload_of(PodInfo.of(made)) == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("g", "podgroup/g"),
        ("podgroup:g", "podgroup/g"),
        ("jobset:sweep:workers:1", "jobset/sweep"),
        ("kueue:g", "kueue/g"),
    ],
)
def test_gang_member_is_attributed_to_its_group(group: str, expected: str) -> None:
    assert workload_of(PodInfo.of(pod("p", group=group))) == expected


def test_adopted_pod_is_attributed_to_new_owner() -> None:
    made = pod("a", node="n")
    cluster = SchedulerCache.of([made, reserved("x", {"a"}, shared=False)])
    before = cluster.snapshot()
    cluster.apply({**made, "metadata": {**made["metadata"], "ownerReferences": [OWNERS[1]]}})
    after = cluster.snapshot()
    assert before.owners is not None
    assert after.owners is not None
    assert before.owners["default/x"] == (("default", "pod/a"),)
    assert after.owners["default/x"] == (("default", "job/train"),)
