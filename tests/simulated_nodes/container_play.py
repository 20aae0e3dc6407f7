"""A pod without a cluster, whose simulated kubelet acts whenever something is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from haru.kube.simulated_containers.executed import executed_in
from haru.kube.simulated_containers.files import PodSources
from haru.simulated_nodes.containers import Event, PodRuns, advance
from haru.simulated_nodes.pod_scripts import scripts_of

Obj = dict[str, Any]
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def container(name: str = "c", script: str = "", image: str = "i", **more: Any) -> Obj:
    return {"name": name, "image": image, **({"command": ["sh", "-c", script]} if script else {}), **more}


class Play:
    """A pod whose kubelet acts whenever something is due."""

    def __init__(self, *containers: Obj, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        meta = {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations or {}}
        self.pod: Obj = {"metadata": meta, "spec": {"containers": list(containers), **spec}, "status": {}}
        self.runs, self.now = PodRuns(), BEGINNING
        self.events: list[Event] = []
        self.writes = 0
        self.until(0)

    def until(self, seconds: float) -> Obj:
        """The status at that time."""
        end = BEGINNING + timedelta(seconds=seconds)
        while True:
            due = self._sync()
            if due is None or self.now + timedelta(seconds=due) > end:
                self.now = end
                return self.pod["status"]
            assert due > 0
            self.now += timedelta(seconds=due)

    def _sync(self) -> float | None:
        sources = PodSources(executed=executed_in(self.pod))
        scripts = scripts_of(self.pod, sources)
        assert scripts is not None
        status, events, due = advance(self.pod, scripts, self.runs, self.now, sources)
        self.events += events
        if status is not None:
            self.writes += 1
            kept = {one["type"]: one for one in self.pod["status"].get("conditions") or ()}
            kept |= {one["type"]: one for one in status["conditions"]}
            self.pod["status"] = {**self.pod["status"], **status, "conditions": list(kept.values())}
        return due

    def one(self, name: str = "c") -> Obj:
        status = self.pod["status"]
        members = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        every = [entry for member in members for entry in status.get(member, ())]
        return next(entry for entry in every if entry["name"] == name)

    def condition(self, type_: str) -> tuple[str, str | None]:
        return next((c["status"], c["reason"]) for c in self.pod["status"]["conditions"] if c["type"] == type_)

    def told(self, reason: str) -> list[str]:
        return [event.message for event in self.events if event.reason == reason]
