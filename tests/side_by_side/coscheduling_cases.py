"""Gangs of scheduler-plugins: what Haru does with each is compared with what its coscheduling plugin did."""

from __future__ import annotations

from typing import Any

from cases import CLASSES
from manifests import (
    GROUP,
    HOST,
    Case,
    Delete,
    case,
    claim_template,
    device_class,
    devices,
    job,
    node,
    nodes,
    pod,
    pod_affinity,
    pod_term,
    pods,
    some,
    template,
)

_LABEL = "scheduling.x-k8s.io/pod-group"

_AT_ONCE = "room that comes wakes a gang at once; there its refused members wait for a pod, or for five minutes"
_NO_VERDICT = "what is missing is waited for without a verdict, as for PodGroups of Kubernetes"


def group(name: str, minimum: int, **spec: Any) -> list[Any]:
    """A PodGroup of scheduler-plugins."""
    return some("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, spec={"minMember": minimum, **spec})


def members(name: str, count: int, cpu: str = "2", of: str = "", **options: Any) -> list[Any]:
    """Pods of the group `of`, by default of the one with their own name."""
    labels = {_LABEL: of or name, **options.pop("labels", {})}
    return pods(name, count, cpu, labels=labels, **options)


def job_of(name: str, count: int) -> list[Any]:
    """A Job whose pods carry the label of the group with its name."""
    (made,) = job(name, count, template("2"))
    made["spec"]["template"]["metadata"]["labels"][_LABEL] = name
    return [made]


COSCHEDULING: dict[str, Case] = {
    "minMember fits": case(nodes(2, 4) + group("g", 4) + members("g", 4)),
    "minMember does not fit": case(nodes(2, 4) + group("g", 5) + members("g", 5)),
    "minMember fits after a node comes": case(
        nodes(2, 4) + group("g", 6) + members("g", 6), node("n2", 4, labels={GROUP: "n"}), on_purpose=_AT_ONCE
    ),
    "minMember fits after a pod leaves": case(
        nodes(2, 4) + pod("other", "3"), group("g", 4) + members("g", 4), [Delete("other")], on_purpose=_AT_ONCE
    ),
    "members are missing": case(
        nodes(2, 4) + group("g", 3) + members("g", 2), members("late", 1, of="g"), on_purpose=_NO_VERDICT
    ),
    "more members than minMember": case(nodes(2, 4) + group("g", 3) + members("g", 5)),
    "a member more than there is room for comes later": case(
        nodes(2, 4) + group("g", 4) + members("g", 4), members("late", 1, of="g")
    ),
    "a member is replaced": case(
        nodes(2, 4) + group("g", 4) + members("g", 4), [Delete("g-0"), *members("again", 1, of="g")]
    ),
    "the second of two gangs finds no room": case(
        nodes(2, 4) + group("g", 3) + members("g", 3), group("h", 3) + members("h", 3)
    ),
    "two gangs, room for one": case(nodes(2, 4) + group("g", 4) + group("h", 4) + members("g", 4) + members("h", 4)),
    "members beside single pods": case(nodes(2, 4) + pods("single", 2, "3"), group("g", 2) + members("g", 2)),
    "single pods take what a waiting gang cannot use": case(
        nodes(2, 4) + group("g", 5) + members("g", 5), pods("single", 4, "2")
    ),
    "minResources are there": case(nodes(2, 4) + group("g", 4, minResources={"cpu": "8"}) + members("g", 4)),
    "minResources are more than the cluster has": case(
        nodes(2, 4) + group("g", 2, minResources={"cpu": "100"}) + members("g", 2),
        on_purpose="the requests of the members decide, not minResources",
    ),
    "a short scheduleTimeoutSeconds": case(
        nodes(2, 4) + group("g", 5, scheduleTimeoutSeconds=2) + members("g", 5),
        node("n2", 4, labels={GROUP: "n"}),
        on_purpose=_AT_ONCE,
    ),
    "a PodGroup that does not exist": case(nodes(2, 4) + members("g", 2), group("g", 2), on_purpose=_NO_VERDICT),
    "members with node selectors, one fits nowhere": case(
        node("n0", 4, labels={"pool": "a"})
        + node("n1", 4, labels={"pool": "b"})
        + group("g", 2)
        + members("a", 1, of="g", nodeSelector={"pool": "a"})
        + members("c", 1, of="g", nodeSelector={"pool": "c"})
    ),
    "members with anti-affinity by host": case(
        nodes(2, 8)
        + group("g", 3)
        + members("g", 3, labels={"app": "g"}, affinity=pod_affinity(pod_term("g", HOST), anti=True)),
        node("n2", 8, labels={GROUP: "n"}),
        on_purpose=_AT_ONCE,
    ),
    "members with devices": case(
        device_class()
        + nodes(2, 8)
        + devices("n0", 2)
        + devices("n1", 2)
        + claim_template("t")
        + group("g", 4)
        + members("g", 4, claims={"gpu": "template:t"}),
        oldest=34,
    ),
    "members with too few devices": case(
        device_class()
        + nodes(2, 8)
        + devices("n0", 2)
        + devices("n1", 1)
        + claim_template("t")
        + group("g", 4)
        + members("g", 4, claims={"gpu": "template:t"}),
        devices("n1", 1, "b"),
        oldest=34,
    ),
    "a more urgent gang preempts": case(
        CLASSES + nodes(2, 4) + pods("low", 4, "2", priority="low"),
        group("g", 4) + members("g", 4, priority="high"),
    ),
    "preemption makes room for a part of a gang": case(
        CLASSES + nodes(2, 4) + pods("low", 2, "2", priority="low") + pods("high", 2, "2", priority="high"),
        group("g", 4) + members("g", 4, priority="high"),
        on_purpose="nobody is evicted for a part of a gang",
    ),
    "a Job whose pods carry the label": case(nodes(2, 4) + group("train", 4) + job_of("train", 4)),
    "a Job with more pods than there is room for": case(nodes(2, 4) + group("train", 5) + job_of("train", 5)),
}
