"""Queueing hints: every event that makes a rejected pod schedulable wakes it without the periodic flush."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from changing_cluster import GROUP, ZONE, ChangingCluster, obj
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haru.engine import Decision, Options, Profile, SchedulerCache, decide
from haru.engine.framework import DEFAULT_PROFILE, DefaultSpread
from haru.scheduler.queue import queueing_hints

Obj = dict[str, Any]
HARD_DEFAULT = Profile(
    spread=DefaultSpread(({"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},), system=False)
)
SLOW = [HealthCheck.too_slow]


def waiting(world: ChangingCluster, size: int) -> tuple[list[Obj], Obj | None]:
    """A pod, or a gang of which everybody is needed."""
    pods: list[Obj] = []
    alike, with_claims, is_important = world.chance(2), world.chance(2), world.chance(2)
    names = ["gpu"]
    for number in range(size):
        # A single pod often asks for one thing only, so that this one thing is what it waits for.
        spec = world.plain_spec() if size == 1 and world.chance(2) else world.spec(gang=size > 1)
        if is_important:
            # Than most others, of which it would evict none.
            spec |= {"priority": 7, "preemptionPolicy": "Never"}
        labels = {"app": world.app()}
        if size > 1:
            if alike and pods:
                spec, labels = dict(pods[0]["spec"]), pods[0]["metadata"]["labels"]
            if with_claims:
                names.append(f"gpu-{number}")
                spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": names[-1]}]
            spec["schedulingGroup"] = {"podGroupName": "gang"}
        pods.append(obj("Pod", f"w{number}", spec=spec, status={"phase": "Pending"}, metadata={"labels": labels}))
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    for name in names:
        world.cluster.apply(obj("ResourceClaim", name, "resource.k8s.io/v1", spec=requests))
    for pod in pods:
        world.cluster.apply(pod)
    if size == 1:
        return pods, None
    group = obj("PodGroup", "gang", GROUP, spec={"schedulingPolicy": {"gang": {"minCount": size}}})
    world.cluster.apply(group)
    return pods, group


def rejected_by(decision: Decision, pods: list[Obj], profile: Profile) -> frozenset[str]:
    """As the scheduling loop has it."""
    plugins = {plugin for member in decision.members for plugin in member.plugins}
    if decision.group is not None:
        refusals = [member.plugins for member in decision.members]
        plugins |= queueing_hints.wanted_by(pods, refusals, spread=profile is HARD_DEFAULT)
    return queueing_hints.rejecting(plugins, pods)


def helped_by(cluster: SchedulerCache, kind: str, old: Obj | None, new: Obj | None) -> frozenset[str]:
    if kind == "Pod":
        return queueing_hints.pod_change(old, new, cluster.now)
    if kind == "ResourceClaim":
        return queueing_hints.claim_change(old, new)
    if kind == "PodGroup":
        return queueing_hints.group_change(old, new, cluster.now)
    return queueing_hints.other_change(kind, old, new)


def follow(random: Random, size: int, profile: Profile, steps: int) -> Counter[str]:
    """Lets the cluster change; an attempt is made only where a change woke the unit. Tells what happened, by kind."""
    world = ChangingCluster(random)
    pods, group = waiting(world, size)
    options = Options(profile=profile, new_share_id=lambda: "share")
    happened: Counter[str] = Counter()

    def attempt() -> Decision:
        return decide(world.cluster.snapshot(), pods, group=group, options=options)

    decision = attempt()
    rejected = rejected_by(decision, pods, profile)
    for _ in range(steps):
        if decision.status != "unschedulable":
            return happened
        change = world.change()
        now = attempt()
        helped = helped_by(world.cluster, *change)
        # What nobody rejected (there was no node) is woken by everything that may help anybody, as the queue does.
        if helped and (not rejected or helped & rejected):
            happened["woken"] += 1
            decision, rejected = now, rejected_by(now, pods, profile)
            happened[f"helped by {change[0]}"] += now.status == "scheduled"
        else:
            happened["left alone"] += 1
            assert now.status == "unschedulable", f"{change} made it schedulable; it was rejected by {sorted(rejected)}"
    return happened


randoms = st.randoms(use_true_random=False)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(randoms, st.integers(1, 3), st.sampled_from([DEFAULT_PROFILE, HARD_DEFAULT]))
def test_helpful_events_wake_pending_pods(random: Random, size: int, profile: Profile) -> None:
    follow(random, size, profile, 10)


@pytest.mark.nightly
@settings(max_examples=20_000, deadline=None, suppress_health_check=SLOW)
@given(randoms, st.integers(1, 3), st.sampled_from([DEFAULT_PROFILE, HARD_DEFAULT]))
def test_helpful_events_wake_pending_pods_in_long_runs(random: Random, size: int, profile: Profile) -> None:
    follow(random, size, profile, 30)


@pytest.mark.nightly
def test_generated_changes_cover_all_kinds() -> None:
    """Most kinds of change help now and then, and not every change wakes somebody."""
    happened: Counter[str] = Counter()
    for seed in range(3000):
        happened += follow(Random(seed), 1 + seed % 3, DEFAULT_PROFILE, 25)
    kinds = {"Node", "Pod", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "DeviceClass", "ResourceSlice"}
    assert {kind for kind in kinds if not happened[f"helped by {kind}"]} == set(), happened
    assert happened["left alone"] > happened["woken"] / 2


def test_end_of_a_pod_wakes_nobody_who_waits_for_devices_before_its_claim_is_free() -> None:
    """An attempt in between would be in vain, and its backoff would let others take the devices first."""
    now = SchedulerCache().now
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    bound = obj("Pod", "p", spec={"nodeName": "a", **claims}, status={"phase": "Running"})
    assert "DynamicResources" not in queueing_hints.pod_change(bound, None, now)
    assert "NodeResourcesFit" in queueing_hints.pod_change(bound, None, now)
    used = obj("ResourceClaim", "gpu", spec={}, status={"allocation": {}, "reservedFor": [{"uid": "p"}]})
    assert "DynamicResources" in queueing_hints.claim_change(used, {**used, "status": {}})
    promised = obj("Pod", "p", spec=claims, status={"phase": "Pending", "nominatedNodeName": "a"})
    assert "DynamicResources" in queueing_hints.pod_change(promised, None, now)


@pytest.mark.parametrize(
    ("gone", "minimum", "promised", "helps"),
    [
        ("idle", 3, True, True),
        ("idle", 3, False, False),  # nobody has a place that could be lost
        ("idle", 2, True, False),  # two members are left to make it whole
        ("idle", 4, True, False),  # it had too few before
        ("bound", 2, True, True),
    ],
)
def test_end_of_a_member_wakes_who_waits_for_what_its_gang_was_promised(
    gone: str, minimum: int, promised: bool, helps: bool
) -> None:
    """Devices included, which the end of a bound pod alone does not free: a promise has them without a claim."""
    cluster = SchedulerCache()
    cluster.apply(obj("Node", "a", namespaced=False, spec={}, status={}))
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    cluster.apply(obj("PodGroup", "g", GROUP, spec=policy))
    member = {"schedulingGroup": {"podGroupName": "g"}}
    waiting = {"phase": "Pending", **({"nominatedNodeName": "a"} if promised else {})}
    pods = {
        "bound": obj("Pod", "bound", spec={**member, "nodeName": "a"}, status={"phase": "Running"}),
        "promised": obj("Pod", "promised", spec=member, status=waiting),
        "idle": obj("Pod", "idle", spec=member, status={"phase": "Pending"}),
    }
    for one in pods.values():
        cluster.apply(one)
    cluster.remove(pods[gone])
    assert ("DynamicResources" in queueing_hints.pod_change(pods[gone], None, cluster.now)) is helps
