"""Evicting a pod: its worker ends it, an event, a count and the log say so."""

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
    is_disruption: bool = False
    """Whether the pod goes for others: its node is under pressure."""
    annotations: Mapping[str, str] | None = None
    """Of the event."""


def evict(worker: PodWorker, why: Eviction, recorder: EventRecorder, counts: Counter[str]) -> bool:
    """Evict a pod and tell of it; whether it did not end anyway. `counts` is by signal."""
    pod = worker.evictable
    if pod is None or not worker.evict(EVICTED, why.message, why.grace, disrupted=why.is_disruption):
        return False
    recorder.event(pod, "Warning", EVICTED, why.message, annotations=why.annotations)
    counts[why.signal] += 1
    _log.info("pod %s: %s", worker.uid, why.message.strip())
    return True
