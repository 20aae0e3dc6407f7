"""Events in, pods with groups and PodGroups out: whatever the order in which objects and pods come."""

from __future__ import annotations

from typing import Any

import foreign_objects as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.gangs import ADAPTERS, KINDS, GangTranslator, adapters_for, as_written, title_of
from haru.gangs import translated as translate

Obj = dict[str, Any]


class Mirror:
    """Keeps what a translator tells, as a cache does."""

    def __init__(self, *names: str, native: bool = True) -> None:
        self.translator = GangTranslator(adapters_for(names or ADAPTERS, KINDS), native=native)
        self.objects: dict[tuple[str, str], Obj] = {}

    def apply(self, *objects: Obj) -> None:
        for obj in objects:
            self.take(self.translator.apply(obj))

    def remove(self, *objects: Obj) -> None:
        for obj in objects:
            self.take(self.translator.remove(obj))

    def take(self, told: Any) -> None:
        for obj in told.changed:
            self.objects[obj["kind"], obj["metadata"]["name"]] = obj
        for obj in told.removed:
            self.objects.pop((obj["kind"], obj["metadata"]["name"]))

    @property
    def groups(self) -> dict[str, int]:
        return {
            name: obj["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 0)
            for (kind, name), obj in self.objects.items()
            if kind == "PodGroup"
        }

    def group_of(self, name: str) -> str:
        return str((self.objects["Pod", name]["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def test_members_get_group_and_group_comes_before_them() -> None:
    translator = GangTranslator(adapters_for(ADAPTERS, KINDS))
    translator.apply(made.coscheduling("g", 2))
    first = translator.apply(made.grouped("a", "g"))
    assert [obj["kind"] for obj in first.changed] == ["PodGroup", "Pod"]
    assert translator.apply(made.grouped("b", "g")).changed[0]["kind"] == "Pod"


def test_pod_waits_in_group_without_object_until_it_comes() -> None:
    mirror = Mirror()
    mirror.apply(made.grouped("a", "g"))
    assert mirror.group_of("a") == "podgroup:g" and mirror.groups == {}
    mirror.apply(made.coscheduling("g", 3))
    assert mirror.groups == {"podgroup:g": 3}
    mirror.remove(made.coscheduling("g", 3))
    assert mirror.groups == {} and mirror.group_of("a") == "podgroup:g"


def test_job_set_in_order_moves_its_pods_to_their_own_gangs() -> None:
    mirror = Mirror()
    jobs = [made.replicated_job("a", 1, 2), made.replicated_job("b", 1, 3, dependsOn=[{"name": "a"}])]
    mirror.apply(made.job_set_pod("p", "t", "a"), made.job_set_pod("q", "t", "b"))
    assert {mirror.group_of("p"), mirror.group_of("q")} == {"jobset:t"}
    mirror.apply(made.job_set("t", *jobs))
    assert (mirror.group_of("p"), mirror.group_of("q")) == ("jobset:t:a", "jobset:t:b")
    assert mirror.groups == {"jobset:t:a": 2, "jobset:t:b": 3}


def test_group_ends_with_its_last_living_member() -> None:
    mirror = Mirror()
    mirror.apply(made.coscheduling("g", 1), made.grouped("a", "g"), made.grouped("b", "g"))
    mirror.remove(made.grouped("a", "g"))
    assert mirror.groups == {"podgroup:g": 1}
    mirror.apply(made.grouped("b", "g", phase="Failed"))
    assert mirror.groups == {}


def test_succeeded_members_lower_min_count_however_they_are_read() -> None:
    whole, split = Mirror(), Mirror()
    for mirror in (whole, split):
        mirror.apply(made.job_set("t", made.replicated_job("w", 1, 4)))
        mirror.apply(*(made.job_set_pod(name, "t", "w") for name in "abcd"))
    done = made.job_set_pod("a", "t", "w", phase="Succeeded")
    whole.apply(done)
    split.take(split.translator.finished(done))
    split.remove(done)
    assert whole.groups == split.groups == {"jobset:t": 3}
    split.take(split.translator.finished_gone(done))
    assert split.groups == {"jobset:t": 4}


def test_pod_that_names_pod_group_of_kubernetes_keeps_it() -> None:
    mirror = Mirror()
    pod = made.grouped("a", "g", schedulingGroup={"podGroupName": "own"})
    mirror.apply(made.coscheduling("g", 2), pod)
    assert mirror.objects["Pod", "a"] is pod and mirror.groups == {}


def test_other_pods_of_job_set_whose_jobs_have_pod_groups_are_single() -> None:
    """The Job controller made a PodGroup for the workers: a gang of all of the JobSet's pods would wait for ever."""
    mirror = Mirror()
    mirror.apply(made.job_set("t", made.replicated_job("d", 1, 1), made.replicated_job("w", 1, 2)))
    mirror.apply(made.job_set_pod("d", "t", "d"))
    assert mirror.group_of("d") == "jobset:t" and mirror.groups == {"jobset:t": 3}
    worker = made.job_set_pod("w", "t", "w", schedulingGroup={"podGroupName": "of-job"})
    mirror.apply(worker)
    assert mirror.group_of("d") == "" and mirror.groups == {}
    mirror.remove(worker)
    assert mirror.group_of("d") == "jobset:t" and mirror.groups == {"jobset:t": 3}


def test_annotation_on_object_or_on_template_of_replicated_job_turns_gang_off() -> None:
    mirror = Mirror()
    none = {"haru.dev/gang": "false"}
    alone = made.replicated_job("d", 1, 1)
    alone["template"]["metadata"] = {"annotations": none}
    mirror.apply(made.job_set("t", alone, made.replicated_job("w", 1, 2)))
    mirror.apply(made.job_set_pod("d", "t", "d"), made.job_set_pod("w", "t", "w"))
    assert mirror.group_of("d") == "" and mirror.groups == {"jobset:t": 2}
    ray = made.ray_cluster("r", {"replicas": 2})
    ray["metadata"]["annotations"] = none
    mirror.apply(ray, made.ray_pod("h", "r", "head"))
    assert mirror.group_of("h") == ""


def test_annotations_change_count_and_disruption_mode_and_turn_gang_off() -> None:
    mirror = Mirror()
    fewer = {"haru.dev/gang-min-count": "2", "haru.dev/disruption-mode": "Pod"}
    mirror.apply(made.job_set("t", made.replicated_job("w", 1, 4)), made.job_set_pod("a", "t", "w", annotations=fewer))
    group = mirror.objects["PodGroup", "jobset:t"]
    assert group["spec"]["disruptionMode"] == "Pod" and mirror.groups == {"jobset:t": 2}
    mirror.apply(made.job_set_pod("a", "t", "w", annotations={"haru.dev/gang-min-count": "0"}))
    assert mirror.groups == {} and mirror.group_of("a") == ""


def test_group_has_lowest_priority_of_members_and_annotations_of_its_object() -> None:
    mirror = Mirror()
    described = made.custom(
        "scheduling.x-k8s.io/v1alpha1",
        "PodGroup",
        "g",
        {"minMember": 2, "scheduleTimeoutSeconds": 10},
        annotations={"haru.dev/run-time-limit": "1h", "other": "x"},
        creationTimestamp="2026-01-01T00:00:00Z",
    )
    mirror.apply(described, made.grouped("a", "g", priority=7), made.grouped("b", "g", priority=3))
    group = mirror.objects["PodGroup", "podgroup:g"]
    assert group["spec"]["priority"] == 3 and title_of("podgroup:g") == ("PodGroup", "g")
    assert group["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert group["metadata"]["annotations"] == {
        "haru.dev/run-time-limit": "1h",
        "haru.dev/schedule-timeout-seconds": "10",
    }


@pytest.mark.parametrize(
    ("native", "groups", "member"),
    [(True, {"own": 2}, "own"), (False, {}, "")],
)
def test_groups_of_kubernetes_stay_or_are_left_out(native: bool, groups: dict[str, int], member: str) -> None:
    mirror = Mirror(native=native)
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    own = made.custom("scheduling.k8s.io/v1alpha2", "PodGroup", "own", spec)
    mirror.apply(own, made.pod("a", schedulingGroup={"podGroupName": "own"}))
    assert mirror.groups == groups and mirror.group_of("a") == member
    mirror.remove(own)
    assert mirror.groups == {}


def test_adapter_that_is_off_leaves_pods_alone() -> None:
    mirror = Mirror("jobset")
    mirror.apply(made.coscheduling("g", 2), made.grouped("a", "g"))
    assert mirror.group_of("a") == "" and mirror.groups == {}


def test_status_of_object_tells_nothing() -> None:
    mirror = Mirror()
    group = made.coscheduling("g", 2)
    mirror.apply(group, made.grouped("a", "g"))
    told = mirror.translator.apply({**group, "status": {"phase": "Running"}})
    assert told == ((), ())


def test_translation_of_translated_cluster_is_the_same_and_can_be_undone() -> None:
    given = [made.coscheduling("g", 2), made.grouped("a", "g"), made.grouped("b", "g")]
    once = translate(given)
    again = translate(once)
    assert sorted(map(str, again)) == sorted(map(str, once))
    assert [as_written(obj) for obj in once if obj["kind"] == "Pod"] == given[1:]


OBJECTS = [
    made.coscheduling("g", 2),
    made.job_set("t", made.replicated_job("a", 1, 2), made.replicated_job("b", 1, 2)),
    made.job_set("t", made.replicated_job("a", 1, 2), made.replicated_job("b", 1, 2, dependsOn=[{"name": "a"}])),
    made.leader_worker_set("s", 2),
    made.leader_worker_set("s", 2, startupPolicy="LeaderReady"),
    *(made.grouped(name, "g") for name in "xy"),
    made.grouped("x", "g", phase="Succeeded"),
    made.pod("x"),
    *(made.job_set_pod(f"t-{job}", "t", job) for job in "ab"),
    made.job_set_pod("t-a", "t", "a", phase="Succeeded"),
    *(made.lws_pod(f"s-0-{worker}", "s", 0, worker, 2) for worker in range(2)),
    *(made.kueue_pod(name, "k", 2) for name in ("k1", "k2")),
    made.job_set_pod("t-a", "t", "a", schedulingGroup={"podGroupName": "of-job-a"}),
]


@given(st.lists(st.tuples(st.sampled_from(OBJECTS), st.booleans()), max_size=25))
def test_any_order_of_events_comes_to_what_is_there_at_the_end(events: list[tuple[Obj, bool]]) -> None:
    """The groups after a history are those of the objects that it leaves, translated afresh."""
    mirror = Mirror()
    there: dict[tuple[str, str], Obj] = {}
    for obj, comes in events:
        key = (obj["apiVersion"] + obj["kind"], obj["metadata"]["name"])
        if comes:
            there[key] = obj
            mirror.apply(obj)
        elif key in there:
            mirror.remove(there.pop(key))
    fresh = Mirror()
    fresh.apply(*there.values())
    assert mirror.objects == fresh.objects
