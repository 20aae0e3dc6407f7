"""Score nodes by ScheduleAnyway constraints; the filter is in `filter.py`.

Source: kube-scheduler 1.36's PodTopologySpread plugin and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import MAX_SCORE, Scorer, rounded
from haru.engine.framework.profile import DefaultSpread, Profile
from haru.engine.plugins.helper.topology_domains import HOSTNAME
from haru.engine.plugins.podtopologyspread.filter import Constraint, SpreadCounts
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.errors import duplicate, invalid, not_supported

_WHEN = ("DoNotSchedule", "ScheduleAnyway")


class PodTopologySpreadScore:
    """PodTopologySpread: nodes in emptier domains are better, the more domains the more so.

    A host counts by itself; other domains are kept by value. Nodes without one of the labels are the worst, unless
    the constraints are the built-in ones (`everywhere`).
    """

    alone = general = False

    def __init__(self, weight: int, pod: PodInfo, constraints: Sequence[Constraint], *, everywhere: bool) -> None:
        self.weight = weight
        self._constraints = constraints
        self._counts = SpreadCounts(pod, constraints, everywhere=everywhere)

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Counts are looked up when keys are compared; a host's own are part of its key."""
        self._counts.catch_up(overlay)
        return set()

    def key(self, node: NodeInfo) -> tuple[int | str | None, ...] | None:
        """Per constraint the pods on the host, or the domain; None for a node that does not count."""
        if not self._counts.has_labels(node):
            return None
        return tuple(
            self._counts.on(node.name, number) if c.key == HOSTNAME and HOSTNAME in node.labels
            # Nodes without the label are a domain of their own, in which nothing is counted.
            else node.labels.get(c.key)
            for number, c in enumerate(self._constraints)
        )  # fmt: skip

    def scores(self, keys: Sequence[tuple[int | str | None, ...] | None], sizes: Sequence[int]) -> list[int]:
        """Pods in the domains, weighted by the number of domains, fewer being better."""
        counted = sum(size for key, size in zip(keys, sizes, strict=True) if key is not None)
        factors: list[float] = []
        for number, constraint in enumerate(self._constraints):
            domains = len({key[number] or "" for key in keys if key is not None})
            factors.append(math.log(float((counted if constraint.key == HOSTNAME else domains) + 2)))
        return skew_normalised([None if key is None else self._raw(key, factors) for key in keys])

    def _raw(self, key: tuple[int | str | None, ...], factors: Sequence[float]) -> int:
        total = 0.0
        for number, (seen, factor) in enumerate(zip(key, factors, strict=True)):
            if seen is not None:
                pods = seen if isinstance(seen, int) else self._counts.counts[number].of(seen)
                total += float(pods) * factor + float(self._constraints[number].max_skew - 1)
        return rounded(total)


def skew_normalised(raw: Sequence[int | None]) -> list[int]:
    """Fewer is better: the largest is the worst, the smallest is 100; None (a node that does not count) is 0."""
    counted = [value for value in raw if value is not None]
    low, high = min(counted, default=0), max(counted, default=0)
    if high == 0:
        return [0 if value is None else MAX_SCORE for value in raw]
    return [0 if value is None else MAX_SCORE * (high + low - value) // high for value in raw]


class PodTopologySpread:
    """Refuse and score nodes by skew.

    The filter is `SpreadRules`, which follows placements and so is not made per request.
    """

    name = "PodTopologySpread"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.NODE_TAINT,
            ClusterEvent.POD_ADD,
            ClusterEvent.POD_DELETE,
            ClusterEvent.POD_TERMINATING,
            ClusterEvent.SELECTOR,
        }
    )

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if the pod has no ScheduleAnyway constraints."""
        if not request.soft:
            return None
        everywhere = request.profile.spread.system and not request.pod.spec.get("topologySpreadConstraints")
        weight = request.profile.weight(self.name)
        return PodTopologySpreadScore(weight, request.pod, request.soft, everywhere=everywhere)

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Return the profile with the constraints of pods that have none of their own."""
        listed = arguments.parts("defaultConstraints")
        kind = arguments.text("defaultingType", "System")
        if kind not in ("List", "System"):
            arguments.findings.append(not_supported(arguments.at("defaultingType"), kind, ("List", "System")))
        elif kind == "System" and listed:
            why = "when .defaultConstraints are not empty: write List"
            arguments.findings.append(invalid(arguments.at("defaultingType"), kind, why))
        constraints = tuple(_constraint(entry) for entry in listed)
        pairs = [(c["topologyKey"], c["whenUnsatisfiable"]) for c in constraints]
        for index, (key, when) in enumerate(pairs):
            if (key, when) in pairs[:index]:
                arguments.findings.append(
                    duplicate(f"{arguments.at('defaultConstraints')}[{index}]", f"{{{key}, {when}}}")
                )
        return replace(profile, spread=DefaultSpread(constraints, system=False) if kind == "List" else DefaultSpread())


def _constraint(entry: Arguments) -> dict[str, Any]:
    skew, key, when = entry.integer("maxSkew", 0) or 0, entry.need("topologyKey"), entry.need("whenUnsatisfiable")
    if skew <= 0:
        entry.findings.append(invalid(entry.at("maxSkew"), skew, "not in valid range (0, inf)"))
    if key:
        entry.check_label_key(entry.at("topologyKey"), key)
    if when and when not in _WHEN:
        entry.findings.append(not_supported(entry.at("whenUnsatisfiable"), when, _WHEN))
    entry.refuse("labelSelector", "constraint must not define a selector, as they deduced for each pod")
    found: dict[str, Any] = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when}
    if entry.has("minDomains"):
        found["minDomains"] = entry.integer("minDomains")
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if entry.has(name):
            found[name] = entry.text(name)
            if found[name] not in ("Honor", "Ignore"):
                entry.findings.append(not_supported(entry.at(name), found[name], ("Honor", "Ignore")))
    if entry.has("matchLabelKeys"):
        found["matchLabelKeys"] = entry.texts("matchLabelKeys")
    entry.done()
    return found
