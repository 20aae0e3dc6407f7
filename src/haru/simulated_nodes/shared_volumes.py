"""Volumes that outlive a pod: what pods of simulated nodes have left there, and what the next one finds.

They are directories of nodes (`hostPath`) and volumes of PersistentVolumeClaims. What was in them before any pod wrote
there is known only of those that are made empty: a directory that is created for the pod, a claim of the simulated
provisioner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cachetools import LRUCache

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, annotations_of, name_of, namespace_of, uid_of
from haru.kube.names import parse_time
from haru.kube.pod_containers import containers_of, statuses_of
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.simulated_containers.container_shell import files_after
from haru.kube.simulated_containers.executed import outlives_pod
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources, VolumeContents
from haru.kube.simulated_containers.found_files import FOUND, begins_empty, found_annotation, found_in
from haru.kube.simulated_containers.stop_traps import changed_on_stop
from haru.kube.simulated_containers.text import as_printed, shifted
from haru.simulated_nodes.nodes import SimulatedNode

PODS: Final = known_kind("v1", "Pod")
CLAIMS: Final = known_kind("v1", "PersistentVolumeClaim")
_MOST_PLACES: Final = 1024
_WHOLE_SECOND: Final = timedelta(seconds=1)
"""Statuses tell whole seconds."""
_ABSENT: Final = (403, 404)


@dataclass(slots=True)
class _Claim:
    """A claim that pods have, by their uids: as long as there is one, it is not deleted."""

    place: str
    pods: set[str] = field(default_factory=set)


class SharedVolumes:
    """The files of places that pods share one after the other, by the path in the place."""

    def __init__(self, as_node: Callable[[str], ApiClient], now: Callable[[], datetime]) -> None:
        self._as_node, self._now = as_node, now
        self._left: LRUCache[str, VolumeContents] = LRUCache(_MOST_PLACES)
        self._places: dict[str, Mapping[str, str]] = {}
        """By the uid of a pod: the place behind each of its volumes."""
        self._found: dict[str, Mapping[str, VolumeContents]] = {}
        self._claims: dict[str, _Claim] = {}

    async def found_by(self, pod: Obj, node: SimulatedNode) -> Mapping[str, VolumeContents]:
        """What a pod has found in its volumes when it began, by their names; of others nothing is known."""
        uid = uid_of(pod)
        if uid not in self._found:
            shared = [one for one in pod["spec"].get("volumes") or () if outlives_pod(one)]
            if not shared:
                return {}
            places = {one["name"]: place for one in shared if (place := await self._place(pod, one, node))}
            found = {name: self._left[place] for name, place in places.items() if place in self._left}
            self._places[uid], self._found[uid] = places, {**found, **found_in(pod)}
            if (text := found_annotation(found)) and FOUND not in annotations_of(pod):
                await self._annotate(pod, node, text)
        return self._found[uid]

    async def _annotate(self, pod: Obj, node: SimulatedNode, text: str) -> None:
        """Tell the API server, which runs commands, what the pod has found."""
        patch = {"metadata": {"uid": uid_of(pod), "annotations": {FOUND: text}}}
        try:
            await self._as_node(node.name).patch(
                PODS, name_of(pod), patch, namespace_of(pod), type="strategic", subresource="status"
            )
        except StatusError as error:
            if error.code not in (*_ABSENT, 409):
                raise

    def ended(self, pod: Obj, sources: PodSources = NO_SOURCES) -> None:
        """The pod has ended: keep what its containers have written."""
        self._forget_claims(pod)
        found, places = self._found.pop(uid_of(pod), {}), self._places.pop(uid_of(pod), {})
        for container in containers_of(pod["spec"]) if places else ():
            written = self._written(pod, container, replace(sources, found=found))
            for volume, place in places.items():
                own = {name.partition(":")[2]: text for name, text in written.items() if name.startswith(f"{volume}:")}
                before = self._left.get(place) or VolumeContents({}, is_whole=False)
                if own:
                    texts = {path: text for path, text in {**before.texts, **own}.items() if text is not None}
                    self._left[place] = before._replace(texts=texts)

    def _written(self, pod: Obj, container: Mapping[str, Any], sources: PodSources) -> Mapping[str, str | None]:
        """The files of volumes as a container has left them, by volume and path; None for one that it has removed."""
        state = (statuses_of(pod).get(container["name"]) or {}).get("state") or {}
        ran = state.get("terminated") or state.get("running")
        if not ran:
            return {}
        began = parse_time(ran["startedAt"])
        ended = parse_time(ran["finishedAt"]) + _WHOLE_SECOND if "finishedAt" in ran else self._now()
        elapsed = (ended - began).total_seconds()
        try:
            history = files_after(pod, container, sources, elapsed).history
        except (ConfigError, ValueError):
            return {}
        for change in changed_on_stop(pod, container, sources, elapsed) if _was_stopped(pod, ended) else ():
            before = history.get(change.path) if change.appends else None
            text = None if change.text is None else shifted(change.text, elapsed)
            history.write(change.path, f"{before.text or ''}{text}" if before is not None else text)
        names = {f"{volume}:{path}" for volume, one in sources.found.items() for path in one.texts}
        names |= {name for name in history.names() if not name.startswith("/")}
        now = {name: one.text for name in names if (one := history.get(name)) is not None}
        return {name: None if text is None else as_printed(text, began) for name, text in now.items()}

    async def _place(self, pod: Obj, volume: Obj, node: SimulatedNode) -> str:
        """What a volume shows; empty where that can not be known."""
        if "hostPath" in volume:
            place = f"{node.name}:{volume['hostPath']['path']}"
            return self._known(place, is_empty=begins_empty(volume, None))
        key = f"{namespace_of(pod)}/{volume['persistentVolumeClaim']['claimName']}"
        if key not in self._claims:
            try:
                claim = await self._as_node(node.name).get(CLAIMS, key.partition("/")[2], namespace_of(pod))
            except StatusError as error:
                if error.code not in _ABSENT:
                    raise
                return ""
            self._known(uid_of(claim), is_empty=begins_empty(volume, claim))
            self._claims.setdefault(key, _Claim(uid_of(claim)))
        self._claims[key].pods.add(uid_of(pod))
        return self._claims[key].place

    def _forget_claims(self, pod: Obj) -> None:
        for volume in pod["spec"].get("volumes") or ():
            key = f"{namespace_of(pod)}/{(volume.get('persistentVolumeClaim') or {}).get('claimName')}"
            if (claim := self._claims.get(key)) is not None:
                claim.pods.discard(uid_of(pod))
                if not claim.pods:
                    del self._claims[key]

    def _known(self, place: str, *, is_empty: bool) -> str:
        """The place, of which it is known whether there is nothing as long as nobody has written there."""
        if is_empty:
            self._left.setdefault(place, VolumeContents({}, is_whole=True))
        return place


def _was_stopped(pod: Obj, ended: datetime) -> bool:
    """Whether a container of the pod that has ended then was told to, as the pod is deleted."""
    text = pod["metadata"].get("deletionTimestamp")
    grace = timedelta(seconds=pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    return bool(text) and ended >= parse_time(text) - grace
