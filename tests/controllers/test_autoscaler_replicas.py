"""How many replicas a metric asks for: numbers worked out by hand, and what holds for all of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.controllers.autoscaler_replicas import (
    MOST_REPLICAS,
    Count,
    Sample,
    Scaled,
    Tolerances,
    UncountableError,
    count_by_average,
    count_by_share,
    count_by_utilization,
    count_by_value,
)
from haru.kube.names import format_time

Obj = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def pod(
    name: str,
    *,
    phase: str = "Running",
    ready: bool = True,
    age: timedelta = LONG_AGO,
    ready_since: timedelta | None = None,
    cpu: str = "1",
    **rest: Any,
) -> Obj:
    """A pod of one container; its readiness changed `ready_since` ago, or when it started."""
    changed = format_time(NOW - (age if ready_since is None else ready_since))
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": changed}
    return {
        "metadata": {"name": name, **rest},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase, "startTime": format_time(NOW - age), "conditions": [condition]},
    }


def pods(count: int, **options: Any) -> list[Obj]:
    return [pod(f"p{index}", **options) for index in range(count)]


def samples(*values: int) -> dict[str, Sample]:
    return {f"p{index}": Sample(value, NOW, MINUTE) for index, value in enumerate(values)}


def scaled(found: list[Obj], replicas: int | None = None, **options: Any) -> Scaled:
    count = len(found) if replicas is None else replicas
    return Scaled(count, len(found), found, NOW, **options)


@pytest.mark.parametrize(
    ("levels", "target", "wanted"),
    [
        ((300, 500, 700), 30, Count(5, 500, 50)),
        ((100, 300, 500), 50, Count(2, 300, 30)),
        ((1010, 1030, 1020), 100, Count(3, 1020, 102)),  # within the tolerance of a tenth
        ((1100, 1100, 1100), 100, Count(3, 1100, 110)),  # its very edge
        ((1110, 1110, 1110), 100, Count(4, 1110, 111)),
        ((0, 0, 0), 50, Count(0, 0, 0)),
        ((2000,), 10, Count(20, 2000, 200)),
    ],
)
def test_utilization_moves_replicas_in_its_proportion_to_the_target(
    levels: tuple[int, ...], target: int, wanted: Count
) -> None:
    found = count_by_utilization(samples(*levels), scaled(pods(len(levels))), "cpu", "", target)
    assert found == wanted


def test_tolerance_of_each_direction_is_its_own() -> None:
    three = pods(3)
    wide = Tolerances(down=0.5, up=0.0)
    assert count_by_utilization(samples(600, 600, 600), scaled(three, tolerances=wide), "cpu", "", 100).replicas == 3
    assert count_by_utilization(samples(1010, 1010, 1010), scaled(three, tolerances=wide), "cpu", "", 100).replicas == 4


def test_pods_without_samples_count_as_full_when_shrinking_and_as_idle_when_growing() -> None:
    four = pods(4)
    # Shrinking: (100 + 400 + 1000) / 3000 = 50 % of the three others that count, 4 missing ones at 100 %.
    down = count_by_utilization(samples(100, 100), scaled(four), "cpu", "", 50)
    assert (down.replicas, down.utilization) == (4, 10)  # 2 at 10 %, 2 at 100 %: 55 % would grow, so nothing changes
    down = count_by_utilization(samples(100, 100, 100), scaled(four), "cpu", "", 100)
    assert down.replicas == 2  # (3 * 10 % + 100 %) / 4 = 32 %: 0.32 * 4
    up = count_by_utilization(samples(900, 900, 900), scaled(four), "cpu", "", 30)
    assert up.replicas == 9  # 270 % / 4 = 67 %: ceil(67 / 30 * 4)


def test_missing_pods_count_as_the_target_where_it_is_above_their_request() -> None:
    found = count_by_utilization(samples(1000, 1000, 1000), scaled(pods(4)), "cpu", "", 200)
    assert found.replicas == 3  # (3 * 100 % + 200 %) / 4 = 125 %: ceil(0.625 * 4)


def test_pods_that_are_not_ready_count_as_idle_when_growing_and_not_at_all_when_shrinking() -> None:
    two = [*pods(2), pod("p2", ready=False, age=timedelta(seconds=50)), pod("p3", phase="Pending")]
    up = count_by_utilization(samples(900, 900, 5000), scaled(two), "cpu", "", 50)
    assert up == Count(4, 900, 90)  # 180 % / 4 = 45 %: below the target, so nothing changes
    down = count_by_utilization(samples(200, 200, 5000), scaled(two), "cpu", "", 100)
    assert down == Count(1, 200, 20)  # 0.2 * 2 ready ones


@pytest.mark.parametrize(
    ("options", "sample_age", "counts"),
    [
        ({"age": timedelta(minutes=4), "ready_since": timedelta(minutes=3)}, timedelta(), True),
        ({"age": timedelta(minutes=4), "ready_since": timedelta(seconds=30)}, timedelta(), False),  # no whole window
        ({"age": timedelta(minutes=4), "ready": False}, timedelta(), False),
        ({"ready": False, "ready_since": timedelta(minutes=1)}, timedelta(), True),  # it was ready before
        ({"ready": False, "ready_since": LONG_AGO - timedelta(seconds=20)}, timedelta(), False),  # it never was
        ({"age": timedelta(minutes=4), "ready_since": timedelta(minutes=3)}, timedelta(minutes=2, seconds=1), False),
    ],
)
def test_cpu_of_a_starting_pod_does_not_count(options: Obj, sample_age: timedelta, counts: bool) -> None:
    sample = {"p": Sample(2000, NOW - sample_age, MINUTE), "q": Sample(1000, NOW, MINUTE)}
    both = [pod("p", **options), pod("q")]
    assert count_by_utilization(sample, scaled(both), "cpu", "", 100).utilization == (150 if counts else 100)
    # Of other resources, and of metrics that are no resources, each sample counts.
    assert count_by_average(sample, scaled(both), 1500, "memory").amount == 1500
    assert count_by_average(sample, scaled(both), 1500).amount == 1500


@pytest.mark.parametrize(
    "gone", [pod("p1", phase="Failed"), pod("p1", deletionTimestamp="2026-01-01T12:00:00Z")], ids=["failed", "deleted"]
)
def test_pods_that_end_do_not_count(gone: Obj) -> None:
    found = count_by_utilization(samples(800, 9000), scaled([pod("p0"), gone], 2), "cpu", "", 40)
    assert found == Count(2, 800, 80)


def test_average_of_a_pods_metric_is_compared_with_its_target() -> None:
    assert count_by_average(samples(20000, 10000, 30000), scaled(pods(3)), 15000) == Count(4, 20000)
    assert count_by_average(samples(12000, 12000, 12000), scaled(pods(5)), 20000) == Count(4, 12000)
    negative = count_by_average(samples(-15, -10), scaled(pods(2)), 10)
    assert negative.amount == -12  # towards zero


def test_value_of_the_workload_counts_the_ready_pods() -> None:
    four = [*pods(3), pod("p3", ready=False)]
    assert count_by_value(20000, scaled(four), 15000) == Count(4, 20000)  # ceil(1.34 * 3)
    assert count_by_value(15500, scaled(four), 15000) == Count(4, 15500)
    assert count_by_value(2**63, scaled(four), 1).replicas == MOST_REPLICAS
    with pytest.raises(UncountableError, match="unable to calculate ready pods: no pods returned by selector"):
        count_by_value(20000, scaled([], 1), 15000)


def test_workload_that_is_at_zero_is_scaled_by_the_value_alone() -> None:
    assert count_by_value(0, scaled([], 0), 10).replicas == 0
    assert count_by_value(25, scaled([], 0), 10).replicas == 3
    assert count_by_share(0, scaled([], 0), 10) == Count(0, 0)
    assert count_by_share(25, scaled([], 0), 10) == Count(3, 25)


def test_share_of_each_replica_says_how_many_there_are_to_be() -> None:
    assert count_by_share(8600, scaled(pods(3)), 2000) == Count(5, 2867)
    assert count_by_share(6100, scaled(pods(3)), 2000) == Count(3, 2034)
    assert count_by_share(2**62, scaled(pods(3)), 1).replicas == MOST_REPLICAS


SIDECAR = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
SETUP = {"name": "setup", "resources": {"requests": {"cpu": "8"}}}


@pytest.mark.parametrize(
    ("spec", "container", "percent"),
    [
        ({}, "", 100),
        ({"initContainers": [SIDECAR, SETUP]}, "", 50),  # sidecars count, what ends before the pod starts does not
        ({"initContainers": [SIDECAR, SETUP]}, "main", 100),
        ({"resources": {"requests": {"cpu": "4"}}}, "", 25),
        ({"resources": {"requests": {"cpu": "4"}}}, "main", 100),
    ],
)
def test_utilization_is_of_what_the_running_containers_or_their_pod_request(
    spec: Obj, container: str, percent: int
) -> None:
    one = pod("p0")
    one["spec"] |= spec
    assert count_by_utilization(samples(1000), scaled([one]), "cpu", container, 100).utilization == percent


@pytest.mark.parametrize(
    ("found", "container", "text"),
    [
        ([], "", "no pods returned by selector while calculating replica count"),
        (pods(1), "other", "container other not found in Pod p0"),
        ([pod("p0", phase="Pending")], "", "did not receive metrics for targeted pods (pods might be unready)"),
    ],
)
def test_uncountable_metric_says_why(found: list[Obj], container: str, text: str) -> None:
    with pytest.raises(UncountableError) as error:
        count_by_utilization(samples(100), scaled(found, 1), "cpu", container, 50)
    assert str(error.value) == text


def test_missing_request_names_container_and_pod() -> None:
    with pytest.raises(UncountableError) as error:
        count_by_utilization(samples(100), scaled(pods(1)), "memory", "", 50)
    assert str(error.value) == "missing request for memory in container main of Pod p0"
    whole = pod("p0")
    whole["spec"]["resources"] = {"requests": {"memory": "1Gi"}}
    whole["spec"]["containers"][0]["resources"] = {}
    with pytest.raises(UncountableError) as error:
        count_by_utilization(samples(100), scaled([whole]), "cpu", "", 50)
    assert str(error.value) == "missing pod-level request for cpu in Pod p0"


STATES = st.sampled_from(["ready", "starting", "pending", "missing", "failed"])
MEASURED = ("ready", "starting")


@given(
    st.lists(st.tuples(STATES, st.integers(0, 3000)), min_size=1, max_size=12), st.integers(1, 200), st.integers(1, 20)
)
def test_pods_that_do_not_count_never_turn_a_decision(
    states: list[tuple[str, int]], target: int, replicas: int
) -> None:
    found, measured = [], {}
    for index, (state, value) in enumerate(states):
        phase = {"pending": "Pending", "failed": "Failed"}.get(state, "Running")
        young: Obj = {"ready": False, "age": MINUTE} if state == "starting" else {}
        found.append(pod(f"p{index}", phase=phase, **young))
        if state in MEASURED:
            measured[f"p{index}"] = Sample(value, NOW, MINUTE)
    kinds = {state for state, _ in states} - {"failed"}
    values = [value for state, value in states if state == "ready"]
    if not values:
        with pytest.raises(UncountableError):
            count_by_utilization(measured, scaled(found, replicas), "cpu", "", target)
        return
    count = count_by_utilization(measured, scaled(found, replicas), "cpu", "", target)
    percent = sum(values) * 100 // (1000 * len(values))
    assert (count.utilization, count.amount) == (percent, sum(values) // len(values))
    if kinds == {"ready"}:
        close = 0.9 <= percent / target <= 1.1
        assert count.replicas == (replicas if close else math.ceil(percent / target * len(values)))
    elif percent > target:
        assert count.replicas >= replicas
    elif "missing" in kinds:
        assert count.replicas <= replicas
