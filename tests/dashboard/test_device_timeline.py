"""The timeline: bars of gangs, what waits, what happened, and the axis."""

from __future__ import annotations

from typing import Any

import pytest
from dashboard_pages import FixedWatch, browser_of
from engine_objects import allocated, allocation, claim, device_class, node, pod, resource_slice

from haru.dashboard.views.device_timeline import (
    DeviceTimeline,
    Held,
    device_timeline,
    happenings,
    held_now,
)
from haru.dashboard.views.queue import ShownExplanation, WaitingWorkload
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.views.workloads import EVERYTHING, Filter, Workload
from haru.engine import SchedulerCache
from haru.explain import explain
from haru.explain.cards import Layouts
from haru.explain.happenings import Happening
from haru.kube.names import format_milliseconds as rfc3339
from haru.kube.names import parse_milliseconds as milliseconds

HOUR = 3_600_000
T0 = milliseconds("2026-03-01T12:00:00Z")
TRAIN, OTHER = Workload("ml", "job/train"), Workload("web", "deployment/ui")


def held(card: int, began: int, ended: int, work: Workload = TRAIN, where: str = "n1", **more: Any) -> Held:
    name = f"gpu-{card}"
    return Held(where, "gpu.example.com", where, name, more.pop("device", name), work, T0 + began, ended and T0 + ended)


def drawn(*history: Held, now_held: tuple[Held, ...] = (), chosen: Filter = EVERYTHING, **more: Any) -> DeviceTimeline:
    return device_timeline(
        now_held, history, more.pop("queue", ()), {}, more.pop("happened", ()), T0, T0 + 10 * HOUR, T0 + 8 * HOUR,
        chosen, **more,
    )  # fmt: skip


def bars(found: DeviceTimeline) -> list[tuple[str, str, int, int, float, float]]:
    return [
        (lane.node, bar.work.name, bar.row, bar.rows, bar.x, bar.width) for lane in found.lanes for bar in lane.bars
    ]


def test_gang_on_neighbouring_cards_is_one_bar() -> None:
    found = drawn(*(held(card, HOUR + card, 3 * HOUR) for card in range(4)), held(5, HOUR, 3 * HOUR))
    assert bars(found) == [("n1", "job/train", 0, 5, 10.0, 20.0)]
    assert found.lanes[0].cards == ("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-5"), "cards without bars have no row"


def test_bars_of_other_work_or_other_times_stay_apart() -> None:
    found = drawn(held(0, 0, HOUR), held(1, HOUR, 2 * HOUR), held(2, 0, HOUR, OTHER))
    assert bars(found) == [
        ("n1", "job/train", 0, 1, 0.0, 10.0),
        ("n1", "job/train", 1, 1, 10.0, 10.0),
        ("n1", "deployment/ui", 2, 1, 0.0, 10.0),
    ]


def test_what_is_held_now_ends_now_and_replaces_its_row_of_the_history() -> None:
    found = drawn(held(0, 2 * HOUR, 0), now_held=(held(0, HOUR, 0),))
    assert bars(found) == [("n1", "job/train", 0, 1, 10.0, 70.0)] and found.lanes[0].bars[0].open
    assert found.now == 80.0


def test_bar_that_began_before_the_time_is_cut() -> None:
    assert bars(drawn(held(0, -5 * HOUR, HOUR))) == [("n1", "job/train", 0, 1, 0.0, 10.0)]
    assert drawn(held(0, -5 * HOUR, -HOUR), held(0, 11 * HOUR, 12 * HOUR)).lanes == ()


@pytest.mark.parametrize(
    ("chosen", "nodes"),
    [(Filter(), ["n1", "n2", "n10"]), (Filter(namespace="web"), ["n2"]), (Filter(node="n1*"), ["n1", "n10"])],
)
def test_filter_selects_bars_and_nodes_are_in_natural_order(chosen: Filter, nodes: list[str]) -> None:
    history = [held(0, 0, HOUR, where="n10"), held(0, 0, HOUR), held(0, 0, HOUR, OTHER, where="n2")]
    assert [lane.node for lane in drawn(*history, chosen=chosen).lanes] == nodes
    few = drawn(*history, most=2)
    assert (len(few.lanes), few.more_nodes) == (2, 1)


def test_waiting_work_is_drawn_from_its_age_to_now() -> None:
    waiting = WaitingWorkload(TRAIN, 4, rfc3339(T0 + 6 * HOUR), 0, "")
    [bar] = drawn(queue=[waiting]).waiting
    assert (bar.x, bar.width, bar.expected) == (60.0, 20.0, None)


def test_expected_start_is_when_the_run_time_of_what_holds_the_device_ends() -> None:
    runs = pod("runs", node="n1", claims=["runs"])
    runs["spec"]["activeDeadlineSeconds"] = 9 * 3600
    runs["status"] |= {"startTime": rfc3339(T0), "phase": "Running"}
    waits = pod("waits", claims=["waits"])
    ready = node("n1")
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    held_claim = allocated(claim("runs"), allocation("n1", "gpu-0"), runs)
    objects = [ready, device_class(), resource_slice("n1", 1), runs, held_claim, waits, claim("waits")]
    snapshot = SchedulerCache.of(objects).snapshot()
    work = Workload("default", "pod/waits")
    found = ShownExplanation(explain(snapshot, "pod", waits, now=rfc3339(T0 + 8 * HOUR)))
    waiting = WaitingWorkload(work, 1, rfc3339(T0 + 6 * HOUR), 0, "")
    drawn_time = device_timeline((), (), [waiting], {work: found}, (), T0, T0 + 10 * HOUR, T0 + 8 * HOUR)
    [bar] = drawn_time.waiting
    # The pod that runs into its limit has its grace period of 30 seconds to end.
    assert (bar.x, bar.width, bar.expected) == (60.0, 20.0, pytest.approx(90.083))
    assert bar.expected_at == rfc3339(T0 + 9 * HOUR + 30_000)


def test_ticks_are_round_moments() -> None:
    assert [tick.at[11:16] for tick in drawn().ticks] == ["12:00", "15:00", "18:00", "21:00"]


def test_happenings_stand_at_their_time_and_on_their_node() -> None:
    taints = [{"key": "xid", "value": "79", "effect": "NoSchedule"}]
    made = node("n1")
    made["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": rfc3339(T0 + HOUR)}]
    victim = pod("victim", node="n1")
    event = {
        "metadata": {}, "reason": "Preempted", "message": "for ml/train", "lastTimestamp": rfc3339(T0 + 2 * HOUR),
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "victim"},
    }  # fmt: skip
    objects = [made, victim, resource_slice("n1", [{"name": "gpu-0", "taints": taints}])]
    snapshot = SchedulerCache.of(objects).snapshot()
    found = happenings(snapshot, Layouts(), [event, {**event, "reason": "Pulled"}], (), T0 + 3 * HOUR)
    assert [(each.kind, each.node, each.began - T0) for each in found] == [
        ("fault", "n1", HOUR), ("preempted", "n1", 2 * HOUR), ("fault", "n1", 3 * HOUR)
    ]  # fmt: skip
    before = Happening("fault", "n1", "", "before", T0 - 2, T0 - 1)
    shown = drawn(held(0, 0, HOUR), happened=[*found, before])
    assert [(mark.x, mark.width) for mark in shown.lanes[0].happened] == [(10.0, 70.0), (20.0, 0.0), (30.0, 50.0)]
    # The history knows since when a card is tainted, and what the cluster has forgotten.
    taint = next(each for each in found if "tainted" in each.text)
    evicted = Happening("evicted", "n1", "default", "Evicted: default/gone", T0 + HOUR, T0 + HOUR)
    recorded = [taint._replace(began=T0 + HOUR), evicted, found[1]._replace(node="")]
    known = happenings(snapshot, Layouts(), [event], recorded, T0 + 3 * HOUR)
    assert [(each.kind, each.began - T0) for each in known] == [
        ("evicted", HOUR), ("fault", HOUR), ("fault", HOUR), ("preempted", 2 * HOUR)
    ]  # fmt: skip
    assert [mark.happening.kind for mark in drawn(held(0, 0, HOUR), happened=known, chosen=Filter("ml")).happened] == [
        "fault", "fault"
    ]  # fmt: skip


def test_held_now_is_known_from_the_cluster_alone() -> None:
    user = pod("p", node="n1", claims=["c"])
    user["metadata"]["creationTimestamp"] = rfc3339(T0)
    made = claim("c")
    made["metadata"]["creationTimestamp"] = rfc3339(T0)
    objects = [node("n1"), resource_slice("n1", 2), user, allocated(made, allocation("n1", "gpu-1"), user)]
    [found] = held_now(SchedulerCache.of(objects).snapshot(), Layouts())
    assert (found.node, found.card, found.work.name, found.began, found.ended) == ("n1", "gpu-1", "pod/p", T0, 0)


async def test_page_keeps_range_and_filter_in_every_address() -> None:
    read: list[tuple[int, int]] = []

    def history(since: int, until: int) -> list[Held]:
        read.append((since, until))
        return [held(0, 0, HOUR)]

    since, until = rfc3339(T0), rfc3339(T0 + 2 * HOUR)
    async with browser_of(FixedWatch(SchedulerCache().snapshot()), history=UsageHistory(held=history)) as browser:
        page = await browser.get("/timeline", params={"from": since, "to": until, "namespace": "ml"})
        assert read == [(T0, T0 + 2 * HOUR)] and "data-tail" not in page.text
        assert f"from={rfc3339(T0 - HOUR)}&amp;to={rfc3339(T0 + HOUR)}".replace(":", "%3A") in page.text
        assert "/timeline?namespace=ml&amp;range=6h" in page.text and 'value="ml"' in page.text
        for unreadable in ({"from": "yesterday", "to": until}, {"from": until, "to": since}, {"range": "9y"}):
            assert "data-tail" in (await browser.get("/timeline", params=unreadable)).text
