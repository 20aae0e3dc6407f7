"""What makes one feasible node better than another, as numbers: the raw scores of one node, and how they are compared.

Where kube-scheduler computes with doubles, so is done here: the same numbers come out, rounding included. Ties are
broken by the seed, evenly and reproducibly. Source: kube-scheduler 1.36's score plugins, as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

from haru.engine.decision import Obj
from haru.engine.nodeinfo import NodeInfo
from haru.engine.pods import PodInfo
from haru.kube.meta import tolerates
from haru.kube.selectors import node_selector_term_matches

MAX_SCORE = 100
_MEBI = 1024 * 1024
_IMAGE_MIN = 23 * _MEBI
_IMAGE_MAX_PER_CONTAINER = 1000 * _MEBI


def raw_taints(pod: PodInfo, node: NodeInfo) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate."""
    return sum(
        1
        for taint in node.taints
        if taint.get("effect") == "PreferNoSchedule" and not tolerates(pod.tolerations, taint)
    )


def preferred_terms(affinity: Mapping[str, object] | None) -> tuple[Obj, ...]:
    """The preferred terms of a NodeAffinity."""
    listed = (affinity or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(listed)  # type: ignore[arg-type]


def raw_affinity(terms: Iterable[Obj], node: NodeInfo) -> int:
    """The summed weights of the preferred terms that the node matches."""
    return sum(
        int(term.get("weight") or 0)
        for term in terms
        if node_selector_term_matches(term.get("preference") or {}, node.name, node.labels)
    )


def image_score(sizes: Sequence[int], shares: Sequence[float]) -> int:
    """What the images on a node save: each size (0: not there) weighted by the share of nodes that have the image."""
    found = sum(int(float(size) * share) for size, share in zip(sizes, shares, strict=True) if size)
    most = _IMAGE_MAX_PER_CONTAINER * len(sizes)
    return MAX_SCORE * (min(max(found, _IMAGE_MIN), most) - _IMAGE_MIN) // (most - _IMAGE_MIN)


def rounded(value: float) -> int:
    """The nearest integer of a number that is not negative, halves up."""
    whole = math.trunc(value)
    return whole + 1 if value - whole >= 0.5 else whole


def normalised(raw: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scores brought to 0..100 relative to the largest; `reverse` makes the largest the worst."""
    top = max(raw, default=0)
    if top == 0:
        return [MAX_SCORE if reverse else 0] * len(raw)
    scaled = [value * MAX_SCORE // top for value in raw]
    return [MAX_SCORE - value for value in scaled] if reverse else scaled


def min_max_normalised(raw: Sequence[int]) -> list[int]:
    """Scores spread over 0..100 between the smallest and the largest; all 0 if they are equal."""
    low, high = min(raw, default=0), max(raw, default=0)
    if low == high:
        return [0] * len(raw)
    return [int(MAX_SCORE * (float(value - low) / float(high - low))) for value in raw]


def skew_normalised(raw: Sequence[int | None]) -> list[int]:
    """Fewer is better: the largest is the worst, the smallest is 100; None (a node that does not count) is 0."""
    counted = [value for value in raw if value is not None]
    low, high = min(counted, default=0), max(counted, default=0)
    if high == 0:
        return [0 if value is None else MAX_SCORE for value in raw]
    return [0 if value is None else MAX_SCORE * (high + low - value) // high for value in raw]


def pick(count: int, seed: int, salt: str) -> int:
    """A number below `count`, evenly; the same seed and salt give the same number."""
    return crc32(f"{seed}/{salt}".encode()) % count
