"""What is written on a pod of another scheduler: why it waits, and when that was so. Its conditions are not ours."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from haru.engine import Snapshot
from haru.engine.state import PodInfo, published_partition
from haru.explain import without_explanation
from haru.explain.pending_pods import chosen_pods
from haru.kube.meta import Obj, annotations_of, get_condition, uid_of

EXPLANATION = "explain.haru.dev/explanation"
EXPLAINED_AT = "explain.haru.dev/explained-at"
HARU = "haru"
"""The schedulerName of `haru scheduler`, whether it runs or not."""


def schedulers_of_haru(snapshot: Snapshot) -> frozenset[str]:
    """The schedulerNames of Haru's schedulers, which explain their pods themselves: they are on their Leases."""
    found = map(published_partition, snapshot.objects("Lease").values())
    return frozenset({HARU, *(name for told in found if told is not None for name in told[0])})


def is_pending(pod: PodInfo, own: Collection[str]) -> bool:
    """Whether a pod waits for a scheduler that is none of `own`, and that explains nothing itself."""
    if pod.node or pod.terminal or pod.deleting or pod.gated or pod.scheduler_name in own:
        return False
    told = get_condition(pod.obj, "PodScheduled") or {}
    return not without_explanation(str(told.get("message") or ""))[1]


def explanation_of(pod: Obj) -> str:
    """What is written on a pod; empty without it."""
    return annotations_of(pod).get(EXPLANATION, "")


def no_longer_waiting(snapshot: Snapshot, own: Collection[str]) -> Iterator[PodInfo]:
    """The pods whose explanation is over: they are bound, or another one explains them."""
    for pod in chosen_pods(snapshot, _is_explained).values():
        if not pod.deleting and not is_pending(pod, own):
            yield pod


def _is_explained(pod: PodInfo) -> bool:
    return bool(explanation_of(pod.obj))


def annotation_patch(pod: Obj, text: str, now: str) -> Obj:
    """The merge patch that writes an explanation on this very pod, or removes it if it is empty."""
    written = {EXPLANATION: text or None, EXPLAINED_AT: now if text else None}
    return {"metadata": {"uid": uid_of(pod), "annotations": written}}
