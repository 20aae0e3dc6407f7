"""What makes one feasible node better than another: kube-scheduler's default scores and weights, in integers.

Every score is brought to 0..100 over the feasible nodes, weighted and summed. Ties are broken by the seed, evenly and
reproducibly. Source: kube-scheduler 1.36's default profile, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from haru.engine.nodeinfo import NodeInfo
from haru.engine.pods import PodInfo
from haru.kube.meta import tolerates
from haru.kube.selectors import node_selector_term_matches

MAX_SCORE = 100
WEIGHT_TAINTS = 3
WEIGHT_AFFINITY = 2
WEIGHT_DEVICES = 2
WEIGHT_INTER_POD = 2
WEIGHT_SPREAD = 2


def raw_taints(pod: PodInfo, node: NodeInfo) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate."""
    return sum(
        1
        for taint in node.taints
        if taint.get("effect") == "PreferNoSchedule" and not tolerates(pod.tolerations, taint)
    )


def raw_affinity(pod: PodInfo, node: NodeInfo) -> int:
    """The summed weights of the preferred terms that the node matches."""
    preferred = pod.affinity("nodeAffinity").get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return sum(
        int(term.get("weight") or 0)
        for term in preferred
        if node_selector_term_matches(term.get("preference") or {}, node.name, node.labels)
    )


def least_allocated(pod: PodInfo, node: NodeInfo) -> int:
    """The share of cpu and memory that would stay free, in percent."""
    total = weights = 0
    used = node.scoring_requested
    for index, resource in enumerate(("cpu", "memory")):
        capacity = node.allocatable.get(resource, 0)
        if capacity:
            asked = used[index] + pod.scoring_requests[index]
            total += (capacity - asked) * MAX_SCORE // capacity if asked <= capacity else 0
            weights += 1
    return total // weights if weights else 0


def balanced(pod: PodInfo, node: NodeInfo) -> int:
    """How evenly cpu and memory would be used: 100 less half the difference of the two shares in percent."""
    cpu, memory = node.allocatable.get("cpu", 0), node.allocatable.get("memory", 0)
    if not cpu or not memory:
        return MAX_SCORE
    cpu_used = min(cpu, node.requested.get("cpu", 0) + pod.requests.get("cpu", 0))
    memory_used = min(memory, node.requested.get("memory", 0) + pod.requests.get("memory", 0))
    difference = abs(cpu_used * memory - memory_used * cpu)
    return MAX_SCORE - (difference * MAX_SCORE + 2 * cpu * memory - 1) // (2 * cpu * memory)


def normalised(raw: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scores brought to 0..100 relative to the largest; `reverse` makes the largest the worst."""
    top = max(raw, default=0)
    if top == 0:
        return [MAX_SCORE if reverse else 0] * len(raw)
    scaled = [value * MAX_SCORE // top for value in raw]
    return [MAX_SCORE - value for value in scaled] if reverse else scaled


def min_max_normalised(raw: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scores spread over 0..100 between the smallest and the largest."""
    low, high = min(raw, default=0), max(raw, default=0)
    if low == high:
        return [MAX_SCORE if reverse else 0] * len(raw)
    scaled = [(value - low) * MAX_SCORE // (high - low) for value in raw]
    return [MAX_SCORE - value for value in scaled] if reverse else scaled


def choose(totals: Mapping[str, int], seed: int, salt: str) -> str:
    """A node with the highest total, evenly among equals; the same seed and salt give the same node."""
    best = max(totals.values())
    names = sorted(name for name, total in totals.items() if total == best)
    return names[crc32(f"{seed}/{salt}".encode()) % len(names)]
