"""What a page is: the path, the template, and the function that makes the values which the template shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import urlencode

from haru.cluster_view import ClusterView
from haru.dashboard.explanations import ExplanationCache
from haru.dashboard.signin.viewer import Viewer
from haru.dashboard.views.device_map import KnownPlaces
from haru.dashboard.views.prices import Prices
from haru.dashboard.views.queue import KnownPods
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.views.workloads import Filter
from haru.dashboard.whatif import WhatIf

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Services:
    """What requests of all who may see the same share. `places` and `pods` belong to the renderer's one thread.

    `history` is that of usage, `prices` are those of cards; None where there is none.
    """

    explanations: ExplanationCache
    history: UsageHistory | None = None
    prices: Prices | None = None
    what_if: WhatIf = field(default_factory=WhatIf)
    renderer: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "dashboard pages"))
    places: KnownPlaces = field(default_factory=KnownPlaces)
    pods: KnownPods = field(default_factory=KnownPods)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run work on the renderer's thread: the event loop stays free."""
        return await asyncio.get_running_loop().run_in_executor(self.renderer, work)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a page: the cluster as it is, the query, and the parts of the path by name."""

    view: ClusterView
    path: str
    query: Mapping[str, str]
    parts: Mapping[str, str]
    services: Services
    viewer: Viewer | None = None
    """Who looks; only a page that is `personal` is told."""

    @property
    def chosen(self) -> Filter:
        """The filter in the query."""
        return Filter.of(self.query)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run work that takes a while, on the renderer's thread."""
        return await self.services.compute(work)

    def without(self, *names: str) -> Asked:
        """The same without some parts of the query."""
        return replace(self, query={name: value for name, value in self.query.items() if name not in names})

    def address(self, **changes: str | None) -> str:
        """The address of this page with parts of the query changed; None removes one."""
        query = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{self.path}?{urlencode(query)}" if query else self.path


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page shows: its title, and the values that its template names."""

    title: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the dashboard. `make` returns None where what the path names does not exist.

    `nav` is its text in the navigation, if it is there; `key` the keyboard's letter after `g`. A `personal` page
    depends on more than what may be seen of the cluster: it is made for each request, and not live. A `still`
    page is not live either: what it says was asked once.
    """

    path: str
    template: str
    make: Callable[[Asked], Awaitable[Answer | None]]
    nav: str = ""
    key: str = ""
    personal: bool = False
    still: bool = False
