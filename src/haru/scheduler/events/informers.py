"""Watch the cluster: apply every event to the scheduler cache and wake the units that it may help.

Each kind has one informer; its handlers apply the object to the cache and then call the `SchedulerContext`.
ResourceSlices are kept only in the engine's compact form: the informer remembers their names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server, may_list
from haru.client.informer import Informer, Selection, object_key
from haru.client.server_version import AS_WRITTEN
from haru.engine import SchedulerCache
from haru.engine.state import KeptFields
from haru.gangs import GangTranslator, Translated, as_written, is_translated
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.scheduler.events.event_labels import event_labels
from haru.scheduler.events.foreign_gangs import ForeignGangs
from haru.scheduler.metrics import WITHOUT_EVENT, QueueMetrics
from haru.scheduler.queue import queueing_hints
from haru.scheduler.settings import SchedulerConfig
from haru.scheduler.status.succeeded_members import FinishedMembers


class SchedulerContext(Protocol):
    """The handlers that events are passed to."""

    def pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A pod appeared, changed or went."""

    def claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A claim appeared, changed or went."""

    def group_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A PodGroup appeared, changed or went."""

    def object_changed(self, kind: str, old: Obj | None, new: Obj | None) -> None:
        """A pod or claim appeared, changed or went; after the cache, before the other handlers."""

    def may_help(self, plugins: frozenset[str]) -> None:
        """Something changed that these plugins look at."""


REQUIRED = (
    ("v1", "Pod"),
    ("v1", "Node"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "CSINode"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "CSIStorageCapacity"),
    ("storage.k8s.io/v1", "VolumeAttachment"),
    ("v1", "Service"),
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("policy/v1", "PodDisruptionBudget"),
)
OPTIONAL = (
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("scheduling.k8s.io/v1alpha2", "PodGroup"),
    ("resource.k8s.io/v1beta2", "DeviceTaintRule"),
)


async def served_kinds(client: ApiClient, *, run_times: bool = False) -> tuple[dict[str, Kind], list[str]]:
    """The kinds to watch by name, and those that this server does not serve (`group/version kind`).

    The client is adapted to the server. `run_times`: also Jobs, whose deadlines matter then; if they may not be listed
    they are missing.
    """
    version = client.version if client.version is not AS_WRITTEN else await adapt_to_server(client)
    kinds: dict[str, Kind] = {}
    missing: list[str] = []
    for api_version, name in REQUIRED + OPTIONAL:
        kind = known_kind(api_version, name)
        if (api_version, name) in OPTIONAL and not version.serves(kind):
            missing.append(f"{api_version} {name}")
        else:
            kinds[name] = kind
    if run_times:
        jobs = known_kind("batch/v1", "Job")
        if await may_list(client, jobs):
            kinds["Job"] = jobs
        else:
            missing.append("batch/v1 Job")
    return kinds, missing


_OF_METADATA = ("name", "namespace", "uid", "resourceVersion")
_OF_MAKERS = ("replicas", "podManagementPolicy", "ordinals")
_OF_JOBS = ("activeDeadlineSeconds", "parallelism", "completions", "managedBy")


def _selecting(obj: Obj) -> Obj:
    """What decisions and explanations ask of a service or of who makes pods. The rest would fill the memory."""
    spec = obj.get("spec") or {}
    kept = {"selector": spec.get("selector"), **{name: spec[name] for name in _OF_MAKERS if name in spec}}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": _metadata(obj), "spec": kept}


def _run_time(obj: Obj) -> Obj:
    """What decisions and explanations ask of a Job: by when it has ended, and who says how many pods it runs."""
    spec = {name: value for name, value in (obj.get("spec") or {}).items() if name in _OF_JOBS}
    metadata = {**_metadata(obj), "labels": obj["metadata"].get("labels") or {}}
    status = {"startTime": (obj.get("status") or {}).get("startTime")}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "spec": spec, "status": status}


def _metadata(obj: Obj) -> Obj:
    kept = {name: obj["metadata"].get(name, "") for name in _OF_METADATA}
    owners = obj["metadata"].get("ownerReferences")
    return {**kept, "ownerReferences": owners} if owners else kept


TRANSFORMS = {
    **dict.fromkeys(("Service", "ReplicationController", "ReplicaSet", "StatefulSet"), _selecting),
    "Job": _run_time,
}
"""What the scheduler keeps of objects that it reads little of."""


class Watchers:
    """Run the informers of one scheduler."""

    def __init__(
        self,
        client: ApiClient,
        kinds: dict[str, Kind],
        cluster: SchedulerCache,
        context: SchedulerContext,
        config: SchedulerConfig,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._cluster = cluster
        self._translator = GangTranslator((), native=config.native_groups)
        self._shown: dict[str, Obj] = {}
        """The pods of gangs of other projects, by path, as they were last shown."""
        self.foreign = ForeignGangs(client, config.gang_adapters, self._translator, self._take, self._show_again)
        self._context = context
        self.informers: dict[str, Informer] = {}
        self._finished: FinishedMembers | None = None
        # What others in this process have anyway takes less as it is than with parts of its own.
        kept = {} if client.shared is not None else KeptFields().transforms
        transforms = {**TRANSFORMS, **kept, "ResourceSlice": self._take_slice}
        for name, kind in kinds.items():
            transform = transforms.get(name)
            selector = "status.phase!=Succeeded,status.phase!=Failed" if name == "Pod" else ""
            selection = Selection(field_selector=selector)
            informer = Informer(client, kind, selection, transform=transform)
            self.informers[name] = informer
            self._connect(name, informer)
        if "PodGroup" in kinds or config.gang_adapters:
            self._finished = FinishedMembers(client, kinds["Pod"], self._group_finishes)
            self._finished.informer.add_handler(self._member_finished, on_delete=self._finished_member_gone)

    async def run(self) -> None:
        """Keep all informers running until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, informer in self.informers.items():
                group.create_task(informer.run(), name=f"scheduler informer {name}")
            if self._finished is not None:
                group.create_task(self._finished.informer.run(), name="scheduler informer of finished pods")
            group.create_task(self.foreign.run(), name="scheduler informers of other projects")

    async def wait_synced(self) -> None:
        """Wait for every first list."""
        for informer in self.informers.values():
            await informer.wait_synced()
        if self._finished is not None:
            await self._finished.informer.wait_synced()
        await self.foreign.wait_synced()

    def _take_slice(self, obj: Obj) -> Obj:
        # The engine keeps slices in columns and interned parts; a second copy as dicts would dwarf it.
        self._cluster.apply(obj)
        metadata = obj["metadata"]
        slim = {name: metadata.get(name, "") for name in ("name", "uid", "resourceVersion")}
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": slim}

    def _connect(self, name: str, informer: Informer) -> None:
        changed: dict[str, Callable[[Obj | None, Obj | None], None]] = {
            "ResourceClaim": self._context.claim_changed,
        }
        tell = changed.get(name, self._other_changed(name))
        if name == "ResourceClaim":
            tell = self._also_for_others(name, tell)

        def handle(old: Obj | None, new: Obj | None) -> None:
            if name in ("Pod", "PodGroup"):
                self._translate(old, new)
                if name == "Pod":
                    self._context.object_changed(name, old, new)
                return
            if new is None:
                self._cluster.remove(old or {})
            elif name != "ResourceSlice":
                self._cluster.apply(new)
            tell(old, new)

        def measure(old: Obj | None, new: Obj | None) -> None:
            if self._metrics is None:
                handle(old, new)
                return
            began, labels = self._metrics.clock(), event_labels(name, old, new)
            self._metrics.event = labels[0]
            try:
                handle(old, new)
            finally:
                self._metrics.event = WITHOUT_EVENT
                self._metrics.handled(labels, self._metrics.clock() - began)

        informer.add_handler(lambda obj: measure(None, obj), measure, lambda obj: measure(obj, None))

    def _also_for_others(
        self, name: str, tell: Callable[[Obj | None, Obj | None], None]
    ) -> Callable[[Obj | None, Obj | None], None]:
        def both(old: Obj | None, new: Obj | None) -> None:
            self._context.object_changed(name, old, new)
            tell(old, new)

        return both

    def _translate(self, old: Obj | None, new: Obj | None) -> None:
        """Take in an event of a pod or a PodGroup, as its gang makes of it."""
        if new is not None:
            self._take(self._translator.apply(new), old, is_new=old is None)
        elif old is not None:
            self._take(self._translator.remove(old))

    def _take(self, told: Translated, old: Obj | None = None, *, is_new: bool = False) -> None:
        """Take in what an event comes to; `old` is the object before it, `is_new` that there was none."""
        for obj in told.changed:
            if obj["kind"] == "PodGroup":
                self._group_comes(old, obj)
            else:
                self._pod_comes(old, obj, is_new=is_new)
        for obj in told.removed:
            self._cluster.remove(obj)
            if obj["kind"] == "PodGroup":
                self._context.group_changed(obj, None)
                self._context.may_help(queueing_hints.group_change(obj, None, self._cluster.now))
            else:
                self._shown.pop(object_key(obj), None)
                self._context.pod_changed(obj, None)

    def _group_comes(self, old: Obj | None, new: Obj) -> None:
        self._see_group(self._as_seen(new))
        if is_translated(new):
            # Its members are checked again: the quorum may be another one.
            self._context.group_changed(None, new)
            self._context.may_help(queueing_hints.QUORUM)
        else:
            self._context.group_changed(old, new)

    def _see_group(self, new: Obj) -> None:
        before = self._cluster.now.pod_groups.get(object_key(new))
        self._cluster.apply(new)
        self._context.may_help(queueing_hints.group_change(before, new, self._cluster.now))

    def _pod_comes(self, old: Obj | None, new: Obj, *, is_new: bool) -> None:
        path = object_key(new)
        before = self._shown.pop(path, None)
        if as_written(new) is not new:
            self._shown[path] = new
        if before is None and old is None and not is_new:
            # What describes its gang has come: until now it was seen as its author wrote it.
            known = self._cluster.now.pods.get(path)
            before = known.obj if known is not None else None
        self._cluster.apply(new)
        self._context.pod_changed(before or old, new)

    def _show_again(self) -> None:
        """Show all pods as other adapters have them."""
        for pod in list(self.informers["Pod"].store.values()):
            self._take(self._translator.apply(pod))
        if self._finished is not None:
            for pod in list(self._finished.informer.store.values()):
                self._member_finished(pod)

    def _member_finished(self, pod: Obj) -> None:
        self._take(self._translator.finished(pod))

    def _finished_member_gone(self, pod: Obj) -> None:
        self._take(self._translator.finished_gone(pod))

    def _as_seen(self, obj: Obj) -> Obj:
        return self._finished.as_needed(obj) if self._finished is not None and not is_translated(obj) else obj

    def _group_finishes(self, path: str) -> None:
        """Members have succeeded, or are gone: for a group that counts them the quorum is another one."""
        group = self.informers["PodGroup"].store.get(path) if "PodGroup" in self.informers else None
        if group is None:
            return
        seen = self._as_seen(group)
        if seen is not group or self._cluster.now.pod_groups.get(path) is not group:
            self._see_group(seen)
            self._context.group_changed(None, seen)
            self._context.may_help(queueing_hints.QUORUM)

    def _other_changed(self, name: str) -> Callable[[Obj | None, Obj | None], None]:
        return lambda old, new: self._context.may_help(queueing_hints.other_change(name, old, new))
