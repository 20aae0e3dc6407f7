"""What an event costs the scheduler, in steps of the interpreter: it depends on whom the event concerns, not on all who
wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from counted_calls import steps
from scheduler_bench import Bench, play, state_of

from haru.engine import SchedulerCache
from haru.engine.state import MemberDecision, PodKey
from haru.kube.gates import FeatureGates
from haru.scheduler.binding.binding_cycle import BindingCycle, BindingTask
from haru.scheduler.config import scheduler_config
from haru.scheduler.events.event_handlers import EventHandlers
from haru.scheduler.queue import queueing_hints
from haru.scheduler.queue.pre_enqueue import PreEnqueue
from haru.scheduler.queue.scheduling_queue import SchedulingQueue
from haru.scheduler.shared import SchedulerState

Obj = dict[str, Any]
FEW, MANY = 100, 1000


class _Listener:
    def is_ready(self) -> bool:
        return True

    def wake(self) -> None: ...
    def report_group_scheduled(self, key: object) -> None: ...
    def deallocate(self, claim: Obj) -> None: ...
    def unit_changed(self) -> None: ...


class Waiting:
    """Pods that wait, and the scheduler's part that hears of events."""

    def __init__(self) -> None:
        config = scheduler_config(FeatureGates.accelerator_defaults(), ["default-scheduler"], monotonic=lambda: 100.0)
        self.cluster = SchedulerCache()
        self.queue = SchedulingQueue()
        self.admission = PreEnqueue(SchedulerState(config, self.cluster, self.queue))
        self.intake = EventHandlers(self.cluster, self.queue, self.admission, config, _Listener())

    def pod(self, name: str, claim: str = "", group: str = "", generated: str = "") -> None:
        spec: Obj = {"containers": [{"name": "c"}]}
        status: Obj = {}
        if claim:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        if generated:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
            status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": generated}]
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        pod = made("v1", "Pod", name, spec=spec, status=status)
        self.cluster.apply(pod)
        self.intake.pod_changed(None, pod)

    def claim(self, name: str, owner: str = "") -> None:
        claim = made("resource.k8s.io/v1", "ResourceClaim", name, spec={})
        if owner:
            kind, _, named = owner.partition("/")
            reference = {"kind": kind, "name": named, "uid": f"uid-{named}", "controller": True}
            claim["metadata"]["ownerReferences"] = [reference]
        self.cluster.apply(claim)
        self.intake.claim_changed(None, claim)

    def group(self, name: str, minimum: int = 1) -> None:
        policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        group = made("scheduling.k8s.io/v1alpha2", "PodGroup", name, spec=policy)
        self.cluster.apply(group)
        self.intake.group_changed(None, group)


def made(api_version: str, kind: str, name: str, **rest: Any) -> Obj:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def a_claim_that_a_pod_names(count: int) -> int:
    waiting = Waiting()
    for number in range(count):
        waiting.pod(f"p{number}", claim=f"c{number}")
    cost = steps(lambda: waiting.claim("c7")).count
    assert len(waiting.admission.blocked) == count - 1
    return cost


def a_claim_that_nobody_names(count: int) -> int:
    waiting = Waiting()
    for number in range(count):
        waiting.pod(f"p{number}", claim=f"c{number}")
    cost = steps(lambda: waiting.claim("other")).count
    assert len(waiting.admission.blocked) == count
    return cost


def a_claim_made_from_a_template(count: int) -> int:
    waiting = Waiting()
    for number in range(count):
        waiting.pod(f"p{number}", generated=f"c{number}")
    cost = steps(lambda: waiting.claim("c7", owner="Pod/p7")).count
    assert len(waiting.admission.blocked) == count - 1
    return cost


def a_claim_of_one_member_of_a_group(count: int) -> int:
    waiting = Waiting()
    waiting.group("g")
    for number in range(count):
        waiting.pod(f"p{number}", claim=f"c{number}", group="g")
    cost = steps(lambda: waiting.claim("c7")).count
    assert len(waiting.admission.blocked) == count - 1
    return cost


def a_pod_group_that_pods_name(count: int) -> int:
    waiting = Waiting()
    for number in range(count):
        waiting.pod(f"p{number}", group=f"g{number}")
    cost = steps(lambda: waiting.group("g7")).count
    assert len(waiting.admission.blocked) == count - 1
    return cost


def one_more_member_of_a_gang_that_is_not_whole(count: int) -> int:
    waiting = Waiting()
    waiting.group("g", MANY * 2)
    for number in range(count):
        waiting.pod(f"p{number}", group="g")
    cost = steps(lambda: waiting.pod("more", group="g")).count
    assert len(waiting.admission.blocked) == count + 1
    return cost


def test_volume_claim_event_wakes_only_pods_that_name_it() -> None:
    waiting = Waiting()
    for number in range(MANY):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        pod = made("v1", "Pod", f"p{number}", spec={"containers": [{"name": "c"}], "volumes": [volume]}, status={})
        waiting.cluster.apply(pod)
        waiting.intake.pod_changed(None, pod)
    while (unit := waiting.queue.pop(100.0)) is not None:
        pods = [waiting.cluster.snapshot().pods[path].obj for path in unit.pods]
        waiting.queue.reject(unit, queueing_hints.rejecting({"VolumeBinding"}, pods), 100.0)
    claim = made("v1", "PersistentVolumeClaim", "c7", spec={"volumeName": "v7"})
    waiting.intake.may_help(queueing_hints.other_change("PersistentVolumeClaim", None, claim))
    assert waiting.queue.pending()["unschedulable"] == MANY - 1


def test_assumed_pods_are_scanned_rarely() -> None:
    cluster = SchedulerCache.of([made("v1", "Pod", f"p{number}", spec={}) for number in range(3 * MANY)])
    looks = 0
    is_assumed = cluster.is_assumed

    def counted(pod: PodKey) -> bool:
        nonlocal looks
        looks += 1
        return is_assumed(pod)

    cluster.is_assumed = counted  # type: ignore[method-assign]
    nobody: Any = None
    carrier = BindingCycle(state_of(cluster), nobody, nobody, lambda path: None)
    for number in range(3 * MANY):
        pod = PodKey("default", f"p{number}", f"uid-p{number}")
        carrier.assume(BindingTask(None, 1, (MemberDecision(pod, "scheduled", "n"),)))
    assert looks <= 2 * 3 * MANY


@pytest.mark.parametrize(
    "event",
    [
        a_claim_that_a_pod_names,
        a_claim_that_nobody_names,
        a_claim_made_from_a_template,
        a_claim_of_one_member_of_a_group,
        a_pod_group_that_pods_name,
        one_more_member_of_a_gang_that_is_not_whole,
    ],
)
def test_event_cost_is_independent_of_number_of_pending_pods(
    event: Callable[[int], int],
) -> None:
    few, many = event(FEW), event(MANY)
    assert many <= 1.2 * few, f"{few} steps before {FEW} pods, {many} before {MANY}"


def test_member_of_a_gang_that_is_still_incomplete_is_checked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting()
    waiting.group("g", minimum=3)
    waiting.pod("p0", group="g")
    checked: list[str] = []
    check = PreEnqueue.check

    def counted(self: PreEnqueue, unit: Any, path: str) -> bool:
        checked.append(path)
        return check(self, unit, path)

    monkeypatch.setattr(PreEnqueue, "check", counted)
    waiting.pod("p1", group="g")
    assert checked == ["default/p1"] and len(waiting.admission.blocked) == 2
    waiting.pod("p2", group="g")
    assert set(checked) == {"default/p0", "default/p1", "default/p2"} and not waiting.admission.blocked
    assert waiting.queue.pending()["active"] == 3


def test_members_of_a_placed_gang_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[MemberDecision] = []

    def counted(self: MemberDecision, other: object) -> bool:
        compared.append(self)
        return self is other

    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=8)
        await bench.gang("g", 4)
        for name in ("a", "b", "c", "d"):
            await bench.pod(name, group="g")
        await bench.eventually_bound("a", "b", "c", "d")
        assert not compared

    monkeypatch.setattr(MemberDecision, "__eq__", counted)
    play(scenario)
