"""The pages as one person sees them, and all addresses that lead on from them."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from dashboard_pages import FixedWatch

from haru.dashboard.app import Dashboard
from haru.dashboard.signin.viewer import VIEWER, Viewer

_ADDRESS = re.compile(r'(?:href|action|src)="(/[^"]*)"')


class Person:
    """What one person gets of a dashboard."""

    def __init__(self, dashboard: Dashboard, viewer: Viewer) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await dashboard({**scope, VIEWER: viewer}, receive, send)

        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://dashboard")

    async def get(self, address: str) -> httpx.Response:
        return await self.client.get(address)

    async def addresses(self, *begin: str, most: int = 400) -> dict[str, httpx.Response]:
        """Every address to which links and forms lead from some, with its answer."""
        found: dict[str, httpx.Response] = {}
        waiting = list(begin)
        while waiting and len(found) < most:
            address = waiting.pop(0)
            if address in found or address.startswith("/static/"):
                continue
            answer = found[address] = await self.get(address)
            waiting += [html.unescape(each).partition("#")[0] for each in _ADDRESS.findall(answer.text)]
        return found


@asynccontextmanager
async def people_of(watch: FixedWatch, *viewers: Viewer, **more: Any) -> AsyncIterator[list[Person]]:
    """Several people who look at one dashboard."""
    dashboard = Dashboard(watch, **more)  # type: ignore[arg-type]
    try:
        yield [Person(dashboard, viewer) for viewer in viewers]
    finally:
        await dashboard.stop()
