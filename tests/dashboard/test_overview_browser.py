"""The pages of a busy cluster in a real browser: at every width nothing overflows, and nothing complains."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from busy_cluster import CARDS, PODS, PROFILES, fill
from page_checks import COLOURS, PAGES, SCHEMES, SIZES, shown, too_wide, violations

from haru_process import Up

WIDTHS = (360, *SIZES, 3840)
LIGHT, DARK = ({"color_scheme": scheme} for scheme in SCHEMES)


@pytest.fixture(scope="module")
def up(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"), "--ephemeral", "--profile", PROFILES)
    try:
        fill(running)
        yield running
    finally:
        assert running.stop() == 0
    assert "Traceback" not in running.log.read_text()


# A scheme has colours of its own, no sizes and no elements: all is tried in both at night.
@pytest.mark.parametrize(
    ("page", "widths", "axe_widths", "rules"),
    [
        pytest.param(LIGHT, WIDTHS, (390,), {}, id="light"),
        pytest.param(DARK, (), (390,), COLOURS, id="dark"),
        pytest.param(LIGHT, (), (1440, 2560), {}, id="light, wide", marks=pytest.mark.nightly),
        pytest.param(DARK, WIDTHS, (390, 1440, 2560), {}, id="dark, wide", marks=pytest.mark.nightly),
    ],
    indirect=["page"],
)
def test_pages_fit_every_width_and_axe_finds_nothing(
    page: Any, axe: str, widths: tuple[int, ...], axe_widths: tuple[int, ...], rules: dict[str, Any]
) -> None:
    found: dict[str, list[str]] = {}
    for path in (*PAGES.values(), "/map?zoom=cluster&colour=state", "/map?by=rack&zoom=cards"):
        page.set_viewport_size({"width": 1440, "height": 900})
        shown(page, path)
        found[path] = too_wide(page, widths)
        for width in axe_widths:
            page.set_viewport_size({"width": width, "height": SIZES[width]})
            found[path] += violations(page, axe, **rules)
    assert {path: told for path, told in found.items() if told} == {}


def test_overview_shows_the_cluster_at_a_glance(page: Any, up: Up) -> None:
    page.goto("/")
    page.get_by_text("would fit with").wait_for()
    figures = {
        " ".join(figure.locator("span").inner_text().split()): float(figure.locator("strong").inner_text())
        for figure in page.locator(".figure").all()
    }
    assert figures.pop("cards on 26 nodes") == CARDS == pytest.approx(sum(figures.values()), abs=0.5)
    top = json.loads(up.haru("top", "-o", "json").stdout)["counts"]
    assert (figures["idle"], figures["unmeasured"]) == (18, 4)
    assert figures["unavailable"] == pytest.approx(top["unavailable"], abs=0.01)
    waste = page.locator("[aria-labelledby=waste]").inner_text()
    assert "432 card-hours" in waste and "--card-prices" in waste
    assert {"research/deployment/notebooks", "vision/deployment/labs", "platform/deployment/dev-boxes"} <= set(
        page.locator("[aria-labelledby=waste] .work").all_inner_texts()
    )
    assert page.locator(".models tbody tr").count() == 5
    waits = page.locator("[aria-labelledby=waits]").inner_text()
    assert "10 pods of 2 workloads" in waits and PODS == 80
    out = " ".join(page.locator("[aria-labelledby=outages]").inner_text().split())
    assert "dgx-a100-40gb-3 cordoned" in out and "gpu-7 on hgx-h200-3 xid-79:NoSchedule since" in out


def test_map_draws_utilization_and_mig_slots_true_to_scale(page: Any) -> None:
    page.goto("/map?zoom=nodes&workload=vision-api")
    slices = page.locator(".place rect.held").evaluate_all(
        """rects => rects.map((rect) => [
            parseFloat(rect.getAttribute('x') || '0'), parseFloat(rect.getAttribute('width')),
            parseInt(rect.closest('.place').querySelector('summary')?.innerText.slice(1) || '1')])"""
    )
    # 1g.10gb takes one of eight memory slices, wherever on the card it starts. Nodes that are equal now are drawn once.
    own = [(x, nodes) for x, width, nodes in slices if width < 20]
    assert sum(nodes for _, nodes in own) == 12 and all(x % 12.5 == pytest.approx(0, abs=0.1) for x, _ in own)
    level = page.locator("rect.level").first
    assert float(level.get_attribute("height")) == 45.0


def test_choices_and_theme_change_the_page_in_place(page: Any) -> None:
    page.goto("/map")
    page.evaluate("window.sameDocument = true")
    for title, choice, wanted in (
        ("Group", "Rack", "by=rack"),
        ("Zoom", "Cluster", "zoom=cluster"),
        ("Colour", "State", "colour=state"),
    ):
        page.get_by_role("navigation", name=title).get_by_role("link", name=choice).click()
        page.wait_for_url(f"**{wanted}*")
    assert page.locator(".zoom-cluster").count() > 5
    before = page.evaluate("getComputedStyle(document.body).color")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate("getComputedStyle(document.body).color") != before and page.evaluate("window.sameDocument")


def test_change_of_the_cluster_is_seen_within_a_second(page: Any, up: Up) -> None:
    page.goto("/map?zoom=nodes")
    page.get_by_text("live", exact=True).wait_for()
    page.wait_for_timeout(1500)
    page.evaluate("""() => { window.seen = new Promise((done) => new MutationObserver(() => {
        if (document.querySelector('[data-key="hgx-b200-1"] .badge')) done(Date.now());
    }).observe(document.querySelector('main'), {childList: true, subtree: true})); }""")
    began = time.time()
    up.api.patch("nodes", "hgx-b200-1", {"spec": {"unschedulable": True}})
    seconds = page.evaluate("window.seen") / 1000 - began
    assert seconds < 1.0
    up.api.patch("nodes", "hgx-b200-1", {"spec": {"unschedulable": False}})
