"""Whether a proxy keeps up with what it is told, and whether its node should get traffic.

A proxy is well as long as no change has waited for a minute. `/livez` tells that; `/healthz` fails for a node that is
going, too, so that load balancers leave it in time. Source: kube-proxy's health server (KEP-3836), as behaviour.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import orjson

from haru.clock import SYSTEM, Clock
from haru.kube.meta import Obj, is_being_deleted
from haru.kube.names import format_time
from haru.secure_serving.component import Route
from haru.secure_serving.http import METRICS, Answer, Request, text_answer
from haru.service_proxy.metrics import FAMILY_NAMES, ProxyMetrics

PATIENCE_SECONDS: Final = 60.0
_GOING: Final = "ToBeDeletedByClusterAutoscaler"


class ProxyHealth:
    """What a proxy has been told, and what it has written."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._now, self._monotonic = clock.now, clock.monotonic
        self._waits_since: float | None = None
        self._synced: datetime | None = None
        self.node: Obj | None = None
        """The proxy's Node as it was last seen."""
        self.metrics = ProxyMetrics()

    def queued(self) -> None:
        """Something has changed."""
        if self._waits_since is None:
            self._waits_since = self._monotonic()
        self.metrics.queued(self._now().timestamp())

    def synced(self, seconds: float, *, full: bool) -> None:
        """The rules are as they should be, after a sync of so many seconds."""
        self._waits_since, self._synced = None, self._now()
        self.metrics.synced(seconds, self._synced.timestamp(), full=full)

    @property
    def is_well(self) -> bool:
        """Whether no change waits for too long."""
        waits = self._waits_since
        late = waits is not None and self._monotonic() - waits >= PATIENCE_SECONDS
        return self._synced is None or not late

    @property
    def is_eligible(self) -> bool:
        """Whether the node is there to stay."""
        if self.node is None or is_being_deleted(self.node):
            return False
        taints = (self.node.get("spec") or {}).get("taints") or ()
        return all(taint.get("key") != _GOING for taint in taints)

    def health_routes(self) -> dict[str, Route]:
        """What is served for load balancers and probes."""
        return {
            "/healthz": lambda _: self._answer("healthz", nodeEligible=self.is_eligible),
            "/livez": lambda _: self._answer("livez"),
        }

    def metrics_routes(self) -> dict[str, Route]:
        """What is served for who measures."""

        def metrics(_: Request) -> Answer:
            return Answer(200, "".join(f"{line}\n" for line in self.metrics.lines()).encode(), METRICS)

        return {
            "/metrics": metrics,
            "/healthz": lambda _: text_answer("ok"),
            "/proxyMode": lambda _: text_answer("nftables"),
        }

    def _answer(self, path: str, **more: bool) -> Answer:
        well, now = self.is_well, format_time(self._now())
        last = format_time(self._synced) if self._synced is not None else None
        code = 200 if well and all(more.values()) else 503
        told: Obj = {"lastUpdated": now if code == 200 else last, "currentTime": now, **more, "healthy": well}
        if last is not None:
            told["status"] = {family: {"lastUpdated": last, "healthy": well} for family in FAMILY_NAMES}
        self.metrics.answered(path, code)
        return Answer(code, orjson.dumps(told), "application/json", [(b"x-content-type-options", b"nosniff")])
