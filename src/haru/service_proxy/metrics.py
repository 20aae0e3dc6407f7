"""What a proxy counts and measures, under kube-proxy's names.

Source: the metrics of kube-proxy 1.36 that its nftables mode has, as behaviour.
"""

from __future__ import annotations

from typing import Final

from haru.exposition import CounterOf, GaugeOf, HistogramOf, head

_FAMILY: Final = ("ip_family",)
FAMILY_NAMES: Final = ("IPv4", "IPv6")
_BOUNDS: Final = tuple(0.001 * 2**power for power in range(15))
_PROGRAMMING_BOUNDS: Final = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))


class ProxyMetrics:
    """The metrics of one proxy. A transaction covers both families, so each of them has its time."""

    def __init__(self) -> None:
        def seconds(which: str, text: str) -> HistogramOf:
            return HistogramOf(f"kubeproxy_sync_{which}proxy_rules_duration_seconds", text, _FAMILY, _BOUNDS)

        self._syncs = seconds("", "Time of a sync of the rules.")
        self._full = seconds("full_", "Time of a sync that writes all rules.")
        self._partial = seconds("partial_", "Time of a sync that writes what has changed.")
        self._failures, self._cleanup_failures = (
            CounterOf(f"kubeproxy_sync_proxy_rules_nftables_{what}_failures_total", text, _FAMILY)
            for what, text in (
                ("sync", "Syncs that nftables refused."),
                ("cleanup", "Deletions of unused chains that nftables refused."),
            )
        )
        self._programming = HistogramOf(
            "kubeproxy_network_programming_duration_seconds",
            "Time from a change of a pod or Service to the sync that served it.",
            _FAMILY,
            _PROGRAMMING_BOUNDS,
        )
        self.no_local_endpoints = GaugeOf(
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
            "Ports of Services with a Local traffic policy that have endpoints, but none on this node.",
            ("traffic_policy", *_FAMILY),
        )
        self._conntrack = HistogramOf(
            "kubeproxy_conntrack_reconciler_sync_duration_seconds",
            "Time of a look for flows to endpoints that have gone.",
            _FAMILY,
            _BOUNDS,
        )
        self._deleted_flows = CounterOf(
            "kubeproxy_conntrack_reconciler_deleted_entries_total", "Flows to endpoints that have gone.", _FAMILY
        )
        self._changes = {
            what: CounterOf(f"kubeproxy_sync_proxy_rules_{what}_changes_total", f"Changes of a {kind} seen.", ())
            for what, kind in (("service", "Service"), ("endpoint", "slice of endpoints"))
        }
        self._pending = dict.fromkeys(self._changes, 0)
        self._answers = {
            path: CounterOf(f"kubeproxy_proxy_{path}_total", f"Answers of /{path} by status.", ("code",))
            for path in ("healthz", "livez")
        }
        self._times: dict[str, float] = {}

    def changed(self, what: str) -> None:
        """A Service (`service`) or an EndpointSlice (`endpoint`) has changed."""
        self._changes[what].add()
        self._pending[what] += 1

    def queued(self, at: float) -> None:
        """A sync is wanted, in seconds since 1970."""
        self._times["queued_"] = at

    def taken(self) -> None:
        """A sync begins with all that has changed."""
        self._pending = dict.fromkeys(self._pending, 0)

    def synced(self, seconds: float, at: float, *, full: bool) -> None:
        """A sync has ended well."""
        for family in FAMILY_NAMES:
            for histogram in (self._syncs, self._full if full else self._partial):
                histogram.observe(seconds, family)
        self._times[""] = at

    def failed(self, *, cleanup: bool = False) -> None:
        """Nftables has refused a transaction; `cleanup`: one that deletes what is not used any more."""
        for family in FAMILY_NAMES:
            (self._cleanup_failures if cleanup else self._failures).add(family)

    def programmed(self, seconds: float, family: str) -> None:
        """A change of a Service's endpoints is served so many seconds after it happened."""
        self._programming.observe(seconds, family)

    def reconciled(self, seconds: float, deleted: int, family: str) -> None:
        """Flows to endpoints that have gone were looked for, and so many deleted."""
        self._conntrack.observe(seconds, family)
        self._deleted_flows.add(family, amount=deleted)

    def answered(self, path: str, code: int) -> None:
        """Somebody has asked how the proxy is (`healthz`, `livez`)."""
        self._answers[path].add(str(code))

    def lines(self) -> list[str]:
        """All of them in Prometheus' text format."""
        histograms = (self._syncs, self._full, self._partial, self._programming, self._conntrack)
        failures = (self._failures, self._cleanup_failures, self._deleted_flows)
        found = [line for histogram in histograms for line in histogram.lines()] + self.no_local_endpoints.lines()
        for counter in (*failures, *self._changes.values(), *self._answers.values()):
            found += counter.lines()
        for what, count in self._pending.items():
            name = f"kubeproxy_sync_proxy_rules_{what}_changes_pending"
            found += [*head(name, "gauge", "Changes that wait for a sync."), f"{name} {count}"]
        for which, at in self._times.items():
            name = f"kubeproxy_sync_proxy_rules_last_{which}timestamp_seconds"
            found += head(name, "gauge", f"When the rules were last {which.strip('_') or 'synced'}.")
            found += [f'{name}{{ip_family="{family}"}} {at:.3f}' for family in FAMILY_NAMES]
        return found
