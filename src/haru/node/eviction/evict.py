"""Ending a pod for others: its worker ends it, an event, a count and the log say so."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from haru.client.events import EventRecorder
from haru.kube.node_admission import EVICTED
from haru.node.podworker.worker import PodWorker

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a pod goes, and within how many seconds."""

    signal: str
    message: str
    grace: float = 1.0
    disruption: str = ""
    """What its condition says of a pod that goes for others; none for one that exceeds its own limits."""
    annotations: Mapping[str, str] | None = None
    """Of the event."""
    reason: str = EVICTED


def evict(worker: PodWorker, why: Eviction, recorder: EventRecorder, counts: Counter[str]) -> bool:
    """Evict a pod and tell of it; whether it did not end anyway. `counts` is by signal."""
    pod = worker.evictable
    if pod is None or not worker.evict(why.reason, why.message, why.grace, why.disruption):
        return False
    recorder.event(pod, "Warning", why.reason, why.message, annotations=why.annotations)
    counts[why.signal] += 1
    _log.info("pod %s: %s", worker.uid, why.message.strip())
    return True
