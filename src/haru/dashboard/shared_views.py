"""What all people share who may see the same: a view of the cluster, explanations, and what is known of the last page.

The owner of the machine sees everything. For each other visibility there is a redacted view; the last few of them are
kept. All work is done on two threads, whoever it is for: one makes pages, one explains.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from haru.cluster_view import ClusterView
from haru.dashboard.asked import Services
from haru.dashboard.explanations import ExplanationCache
from haru.dashboard.redaction.cluster import RedactedCluster
from haru.dashboard.redaction.objects import Redaction
from haru.dashboard.redaction.usage import redacted_history
from haru.dashboard.signin.viewer import Visibility
from haru.dashboard.views.prices import Prices
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.whatif import WhatIf

MOST = 32
"""Visibilities of which the views are kept."""


@dataclass(slots=True)
class SharedView:
    """The view and the services of one visibility."""

    visibility: Visibility
    services: Services
    cluster: RedactedCluster | None = None
    """None: everything is shown."""

    async def view(self, whole: ClusterView) -> ClusterView:
        """Return what may be seen of the cluster."""
        cluster = self.cluster
        return whole if cluster is None else await self.services.compute(lambda: cluster.view(whole))


@dataclass(slots=True)
class SharedViews:
    """The views of one dashboard; `tell` is called when there are new explanations."""

    tell: Callable[[], None]
    history: UsageHistory | None = None
    prices: Prices | None = None
    what_if: WhatIf = field(default_factory=WhatIf)
    renderer: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "dashboard pages"))
    explainer: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "dashboard explanations"))
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _views: OrderedDict[Visibility, SharedView] = field(default_factory=OrderedDict)

    def of(self, visibility: Visibility) -> SharedView:
        """Return the view for a visibility."""
        found = self._views.get(visibility)
        if found is None:
            found = self._views[visibility] = self._made(visibility)
            while len(self._views) > MOST:
                _, dropped = self._views.popitem(last=False)
                dropped.services.explanations.stop()
        self._views.move_to_end(visibility)
        return found

    def forget(self) -> None:
        """Drop what is kept of the cluster for the next page."""
        for each in self._views.values():
            each.services.explanations.stop()
        self._views.clear()

    def stop(self) -> None:
        """End; nobody waits for what the threads compute."""
        self.forget()
        self.what_if.stop()
        for executor in (self.renderer, self.explainer):
            executor.shutdown(wait=False, cancel_futures=True)

    def _made(self, visibility: Visibility) -> SharedView:
        if visibility.everything:
            explanations = ExplanationCache(self.tell, self.explainer)
            services = Services(explanations, self.history, self.prices, self.what_if, self.renderer)
            return SharedView(visibility, services)
        shown = visibility.namespaces

        explanations = ExplanationCache(self.tell, self.explainer, shown)
        history = redacted_history(self.history, shown) if self.history is not None else None
        services = Services(explanations, history, self.prices, self.what_if, self.renderer)
        return SharedView(visibility, services, RedactedCluster(Redaction(shown, self._key)))
