"""The dashboard's pages of one snapshot, asked for as a browser does, without a cluster or a port."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from engine_objects import DRIVER

from haru.cluster_view import ChangeCounter, ClusterView
from haru.dashboard.access import Access
from haru.dashboard.app import Dashboard
from haru.dashboard.asked import Page
from haru.engine import Snapshot
from haru.explain.cards import Layouts

Obj = dict[str, Any]
PORT = 8080


PARTS = {"namespace": "default", "kind": "pod", "name": "w"}
PARTS_OF = {
    "/node/{name}": {"name": "a"},
    "/device/{driver}/{pool:path}/{name}": {"driver": DRIVER, "pool": "a", "name": "gpu-0"},
    "/namespace/{name}": {"name": "default"},
    "/yaml/{kind}/{namespace}/{name}": {"kind": "Pod"},
}
"""What stands for the parts of paths, where it is not `PARTS`."""


def address_of(page: Page, **parts: str) -> str:
    """An address of a page."""
    known = {**PARTS, **PARTS_OF.get(page.path, {}), **parts}
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: known[found[1]], page.path)


class FixedWatch:
    """A watch of a cluster that stays as it is."""

    def __init__(self, snapshot: Snapshot, events: Sequence[Obj] = (), refused: Sequence[str] = ()) -> None:
        self.changes = ChangeCounter()
        self.forgets: list[object] = []
        self._view = ClusterView(snapshot, 1, tuple(refused), Layouts(), tuple(events))

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[None]:
        yield

    def view(self) -> ClusterView:
        return self._view

    async def stop(self) -> None:
        pass


@asynccontextmanager
async def browser_of(watch: FixedWatch, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has entered the dashboard of a watch."""
    access = Access(PORT)
    dashboard = Dashboard(watch, access, **more)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(dashboard)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}") as client:
        entered = await client.get("/", params={"code": access.code})
        client.headers["cookie"] = entered.headers["set-cookie"].partition(";")[0]
        try:
            yield client
        finally:
            await dashboard.stop()
