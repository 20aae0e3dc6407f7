"""The comparison of what becomes of devices that are attached on demand: scenarios are made again, traces compared."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from attaching_driver import Trace
from binding_verdicts import differences
from bindings_compared import main
from kept_scheduler import DISTURBANCES
from random_bindings import STORIES, VOLUMES, conditions, scenario, without_device

from nights import tonight

PLAIN = next(one for one in map(scenario, range(200)) if len(one.units) == 2 and not one.acts)
GANG = next(one for one in map(scenario, range(200)) if one.is_gang and one.fails and not one.ended)
FAILED = 'running PreBind plugin "DynamicResources": device binding failed: claim=c, reason=Told, message="failed"'
DEVICES: list[tuple[str, ...]] = [("r", "p", "d0")]


def trace(*messages: str, node: str = "n", times: int = 1) -> Trace:
    return Trace(
        {"p": node},
        {"p": list(messages)},
        {"c": [DEVICES] * times},
        {("p", "Scheduled", node, "Normal", "Binding", "x", "", "")},
    )


def test_seed_makes_the_same_scenario_again() -> None:
    assert scenario(3) == scenario(3) != scenario(4)
    told = {word for seed in range(80) for story in scenario(seed).stories.values() for word in story}
    assert told == {word for story in STORIES for word in story}


@pytest.mark.parametrize(
    ("seen", "ours", "found"),
    [
        (trace(FAILED), trace(FAILED), []),
        (trace(FAILED), trace(FAILED.replace("failed: claim=c", "timeout: x")), []),
        (trace(FAILED, "0/1 nodes are available: a. deallocation of ResourceClaim completed"), trace(FAILED), []),
        (trace(FAILED, times=2), trace(FAILED, times=5), []),
        (trace(FAILED), trace(), ["messages"]),
        (trace(node="n"), trace(node=""), ["nodes", "events"]),
        (trace(), replace(trace(), allocations={"c": [[("r", "p", "d1")]]}), ["allocations"]),
        (
            replace(trace(), claims={"c": {"reservedFor": [{"name": "p"}]}}),
            replace(trace(), claims={"c": {}}),
            ["claims"],
        ),
    ],
)
def test_traces_differ_in_more_than_how_often_a_scheduler_looks(seen: Trace, ours: Trace, found: list[str]) -> None:
    assert differences(seen, ours, PLAIN) == found


def evicted(note: str, told: str, **other: str) -> Trace:
    event = ("v", "Preempted", note, "Normal", "Preempting", "x", other.get("kind", ""), other.get("name", ""))
    return replace(trace(), events={event}, told={("v", "DisruptionTarget", "True", "x", told)}, uids={"u": "p"})


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        (evicted("by u", "a"), []),
        (evicted("by p", "a", kind="Pod", name="p"), []),
        (evicted("by q", "a"), ["events"]),
        (evicted("by u", "a", kind="PodGroup", name="g"), ["events"]),
        (evicted("by u", "b"), ["told"]),
    ],
)
def test_words_about_victims_are_compared(ours: Trace, found: list[str]) -> None:
    assert differences(evicted("by u", "a"), ours, PLAIN) == found


def test_members_of_a_gang_whose_devices_come_may_change_places() -> None:
    gang = next(one for one in map(scenario, range(400)) if one.is_gang and not one.fails)
    seen, ours = Trace({"a": "n", "b": "m"}), Trace({"a": "m", "b": "n"})
    assert differences(seen, ours, gang) == []
    assert differences(seen, replace(ours, nodes={"a": "m", "b": "m"}), gang) == ["nodes"]
    told = {("g", "PodGroupScheduled", "True", "Scheduled", "")}
    assert differences(seen, replace(ours, told=told), gang) == ["told"]


def test_scenarios_have_all_that_may_disturb_them() -> None:
    drawn = [scenario(seed) for seed in range(400)]
    acts = {(act.verb, one["kind"]) for each in drawn for act in each.acts for one in act.objects}
    assert {("force", "Pod"), ("delete", "ResourceClaim"), ("delete", "Node"), ("create", "Pod")} < acts
    assert {each.volumes for each in drawn} == {"", *VOLUMES}
    assert {len(each.units) for each in drawn if each.evicts} > {2, 3}


def test_of_disturbed_schedulers_only_what_came_of_it_counts() -> None:
    """How far each came in the same time differs, and what it said; on which node a pod is bound does not."""
    late = replace(trace(FAILED, node=""), allocations={})
    assert differences(trace(), late, PLAIN, is_disturbed=True) == []
    assert differences(trace(), trace(node="m"), PLAIN, is_disturbed=True) == ["nodes"]
    assert differences(
        trace(), replace(trace(), claims={"c": {"reservedFor": [{"name": "p"}]}}), PLAIN, is_disturbed=True
    )


def test_gang_differs_only_where_half_of_it_is_bound_or_none_of_it() -> None:
    half, whole, none = (Trace({"a": first, "b": second}) for first, second in (("n", ""), ("n", "n"), ("", "")))
    assert differences(half, none, GANG) == differences(half, whole, GANG) == differences(none, none, GANG) == []
    assert differences(whole, half, GANG) == differences(half, half, GANG) == ["gang"]
    assert differences(whole, none, GANG) == []  # others of it may have got the devices that fail


def test_controller_says_what_the_story_of_a_device_tells() -> None:
    result = {"bindingConditions": ["attached", "configured"], "bindingFailureConditions": ["failed", "lost"]}
    assert conditions("half", result) == [("attached", "True")]
    assert conditions("failed", result) == [("lost", "True")]
    assert conditions("never", result) == ()
    pool = {"spec": {"devices": [{"name": "d0"}, {"name": "d1"}]}}
    assert [one["name"] for one in without_device(pool, "d0", "gone")["spec"]["devices"]] == ["d1"]
    assert "taints" in without_device(pool, "d0", "tainted")["spec"]["devices"][0]


@pytest.mark.nightly
@pytest.mark.host
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_devices_are_waited_for_as_by_kube_scheduler(disturbance: str) -> None:
    programs = [shutil.which(name) for name in ("kube-apiserver", "kube-scheduler")]
    if not programs[0] or not programs[1]:
        pytest.skip("kube-apiserver and kube-scheduler 1.36 are not on PATH")
    seeds = tonight(range(40))
    flags = [f"--seed={seeds.start}", f"--count={len(seeds)}", f"--disturbance={disturbance}"]
    assert main([f"--kubernetes={Path(programs[0]).parent}", *flags]) == 0
