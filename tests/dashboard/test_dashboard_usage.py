"""The bands of cards over time: nothing is lost or made up, however spans and slots lie."""

from __future__ import annotations

from typing import Any

import pytest
from dashboard_pages import FixedWatch, browser_of
from hypothesis import given
from hypothesis import strategies as st

from haru.dashboard.views.looks import look
from haru.dashboard.views.usage import OTHERS, Allocation, Span, Use, allocation
from haru.dashboard.views.usage_chart import usage_chart, usage_table
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.views.workloads import Filter, Workload
from haru.engine import SchedulerCache

HOUR = 3_600_000
TRAINING, NOTEBOOK = Workload("ml", "job/training"), Workload("web", "deployment/notebook")
works = st.sampled_from([Workload("ml", f"job/{number}") for number in range(14)])
uses = st.one_of(works.map(lambda work: Use("held", work)), st.just(Use("missed")), st.just(Use("free")))


def steady(began: int, ended: int, cards: dict[Use, float]) -> Span:
    length = ended - began
    return Span(began, ended, length, {use: count * length for use, count in cards.items()})


@st.composite
def histories(draw: st.DrawFn) -> list[Span]:
    at, found = 0, []
    for _ in range(draw(st.integers(0, 8))):
        at += draw(st.sampled_from([0, 0, 1, 7_000, HOUR]))
        ended = at + draw(st.integers(1, 3 * HOUR))
        cards = draw(st.dictionaries(uses, st.integers(1, 64).map(float), max_size=16))
        found.append(steady(at, ended, cards))
        at = ended
    return found


@given(spans=histories(), slots=st.integers(1, 40))
def test_card_hours_equal_measured_intervals(spans: list[Span], slots: int) -> None:
    until = max([span.ended for span in spans], default=1)
    found = allocation(spans, 0, until, slots=slots)
    measured = sum(sum(span.amounts.values()) for span in spans)
    # A slot that was seen in part counts with the mean of that part: in hours, with its share.
    assert sum(map(found.hours, found.bands)) * HOUR == pytest.approx(measured, rel=1e-6)
    assert sum(found.seen) * found.slot == pytest.approx(sum(span.observed for span in spans), rel=1e-6)
    assert len(found.bands) <= 10 + 3
    assert len(usage_table(found, {}).rows) == len(found.bands)


def day() -> Allocation:
    morning = steady(0, 12 * HOUR, {Use("held", TRAINING): 6, Use("free"): 2})
    evening = steady(18 * HOUR, 24 * HOUR, {Use("held", NOTEBOOK): 1, Use("missed"): 3, Use("free"): 4})
    return allocation([morning, evening], 0, 24 * HOUR, slots=4)


def test_allocation_has_bands_gaps_and_current_numbers() -> None:
    found = day()
    assert found.seen == (1, 1, 0, 1)
    assert {band.name: band.cards for band in found.bands} == {
        "ml/job/training": (6, 6, 0, 0),
        "web/deployment/notebook": (0, 0, 0, 1),
        "free while work waited": (0, 0, 0, 3),
        "free": (2, 2, 0, 4),
    }
    free = found.bands[-1]
    assert (free.now, found.mean(free), found.hours(free)) == (4, 48 / 18, 48)


def test_filtered_out_workloads_become_one_band() -> None:
    spans = [steady(0, HOUR, {Use("held", TRAINING): 6, Use("held", NOTEBOOK): 1})]
    found = allocation(spans, 0, HOUR, Filter(namespace="web"), slots=1)
    assert [(band.use.workload, band.cards) for band in found.bands] == [(NOTEBOOK, (1,)), (OTHERS, (6,))]


def test_chart_has_bands_in_looks_and_a_gap_where_nothing_was_observed() -> None:
    chart = usage_chart(day())
    assert chart["x"] == [0, 6 * 3600, 12 * 3600, 18 * 3600, 24 * 3600]
    series: Any = chart["series"]
    assert [(each["name"], each["look"], each["values"]) for each in series] == [
        ("ml/job/training", look(TRAINING), [6, 6, None, 0, 0]),
        ("web/deployment/notebook", look(NOTEBOOK), [0, 0, None, 1, 1]),
        ("free while work waited", "missed", [0, 0, None, 3, 3]),
        ("free", "free", [2, 2, None, 4, 4]),
    ]


def test_chart_begins_where_history_begins() -> None:
    found = allocation([steady(12 * HOUR, 24 * HOUR, {Use("free"): 2})], 0, 24 * HOUR, slots=4)
    assert usage_chart(found)["x"] == [12 * 3600, 18 * 3600, 24 * 3600]


def test_chart_of_one_slot_has_where_it_begins_and_ends() -> None:
    found = allocation([steady(23 * HOUR, 24 * HOUR, {Use("free"): 2})], 0, 24 * HOUR, slots=4)
    chart = usage_chart(found)
    series: Any = chart["series"]
    assert (chart["x"], series[0]["values"]) == ([18 * 3600, 24 * 3600], [2, 2])


def test_cards_now_are_those_last_observed_not_the_mean_of_the_slot() -> None:
    spans = [steady(0, HOUR, {Use("free"): 8}), steady(HOUR, 2 * HOUR, {Use("free"): 2, Use("held", TRAINING): 6})]
    found = allocation(spans, 0, 2 * HOUR, slots=1)
    assert {band.name: (band.now, found.mean(band)) for band in found.bands} == {
        "ml/job/training": (6, 3),
        "free": (2, 5),
    }


async def test_usage_page_without_history_says_why() -> None:
    def unreadable(since: int, until: int) -> list[Span]:
        raise ValueError("no <file>")

    empty = SchedulerCache().snapshot()
    for measured, said in (
        (None, "haru up keeps one"),
        (lambda *_: [], "Nothing was measured"),
        (unreadable, "no &lt;file&gt;"),
    ):
        history = UsageHistory(spans=measured) if measured is not None else None
        async with browser_of(FixedWatch(empty), history=history) as browser:
            assert said in (await browser.get("/usage")).text


async def test_usage_page_of_a_cluster_without_cards_says_so() -> None:
    history = UsageHistory(spans=lambda since, until: [Span(until - 1000, until, 1000, {})])
    async with browser_of(FixedWatch(SchedulerCache().snapshot()), history=history) as browser:
        assert "There were no cards in this time." in (await browser.get("/usage")).text
        assert "No card was measured yet." in (await browser.get("/")).text
