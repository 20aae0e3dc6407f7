"""The pods that wait for a node: for one snapshot after another, only those that differ are looked at."""

from __future__ import annotations

from collections.abc import Mapping

from haru.engine import Snapshot
from haru.engine.state import Mark, PodInfo, mark_of, written_since


def pending_pods(snapshot: Snapshot) -> Mapping[str, PodInfo]:
    """Return the pods without a node that have not ended, by path; also those that are being deleted."""
    return snapshot.decision_cache.get_or_compute("pending pods", None, _PendingPods).of(snapshot.pods)


def waiting_pods(snapshot: Snapshot) -> list[PodInfo]:
    """Return the pending pods that are to be scheduled: those that are not being deleted."""
    return [pod for pod in pending_pods(snapshot).values() if not pod.deleting]


class _PendingPods:
    def __init__(self) -> None:
        # One value: pages are made on other threads than explanations. Pods that have gone since are not kept.
        self._known: tuple[Mark | None, Mapping[str, PodInfo]] = (None, {})

    def of(self, pods: Mapping[str, PodInfo]) -> Mapping[str, PodInfo]:
        """Go on to other pods; return those of them that are pending."""
        mark, pending = self._known
        written = written_since(pods, mark)
        if written is None:
            pending = {path: pod for path, pod in pods.items() if _is_pending(pod)}
        elif any(path in pending or _is_pending(pods.get(path)) for path in written):
            found = dict(pending)
            for path in written:
                pod = pods.get(path)
                if pod is not None and _is_pending(pod):
                    found[path] = pod
                else:
                    found.pop(path, None)
            pending = found
        self._known = mark_of(pods), pending
        return pending


def _is_pending(pod: PodInfo | None) -> bool:
    return pod is not None and not (pod.node or pod.terminal)
