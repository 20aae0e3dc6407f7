"""Topology spread, the hard half: pods of a kind must not pile up in one domain.

A node passes if its domain, with the pod added, exceeds the emptiest eligible domain by no more than `maxSkew`.
Source: kube-scheduler's PodTopologySpread plugin (KEP-895, KEP-3022, KEP-3094), as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.basic import PASS, matches_node_affinity, untolerated_taint
from haru.engine.nodes.failure import Failure, refuse
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo
from haru.kube.selectors import label_selector_from

PLUGIN = "PodTopologySpread"
_MESSAGE = "node(s) didn't match pod topology spread constraints"
_MISSING = (refuse(PLUGIN, "TopologySpread", f"{_MESSAGE} (missing required label)"),)


@dataclass(frozen=True, slots=True)
class _Domains:
    key: str
    limit: int
    self_match: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SpreadRules:
    """How full every domain of every constraint is, and how full it may become."""

    domains: tuple[_Domains, ...]

    def check(self, node: NodeInfo) -> Sequence[Failure]:
        """Why the constraints refuse a node."""
        for domain in self.domains:
            value = node.labels.get(domain.key)
            if value is None:
                return _MISSING
            count = domain.counts.get(value, 0) + domain.self_match
            if count > domain.limit:
                data = {"topologyKey": domain.key, "domain": value, "pods": count, "limit": domain.limit}
                return (refuse(PLUGIN, "TopologySpread", _MESSAGE, data, resolvable=True),)
        return PASS


def spread_rules(overlay: Overlay, pod: PodInfo) -> SpreadRules | None:
    """The hard spread constraints of a pod as things stand, or None if it has none."""
    constraints = [
        c for c in pod.spec.get("topologySpreadConstraints") or () if c.get("whenUnsatisfiable") == "DoNotSchedule"
    ]
    if not constraints:
        return None
    keys = [c["topologyKey"] for c in constraints]
    nodes = [overlay.node(name) for name in overlay.snapshot.node_names]
    labelled = [node for node in nodes if all(key in node.labels for key in keys)]
    return SpreadRules(tuple(_domains(pod, constraint, labelled) for constraint in constraints))


def _domains(pod: PodInfo, constraint: Mapping[str, Any], nodes: Sequence[NodeInfo]) -> _Domains:
    wanted = label_selector_from(constraint.get("labelSelector"))
    same = {name: pod.labels[name] for name in constraint.get("matchLabelKeys") or () if name in pod.labels}

    def counted(other: PodInfo) -> bool:
        alike = all(other.labels.get(name) == value for name, value in same.items())
        return alike and other.key.namespace == pod.key.namespace and wanted.matches(other.labels)

    key = constraint["topologyKey"]
    counts: dict[str, int] = {}
    for node in nodes:
        if not _eligible(pod, constraint, node):
            continue
        found = sum(counted(other) and not other.deleting for other in node.pods.values())
        counts[node.labels[key]] = counts.get(node.labels[key], 0) + found
    least = min(counts.values(), default=0)
    if len(counts) < int(constraint.get("minDomains") or 1):
        least = 0
    self_match = int(counted(pod))
    return _Domains(key, least + int(constraint["maxSkew"]), self_match, counts)


def _eligible(pod: PodInfo, constraint: Mapping[str, Any], node: NodeInfo) -> bool:
    affinity_counts = (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
    taints_count = (constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor"
    if affinity_counts and not matches_node_affinity(pod, node.name, node.labels):
        return False
    return not (taints_count and untolerated_taint(pod, node.taints) is not None)
