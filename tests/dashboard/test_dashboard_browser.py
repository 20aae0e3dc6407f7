"""The dashboard in a real browser, on a real `haru up`: what is seen, live, by keyboard, by assistive technology."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_checks import COLOURS, violations

from haru.explain.card_counts import counts_text
from haru_process import Up, phase, until

ROOT = Path(__file__).parents[2]
PAGES = (
    "/", "/map?zoom=cards", "/map?zoom=nodes", "/map?zoom=cluster", "/queue", "/timeline", "/usage?since=1h",
    "/workload/default/job/training", "/workload/default/deployment/notebooks",
)  # fmt: skip
SCHEMES = [({"color_scheme": "light"}, {}), ({"color_scheme": "dark"}, COLOURS)]


@pytest.fixture(scope="module")
def up(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Eight H100, of which notebooks have three; a gang of six waits; a slice of an A100 is taken, a T4 is tainted."""
    profiles = "dgx-h100:1,dgx-a100-80gb-mig:1,t4:2,cpu:1"
    running = Up(tmp_path_factory.mktemp("up"), "--ephemeral", "--profile", profiles)
    for name in ("10-notebooks", "20-training", "30-inference-mig"):
        running.api.create_all((ROOT / "examples" / "demo" / f"{name}.yaml").read_text(), "default")
    taint = {"simulated.haru.dev/device-taints": "gpu-1=maintenance=true:NoSchedule"}
    running.api.patch("nodes", "t4-0", {"metadata": {"annotations": taint}})
    placed = lambda: sum(phase(pod) == "Running" for pod in running.api.list("pods", "default")) == 4  # noqa: E731
    until("three notebooks and a slice run", placed)
    until(
        "a card is tainted",
        lambda: any("taints" in d for s in running.api.list("resourceslices") for d in s["spec"].get("devices") or ()),
    )
    until("the gang waits", lambda: len(running.api.list("pods", "default")) == 10)
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log.read_text()


def counted_by_top(up: Up) -> dict[str, float]:
    """The cards by the words of `haru top`."""
    found: dict[str, float] = json.loads(up.haru("top", "-o", "json").stdout)["counts"]
    return found


def texts(page: Any, selector: str) -> list[str]:
    found: list[str] = page.locator(selector).all_inner_texts()
    return [" ".join(text.split()) for text in found]


def follow(page: Any, link: str, address: str) -> None:
    """Clicks a link and waits until the page behind it has loaded: a click returns when the address has changed."""
    page.get_by_role("link", name=link).first.click()
    page.wait_for_url(address)


def style(page: Any, selector: str, name: str) -> str:
    return str(page.locator(selector).first.evaluate(f"element => getComputedStyle(element)['{name}']"))


def test_map_page_shows_nodes_cards_and_their_states(page: Any, up: Up) -> None:
    page.goto("/map?zoom=cards")
    # Nodes without devices come last.
    assert texts(page, ".place h3") == ["dgx-a100-80gb-mig-0", "dgx-h100-0", "t4-0", "t4-1", "cpu-0"]
    row = '.place[data-key="dgx-h100-0"]'
    notebook = [f"gpu-{n} unmeasured notebooks –" for n in range(3)]
    assert texts(page, f"{row} .card") == [*notebook, *(f"gpu-{n} free" for n in range(3, 8))]
    assert texts(page, '.place[data-key="dgx-a100-80gb-mig-0"] .card')[0] == "gpu-0 50 % inference-small –"
    assert counted_by_top(up)["held"] > 3 and counted_by_top(up)["unavailable"] == 1
    assert texts(page, ".totals") == [f"5 nodes · 24 cards · {counts_text(counted_by_top(up))} · 1 tainted"]
    # Colour tells workloads apart, and a partition is as wide as its memory slices: four of eight.
    partition = '.place[data-key="dgx-a100-80gb-mig-0"] svg rect.held'
    assert style(page, f"{row} rect.held", "fill") != style(page, partition, "fill")
    assert page.locator(partition).first.get_attribute("width") == "50.0"
    assert texts(page, '.place[data-key="t4-0"] .card')[1] == "gpu-1 unavailable maintenance=true:NoSchedule"
    assert page.locator('.place[data-key="t4-0"] path.fault').count() == 1


def test_overview_counts_cards_as_top_does_and_names_what_would_help(page: Any, up: Up) -> None:
    page.goto("/")
    counts = counted_by_top(up)
    figures = dict(zip(texts(page, ".figure span"), texts(page, ".figure strong"), strict=True))
    assert figures["cards on 5 nodes"] == "24" and figures["unavailable"] == "1"
    assert float(figures["unmeasured"]) == pytest.approx(counts["unmeasured"], abs=0.05)
    page.get_by_text("6 of 6 would fit").wait_for()
    assert "default/job/training" in page.inner_text("[aria-labelledby=waits]")
    assert any("kubectl" in text for text in texts(page, ".actions pre"))
    assert 1 <= page.locator(".actions li").count() <= 3


def test_queue_page_shows_pending_work_with_remedies(page: Any) -> None:
    page.goto("/queue")
    assert texts(page, ".waiting h2 .work") == ["default/job/training"]
    assert "6 pods waiting · priority 0 · since " in page.inner_text(".facts")
    assert page.inner_text(".verdict") == "FitsLater"
    assert "5 devices are free for request gpu, 6 are needed" in page.inner_text(".waiting")
    assert {"DevicesUnavailable", "Quorum"} <= set(texts(page, ".reasons code"))
    assert any("deployment/notebooks" in text for text in texts(page, ".remedies li"))
    page.get_by_text("The whole answer").click()
    assert "helps    scale deployment/notebooks to 2" in page.inner_text("details pre")


def test_page_of_pending_workload_shows_reasons_and_timeline(page: Any) -> None:
    page.goto("/queue")
    follow(page, "default/job/training", "**/workload/default/job/training")
    headings = texts(page, "h2")
    assert "Why not yet" in headings and "Why here" not in headings
    assert texts(page, "[aria-labelledby=pods] tbody td:nth-child(3)") == ["none yet"] * 6
    told = texts(page, ".timeline li")
    assert any("WorkloadCreated" in text for text in told) and any("PodGroupScheduled" in text for text in told)


def test_page_of_running_workload_shows_node_and_devices(page: Any) -> None:
    page.goto("/workload/default/deployment/notebooks")
    assert page.get_by_role("heading", name="Why here").is_visible()
    assert "no device of class" in page.inner_text(".nodes")
    devices = texts(page, "[aria-labelledby=pods] tbody td:nth-child(5)")
    assert sorted(devices) == [f"gpu-{n} (NVIDIA H100 80GB HBM3)" for n in range(3)]
    assert any("Scheduled" in text for text in texts(page, ".timeline li"))
    follow(page, "Show it on the map", "**/map?**")
    assert texts(page, ".place h3") == ["dgx-h100-0"]


def test_page_of_unknown_workload_is_404(browser: Any, session: tuple[str, Any]) -> None:
    # The browser itself writes to the console about a page that is not there.
    address, state = session
    context = browser.new_context(base_url=address, storage_state=state)
    page = context.new_page()
    answer = page.goto("/workload/default/job/nothing")
    assert answer.status == 404 and "does not exist" in page.inner_text("main")
    context.close()


def test_filters_are_kept_in_the_url(page: Any) -> None:
    page.goto("/map?workload=inference*&namespace=default")
    page.evaluate("window.sameDocument = true")
    assert texts(page, ".place h3") == ["dgx-a100-80gb-mig-0"]
    assert page.get_by_role("textbox", name="Workload").input_value() == "inference*"
    follow(page, "Clear", "**/map")
    page.get_by_role("textbox", name="Node").fill("t4-*")
    page.keyboard.press("Enter")
    page.wait_for_url("**/map?node=t4-*")
    assert texts(page, ".place h3") == ["t4-0", "t4-1"]
    page.get_by_role("navigation", name="Group").get_by_role("link", name="Model").click()
    page.wait_for_url("**/map?node=t4-*&by=model")
    assert page.locator(".map h2").first.inner_text().startswith("Tesla T4 2 nodes, 8 cards")
    # All this in one document; back goes through the same states.
    assert page.evaluate("window.sameDocument")
    page.go_back()
    page.wait_for_url("**/map?node=t4-*")
    page.goto("/queue?namespace=elsewhere")
    assert "Nothing that matches the filter waits." in page.inner_text("main")
    page.goto("/map?node=nothing")
    assert "No node matches the filter." in page.inner_text("main")


@pytest.mark.parametrize("page", [scheme for scheme, _ in SCHEMES], indirect=True, ids=["light", "dark"])
def test_theme_follows_system_until_user_chooses_one(page: Any) -> None:
    page.goto("/")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")

    def is_dark() -> bool:
        channels = style(page, "html", "backgroundColor").removeprefix("rgb(").rstrip(")").split(", ")
        return sum(map(int, channels)) < 3 * 128

    assert is_dark() is dark
    button = page.get_by_role("button", name="Theme")
    for name, expected in (("light", False), ("dark", True), ("system", dark), ("light", False)):
        button.click()
        assert (button.inner_text(), is_dark()) == (f"Theme: {name}", expected)
    page.reload()
    assert (button.inner_text(), is_dark()) == ("Theme: light", False)


def test_pages_work_with_keyboard_only(page: Any) -> None:
    page.goto("/map?zoom=nodes&node=dgx-*")
    page.get_by_text("live", exact=True).wait_for()
    press = page.keyboard.press
    focused = lambda: page.evaluate("document.activeElement.textContent.trim()")  # noqa: E731
    press("Tab")
    assert focused() == "Skip to the content"
    press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    # The whole map is one stop of the tab key.
    in_map = "document.activeElement.closest('[data-cells]') !== null"
    for _ in range(40):
        press("Tab")
        if page.evaluate(in_map):
            break

    def label() -> str:
        told = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
        return str(page.evaluate(told)).partition(":")[0].strip()

    assert label() == "dgx-a100-80gb-mig-0"
    for key, expected in (
        ("ArrowRight", "dgx-a100-80gb-mig-0 gpu-0"), ("ArrowRight", "dgx-a100-80gb-mig-0 gpu-1"),
        ("End", "dgx-h100-0 gpu-7"), ("ArrowLeft", "dgx-h100-0 gpu-6"), ("Home", "dgx-a100-80gb-mig-0"),
    ):  # fmt: skip
        press(key)
        assert label() == expected, key
    press("Tab")
    assert not page.evaluate(in_map)
    press("g")
    press("q")
    page.wait_for_url("**/queue")


@pytest.mark.parametrize(("page", "rules"), SCHEMES, indirect=["page"], ids=["light", "dark"])
def test_axe_finds_no_accessibility_violations(page: Any, axe: str, rules: dict[str, Any]) -> None:
    for path in PAGES:
        page.goto(path)
        page.get_by_text("live", exact=True).wait_for()
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert violations(page, axe, **rules) == [], path


@pytest.mark.parametrize("page", [{"java_script_enabled": False}], indirect=True)
def test_pages_work_without_javascript(page: Any) -> None:
    for path in PAGES:
        page.goto(path)
        assert page.locator("main h1").count() == 1
    assert not page.locator("#theme").is_visible()


def test_long_name_leaves_the_columns_beside_it_on_the_page(page: Any) -> None:
    page.goto("/queue")
    lengthen = "link => { link.textContent = 'job/' + 'a-very-long-name-'.repeat(8) }"
    page.locator(".rows th a.work").first.evaluate(lengthen)
    assert page.locator(".scroll").first.evaluate("region => region.scrollWidth <= region.clientWidth")


def test_usage_page_shows_card_hours_by_workload(page: Any) -> None:
    page.goto("/usage")
    assert page.locator("nav[aria-label=Last] [aria-current]").inner_text() == "24h"
    follow(page, "1h", "**/usage?since=1h")
    row = page.locator("tr", has=page.get_by_role("link", name="default/deployment/notebooks")).locator("td").first

    def held() -> bool:
        page.reload()
        return row.count() > 0 and row.inner_text() == "3"

    until("the history tells of three cards", held)
    assert page.locator(".chart canvas").count() == 1
    assert set(texts(page, "tbody th")) >= {"default/pod/inference-small", "free while work waited"}
    follow(page, "Used by", "**/usage?since=1h&hours.sort=*")
    assert page.locator("th[aria-sort]").count() == 1
    follow(page, "default/deployment/notebooks", "**/workload/default/deployment/notebooks")


def test_timeline_zooms_into_what_is_dragged_over_and_keeps_it_in_the_address(page: Any) -> None:
    page.goto("/timeline?range=15m&namespace=default")
    page.get_by_text("live", exact=True).wait_for()
    assert "dgx-h100-0" in texts(page, ".row.node .name")
    assert page.locator(".row.waits").count() == 1
    lane = page.locator(".axis .lane").bounding_box()
    page.mouse.move(lane["x"] + lane["width"] * 0.5, lane["y"] + 5)
    page.mouse.down()
    page.mouse.move(lane["x"] + lane["width"] * 0.9, lane["y"] + 8, steps=4)
    page.mouse.up()
    page.wait_for_url("**/timeline?namespace=default&from=*&to=*")
    shown = page.evaluate(
        "(time => Number(time.dataset.until) - Number(time.dataset.since))(document.getElementById('time'))"
    )
    assert shown == pytest.approx(0.4 * 15 * 60_000, rel=0.05)
    follow(page, "6h", "**/timeline?namespace=default&range=6h")
    assert page.locator("[data-tail]").count() == 1


def test_page_updates_live_and_keeps_focus(page: Any, up: Up) -> None:
    """The last test: it lets the gang run."""
    page.goto("/map?zoom=nodes")
    page.get_by_text("live", exact=True).wait_for()
    page.evaluate("window.sameDocument = true")
    page.locator('.place[data-key="dgx-a100-80gb-mig-0"] svg a').first.focus()
    queue = page.context.new_page()
    queue.goto("/queue")
    queue.get_by_text("The whole answer").click()
    up.api.patch("deployments", "notebooks", {"spec": {"replicas": 2}}, "default")
    page.locator('svg a[aria-label*="job/training"]').nth(5).wait_for()
    assert page.evaluate("window.sameDocument"), "it was loaded again"
    assert "inference-small" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert texts(page, ".totals") == [f"5 nodes · 24 cards · {counts_text(counted_by_top(up))} · 1 tainted"]
    # A page that nobody sees waits until it is seen.
    queue.bring_to_front()
    queue.get_by_text("Nothing waits.").wait_for()
