"""Watch the cluster: apply every event to the scheduler cache and wake the units that it may help.

Each kind has one informer; its handlers apply the object to the cache and then call the `SchedulerContext`.
ResourceSlices are kept only in the engine's compact form: the informer remembers their names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server, retry_unavailable
from haru.client.informer import Informer, Selection, strip_managed_fields
from haru.client.server_version import AS_WRITTEN
from haru.engine import SchedulerCache
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.scheduler.queue import queueing_hints
from haru.scheduler.status.succeeded_members import FinishedMembers

Obj = dict[str, Any]


class SchedulerContext(Protocol):
    """The handlers that events are passed to."""

    def pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A pod appeared, changed or went."""

    def claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A claim appeared, changed or went."""

    def group_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A PodGroup appeared, changed or went."""

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
        if await _may_list_jobs(client):
            kinds["Job"] = known_kind("batch/v1", "Job")
        else:
            missing.append("batch/v1 Job")
    return kinds, missing


async def _may_list_jobs(client: ApiClient) -> bool:
    async def ask() -> int:
        status, _, _ = await client.raw("GET", "/apis/batch/v1/jobs", query=[("limit", "1")])
        if status >= 500 or status == 429:
            raise StatusError(status, "Unknown", f"GET /apis/batch/v1/jobs: the server answered {status}")
        return status

    try:
        return await retry_unavailable(ask) == 200
    except StatusError:
        return False


def _selecting(obj: Obj) -> Obj:
    """What decisions ask of a service or of an owner of pods: whom it selects. The rest would fill the memory."""
    metadata = {name: obj["metadata"].get(name, "") for name in ("name", "namespace", "uid", "resourceVersion")}
    spec = {"selector": (obj.get("spec") or {}).get("selector")}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "spec": spec}


def _run_time(obj: Obj) -> Obj:
    """What decisions ask of a Job: by when it has ended."""
    metadata = {name: obj["metadata"].get(name, "") for name in ("name", "namespace", "uid", "resourceVersion")}
    spec = {"activeDeadlineSeconds": (obj.get("spec") or {}).get("activeDeadlineSeconds")}
    status = {"startTime": (obj.get("status") or {}).get("startTime")}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "spec": spec, "status": status}


_TRANSFORMS = {
    **dict.fromkeys(("Service", "ReplicationController", "ReplicaSet", "StatefulSet"), _selecting),
    "Job": _run_time,
}


class Watchers:
    """Run the informers of one scheduler."""

    def __init__(
        self, client: ApiClient, kinds: dict[str, Kind], cluster: SchedulerCache, context: SchedulerContext
    ) -> None:
        self._cluster = cluster
        self._context = context
        self.informers: dict[str, Informer] = {}
        self._finished: FinishedMembers | None = None
        for name, kind in kinds.items():
            transform = self._take_slice if name == "ResourceSlice" else _TRANSFORMS.get(name, strip_managed_fields)
            selector = "status.phase!=Succeeded,status.phase!=Failed" if name == "Pod" else ""
            informer = Informer(client, kind, Selection(field_selector=selector), transform=transform)
            self.informers[name] = informer
            self._connect(name, informer)
        if "PodGroup" in kinds:
            self._finished = FinishedMembers(client, kinds["Pod"], self._group_finishes)

    async def run(self) -> None:
        """Keep all informers running until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, informer in self.informers.items():
                group.create_task(informer.run(), name=f"scheduler informer {name}")
            if self._finished is not None:
                group.create_task(self._finished.informer.run(), name="scheduler informer of finished pods")

    async def wait_synced(self) -> None:
        """Wait for every first list."""
        for informer in self.informers.values():
            await informer.wait_synced()
        if self._finished is not None:
            await self._finished.informer.wait_synced()

    def _take_slice(self, obj: Obj) -> Obj:
        # The engine keeps slices in columns and interned parts; a second copy as dicts would dwarf it.
        self._cluster.apply(strip_managed_fields(obj))
        metadata = obj["metadata"]
        slim = {name: metadata.get(name, "") for name in ("name", "uid", "resourceVersion")}
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": slim}

    def _connect(self, name: str, informer: Informer) -> None:
        changed: dict[str, Callable[[Obj | None, Obj | None], None]] = {
            "Pod": self._context.pod_changed,
            "ResourceClaim": self._context.claim_changed,
            "PodGroup": self._context.group_changed,
        }
        tell = changed.get(name, self._other_changed(name))

        def on_add(obj: Obj) -> None:
            if name != "ResourceSlice":
                self._cluster.apply(self._as_seen(obj))
            tell(None, obj)

        def on_update(old: Obj, new: Obj) -> None:
            if name != "ResourceSlice":
                self._cluster.apply(self._as_seen(new))
            tell(old, new)

        def on_delete(obj: Obj) -> None:
            self._cluster.remove(obj)
            tell(obj, None)

        informer.add_handler(on_add, on_update, on_delete)

    def _as_seen(self, obj: Obj) -> Obj:
        return self._finished.as_needed(obj) if self._finished is not None and obj["kind"] == "PodGroup" else obj

    def _group_finishes(self, path: str) -> None:
        """Members have succeeded, or are gone: for a group that counts them the quorum is another one."""
        group = self.informers["PodGroup"].store.get(path)
        if group is None:
            return
        seen = self._as_seen(group)
        if seen is not group or self._cluster.snapshot().pod_groups.get(path) is not group:
            self._cluster.apply(seen)
            self._context.group_changed(None, seen)
            self._context.may_help(queueing_hints.QUORUM)

    def _other_changed(self, name: str) -> Callable[[Obj | None, Obj | None], None]:
        return lambda old, new: self._context.may_help(queueing_hints.other_change(name, old, new))
