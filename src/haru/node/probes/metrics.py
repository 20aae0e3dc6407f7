"""Counts of probe results for /metrics/probes.

Source: the kubelet's `prober_probe_total`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

_TYPES = {"liveness": "Liveness", "readiness": "Readiness", "startup": "Startup"}
ProbeResults = tuple[str, str, str, str, str]
"""Type of the probe, container, namespace, pod, its UID."""


def probed(pod: Mapping[str, Any], container: str, name: str) -> ProbeResults:
    """What is counted together."""
    meta = pod["metadata"]
    return _TYPES[name], container, meta["namespace"], meta["name"], meta["uid"]


class ProbeCounts:
    """The counts of one node; those of a probe go when it ends."""

    def __init__(self) -> None:
        self._counts: dict[ProbeResults, Counter[str]] = {}

    def count(self, what: ProbeResults, well: bool) -> None:
        """A probe was answered."""
        self._counts.setdefault(what, Counter())["successful" if well else "failed"] += 1

    def forget(self, what: ProbeResults) -> None:
        """Drop the counts of a probe that ended."""
        self._counts.pop(what, None)

    def text(self) -> str:
        """The exposition."""
        lines = []
        for (kind, container, namespace, pod, uid), results in sorted(self._counts.items()):
            labels = f'container="{container}",namespace="{namespace}",pod="{pod}",pod_uid="{uid}",probe_type="{kind}"'
            lines += [f'prober_probe_total{{{labels},result="{result}"}} {n}' for result, n in sorted(results.items())]
        if not lines:
            return ""
        head = ["# HELP prober_probe_total Probes of containers by their result.", "# TYPE prober_probe_total counter"]
        return "\n".join([*head, *lines, ""])
