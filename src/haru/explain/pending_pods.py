"""Pods that wait for a node, or are chosen otherwise: of one snapshot after another, what differs is tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from haru.engine import Snapshot
from haru.engine.state import Mark, PodInfo, mark_of, written_since


def pending_pods(snapshot: Snapshot) -> Mapping[str, PodInfo]:
    """Return the pods without a node that have not ended, by path; also those that are being deleted."""
    return chosen_pods(snapshot, _is_pending)


def waiting_pods(snapshot: Snapshot) -> list[PodInfo]:
    """Return the pending pods that are to be scheduled: those that are not being deleted."""
    return [pod for pod in pending_pods(snapshot).values() if not pod.deleting]


def chosen_pods(snapshot: Snapshot, test: Callable[[PodInfo], bool]) -> Mapping[str, PodInfo]:
    """Return the pods that a test chooses by what they themselves say, by path; the test is a function of a module."""
    return snapshot.decision_cache.get_or_compute("chosen pods", test, partial(_ChosenPods, test)).of(snapshot.pods)


class _ChosenPods:
    def __init__(self, test: Callable[[PodInfo], bool]) -> None:
        self._test = test
        # One value: pages are made on other threads than explanations. Pods that have gone since are not kept.
        self._known: tuple[Mark | None, Mapping[str, PodInfo]] = (None, {})

    def of(self, pods: Mapping[str, PodInfo]) -> Mapping[str, PodInfo]:
        """Go on to other pods; return those of them that are chosen."""
        mark, chosen = self._known
        written = written_since(pods, mark)
        if written is None:
            chosen = {path: pod for path, pod in pods.items() if self._test(pod)}
        elif any(path in chosen or self._is_chosen(pods.get(path)) for path in written):
            found = dict(chosen)
            for path in written:
                pod = pods.get(path)
                if pod is not None and self._test(pod):
                    found[path] = pod
                else:
                    found.pop(path, None)
            chosen = found
        self._known = mark_of(pods), chosen
        return chosen

    def _is_chosen(self, pod: PodInfo | None) -> bool:
        return pod is not None and self._test(pod)


def _is_pending(pod: PodInfo) -> bool:
    return not (pod.node or pod.terminal)
