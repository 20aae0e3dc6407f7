"""What `haru up` shows and answers about the cluster: the web page, the history of usage, and `explain.haru.dev`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from haru.accounting.server import AccountingServer
from haru.dashboard.server import NOT_VISITED, DashboardServer, Visited
from haru.embedded.errors import OptionError
from haru.embedded.explain_api import EmbeddedExplainApi
from haru.embedded.gates import gates_of
from haru.embedded.metrics_api import EmbeddedMetricsApi
from haru.embedded.options import UpOptions
from haru.embedded.part import Setting, Tasks
from haru.embedded.prices import read_prices
from haru.embedded.usage import usage_history
from haru.embedded.users import ADMIN
from haru.engine import Features


class PagesPart(Tasks):
    """Servers that only read the cluster."""

    def __init__(self, options: UpOptions) -> None:
        super().__init__()
        self._options = options
        self._servers: list[DashboardServer | AccountingServer | EmbeddedExplainApi | EmbeddedMetricsApi] = []
        self._notes: list[str] = []
        self._kept: dict[str, Any] = {}

    async def start(self, setting: Setting) -> None:
        """Start the servers."""
        if self._options.dashboard is not None:
            await self._start_dashboard(setting, *self._options.dashboard)
        if self._options.usage.history or self._options.usage.metrics is not None:
            await self._start_accounting(setting)
        if self._options.explain_api:
            clients = setting.clients
            explaining = EmbeddedExplainApi(clients.component("explain"), clients.component(ADMIN), setting.clock.now)
            self._servers.append(explaining)
            await explaining.start()
        if self._options.metrics_api and self._options.simulated_nodes:
            clients = setting.clients
            metrics = EmbeddedMetricsApi(clients.component("explain"), clients.component(ADMIN), setting.clock.now)
            self._servers.append(metrics)
            await metrics.start()

    async def stop(self) -> None:
        """Stop the servers."""
        for server in self._servers:
            await server.stop()

    def notes(self) -> Sequence[str]:
        """The addresses."""
        return self._notes

    def kept(self) -> Mapping[str, Any]:
        """What whoever looks at the pages knows of them."""
        return self._kept

    async def _start_dashboard(self, setting: Setting, host: str, port: int) -> None:
        history = usage_history(_history(setting.directory)) if self._options.usage.history else None
        prices = read_prices(self._options.usage.card_prices, "--card-prices")
        before = Visited(*setting.kept.get("dashboard", NOT_VISITED))
        dashboard = DashboardServer(setting.clients.component("dashboard"), host, port, history, prices, before)
        self._servers.append(dashboard)
        try:
            await dashboard.start()
        except OSError as error:
            remedy = "take another port, 0 for any that is free, or --no-dashboard"
            raise OptionError(f"--dashboard: {host}:{port}: {os.strerror(error.errno or 0)}; {remedy}") from error
        self._kept["dashboard"] = [*dashboard.visited]
        self._notes.append(f"dashboard, for one browser: {dashboard.url}")

    async def _start_accounting(self, setting: Setting) -> None:
        usage, client = self._options.usage, setting.clients.component("accounting")
        file = _history(setting.directory) if usage.history else None
        features = Features.from_gates(gates_of(self._options).all())
        port = setting.kept.get("usage metrics", 0)
        accounting = AccountingServer(client, file, usage.metrics, features, setting.clock.now, port)
        self._servers.append(accounting)
        try:
            await accounting.start()
        except OSError as error:
            host, port = usage.metrics or ("", 0)
            remedy = "take another port, or 0 for any that is free"
            raise OptionError(f"--usage-metrics: {host}:{port}: {os.strerror(error.errno or 0)}; {remedy}") from error
        if accounting.url:
            self._kept["usage metrics"] = accounting.port
            self._notes.append(f"usage metrics: {accounting.url}")


part = PagesPart


def _history(directory: Path) -> Path:
    return directory / "usage.db"
