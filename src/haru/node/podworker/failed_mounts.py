"""Events of volumes that are not set up: each is told again after pauses that double, up to two minutes.

A pod may have a bounded number of events: one that waits for a volume for hours keeps room for what happens next.
Source: the kubelet's retries of volume operations (500 ms, doubled, up to 2 min 2 s), as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from haru.client.events import EventRecorder
from haru.kube.meta import Obj

_FIRST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 122.0


class FailedMounts:
    """Tells of the volumes of one pod."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._told: dict[str, tuple[float, float]] = {}
        """By text: when it may be told again, and the pause before that."""

    def tell(self, pod: Obj, problems: Sequence[str], now: float) -> None:
        """Tell these problems, unless they were told a moment ago; others are over."""
        self._told = {text: told for text, told in self._told.items() if text in problems}
        for text in problems:
            at, pause = self._told.get(text, (now, _FIRST_SECONDS))
            if now >= at:
                self._recorder.event(pod, "Warning", "FailedMount", text)
                self._told[text] = now + pause, min(2 * pause, _LONGEST_SECONDS)
