"""One scheduling round: the order of the queue, what counts for the next decision, and how gangs end."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    member_with_claim,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.scheduling_round import RoundResult, run_round
from haru.engine.state.cache import SchedulerCache

BOTH = {"preempt_for_pods": True, "preempt_for_groups": True}


def aged(obj: Obj, second: int) -> Obj:
    obj["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{second:02}Z"
    return obj


def decided(*objects: Obj, **more: Any) -> RoundResult:
    return run_round(SchedulerCache.of(objects), options(**{**BOTH, **more}))


def test_queue_order_is_priority_then_age_then_name() -> None:
    work = [aged(pod("b", cpu="4"), 1), aged(pod("a", cpu="4"), 1), aged(pod("old", cpu="4"), 0)]
    assert set(decided(node("n", cpu="4"), *work).bindings) == {"default/old"}
    assert set(decided(node("n"), *work).bindings) == {"default/old", "default/a"}
    important = aged(pod("z", cpu="4", priority=1), 9)
    assert set(decided(node("n", cpu="4"), *work, important).bindings) == {"default/z"}


def test_group_is_ordered_by_its_highest_priority_pod() -> None:
    """One member of priority 9 pulls its gang before priority 5, whatever the PodGroup's own priority is."""
    work = [pod_group("g", 2), pod("g-0", cpu="4", group="g"), pod("g-1", cpu="4", group="g", priority=9)]
    result = decided(node("n"), *work, pod("single", cpu="4", priority=5), **dict.fromkeys(BOTH, False))
    assert set(result.bindings) == {"default/g-0", "default/g-1"}
    assert result.groups == {"default/g": "Scheduled"}


def test_earlier_placements_count_and_devices_are_allocated_once() -> None:
    work = [o for i in range(3) for o in member_with_claim(f"p{i}", "")]
    result = decided(device_class(), node("n"), resource_slice("n", 2), *work)
    assert set(result.bindings) == {"default/p0", "default/p1"}
    devices = [r["device"] for a in result.allocations.values() for r in a.allocation["devices"]["results"]]
    assert sorted(devices) == ["gpu-0", "gpu-1"]
    assert result.pending["default/p2"].reasons[0].type == "DevicesUnavailable"


def test_claim_shared_by_two_pods_is_allocated_once() -> None:
    work = [claim("c"), pod("p0", claims=["c"]), pod("p1", claims=["c"])]
    cluster = SchedulerCache.of([device_class(), node("a"), node("b"), *(resource_slice(n, 1) for n in "ab"), *work])
    result = run_round(cluster, options())
    assert list(result.allocations) == ["default/c"]
    assert result.bindings["default/p0"] == result.bindings["default/p1"]
    users = [entry["name"] for entry in cluster.snapshot().claims["default/c"]["status"]["reservedFor"]]
    assert users == ["p0", "p1"]


def test_group_is_one_user_of_its_claim_however_many_members_it_has() -> None:
    shared = {"name": "gpu", "resourceClaimName": "gpu"}
    large = node("n", cpu="400")
    large["status"]["allocatable"]["pods"] = "400"
    work = [pod_group("g", 257, claims=[shared]), claim("gpu"), aged(pod("late", claims=["gpu"]), 9)]
    work += [aged(pod(f"p{i}", group="g", claims=["gpu"]), 0) for i in range(257)]
    assert len(decided(device_class(), large, resource_slice("n", 1), *work).bindings) == 258


def test_pod_with_affinity_is_tried_again_after_its_target() -> None:
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "friend"}}}]}}  # fmt: skip
    work = [pod("first", priority=9, affinity=near), pod("friend")]
    assert set(decided(node("n"), *work).bindings) == {"default/first", "default/friend"}


def test_nominated_places_are_kept_for_rest_of_round() -> None:
    """Also by pods that are more important than the member that holds the place: the group came first."""
    low = pod("low", cpu="8", node="n")
    work = [pod_group("g", 2, priority=9), pod("g-0", cpu="4", group="g", priority=9), pod("g-1", cpu="4", group="g")]
    result = decided(node("n"), low, *work, pod("next", cpu="4", priority=5))
    assert set(result.nominations) == {"default/g-0", "default/g-1"}
    assert [e.pod.name for e in result.evictions] == ["low"]
    assert set(result.pending) == {"default/next"}
    assert result.groups == {"default/g": "WaitingOnPreemption"}


def test_every_preemptor_needs_its_own_victims() -> None:
    work = [aged(pod(f"p{i}", cpu="4", priority=9), i) for i in range(3)]
    running = [pod(f"low{i}", cpu="4", node=f"n{i}", priority=i) for i in range(2)]
    result = decided(node("n0", cpu="4"), node("n1", cpu="4"), *running, *work)
    assert result.nominations == {"default/p0": "n0", "default/p1": "n1"}
    assert sorted(e.pod.name for e in result.evictions) == ["low0", "low1"]
    assert set(result.pending) == {"default/p2"}


def test_pods_bound_in_this_round_are_not_evicted() -> None:
    """The group's pods come later in the queue than the pod that is less important than the group."""
    work = [pod_group("g", 1, priority=100), pod("g-0", cpu="4", group="g"), pod("quick", cpu="4", priority=5)]
    result = decided(node("n", cpu="4"), *work)
    assert set(result.bindings) == {"default/quick"}
    assert not result.evictions


def test_pods_of_other_schedulers_and_finished_pods_are_ignored() -> None:
    ended, going = pod("ended"), pod("going")
    ended["status"]["phase"] = "Succeeded"
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    objects = [node("n"), ended, going, pod("theirs", schedulerName="other"), pod("there", node="n")]
    result = decided(*objects)
    assert not (result.bindings or result.pending)
    assert set(run_round(SchedulerCache.of(objects), options(), "other").bindings) == {"default/theirs"}


HELD: list[tuple[str, list[Obj], str, str]] = [
    ("no PodGroup", [pod("p", group="g")], "Held", "PodGroupMissing"),
    ("too few members", [pod_group("g", 2), pod("p", group="g")], "Held", "TooFewMembers"),
    ("all gated", [pod_group("g", 1), pod("p", group="g", schedulingGates=[{"name": "x"}])], "Held", "Gated"),
    ("too large", [pod_group("g", 1), pod("p", cpu="9", group="g")], "Unschedulable", "InsufficientResource"),
]


@pytest.mark.parametrize(("name", "objects", "state", "reason"), HELD, ids=[case[0] for case in HELD])
def test_pending_group_has_expected_state_and_reason(name: str, objects: list[Obj], state: str, reason: str) -> None:
    result = decided(node("n"), *objects)
    assert result.groups == {"default/g": state}
    assert result.pending["default/p"].reasons[0].type == reason


def test_running_group_stays_scheduled_with_pending_extra_members() -> None:
    running = [pod(f"r{i}", cpu="4", node="n", group="g") for i in range(2)]
    gated = pod("gated", group="g", schedulingGates=[{"name": "x"}])
    result = decided(node("n"), pod_group("g", 2), *running, pod("extra", cpu="4", group="g"), gated)
    assert result.groups == {"default/g": "Scheduled"}
    assert set(result.pending) == {"default/extra", "default/gated"}


def test_gate_off_schedules_group_members_one_by_one() -> None:
    work = [pod_group("g", 2), pod("p0", cpu="4", group="g"), pod("p1", cpu="8", group="g")]
    assert not decided(node("n"), *work).bindings
    result = decided(node("n"), *work, groups=False)
    assert (set(result.bindings), result.groups) == ({"default/p0"}, {})
    assert set(decided(node("n"), *work, gang_scheduling=False).bindings) == {"default/p0"}


def test_gate_off_ignores_disruption_mode() -> None:
    low = [pod(f"low{i}", cpu="4", node="n", group="w") for i in range(2)]
    objects = [node("n"), pod_group("w", 1, disruptionMode="PodGroup"), *low, pod("p", cpu="4", priority=9)]
    assert len(decided(*objects).evictions) == 2
    assert len(decided(*objects, groups=False).evictions) == 1


def test_error_is_reported_without_bindings() -> None:
    work = [o for i in range(3) for o in member_with_claim(f"g-{i}", "g", cpu=str(1 + i))]
    held = pod("low", node="n", claims=["held"])
    objects = [device_class(), node("n"), resource_slice("n", 3), held, pod_group("g", 3, priority=9), *work]
    objects.append(allocated(claim("held"), allocation("n", "gpu-0"), held))
    result = decided(*objects, placement_budget=2)
    assert result.errors
    assert not (result.bindings or result.evictions)
    assert {w.reasons[0].type for w in result.pending.values()} == {"GaveUp"}
