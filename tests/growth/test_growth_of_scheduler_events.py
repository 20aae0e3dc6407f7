"""What the scheduler does for an event does not depend on how many objects there are."""

from __future__ import annotations

import logging

import pytest
from counted_calls import SIZES, Steps, assert_all_flat
from engine_objects import pod, pod_group
from growing_scheduler import MAKERS, GrowingScheduler, Obj, changed

_REPEATS = 3


async def test_every_watched_kind_has_a_growth_case() -> None:
    assert set(GrowingScheduler(1).informers) == set(MAKERS)


def costs_of(scheduler: GrowingScheduler, name: str) -> dict[str, Steps]:
    """What adding, changing and removing an object takes: the middle one of three, for the first may fill a cache."""
    found: dict[str, list[Steps]] = {"add": [], "update": [], "delete": []}
    for number in range(_REPEATS):
        obj = MAKERS[name](scheduler.size + 10 + number)
        new = changed(obj)
        for action, type_, each in (("add", "ADDED", obj), ("update", "MODIFIED", new), ("delete", "DELETED", new)):
            with Steps() as counted:
                scheduler.hear(name, type_, each)
            found[action].append(counted)
    return {action: sorted(each, key=lambda one: one.count)[_REPEATS // 2] for action, each in found.items()}


@pytest.mark.parametrize("sizes", SIZES)
async def test_event_costs_as_much_in_a_large_cluster_as_in_a_small_one(
    sizes: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    by_size = {}
    for size in sizes:
        scheduler = GrowingScheduler(size)
        found = {name: costs_of(scheduler, name) for name in MAKERS}
        by_size[size] = {f"{action} of a {name}": cost for name in found for action, cost in found[name].items()}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert_all_flat(by_size)


def member(n: int, **status: str) -> Obj:
    return pod(f"member-{n}", group="large", **status)


async def gang_costs(size: int) -> dict[str, Steps]:
    """What events of one member take while the others of its gang wait."""
    scheduler, found = GrowingScheduler(1), dict[str, Steps]()
    scheduler.hear("PodGroup", "ADDED", pod_group("large", 1))
    for number in range(size):
        scheduler.hear("Pod", "ADDED", member(number))
    events = {
        "a member comes": ("ADDED", member(size)),
        "a member is bound by another scheduler": ("MODIFIED", member(1, node="node-0")),
        "a bound member changes": (
            "MODIFIED",
            {**member(1, node="node-0"), "status": {"phase": "Running", "podIP": "x"}},
        ),
        "a member goes": ("DELETED", member(2)),
    }
    for what, (type_, obj) in events.items():
        with Steps() as found[what]:
            scheduler.hear("Pod", type_, obj)
    return found


@pytest.mark.parametrize("sizes", SIZES)
async def test_event_of_a_member_takes_as_much_in_a_large_gang_as_in_a_small_one(sizes: tuple[int, ...]) -> None:
    assert_all_flat({size: await gang_costs(size) for size in sizes})
