"""The metrics of the mixed version proxy and of merged discovery, under Kubernetes' names."""

from __future__ import annotations

from collections import Counter
from typing import Literal

Gvr = tuple[str, str, str]
"""Group, version, plural name of a resource."""
NOTHING: Gvr = ("", "", "")
_LABELS = ("group", "version", "resource")
_AGGREGATED = (
    ("aggregator_discovery_peer_aggregated_cache_hits_total", "Merged discovery answered from what was kept."),
    ("aggregator_discovery_peer_aggregated_cache_misses_total", "Merged discovery that had to be made."),
    ("aggregator_discovery_nopeer_requests_total", "Requests for the discovery of this server alone."),
    ("aggregator_discovery_aggregation_count_total", "How often the discovery of all servers was merged."),
)


class PeerMetrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self._rerouted: Counter[tuple[int, Gvr]] = Counter()
        self._proxy_errors: Counter[tuple[str, Gvr]] = Counter()
        self._sync_errors: Counter[str] = Counter()
        self.hits = self.misses = self.nopeer = self.aggregations = 0

    def rerouted(self, code: int, gvr: Gvr = NOTHING) -> None:
        """A request to a peer was answered; without a resource: one for its discovery."""
        self._rerouted[code, gvr] += 1

    def proxy_error(self, kind: Literal["endpoint_resolution", "proxy_transport"], gvr: Gvr) -> None:
        """A request could not be taken to a peer."""
        self._proxy_errors[kind, gvr] += 1

    def sync_error(self, kind: Literal["lease_list", "hostport_resolution", "fetch_discovery"]) -> None:
        """What a peer serves could not be found out."""
        self._sync_errors[kind] += 1

    def lines(self) -> list[str]:
        """The exposition."""
        lines = _head("apiserver_rerouted_request_total", "Requests that were answered by a peer API server.")
        for (code, gvr), count in sorted(self._rerouted.items()):
            lines.append(f"apiserver_rerouted_request_total{{{_labels([('code', str(code))], gvr)}}} {count}")
        lines += _head("apiserver_peer_proxy_errors_total", "Requests that could not be taken to a peer API server.")
        for (kind, gvr), count in sorted(self._proxy_errors.items()):
            lines.append(f"apiserver_peer_proxy_errors_total{{{_labels([('type', kind)], gvr)}}} {count}")
        name = "apiserver_peer_discovery_sync_errors_total"
        lines += _head(name, "Times that what a peer API server serves was not found out.")
        lines += [f'{name}{{type="{kind}"}} {count}' for kind, count in sorted(self._sync_errors.items())]
        counted = (self.hits, self.misses, self.nopeer, self.aggregations)
        for (name, text), count in zip(_AGGREGATED, counted, strict=True):
            lines += [*_head(name, text), f"{name} {count}"]
        return lines


def _head(name: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} counter"]


def _labels(first: list[tuple[str, str]], gvr: Gvr) -> str:
    pairs = sorted([*first, *zip(_LABELS, gvr, strict=True)])
    return ",".join(f'{name}="{value}"' for name, value in pairs)
