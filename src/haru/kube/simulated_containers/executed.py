"""What commands have changed that were run in simulated containers, and how a pod's node is told of it. Pure.

Containers are run, probes asked and volumes kept by the node, commands are run by the API server: so the latter writes
into the annotation `executed` what commands write, where a script, a probe or a later pod may look.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj, annotations_of
from haru.kube.pod_containers import containers_of
from haru.kube.simulated_containers.shell_output import Change
from haru.kube.simulated_containers.simulation import DOMAIN

EXECUTED: Final = f"{DOMAIN}/executed"
FILE_SERVER: Final = "test-webserver"
"""The server of `agnhost` that serves the files of its container."""
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_MOST_BYTES: Final = 128 * 1024


class Executed(NamedTuple):
    """What a command has changed that was run in a container after so many restarts; by the names of files."""

    container: str
    restarts: int
    began: datetime
    changes: Sequence[Change]

    def replaces(self, earlier: Executed) -> bool:
        """Whether nothing is left of what an earlier command has changed as soon as this one begins."""
        written = {change.path for change in self.changes if not change.appends and not change.at}
        same = (earlier.container, earlier.restarts) == (self.container, self.restarts)
        return same and all(change.path in written for change in earlier.changes)


def concerns_node(pod: Obj, changes: Sequence[Change]) -> bool:
    """Whether a script or a probe of the pod may look at files, or later pods find them in a volume."""
    spec = pod.get("spec") or {}
    for container in containers_of(spec):
        words = (*(container.get("command") or ()), *(container.get("args") or ()))
        looks = {"exec", "httpGet"} if FILE_SERVER in words else {"exec"}
        if any(looks & (container.get(probe) or {}).keys() for probe in _PROBES) or names_files(container, changes):
            return True
    lasting = {one["name"] for one in spec.get("volumes") or () if outlives_pod(one)}
    return any(change.path.partition(":")[0] in lasting for change in changes)


def names_files(container: Mapping[str, Any], changes: Sequence[Change]) -> bool:
    """Whether the script of a container names files that have changed, or the volumes that they are in."""
    values = (one.get("value") or "" for one in container.get("env") or ())
    words = " ".join((*(container.get("command") or ()), *(container.get("args") or ()), *values))
    names = {change.path.partition(":")[0] for change in changes}
    mounts = [one["mountPath"] for one in container.get("volumeMounts") or () if one["name"] in names]
    return any(name in words for name in (*mounts, *(name for name in names if name.startswith("/"))))


def outlives_pod(volume: Mapping[str, Any]) -> bool:
    """Whether later pods find in a volume what was written there."""
    return bool(place_of(volume))


def place_of(volume: Mapping[str, Any]) -> str:
    """What a volume that outlives pods shows, for the pods of a namespace on one node; empty for any other one."""
    claim, path = volume.get("persistentVolumeClaim"), volume.get("hostPath")
    return f"claim {claim['claimName']}" if claim else f"path {path['path']}" if path else ""


def executed_in(pod: Obj) -> tuple[Executed, ...]:
    """What the annotation of a pod tells; nothing of one that is malformed."""
    try:
        return tuple(
            Executed(str(container), int(restarts), datetime.fromisoformat(began), [_change(*one) for one in changes])
            for container, restarts, began, changes in json.loads(annotations_of(pod).get(EXECUTED) or "[]")
        )
    except (ValueError, TypeError):
        return ()


def with_executed(pod: Obj, more: Executed) -> Obj:
    """The pod whose annotation tells of one command more; the first ones are left out if it becomes too long."""
    told = [*executed_in(pod), more]
    while len((text := _text(told)).encode()) > _MOST_BYTES:
        del told[0]
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), EXECUTED: text}}}


def _text(told: Sequence[Executed]) -> str:
    listed = [
        (
            one.container,
            one.restarts,
            one.began.isoformat(),
            [
                (c.at, c.path, c.text, c.appends, c.every, c.until if math.isfinite(c.until) else None)
                for c in one.changes
            ],
        )
        for one in told
    ]
    return json.dumps(listed, ensure_ascii=False)


def _change(at: float, path: str, text: str | None, appends: bool, every: float, until: float | None) -> Change:
    return Change(float(at), path, text, appends, float(every), math.inf if until is None else float(until))
