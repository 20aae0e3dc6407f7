"""Looks of workloads: as different as can be on one page, and the same for ever."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from dashboard_pages import FixedWatch, browser_of
from engine_objects import pod

from haru.accounting.history import NAME, History
from haru.dashboard.template_engine import HERE
from haru.dashboard.views.looks import COLOURS, MOST_APART, PATTERNS, SHOWN_SECONDS, Looks
from haru.dashboard.views.workloads import OTHER, Workload
from haru.embedded.usage import RecordedLooks
from haru.engine import SchedulerCache


def works(count: int, prefix: str = "w") -> list[Workload]:
    return [Workload(f"team-{n % 5}", f"job/{prefix}-{n}") for n in range(count)]


def looks_of(looks: Looks, shown: list[Workload], now: float = 0.0) -> dict[Workload, str]:
    looks.show(shown, now)
    return {work: looks.look(work) for work in shown}


@pytest.mark.parametrize("count", [1, COLOURS, 20, COLOURS * PATTERNS])
def test_work_on_one_page_has_looks_of_its_own(count: int) -> None:
    found = looks_of(Looks(), works(count))
    assert len(set(found.values())) == count
    colours = Counter(look.split()[0] for look in found.values())
    assert max(colours.values()) - min(colours.values()) <= 1 and len(colours) == min(count, COLOURS)


def test_more_work_than_there_are_looks_shares_them_evenly() -> None:
    shared = Counter(looks_of(Looks(), works(2 * COLOURS * PATTERNS + 1)).values())
    assert sorted(shared.values()) == [2] * (COLOURS * PATTERNS - 1) + [3]


def test_look_stays_whatever_comes_and_goes() -> None:
    looks = Looks()
    before = looks_of(looks, works(30))
    for round_ in range(1, 6):
        looks_of(looks, works(40, f"later-{round_}"), round_ * SHOWN_SECONDS)
    assert looks_of(looks, works(30), 6 * SHOWN_SECONDS) == before


def test_new_work_takes_a_look_that_nothing_shown_lately_has() -> None:
    looks = Looks()
    looks.show(works(COLOURS * PATTERNS, "old"), 0.0)
    shown = looks_of(looks, works(COLOURS * PATTERNS - 1), 2 * SHOWN_SECONDS)
    one = Workload("team-0", "job/one-more")
    assert looks_of(looks, [*shown, one], 2 * SHOWN_SECONDS + 1)[one] not in shown.values()


@pytest.mark.parametrize("path", ["/", "/map", "/queue", "/timeline"])
async def test_pages_give_looks_in_the_one_thread_that_draws(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    show = Looks.show

    def noted(looks: Looks, works: Iterable[Workload], now: float) -> None:
        threads.append(threading.current_thread().name)
        show(looks, works, now)

    monkeypatch.setattr(Looks, "show", noted)
    async with browser_of(FixedWatch(SchedulerCache.of([pod("p", cpu="99")]).snapshot())) as browser:
        threads.clear()
        assert (await browser.get(path)).status_code == 200
    assert threads and all(name.startswith("dashboard pages") for name in threads)


def test_looks_of_thousands_are_given_by_name_alone() -> None:
    many = works(MOST_APART + 1)
    assert looks_of(Looks(), many) == looks_of(Looks(), many[::-1])
    assert Looks().look(OTHER) == "cx p0"


def test_recorded_looks_outlast_the_process_and_are_those_of_all_dashboards(tmp_path: Path) -> None:
    path = tmp_path / NAME
    first, second = Looks(RecordedLooks(path)), Looks(RecordedLooks(path))
    unkept = looks_of(first, works(3))  # there is no history yet
    History(path).close()
    one = looks_of(first, works(12, "a"))
    # Another process meets the same work beside other work, in another order.
    other = looks_of(second, [*works(9, "b"), *works(12, "a")])
    assert {work: other[work] for work in one} == one and len(set(other.values())) == 21
    assert looks_of(Looks(RecordedLooks(path)), [*other]) == other
    assert looks_of(first, works(3)) == unkept


def test_store_that_cannot_be_written_leaves_looks_as_they_are_given() -> None:
    class Full:
        def known(self) -> Mapping[Workload, int]:
            return {}

        def record(self, looks: Mapping[Workload, int]) -> Mapping[Workload, int]:
            return {}

    assert len(set(looks_of(Looks(Full()), works(20)).values())) == 20


def test_every_colour_and_pattern_is_drawn_in_each_way_of_drawing() -> None:
    tokens = (HERE / "static" / "tokens.css").read_text()
    assert {f"c{n}" for n in range(COLOURS)} <= set(re.findall(r"\.(c\d) \{", tokens))
    drawn = {f"p{n}" for n in range(1, PATTERNS)}
    assert set(re.findall(r"\.swatch\.(p\d)", tokens)) == drawn
    assert set(re.findall(r'id="(p\d)"', (HERE / "templates" / "patterns.svg").read_text())) == drawn
    on_map = re.findall(r'id="m(\d)"', (HERE / "templates" / "map.html").read_text())
    assert {f"p{n}" for n in on_map} == drawn
