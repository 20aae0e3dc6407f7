"""Work that quotas hold back: what is said of it, and what time its cards are counted as."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.accounting.device_states import card_states
from haru.engine import SchedulerCache
from haru.explain import explain

ASKED = {"nvidia.com/gpu": "4"}


def quota(hard: Obj, used: Obj, name: str = "cards") -> Obj:
    metadata = {"name": name, "namespace": "default"}
    status = {"hard": hard, "used": used}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}, "status": status}


def maker(kind: str, name: str, spec: Obj, **pods: Any) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"limits": ASKED}}
    template = {"metadata": {}, "spec": {"containers": [container], **pods}}
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {**spec, "template": template}}


def cards(count: int = 4) -> list[Obj]:
    known = device_class()
    known["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    return [known, node("a"), resource_slice("a", count)]


def claim_template(name: str, count: int) -> Obj:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def asked_about(job: Obj, *objects: Obj) -> Any:
    snapshot = SchedulerCache.of([*objects, job]).snapshot()
    return explain(snapshot, "job", job, options=options())


def test_job_over_quota_reports_numbers_and_raise_quota_remedy() -> None:
    full = quota({"requests.nvidia.com/gpu": "6"}, {"requests.nvidia.com/gpu": "3"})
    told = asked_about(maker("Job", "train", {"parallelism": 2}), full, *cards())
    assert told.verdict == "FitsLater"
    assert told.summary == (
        "2 pods not made: exceeded quota: cards, requested: requests.nvidia.com/gpu=4, "
        "used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=6"
    )
    assert [reason.type for reason in told.reasons][:2] == ["QuotaExceeded", "PodsMissing"]
    assert told.reasons[0].data == {
        "quota": "cards",
        "requested": {"requests.nvidia.com/gpu": "4"},
        "used": {"requests.nvidia.com/gpu": "3"},
        "limited": {"requests.nvidia.com/gpu": "6"},
    }
    first = told.remedies[0]
    assert (first.kind, first.confirmed) == ("RaiseQuota", True)
    assert first.changes[0]["patch"] == {"spec": {"hard": {"requests.nvidia.com/gpu": "11"}}}


def test_raise_quota_lets_all_members_of_a_gang_in_and_all_their_claims() -> None:
    """Of pods and claims: eight members, of which each asks for one device."""
    classes = "gpu.deviceclass.resource.k8s.io/devices"
    template = claim_template("t", 1)
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    shape = {"parallelism": 8, "completions": 8, "completionMode": "Indexed"}
    job = maker("Job", "train", shape, resourceClaims=claims, restartPolicy="Never")
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    full = quota({"pods": "5", classes: "6"}, {"pods": "5", classes: "2"})
    told = asked_about(job, full, quota({classes: "4"}, {classes: "1"}, "few"), template, *cards(16))
    first = told.remedies[0]
    assert (told.verdict, first.kind, first.confirmed) == ("FitsIf", "RaiseQuota", True)
    assert first.summary == f"raise the quotas cards to {classes}=10, pods=13 and few to {classes}=9"
    hard = [change["patch"]["spec"]["hard"] for change in first.changes]
    assert hard == [{classes: "10", "pods": "13"}, {classes: "9"}]


@pytest.mark.parametrize("about", ["job", "podgroup"])
def test_gang_whose_other_members_a_quota_refuses_gets_the_quota_raised_and_no_pods_by_hand(about: str) -> None:
    shape = {"parallelism": 3, "completions": 3, "completionMode": "Indexed"}
    job = maker("Job", "train", shape, restartPolicy="Never")
    member = pod("train-0", group="g")
    member["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    ]
    full = quota({"pods": "1"}, {"pods": "1"})
    objects = [pod_group("g", 3), member, job, full, *cards(16)]
    told = explain(
        SchedulerCache.of(objects).snapshot(), about, job if about == "job" else objects[0], options=options()
    )
    first = told.remedies[0]
    assert (first.summary, first.confirmed) == ("raise the quota cards to pods=3", True)
    assert [remedy.kind for remedy in told.remedies] == ["RaiseQuota", "LowerMinCount"]
    assert "exceeded quota: cards" in told.summary


@pytest.mark.parametrize(("hard", "confirmed"), [("1", False), ("2", True)])
def test_gang_whose_pods_a_full_quota_may_not_let_in_again_is_not_said_to_start(hard: str, confirmed: bool) -> None:
    """Its Job is suspended while the PodGroup is made again, and other work may take the quota meanwhile."""
    job = maker("Job", "train", {"parallelism": 1}, restartPolicy="Never")
    member = pod("train-0", group="g")
    member["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    ]
    objects = [pod_group("g", 3), member, job, quota({"pods": hard}, {"pods": "1"}), *cards()]
    told = explain(SchedulerCache.of(objects).snapshot(), "podgroup", objects[0], options=options())
    lower = next(remedy for remedy in told.remedies if remedy.kind == "LowerMinCount")
    assert lower.command.startswith("kubectl patch job train") and lower.confirmed == confirmed
    assert ("quota cards may be given to other work" in lower.costs) != confirmed


@pytest.mark.parametrize(("hard", "confirmed"), [("3", False), ("4", True)])
def test_gang_that_is_made_again_without_its_domain_may_lose_a_full_quota(hard: str, confirmed: bool) -> None:
    group = pod_group("g", 2)
    group["spec"]["schedulingConstraints"] = {"topology": [{"key": "example.com/row"}]}
    objects = [group, pod("g-0", group="g"), pod("g-1", group="g"), quota({"pods": hard}, {"pods": "2"}), *cards()]
    told = explain(SchedulerCache.of(objects).snapshot(), "podgroup", group, options=options())
    drop = next(remedy for remedy in told.remedies if remedy.kind == "DropConstraint")
    assert drop.confirmed == confirmed
    assert ("quota cards may be given to other work" in drop.costs) != confirmed


def test_members_that_a_quota_would_refuse_are_added_after_it_is_raised() -> None:
    objects = [pod_group("g", 3), pod("g-0", group="g"), quota({"pods": "2"}, {"pods": "1"}), *cards()]
    told = explain(SchedulerCache.of(objects).snapshot(), "podgroup", objects[0], options=options())
    first = told.remedies[0]
    assert (first.kind, first.confirmed) == ("AddMembers", True)
    assert first.summary == "raise the quota cards to pods=3, create 2 more pods of PodGroup default/g"
    assert [change["action"] for change in first.changes] == ["patch", "create", "create"]


def test_raise_quota_covers_claims_of_all_waiting_members() -> None:
    name = "gpu.deviceclass.resource.k8s.io/devices"
    members = [pod(f"w-{number}", group="g") for number in range(3)]
    for member in members:
        member["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    objects = [pod_group("g", 3), *members, quota({name: "5"}, {name: "5"}), claim_template("t", 2), *cards(8)]
    told = explain(SchedulerCache.of(objects).snapshot(), "podgroup", objects[0], options=options())
    assert told.verdict == "FitsIf", "six together are more than five"
    assert told.remedies[0].summary == f"raise the quota cards to {name}=11"


def test_quota_that_a_gangs_own_claims_use_up_is_not_waited_for() -> None:
    name = "gpu.deviceclass.resource.k8s.io/devices"
    members = [pod(f"w-{number}", group="g") for number in range(3)]
    for member in members:
        member["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    template = claim_template("t", 2)
    made = claim("w-0-c", 2, owner=members[0])
    made["spec"] = template["spec"]["spec"]
    members[0]["status"] = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "w-0-c"}]}
    objects = [pod_group("g", 3), *members, quota({name: "5"}, {name: "4"}), template, made, *cards(8)]
    told = explain(SchedulerCache.of(objects).snapshot(), "podgroup", objects[0], options=options())
    assert told.verdict == "FitsIf", "two more are four, but the first has two as well"
    assert told.summary.startswith("members w-1, w-2: its claim c is not made: exceeded quota: cards, requested: ")


def test_quota_below_request_gives_fits_if_with_raise_quota() -> None:
    told = asked_about(
        maker("Job", "train", {"parallelism": 1}),
        quota({"requests.nvidia.com/gpu": "2"}, {"requests.nvidia.com/gpu": "0"}),
        *cards(),
    )
    assert told.verdict == "FitsIf" and told.remedies[0].kind == "RaiseQuota"


def test_partly_running_job_reports_quota_for_missing_pods() -> None:
    job = maker("Job", "train", {"parallelism": 2})
    running = pod("train-0", node="a", claims=["c"])
    running["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    ]
    running["status"] = {"phase": "Running"}
    full = quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "4"})
    told = asked_about(job, full, running, allocated(claim("c", 4), allocation("a", "gpu-0"), running), *cards(8))
    assert told.verdict == "Runs"
    assert "; 1 more pod not made: exceeded quota: cards" in told.summary
    assert "QuotaExceeded" in [reason.type for reason in told.reasons]


def test_quota_with_free_amount_is_not_reported() -> None:
    free = quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "0"})
    told = asked_about(maker("Job", "train", {"parallelism": 1}), free, *cards())
    assert "QuotaExceeded" not in [reason.type for reason in told.reasons]


def test_pod_with_claim_over_quota_reports_quota() -> None:
    name = "gpu.deviceclass.resource.k8s.io/devices"
    template = claim_template("t", 3)
    waits = pod("w")
    waits["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    objects = [quota({name: "4"}, {name: "2"}), template, waits, *cards()]
    snapshot = SchedulerCache.of(objects).snapshot()
    told = explain(snapshot, "pod", waits, options=options())
    assert told.verdict == "FitsLater"
    assert told.reasons[0].type == "QuotaExceeded" and told.reasons[0].data["requested"] == {name: "3"}
    assert told.summary == f"its claim c is not made: {told.reasons[0].message}"
    assert states(*objects) == {f"gpu-{number}": "Quota pod/w" for number in range(4)}


def states(*objects: Obj) -> dict[str, str]:
    found = card_states(SchedulerCache.of(objects).snapshot(), options())
    return {card.card: " ".join((part.state, part.owner)).strip() for card in found for part in card.parts}


def test_cards_unused_because_of_quota_count_as_missed_by_quota() -> None:
    full = quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "4"})
    for kind, spec in (("Job", {"parallelism": 1}), ("ReplicaSet", {"replicas": 1}), ("StatefulSet", {"replicas": 1})):
        waits = maker(kind, "w", spec)
        assert states(full, waits, *cards()) == {f"gpu-{n}": f"Quota {kind.lower()}/w" for n in range(4)}
        assert set(states(waits, *cards()).values()) == {"Free"}, "no quota: the pods are about to be made"


def test_suspended_or_finished_work_misses_no_cards() -> None:
    full = quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "4"})
    ended = maker("Job", "e", {"parallelism": 1})
    ended["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    for work in (
        maker("Job", "s", {"parallelism": 1, "suspend": True}),
        ended,
        maker("ReplicaSet", "r", {"replicas": 0}),
    ):
        assert set(states(full, work, *cards()).values()) == {"Free"}


def test_replica_set_over_quota_reports_quota() -> None:
    full = quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "4"})
    waits = maker("ReplicaSet", "web", {"replicas": 2})
    snapshot = SchedulerCache.of([full, waits, *cards()]).snapshot()
    told = explain(snapshot, "replicaset", waits, options=options())
    assert (told.kind, told.verdict) == ("ReplicaSet", "FitsLater")
    assert told.summary.startswith("2 pods not made: exceeded quota: cards, requested: requests.nvidia.com/gpu=4")
    none = maker("ReplicaSet", "none", {"replicas": 0})
    told = explain(snapshot, "replicaset", none, options=options())
    assert told.summary == "it runs no pods: its replicas is 0"
