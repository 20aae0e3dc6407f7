"""The text of conditions and events about work that waits: cause, numbers, holders, remedies, limits of Kubernetes."""

from __future__ import annotations

from haru.engine import Reason
from haru.explain import (
    Explanation,
    Funnel,
    Remedy,
    change_key,
    condition_line,
    condition_text,
    is_waiting,
    with_explanation,
    without_explanation,
)
from haru.explain.explanation import Asked, FunnelStage, Holder, NodeGroup

QUORUM = Reason("Quorum", "5 of the 6 members", {"fit": 5, "needed": 6})
SCALE = Remedy("Evict", "scale deployment/notebooks to 2", (), 10, True, "", "kubectl scale deployment/notebooks")


def holder(name: str, devices: int, namespace: str = "default", priority: int | None = 0) -> Holder:
    return Holder(name, namespace, devices, (), (), priority, "")


def funnel(*stages: FunnelStage, needed: int = 6, free: int = 5) -> Funnel:
    asked = Asked("gpu", needed, 1, "gpu.nvidia.com")
    return Funnel(asked, needed, 8, stages, free, needed - free)


def told(*funnels: Funnel, reasons: tuple[Reason, ...] = (QUORUM,), remedies: tuple[Remedy, ...] = ()) -> Explanation:
    return Explanation("PodGroup", "default", "g", "FitsIf", "in short", reasons, requests=funnels, remedies=remedies)


def taken(*holders: Holder, unnamed: tuple[int, int] = (0, 0)) -> FunnelStage:
    many = sum(each.devices for each in holders) + unnamed[1]
    return FunnelStage("free", 5, many, holders=holders, unnamed=unnamed)


def test_line_of_gang_has_members_devices_holder_and_remedy() -> None:
    found = told(funnel(taken(holder("deployment/notebooks", 3))), remedies=(SCALE,))
    assert condition_line(found) == (
        "5 of 6 members fit: request gpu needs 6 devices of gpu.nvidia.com, 5 are free, 3 held by deployment/notebooks"
        ". Helps: scale deployment/notebooks to 2"
    )


def test_holders_of_own_namespace_come_first_and_others_have_theirs_before_the_name() -> None:
    found = told(funnel(taken(holder("job/large", 9, "other"), holder("pod/mine", 1), unnamed=(2, 4))))
    assert "14 held by pod/mine (1), other/job/large (9), 2 more (4)" in condition_line(found)


def test_counted_holders_have_their_priority() -> None:
    counted = holder("2 workloads of other namespaces", 8, "", 100)
    assert "8 held by 2 workloads of other namespaces (priority 100)" in condition_line(told(funnel(taken(counted))))


def test_conditions_that_leave_enough_devices_are_left_out() -> None:
    other = FunnelStage("class", 100, 40, "x"), FunnelStage("taints", 5, 2, taints={"a=b:NoSchedule": 2})
    text = condition_line(told(funnel(*other)))
    assert text.endswith("5 are free, 2 tainted a=b:NoSchedule")


def test_devices_that_are_free_but_apart_count_as_free() -> None:
    apart = FunnelStage("scattered", 0, 6)
    assert condition_line(told(funnel(apart, needed=6, free=0))).endswith("6 are free, but not 1 together")


def test_work_that_lacks_no_device_has_the_summary() -> None:
    assert condition_line(told()) == "in short"


def test_unconfirmed_remedies_and_well_known_labels_are_never_published() -> None:
    guess = Remedy("AddMembers", "create a pod", (), 0, False)
    label = Remedy("LabelNodes", "label n1 with kubernetes.io/hostname=n2", (), 1, True)
    found = told(remedies=(guess, label, SCALE))
    assert condition_line(found) == "in short. Helps: scale deployment/notebooks to 2"
    assert change_key(found) == ("FitsIf", "Quorum", "scale deployment/notebooks to 2")


def test_whole_text_has_nodes_remedies_with_commands_and_where_to_read_more() -> None:
    found = told(remedies=(SCALE,))
    nodes = (NodeGroup(2, ("a", "b"), "8 devices, 8 taken", ()),)
    text = condition_text(Explanation("Pod", "ns", "p", "FitsIf", "no place", nodes=nodes, remedies=found.remedies))
    assert text == (
        "no place. Nodes: 2 nodes: 8 devices, 8 taken. Helps: scale deployment/notebooks to 2 "
        "(kubectl scale deployment/notebooks). More: haru explain pod/p -n ns"
    )


def test_texts_keep_to_the_limits_of_events_and_conditions() -> None:
    long = Remedy("Evict", "ä" * 2000, (), 1, True)
    found = Explanation("Pod", "ns", "p", "FitsIf", "é" * 60_000, (QUORUM,), remedies=(long,))
    line = condition_line(found)
    assert len(line.encode()) <= 1024
    assert ". Helps: ä" in line
    assert len(with_explanation("0/1 nodes", condition_text(found)).encode()) <= 32768
    assert len(with_explanation("x" * 40_000, line).encode()) <= 32768


def test_message_is_taken_apart_again() -> None:
    message = "0/4 nodes are available: 4 cannot allocate all claims."
    assert without_explanation(with_explanation(message, "why")) == (message, "why")
    assert without_explanation(message) == (message, "")
    assert with_explanation("waiting for minCount pods", "why") == "waiting for minCount pods. Explanation: why"
    assert with_explanation(message, "") == message


def test_work_that_only_waits_for_its_turn_is_not_explained() -> None:
    assert not is_waiting(Explanation("Pod", "ns", "p", "Starting", "a place is free"))
    assert is_waiting(told())
