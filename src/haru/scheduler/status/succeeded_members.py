"""Which members of each group have succeeded: the scheduler's other informers know only pods that still live.

Source: `haru.engine.podgroup.podgroup_info`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from haru.client.api import ApiClient
from haru.client.informer import Informer, Selection
from haru.engine.podgroup import as_needed
from haru.gangs import names_gang
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

_PLACE = "scheduler.haru.dev/group"


_NAMES = ("labels", "annotations", "ownerReferences")
"""What other projects name a gang in."""


def _slim(pod: Obj) -> Obj:
    """Nothing but who the pod is and which group it belongs to: there may be many that have ended."""
    if _PLACE in pod:
        return pod
    metadata = {name: pod["metadata"].get(name, "") for name in ("name", "namespace", "uid", "resourceVersion")}
    group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""
    slim = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, _PLACE: group}
    if group or not names_gang(pod):
        return slim
    named = {name: pod["metadata"][name] for name in _NAMES if name in pod["metadata"]}
    return {**slim, "metadata": {**metadata, **named}, "status": {"phase": "Succeeded"}}


class FinishedMembers:
    """How many members of each group have succeeded; `changed` hears the path of a group whose number changed."""

    def __init__(self, client: ApiClient, pods: Kind, changed: Callable[[str], None]) -> None:
        ended = Selection(field_selector="status.phase=Succeeded")
        self.informer = Informer(client, pods, ended, transform=_slim)
        self._by_group: dict[str, set[str]] = {}
        self._changed = changed
        self.informer.add_handler(self._add, on_delete=self._remove)

    def as_needed(self, group: Obj) -> Obj:
        """A PodGroup as quorum is to see it now."""
        return as_needed(group, len(self._by_group.get(_path(group["metadata"], group["metadata"]["name"]), ())))

    def _add(self, pod: Obj) -> None:
        if pod[_PLACE]:
            path = _path(pod["metadata"], pod[_PLACE])
            self._by_group.setdefault(path, set()).add(pod["metadata"]["uid"])
            self._changed(path)

    def _remove(self, pod: Obj) -> None:
        path = _path(pod["metadata"], pod[_PLACE])
        members = self._by_group.get(path)
        if members is not None:
            members.discard(pod["metadata"]["uid"])
            if not members:
                del self._by_group[path]
            self._changed(path)


def _path(metadata: Mapping[str, Any], name: str) -> str:
    return f"{metadata.get('namespace', '')}/{name}"
