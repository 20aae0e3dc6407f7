"""What an update takes the view of the cluster, and what a live page takes, by the size of the cluster."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from counted_calls import SIZES, Steps, assert_all_flat, growth
from dashboard_pages import address_of
from engine_objects import pod
from growing_scheduler import MAKERS
from growing_view import MORE, GrownView, maker
from left_over import left_to_a_collection

from haru.cluster_view import KINDS, ClusterView
from haru.dashboard.access import Access
from haru.dashboard.app import Dashboard, _Place
from haru.dashboard.asked import Answer, Asked, Page
from haru.dashboard.pages import PAGES
from haru.dashboard.redaction.cluster import RedactedCluster
from haru.dashboard.redaction.objects import Redaction
from haru.dashboard.signin.viewer import OWNER
from haru.dashboard.views import story as story_module
from haru.dashboard.views.usage import Span, Use
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.views.workloads import Workload
from haru.explain.entry import explain


def test_every_kind_that_the_dashboard_watches_has_a_growth_case() -> None:
    assert {kind for _, kind in KINDS} <= MAKERS.keys() | MORE.keys()


@pytest.mark.parametrize("sizes", SIZES)
async def test_update_of_the_view_takes_as_much_in_a_large_cluster(sizes: tuple[int, ...]) -> None:
    by_size: dict[int, dict[str, Steps]] = {}
    for size in sizes:
        grown = GrownView(size)
        by_size[size] = {name: cost for kind in grown.informers for name, cost in grown.costs(kind).items()}
    assert_all_flat(by_size)


@pytest.mark.parametrize("sizes", SIZES)
async def test_update_of_a_redacted_view_takes_as_much_in_a_large_cluster(sizes: tuple[int, ...]) -> None:
    by_size: dict[int, dict[str, Steps]] = {}
    for size in sizes:
        grown, cluster = GrownView(size), RedactedCluster(Redaction(frozenset({"elsewhere"}), b"key"))
        found = by_size[size] = dict[str, Steps]()
        cluster.view(grown.objects.view())
        for number in (size + 1, size + 2):
            for kind in ("Pod", "ResourceClaim", "PodGroup", "Event"):
                grown.hear(kind, "ADDED", maker(kind)(number))
                whole = grown.objects.view()
                with Steps() as found[kind]:
                    cluster.view(whole)
    assert_all_flat(by_size)


# -- pages


class Inline(Executor):
    """Runs what it is given at once, on this thread, where it is counted."""

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        done: Future[Any] = Future()
        done.set_result(work(*args, **kwargs))
        return done


class Watch:
    """A watch that always runs."""

    def __init__(self, grown: GrownView) -> None:
        self.grown, self.changes = grown, grown.changes
        self.forgets: list[object] = []

    def viewing(self) -> Any:
        return self

    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...
    async def stop(self) -> None: ...

    def view(self) -> ClusterView:
        return self.grown.objects.view()


def usage(since: int, until: int) -> list[Span]:
    return [Span(since, until, until - since, {Use("held", Workload("default", "job/a")): 1.0})]


class Browser:
    """One browser with a dashboard of which nothing runs on other threads."""

    def __init__(self, grown: GrownView) -> None:
        self.grown, self.access = grown, Access(8080)
        self.dashboard = Dashboard(Watch(grown), self.access, UsageHistory(spans=usage))  # type: ignore[arg-type]
        self.dashboard.views.renderer = self.dashboard.views.explainer = Inline()
        self.cookie = (self.access.enter(self.access.code) or "").partition(";")[0]

    async def get(self, path: str) -> bytes:
        sent: list[Any] = []
        headers = [(b"host", b"127.0.0.1:8080"), (b"cookie", self.cookie.encode())]
        waiting = iter([{"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(waiting)

        async def send(message: Any) -> None:
            sent.append(message)

        path, _, query = path.partition("?")
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": query.encode()}
        await self.dashboard(scope, receive, send)
        assert sent[0]["status"] == 200, path
        return b"".join(message.get("body", b"") for message in sent[1:])


PARTS = {"/workload/{namespace}/{kind}/{name}": {"name": "running-1"}, "/node/{name}": {"name": "node-1"}}
LEFT_OUT = ("/device/{driver}/{pool:path}/{name}", "/yaml/{kind}/{namespace}/{name}")
"""Pages of one object that nothing here has, or that show it as it is."""
ADDRESSES = tuple(address_of(page, **PARTS.get(page.path, {})) for page in PAGES if page.path not in LEFT_OUT)
MAY_GROW = {
    "/namespace/default": ("pod of the namespace and its claim, which are two rows", 12_000),
    # Every node may look otherwise and is a row then; before rows were kept it was 10,000 steps.
    "/": ("node, which the map counts, groups and shows", 2000),
    "/map": ("node, which the map counts, groups and shows", 2500),
    "/timeline": ("claim and node, which have bars", 6000),
    "/workload/default/pod/running-1": ("event of the cluster, among which its own are looked for", 60),
    "/whatif": ("PodGroup and node, of which three hundred are proposed", 200),
    "/node/node-1": ("event of the cluster, among which its own are looked for", 60),
}
"""What a page's cost may grow with, and by how many steps for one of them; that of all others is flat."""


async def costs_of_pages(size: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Steps]:
    """Each page asked for again after an update. What explaining takes is the affair of its own tests."""
    grown = GrownView(size)
    browser, found = Browser(grown), dict[str, Steps]()
    snapshot = grown.objects.view().snapshot
    told = explain(snapshot, "pod", snapshot.pods["default/waits"].obj, remedies=False)
    monkeypatch.setattr(story_module, "explain", lambda *_, **__: told)
    monkeypatch.setattr("haru.dashboard.explanations.explain", lambda *_, **__: told)
    monkeypatch.setattr(browser.dashboard.views, "tell", lambda: None)
    for path in ADDRESSES:
        await browser.get(path)
        grown.hear("Pod", "ADDED", pod(f"new-for-{len(found)}", node="node-1"))
        with Steps() as found[path]:
            body = await browser.get(path)
        assert body, path
    await browser.dashboard.stop()
    return found


@pytest.mark.parametrize("sizes", SIZES)
async def test_live_page_takes_no_more_in_a_large_cluster_than_what_it_shows(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_size = {size: await costs_of_pages(size, monkeypatch) for size in sizes}
    few, many = min(sizes), max(sizes)
    for path in by_size[few]:
        costs = {size: found[path] for size, found in by_size.items()}
        if path not in MAY_GROW:
            assert not (told := growth(costs, path)), told
            continue
        what, most = MAY_GROW[path]
        each = (costs[many].count - costs[few].count) / (many - few)
        assert each <= most, f"{each:.0f} steps for each {what}; {growth(costs, path)}"


async def test_page_leaves_nothing_to_a_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is made of keeps the cluster as it was then; a collection may be hours away."""
    browser = Browser(GrownView(10))
    monkeypatch.setattr(browser.dashboard.views, "tell", lambda: None)
    left = dict[str, dict[str, int]]()
    for path in ADDRESSES:
        for number in range(2):  # the first fills caches
            browser.grown.hear("Pod", "ADDED", pod(f"new-for-{len(left)}-{number}", node="node-1"))
            with left_to_a_collection() as found:
                await browser.get(path)
        left[path] = {name: count for name, count in found.items() if count > 0}
    await browser.dashboard.stop()
    assert not any(left.values()), left


async def test_page_that_cannot_be_made_leaves_nothing_to_a_collection() -> None:
    async def failing(asked: Asked) -> Answer:
        raise LookupError(asked.path)

    grown = GrownView(3)
    page = Page("/", "overview.html", failing)
    dashboard = Dashboard(Watch(grown), pages=(page,))  # type: ignore[arg-type]
    shared = dashboard.views.of(OWNER.visibility)

    async def once() -> None:
        grown.changes.add()
        try:
            await dashboard._shared(shared, _Place(page, "/", {}, {}))
        except LookupError:
            return
        raise AssertionError("the page is made")

    await once()
    with left_to_a_collection() as found:
        for _ in range(3):
            await once()
        dashboard._made.clear()
        await asyncio.sleep(0)
    await dashboard.stop()
    assert not found
