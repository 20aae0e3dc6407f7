"""What kubelets tell as events of pods: containers pulled, created and started, and stopped.

A fleet stands for very many kubelets, each of which would be held to a rate of its own; all of them together share one
budget here, so that thousands of pods that start at once are not followed by thousands of events.
Source: kubelet, as behaviour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from haru.client.events import EventRecorder
from haru.kube.container_events import CREATED, STARTED, container_of, image_is_present
from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of, statuses_of
from haru.kube.pod_resize import event_message
from haru.kube.simulated_containers.stop_traps import hook_fails
from haru.simulated_nodes.containers import Event

BURST: Final = 150.0
PER_SECOND: Final = 15.0


class PodEvents:
    """Records what happens to pods, as long as the budget lasts."""

    def __init__(self, recorder: EventRecorder, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._recorder = recorder
        self._monotonic = monotonic
        self._left = BURST
        self._at = monotonic()

    def started(self, pod: Obj) -> None:
        """Every container was started from an image that was there."""
        spec = pod.get("spec") or {}
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        if not self._afford(3 * len(containers)):
            return
        for container in containers:
            about = container_of(pod, container["name"])
            self._tell(about, "Pulled", image_is_present(container.get("image") or ""))
            self._tell(about, "Created", CREATED)
            self._tell(about, "Started", STARTED)

    def tell(self, pod: Obj, events: Sequence[Event]) -> None:
        """What happened to containers."""
        if events and self._afford(len(events)):
            for type_, reason, message, name in events:
                self._recorder.event(container_of(pod, name), type_, reason, message)

    def resized(self, pod: Obj) -> None:
        """A pod got what its spec asks for."""
        if self._afford(2):
            self._tell(pod, "ResizeStarted", event_message(pod, "started"))
            self._tell(pod, "ResizeCompleted", event_message(pod, "completed"))

    def resize_deferred(self, pod: Obj, reason: str, problem: str) -> None:
        """The node has no room for what the spec asks for."""
        if self._afford(1):
            self._recorder.event(pod, "Warning", "ResizeDeferred", event_message(pod, reason, problem))

    def stopped(self, pod: Obj) -> None:
        """The containers of a pod that is being deleted were told to stop."""
        statuses = statuses_of(pod)
        running = {name for name, one in statuses.items() if "running" in (one.get("state") or {})}
        containers = [one for one in containers_of(pod.get("spec") or {}) if one["name"] in running]
        if self._afford(len(containers)):
            for container in containers:
                about = container_of(pod, container["name"])
                self._tell(about, "Killing", f"Stopping container {container['name']}")
                if hook_fails(pod, container):
                    self._recorder.event(about, "Warning", "FailedPreStopHook", "PreStopHook failed")

    def _tell(self, about: Obj, reason: str, message: str) -> None:
        self._recorder.event(about, "Normal", reason, message)

    def _afford(self, count: int) -> bool:
        now = self._monotonic()
        self._left = min(BURST, self._left + (now - self._at) * PER_SECOND)
        self._at = now
        if self._left < count:
            return False
        self._left -= count
        return True
