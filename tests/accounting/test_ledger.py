"""Time is added up to the last digit: device-hours over scripted timelines, and sums that hold for any sequence."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from engine_objects import allocated, allocation, claim, device_class, node, options, pod, resource_slice
from hypothesis import given
from hypothesis import strategies as st

from haru.accounting.device_states import WHOLE, UsageKey, amounts, card_states
from haru.accounting.ledger import PER_DEVICE_SECOND, Interval, Meter, merged, total
from haru.accounting.report import usage_over
from haru.engine import SchedulerCache

Obj = dict[str, Any]
HOUR = 3_600_000
FREE, HELD = UsageKey("Free", "", "", "d"), UsageKey("Held", "team", "job/a", "d")


def units(*objects: Obj) -> Counter[UsageKey]:
    cluster = SchedulerCache.of([node("a"), device_class(), resource_slice("a", 2), *objects])
    return amounts(card_states(cluster.snapshot(), options()))


def user(name: str, *devices: str, percent: int | None = None) -> list[Obj]:
    made = pod(name, node="a", claims=[name])
    held = allocated(claim(name), allocation("a", *devices), made)
    if percent is not None:
        said = {"haru.dev/utilization-percent": percent}
        held["status"]["devices"] = [
            {"driver": r["driver"], "pool": r["pool"], "device": r["device"], "data": said}
            for r in held["status"]["allocation"]["devices"]["results"]
        ]
    return [made, held]


def test_one_day_with_two_cards_gives_hours_by_state_and_owner() -> None:
    """0–6 nobody; 6–12 p holds one; 12–15 idle; 15–18 q waits for two meanwhile; 18–24 q holds both, busy."""
    wish = [pod("q", claims=["q"]), claim("q", 2)]
    day = [
        (0, units()),
        (6, units(*user("p", "gpu-0"))),
        (12, units(*user("p", "gpu-0", percent=1))),
        (15, units(*user("p", "gpu-0", percent=1), *wish)),
        (18, units(*user("q", "gpu-0", "gpu-1", percent=90))),
    ]
    meter, found = Meter(), []
    for hour, now in day:
        found.append(meter.observe(now, hour * HOUR))
    found.append(meter.extend(24 * HOUR))
    intervals = [interval for interval in found if interval is not None]
    assert [(i.began // HOUR, i.ended // HOUR) for i in intervals] == [(0, 6), (6, 12), (12, 15), (15, 18), (18, 24)]
    usage = usage_over(total(intervals, 0, 24 * HOUR))
    assert usage.by_state == {"Busy": 12, "Idle": 6, "Held": 6, "Free": 12 + 6 + 3, "Fragmented": 3}
    assert {(r.owner, r.held, r.missed) for r in usage.rows} == {("pod/p", 12, 0), ("pod/q", 12, 3)}
    assert usage.devices == 48 and usage.observed_seconds == usage.window_seconds == 86400
    afternoon = usage_over(total(intervals, 13 * HOUR, 16 * HOUR))
    assert afternoon.by_state == {"Idle": 3, "Free": 2, "Fragmented": 1}
    assert str(afternoon).splitlines()[:2] == [
        "from 1970-01-01T13:00:00Z to 1970-01-01T16:00:00Z, of which 100.0% was observed",
        "6 device-hours: 3 free, 0 reserved, 3 held (3 idle, 0 in use, 0 unmeasured), 0 unavailable",
    ]
    told = usage.as_dict()
    assert (told["unit"], told["total"], told["observedSeconds"]) == ("device-hours", 48, 86400)
    assert told["owners"][0]["states"] == {"Busy": 12, "Fragmented": 3} and "devices" not in told


def test_unobserved_time_is_reported_as_coverage() -> None:
    seen = [Interval(0, HOUR, HOUR, {FREE: WHOLE * HOUR}), Interval(3 * HOUR, 4 * HOUR, HOUR, {FREE: WHOLE * HOUR})]
    usage = usage_over(total(seen, 0, 4 * HOUR))
    assert (usage.observed_seconds, usage.window_seconds, usage.devices) == (7200, 14400, 2)
    assert "50.0% was observed" in str(usage)
    assert usage_over(total([], 0, 0)).as_dict()["total"] == 0


def test_clock_that_goes_back_adds_no_time() -> None:
    meter = Meter()
    assert meter.observe({FREE: WHOLE}, 1000) is None
    assert meter.observe({HELD: WHOLE}, 400) is None, "no time has passed"
    ended = meter.observe({FREE: WHOLE}, 1500)
    assert ended == Interval(1000, 1500, 500, {HELD: WHOLE * 500})


def test_equal_samples_extend_one_interval_and_cut_ends_it() -> None:
    meter = Meter()
    meter.observe({FREE: WHOLE}, 0)
    assert meter.observe({FREE: WHOLE}, 10) is None
    assert meter.cut() == Interval(0, 10, 10, {FREE: WHOLE * 10})
    assert meter.extend(30) == Interval(10, 30, 20, {FREE: WHOLE * 20})
    assert meter.stop() == Interval(10, 30, 20, {FREE: WHOLE * 20})
    assert meter.current() is None and meter.stop() is None
    assert meter.observe({FREE: WHOLE}, 100) is None, "what was between is not counted"
    assert meter.extend(101) == Interval(100, 101, 1, {FREE: WHOLE})


KEYS = st.builds(
    UsageKey, st.sampled_from(["Free", "Held", "Idle"]), st.sampled_from(["", "team"]), st.just("o"), st.just("d")
)


@st.composite
def timelines(draw: st.DrawFn) -> tuple[int, list[tuple[int, dict[UsageKey, int]]]]:
    """A number of cards, and moments at which every thousandth of them has some key."""
    cards = draw(st.integers(1, 5))
    moments = []
    for step in draw(st.lists(st.integers(-50, 4_000_000), min_size=1, max_size=12)):
        cuts = sorted(draw(st.lists(st.integers(0, cards * WHOLE), max_size=4)))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, cards * WHOLE], strict=True)]
        found: Counter[UsageKey] = Counter()
        for size in sizes:
            found[draw(KEYS)] += size
        moments.append((step, +found))
    return cards, moments


@given(timelines(), st.data())
def test_sum_over_states_equals_cards_times_time(
    timeline: tuple[int, list[tuple[int, dict[UsageKey, int]]]], data: st.DataObject
) -> None:
    cards, moments = timeline
    meter, intervals, now = Meter(), [], 1_000_000
    for step, found in moments:
        now += step
        ended = meter.observe(found, now)
        if data.draw(st.booleans()):
            meter.extend(now + step)
            more = meter.cut()
            intervals += [i for i in (ended, more) if i is not None]
        else:
            intervals += [ended] if ended is not None else []
    last = meter.stop()
    intervals += [last] if last is not None else []
    intervals = [interval for interval in intervals if interval.ended > interval.began]
    for interval in intervals:
        assert sum(interval.amounts.values()) == cards * WHOLE * (interval.ended - interval.began)
    for one, other in pairwise(intervals):
        assert one.ended == other.began, "nothing is counted twice, nothing is left out"
    if intervals:
        began, ended = intervals[0].began, intervals[-1].ended
        whole = merged(intervals)
        assert sum(whole.amounts.values()) == cards * WHOLE * (ended - began)
        assert whole.observed == ended - began
        at = data.draw(st.integers(began, ended))
        parts = total(intervals, began, at).observed + total(intervals, at, ended).observed
        assert parts == ended - began
        seen = total(intervals, began, at)
        assert sum(seen.amounts.values()) == cards * WHOLE * (at - began), "an interval is constant: any cut is exact"
        assert total([whole], began, ended).amounts == total(intervals, began, ended).amounts


def test_part_of_a_merged_hour_is_counted_in_proportion() -> None:
    hour = merged(
        [Interval(0, HOUR // 2, HOUR // 2, {FREE: WHOLE * HOUR // 2}), Interval(HOUR // 2, HOUR, HOUR // 2, {})]
    )
    assert total([hour], 0, HOUR // 2).amounts[FREE] == WHOLE * HOUR // 4


@pytest.mark.parametrize("cards", [1, 7])
def test_device_seconds_convert_to_device_hours_exactly(cards: int) -> None:
    usage = usage_over(total([Interval(0, HOUR, HOUR, {FREE: cards * WHOLE * HOUR})], 0, HOUR))
    assert usage.devices == cards == cards * 3600 * PER_DEVICE_SECOND / PER_DEVICE_SECOND / 3600
