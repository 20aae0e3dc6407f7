"""The dashboard in a real browser, on a real `haru up`: what is seen, live, by keyboard, by assistive technology."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from dashboard_driving import dashboard_address

from haru.explain.card_counts import counts_text
from haru_process import Up, phase, until

ROOT = Path(__file__).parents[2]
MILLISECONDS = 30_000
PAGES = ("/", "/queue", "/allocation", "/workload/default/job/training", "/workload/default/deployment/notebooks")
SCHEMES = [{"color_scheme": "light"}, {"color_scheme": "dark"}]
AXE = "async () => JSON.stringify((await axe.run(document, {resultTypes: ['violations']})).violations)"


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


@pytest.fixture(scope="module")
def session(browser: Any, up: Up) -> tuple[str, Any]:
    """The address without the code, and what a browser that has entered keeps."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(dashboard_address(up))
    split = urlsplit(page.url)
    assert (split.path, split.query) == ("/", ""), "the code stays in the address"
    assert page.evaluate("document.cookie") == "", "scripts can read the cookie"
    state = context.storage_state()
    context.close()
    return f"http://{split.netloc}", state


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Any, session: tuple[str, Any]) -> Iterator[Any]:
    """A page of a browser that has entered. Whatever it complains about fails the test."""
    address, state = session
    options = getattr(request, "param", {})
    context = browser.new_context(base_url=address, storage_state=state, **options)
    context.set_default_timeout(MILLISECONDS)
    made = context.new_page()
    complaints: list[str] = []
    made.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    made.on("pageerror", lambda error: complaints.append(str(error)))
    yield made
    context.close()
    assert complaints == []


def texts(page: Any, selector: str) -> list[str]:
    found: list[str] = page.locator(selector).all_inner_texts()
    return [" ".join(text.split()) for text in found]


def follow(page: Any, link: str, address: str) -> None:
    """Clicks a link and waits until the page behind it has loaded: a click returns when the address has changed."""
    page.get_by_role("link", name=link).click()
    page.wait_for_url(address)


def style(page: Any, selector: str, name: str) -> str:
    return str(page.locator(selector).first.evaluate(f"element => getComputedStyle(element)['{name}']"))


def test_map_page_shows_nodes_cards_and_their_states(page: Any, up: Up) -> None:
    page.goto("/")
    assert texts(page, ".place h3") == ["cpu-0", "dgx-a100-80gb-mig-0", "dgx-h100-0", "t4-0", "t4-1"]
    row = '.place[data-key="dgx-h100-0"]'
    assert texts(page, f"{row} .card") == [f"gpu-{n} notebooks" if n < 3 else f"gpu-{n} free" for n in range(8)]
    assert texts(page, '.place[data-key="dgx-a100-80gb-mig-0"] .card')[0] == "gpu-0 inference-small free"
    assert counted_by_top(up)["held"] > 3 and counted_by_top(up)["unavailable"] == 1
    assert texts(page, ".totals") == [f"5 nodes · 24 cards · {counts_text(counted_by_top(up))} · 1 tainted"]
    # Colour tells workloads apart, hatching what is tainted, a dashed frame what is idle.
    notebooks, slice_ = f"{row} a.part", '.place[data-key="dgx-a100-80gb-mig-0"] a.part'
    assert style(page, notebooks, "backgroundColor") != style(page, slice_, "backgroundColor")
    tainted = '.place[data-key="t4-0"] .card.tainted'
    assert "gradient" in style(page, f"{tainted} .part", "backgroundImage")
    assert texts(page, tainted) == ["gpu-1 free tainted maintenance=true:NoSchedule"]
    assert style(page, f"{row} .card.idle", "borderTopStyle") == "dashed"
    assert style(page, f"{row} .card.idle .part", "color") != style(page, notebooks, "color")


def test_queue_page_shows_pending_work_with_remedies(page: Any) -> None:
    page.goto("/queue")
    assert texts(page, ".waiting h2") == ["default/job/training"]
    assert "6 pods waiting · priority 0 · since 20" in page.inner_text(".facts")
    assert page.inner_text(".verdict") == "FitsLater"
    assert "5 devices are free for request gpu, 6 are needed" in page.inner_text(".waiting")
    assert {"DevicesUnavailable", "Quorum"} <= set(texts(page, ".reasons code"))
    assert any("deployment/notebooks" in text for text in texts(page, ".remedies li"))
    page.get_by_text("The whole answer").click()
    assert "helps    end deployment/notebooks" in page.inner_text("details pre")


def test_page_of_pending_workload_shows_reasons_and_timeline(page: Any) -> None:
    page.goto("/queue")
    follow(page, "default/job/training", "**/workload/default/job/training")
    headings = texts(page, "h2")
    assert "Why not yet" in headings and "Why here" not in headings
    assert texts(page, "tbody td:nth-child(3)") == ["none yet"] * 6
    told = texts(page, ".timeline li")
    assert any("WorkloadCreated" in text for text in told) and any("PodGroupScheduled" in text for text in told)


def test_page_of_running_workload_shows_node_and_devices(page: Any) -> None:
    page.goto("/workload/default/deployment/notebooks")
    assert page.get_by_role("heading", name="Why here").is_visible()
    assert "no device of class" in page.inner_text(".nodes")
    assert sorted(texts(page, "tbody td:nth-child(5)")) == [f"gpu-{n} (NVIDIA H100 80GB HBM3)" for n in range(3)]
    assert any("Scheduled" in text for text in texts(page, ".timeline li"))
    follow(page, "Show it on the map", "**/?*")
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
    page.goto("/?workload=inference*&namespace=default")
    assert texts(page, ".place h3") == ["dgx-a100-80gb-mig-0"]
    assert page.get_by_role("textbox", name="Workload").input_value() == "inference*"
    follow(page, "Clear", "**/")
    page.get_by_role("textbox", name="Node").fill("t4-*")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?namespace=&workload=&node=t4-*")
    assert texts(page, ".place h3") == ["t4-0", "t4-1"]
    follow(page, "Queue", "**/queue?*")
    assert "node=t4-*" in page.url.replace("%2A", "*")
    page.goto("/queue?namespace=elsewhere")
    assert "Nothing that matches the filter waits." in page.inner_text("main")
    page.goto("/?node=nothing")
    assert "No node matches the filter." in page.inner_text("main")


@pytest.mark.parametrize("page", SCHEMES, indirect=True, ids=["light", "dark"])
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
    page.goto("/?node=*-0")
    page.get_by_text("live", exact=True).wait_for()
    press, focused = page.keyboard.press, lambda: page.evaluate("document.activeElement.innerText.trim()")
    press("Tab")
    assert focused() == "Skip to the content"
    press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    # All cards together are one stop of the tab key.
    stops = []
    while "inference-small" not in stops:
        press("Tab")
        stops.append(focused())
        assert len(stops) < 40, stops
        if page.evaluate("document.activeElement.matches('.legend a')"):
            stops[-1] = "a legend"
    place = lambda: page.evaluate("document.activeElement.closest('.place').dataset.key")  # noqa: E731
    card = lambda: page.evaluate("document.activeElement.closest('.card').querySelector('small').innerText")  # noqa: E731
    assert (place(), card()) == ("dgx-a100-80gb-mig-0", "gpu-0")
    walk = [("ArrowDown", "gpu-0"), ("ArrowRight", "gpu-1"), ("End", "gpu-2"), ("ArrowRight", "gpu-2")]
    walk += [("ArrowLeft", "gpu-1"), ("Home", "gpu-0")]
    for key, expected in walk:
        press(key)
        assert (place(), card()) == ("dgx-h100-0", expected), key
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    press("ArrowUp")
    assert place() == "dgx-a100-80gb-mig-0"
    press("Enter")
    page.wait_for_url("**/workload/default/pod/inference-small")


@pytest.mark.parametrize("page", SCHEMES, indirect=True, ids=["light", "dark"])
def test_axe_finds_no_accessibility_violations(page: Any, axe: str) -> None:
    for path in PAGES:
        page.goto(path)
        page.get_by_text("live", exact=True).wait_for()
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        page.evaluate(axe)
        found = json.loads(page.evaluate(AXE))
        assert [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found] == [], path


@pytest.mark.parametrize("page", [{"java_script_enabled": False}], indirect=True)
def test_pages_work_without_javascript(page: Any) -> None:
    for path in PAGES:
        page.goto(path)
        assert page.locator("main h1").count() == 1
    assert not page.locator("#theme").is_visible()


def test_allocation_page_shows_card_hours_by_workload(page: Any) -> None:
    page.goto("/allocation")
    assert page.locator("nav[aria-label=Period] [aria-current]").inner_text() == "last 24h"
    follow(page, "last 1h", "**/allocation?since=1h")
    row = page.locator('tr[data-key="default/deployment/notebooks"] td').first

    def held() -> bool:
        page.reload()
        return row.count() > 0 and row.inner_text() == "3"

    until("the history tells of three cards", held)
    assert page.locator(".usage .area").count() >= 3
    assert set(texts(page, "tbody th")) >= {"default/pod/inference-small", "free", "free while work waited"}
    follow(page, "default/deployment/notebooks", "**/workload/default/deployment/notebooks")


def test_page_updates_live_and_keeps_focus(page: Any, up: Up) -> None:
    """The last test: it lets the gang run."""
    page.goto("/")
    page.evaluate("window.sameDocument = true")
    page.locator('.place[data-key="dgx-a100-80gb-mig-0"] a.part').focus()
    queue = page.context.new_page()
    queue.goto("/queue")
    queue.get_by_text("The whole answer").click()
    up.api.patch("deployments", "notebooks", {"spec": {"replicas": 2}}, "default")
    page.locator(".part", has_text="training").nth(5).wait_for()
    assert page.evaluate("window.sameDocument"), "it was loaded again"
    assert page.evaluate("document.activeElement.innerText") == "inference-small"
    assert texts(page, ".totals") == [f"5 nodes · 24 cards · {counts_text(counted_by_top(up))} · 1 tainted"]
    # A page that nobody sees waits until it is seen.
    queue.bring_to_front()
    queue.get_by_text("Nothing waits.").wait_for()
