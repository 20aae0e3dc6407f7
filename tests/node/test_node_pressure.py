"""A node that runs short: its conditions, who goes first, and what is told of it, as by the kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from haru.node.eviction.ranking import ContainerUsage, Disk, PodUsage, ranked, told
from haru.node.eviction.thresholds import (
    DEFAULT_HARD,
    Observation,
    Pressure,
    for_all_pods,
    kept_from_pods,
    met,
    observed,
    parse_thresholds,
)

Obj = dict[str, Any]
MIB = 1 << 20
GIB = 1 << 30


def hard(**signals: str) -> Any:
    return parse_thresholds({name.replace("_", "."): text for name, text in signals.items()}, {}, {}, {})


def free(available: int, capacity: int = 10 * GIB) -> Observation:
    return Observation(available, capacity)


# -- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (({"memory.free": "1Gi"}, {}, {}, {}), "unsupported eviction signal memory.free"),
        (({"memory.available": "-1"}, {}, {}, {}), "eviction threshold memory.available must be positive: -1"),
        (({"nodefs.available": "101%"}, {}, {}, {}), "eviction percentage threshold nodefs.available must be <= 100%"),
        (({}, {"memory.available": "1Gi"}, {}, {}), "grace period must be specified for the soft eviction threshold"),
        (({}, {}, {"x": 1.0}, {}), "unsupported eviction signal x"),
        (({}, {}, {}, {"memory": "1"}), "unsupported eviction signal memory"),
    ],
)
def test_wrong_threshold_is_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_thresholds(*arguments)


def test_share_of_nothing_and_of_everything_turn_a_threshold_off() -> None:
    assert hard(nodefs_available="0%", memory_available="100%") == ()


def test_pods_do_not_get_what_would_have_them_evicted() -> None:
    found = kept_from_pods(
        parse_thresholds(DEFAULT_HARD, {"memory.available": "1Gi"}, {"memory.available": 60.0}, {}),
        {"memory": GIB, "ephemeral-storage": 10_000_000_000},
    )
    # A tenth, as a number of 32 bits.
    assert {name: str(amount) for name, amount in found.items()} == {
        "memory": "100Mi", "ephemeral-storage": "1000000014",
    }  # fmt: skip


def test_hard_threshold_of_memory_holds_for_all_pods_together() -> None:
    thresholds = parse_thresholds({"memory.available": "1Gi"}, {"memory.available": "2Gi"}, {"memory.available": 9}, {})
    assert [one.signal for one in for_all_pods(thresholds)] == [
        "memory.available", "memory.available", "allocatableMemory.available",
    ]  # fmt: skip


# -- pressure ---------------------------------------------------------------------------------------------------------


def test_condition_holds_at_once_and_room_is_made_after_the_grace_period() -> None:
    soft = parse_thresholds({}, {"memory.available": "1Gi"}, {"memory.available": 30}, {})
    low = {"memory.available": free(GIB - 1)}
    first = observed(soft, Pressure(), low, 300, 1000)
    assert (first.conditions, first.due) == (("MemoryPressure",), ())
    later = observed(soft, first, low, 300, 1030)
    assert later.due == soft
    # What was not met in between begins anew.
    between = observed(soft, first, {"memory.available": free(GIB)}, 300, 1010)
    assert observed(soft, between, low, 300, 1030).due == ()


def test_condition_stays_for_the_transition_period() -> None:
    thresholds = hard(nodefs_available="10%")
    low = observed(thresholds, Pressure(), {"nodefs.available": free(0)}, 300, 1000)
    enough = {"nodefs.available": free(9 * GIB)}
    assert observed(thresholds, low, enough, 300, 1299).conditions == ("DiskPressure",)
    after = observed(thresholds, low, enough, 300, 1300)
    assert (after.conditions, after.due) == ((), ())


def test_room_is_made_until_the_minimum_is_free() -> None:
    thresholds = parse_thresholds({"nodefs.available": "1Gi"}, {}, {}, {"nodefs.available": "512Mi"})
    low = observed(thresholds, Pressure(), {"nodefs.available": free(GIB - 1)}, 0, 10)
    still = observed(thresholds, low, {"nodefs.available": free(GIB + 256 * MIB)}, 0, 20)
    assert (still.due, still.conditions) == (thresholds, ("DiskPressure",))
    assert observed(thresholds, still, {"nodefs.available": free(GIB + 512 * MIB)}, 0, 30).due == ()
    # Who was never below the threshold itself makes no room.
    assert observed(thresholds, Pressure(), {"nodefs.available": free(GIB + MIB)}, 0, 40).due == ()


def test_memory_comes_first_and_conditions_have_one_order() -> None:
    thresholds = hard(pid_available="10", nodefs_inodesFree="5%", memory_available="1Gi")
    seen = {"pid.available": free(1, 100), "nodefs.inodesFree": free(1, 100), "memory.available": free(1)}
    found = observed(thresholds, Pressure(), seen, 300, 1)
    assert found.due[0].signal == "memory.available"
    assert found.conditions == ("MemoryPressure", "DiskPressure", "PIDPressure")


def test_signal_that_nobody_measured_is_not_met() -> None:
    assert met(hard(imagefs_available="15%"), {}, minimum=False) == []


# -- who goes first ---------------------------------------------------------------------------------------------------


def pod(name: str, memory: str = "", storage: str = "", **spec: Any) -> Obj:
    requests = {key: value for key, value in (("memory", memory), ("ephemeral-storage", storage)) if value}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return {"metadata": {"name": name, "uid": name, "namespace": "n"}, "spec": {"containers": containers, **spec}}


def names(pods: list[Obj]) -> list[str]:
    return [one["metadata"]["name"] for one in pods]


def test_memory_goes_by_requests_then_priority_then_excess() -> None:
    pods = [
        pod("within", "3Gi"), pod("large"), pod("small"), pod("important", priority=5), pod("unknown", priority=9),
    ]  # fmt: skip
    usages = {
        "within": PodUsage(memory=2 * GIB),
        "large": PodUsage(memory=GIB),
        "small": PodUsage(memory=MIB),
        "important": PodUsage(memory=4 * GIB),
    }
    found = ranked(hard(memory_available="1Gi")[0], pods, usages, image_disk=False)
    assert names(found) == ["unknown", "large", "small", "important", "within"]


def test_processes_go_by_priority_then_their_number() -> None:
    pods = [pod("few"), pod("many"), pod("important", priority=5)]
    usages = {"few": PodUsage(processes=1), "many": PodUsage(processes=9), "important": PodUsage(processes=99)}
    assert names(ranked(hard(pid_available="5")[0], pods, usages, image_disk=False)) == ["many", "few", "important"]


@pytest.mark.parametrize(
    ("signal", "image_disk", "first"),
    [
        ("nodefs.available", False, "layers"),
        ("nodefs.available", True, "files"),
        ("imagefs.available", True, "layers"),
        ("imagefs.available", False, "layers"),
        ("nodefs.inodesFree", True, "inodes"),
    ],
)
def test_disk_goes_by_what_is_on_the_disk_that_is_full(signal: str, image_disk: bool, first: str) -> None:
    usages = {
        "layers": PodUsage(containers={"main": ContainerUsage(layer=Disk(9 * MIB, 1), logs=Disk(1, 1))}),
        "files": PodUsage(containers={"main": ContainerUsage(layer=Disk(), logs=Disk(2 * MIB, 1))}, volumes=Disk(MIB)),
        "inodes": PodUsage(volumes=Disk(1, 500)),
    }
    threshold = parse_thresholds({signal: "10%"}, {}, {}, {})[0]
    assert names(ranked(threshold, [pod(name) for name in usages], usages, image_disk=image_disk))[0] == first


def test_pod_within_its_request_of_storage_goes_last() -> None:
    usages = {"a": PodUsage(volumes=Disk(9 * MIB)), "b": PodUsage(volumes=Disk(MIB))}
    threshold = hard(nodefs_available="10%")[0]
    assert names(ranked(threshold, [pod("a", storage="1Gi"), pod("b")], usages, image_disk=False)) == ["b", "a"]


# -- what is told -----------------------------------------------------------------------------------------------------


def test_message_says_threshold_and_which_containers_use_more_than_they_request() -> None:
    threshold = hard(nodefs_available="1Gi")[0]
    usage = PodUsage(containers={"main": ContainerUsage(5, Disk(3 * 1024), Disk(1024))})
    found = told(threshold, pod("p"), usage, [threshold], {"nodefs.available": free(512 * MIB)})
    assert found.message == (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 512Mi. "
        "Container main was using 4Ki, request is 0, has larger consumption of ephemeral-storage. "
    )
    assert found.annotations == {
        "offending_containers": "main",
        "offending_containers_usage": "4Ki",
        "starved_resource": "ephemeral-storage",
    }


def test_pod_that_requests_memory_as_a_whole_is_named() -> None:
    threshold = hard(memory_available="1Gi")[0]
    made = pod("p", resources={"requests": {"memory": "64Mi"}})
    usage = PodUsage(memory=128 * MIB, containers={"main": ContainerUsage(100 * MIB)})
    found = told(threshold, made, usage, [threshold], {"memory.available": free(GIB // 2)})
    assert found.message == (
        "The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. "
        "Pod p was using 128Mi, request is 64Mi, has larger consumption of memory. "
        "Container main was using 100Mi, request is 0, has larger consumption of memory. "
    )
    assert found.annotations["offending_pod"] == "p"


def test_container_within_its_request_and_processes_are_not_blamed() -> None:
    threshold = hard(pid_available="10")[0]
    usage = PodUsage(containers={"main": ContainerUsage(MIB, Disk(1), Disk(1))})
    text = told(threshold, pod("p"), usage, [threshold], {"pid.available": free(4, 100)}).message
    assert text == "The node was low on resource: pids. Threshold quantity: 10, available: 4. "
    memory = hard(memory_available="1Gi")[0]
    assert "Container" not in told(memory, pod("p", "2Mi"), usage, [memory], {}).message
