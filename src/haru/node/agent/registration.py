"""The Node object and the Lease of this machine: created at the start, renewed.

Source: kubelets report a status that changed at once, one that did not every 5 minutes, and renew their Lease every
quarter of its 40 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder, EventType
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, labels_of, owner_reference
from haru.kube.names import format_micro_time, format_time
from haru.node.agent.node_status import (
    Host,
    condition_events,
    node_conditions,
    node_labels,
    node_status,
    not_ready_reasons,
    runtime_fields,
    with_resources_of_others,
)
from haru.node.agent.options import NodeOptions
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.proto import cri_pb2 as cri

_log = logging.getLogger(__name__)
NODES = known_kind("v1", "Node")
CSI_NODES = known_kind("storage.k8s.io/v1", "CSINode")
LEASES = known_kind("coordination.k8s.io/v1", "Lease")
NAMESPACES = known_kind("v1", "Namespace")
LEASE_NAMESPACE = "kube-node-lease"
_OLD_GROUPS = (
    "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. "
    "Please migrate to cgroup v2. More information at "
    "https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
)
_FIXED_LABELS = ("kubernetes.io/arch", "kubernetes.io/os")
_ANSWER_SECONDS = 20.0
"""How long the runtime may take: with the pause between two reports, kubelets' 30 s until it is down."""


class Registration:
    """This node in the API."""

    def __init__(
        self,
        client: ApiClient,
        runtime: RuntimeClient,
        options: NodeOptions,
        host: Host,
        recorder: EventRecorder,
    ) -> None:
        self._client, self._runtime, self._options, self._host = client, runtime, options, host
        self._recorder = recorder
        self._uid = ""
        self._has_told_boot = False
        self._unschedulable = False
        self._reported = 0.0
        self._look = asyncio.Event()
        self.is_ready = False
        self.short_of: Callable[[], Collection[str]] = tuple
        """Conditions of pressure that hold."""

    def report_soon(self) -> None:
        """Report now: something has happened to the machine."""
        self._look.set()

    def tell_start(self, *, old_groups: bool = False) -> None:
        """Tell that the agent has started; `old_groups`: on a machine with control groups of version 1."""
        self.tell("Normal", "Starting", "Starting kubelet.")
        if old_groups:
            self.tell("Warning", "CgroupV1", _OLD_GROUPS)

    async def register(self) -> Obj:
        """Make the node, or take over the one of this name. Raises StatusError, OSError."""
        options = self._options
        meta = {"name": options.name, "labels": node_labels(options, self._host.machine)}
        spec: Obj = (
            {"taints": [dict(taint) for taint in options.registration.taints]} if options.registration.taints else {}
        )
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
        try:
            stored = await self._client.create(NODES, node)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            stored = await self._client.get(NODES, options.name)
            wanted = node_labels(options, self._host.machine)
            missing = {key: value for key, value in wanted.items() if labels_of(stored).get(key) != value}
            if missing:
                stored = await self._client.patch(NODES, options.name, {"metadata": {"labels": missing}})
        self._uid = stored["metadata"]["uid"]
        await self._tell_drivers()
        return stored

    async def _tell_drivers(self) -> None:
        """Say that the node has no storage drivers: without its CSINode nobody can know. Raises OSError."""
        name = self._options.name
        owner = owner_reference({"metadata": {"name": name, "uid": self._uid}}, NODES, controller=False)
        meta = {"name": name, "ownerReferences": [owner]}
        body: Obj = {"apiVersion": CSI_NODES.api_version, "kind": CSI_NODES.kind, "metadata": meta}
        try:
            await self._client.create(CSI_NODES, {**body, "spec": {"drivers": []}})
        except StatusError as error:
            if error.reason != "AlreadyExists":
                _log.warning("CSINode %s was not made: %s", name, error)

    async def report(self, *, force: bool = False) -> None:
        """Write the status if it has changed, or if that is due. Raises StatusError, OSError."""
        stored = await self._client.get(NODES, self._options.name)
        if stored["metadata"]["uid"] != self._uid:
            stored = await self.register()
        self._tell_unschedulable(stored)
        await self._keep_labels(stored)
        wanted = await self._status(stored)
        patch = _difference(stored.get("status") or {}, wanted)
        now = asyncio.get_running_loop().time()
        if not patch and not force and now - self._reported < self._options.intervals.report_seconds:
            return
        patch["conditions"] = wanted["conditions"]
        body = {"metadata": {"uid": self._uid}, "status": patch}
        await self._client.patch(NODES, self._options.name, body, type="strategic", subresource="status")
        self._reported = now
        self._tell_boot(stored)
        for reason in condition_events(stored, wanted["conditions"]):
            self.tell("Normal", reason, f"Node {self._options.name} status is now: {reason}")

    async def _keep_labels(self, stored: Obj) -> None:
        """Put labels right that say what kind of machine this is, by which pods choose it."""
        wanted = node_labels(self._options, self._host.machine)
        wrong = {name: wanted[name] for name in _FIXED_LABELS if labels_of(stored).get(name) != wanted[name]}
        if wrong:
            await self._client.patch(NODES, self._options.name, {"metadata": {"labels": wrong}})

    def tell(self, type: EventType, reason: str, message: str) -> None:
        """Tell an event of the node."""
        name = self._options.name
        about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}}
        self._recorder.event(about, type, reason, message)

    def _tell_boot(self, stored: Obj) -> None:
        """Tell once that the machine has been started anew since this node was last reported."""
        before = ((stored.get("status") or {}).get("nodeInfo") or {}).get("bootID")
        boot, told = self._host.machine.boot_id, self._has_told_boot
        self._has_told_boot = True
        if before and boot and before != boot and not told:
            self.tell("Warning", "Rebooted", f"Node {self._options.name} has been rebooted, boot id: {boot}")

    def _tell_unschedulable(self, stored: Obj) -> None:
        """Tell when an operator cordons the node, and when it takes pods again."""
        now = bool((stored.get("spec") or {}).get("unschedulable"))
        if now != self._unschedulable:
            reason = "NodeNotSchedulable" if now else "NodeSchedulable"
            self.tell("Normal", reason, f"Node {self._options.name} status is now: {reason}")
        self._unschedulable = now

    async def _status(self, stored: Obj) -> Obj:
        answer: cri.StatusResponse | None = None
        images: list[cri.Image] = []
        version, failure = cri.VersionResponse(), ""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await self._runtime.status()
                version = await self._runtime.version()
                images = await self._runtime.images()
        except CriError as error:
            failure = str(error)
        except TimeoutError:
            answer, failure = None, f"no answer within {_ANSWER_SECONDS:.0f} s"
        reasons = not_ready_reasons(answer, failure)
        self.is_ready = not reasons
        wanted = with_resources_of_others(node_status(self._options, self._host, version, images), stored)
        if answer is None:
            # What cannot be asked for now is left as it was.
            for field in ("images", "nodeInfo"):
                wanted.pop(field)
        else:
            wanted |= runtime_fields(answer)
        wanted["conditions"] = node_conditions(stored, reasons, self.short_of(), format_time(datetime.now(UTC)))
        return wanted

    async def run(self) -> None:
        """Renew the Lease and report until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._repeat(self._options.intervals.lease_seconds / 4, self.renew, "lease", asyncio.Event())
            )
            group.create_task(self._repeat(self._options.intervals.status_seconds, self.report, "status", self._look))

    async def _repeat(self, seconds: float, work: Any, what: str, sooner: asyncio.Event) -> None:
        while True:
            try:
                await work()
            except (StatusError, OSError) as error:
                _log.warning("node %s: %s: %s", self._options.name, what, error)
            except Exception:
                _log.exception("node %s: %s", self._options.name, what)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await sooner.wait()
            sooner.clear()

    async def renew(self) -> None:
        """Renew the Lease, or make it. Raises StatusError, OSError."""
        name, now = self._options.name, format_micro_time(datetime.now(UTC))
        owner = owner_reference({"metadata": {"name": name, "uid": self._uid}}, NODES, controller=False)
        spec = {"holderIdentity": name, "leaseDurationSeconds": self._options.intervals.lease_seconds, "renewTime": now}
        body: Obj = {"metadata": {"ownerReferences": [owner]}, "spec": spec}
        try:
            await self._client.patch(LEASES, name, body, LEASE_NAMESPACE)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._create_lease(body)

    async def _create_lease(self, body: Obj) -> None:
        meta = {**body["metadata"], "name": self._options.name, "namespace": LEASE_NAMESPACE}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": body["spec"]}
        try:
            await self._client.create(LEASES, lease)
        except StatusError as error:
            if error.code != 404:
                raise
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
            await self._client.create(NAMESPACES, namespace)
            await self._client.create(LEASES, lease)


def _difference(stored: Obj, wanted: Obj) -> Obj:
    """What differs, times of heartbeats aside."""
    patch = {key: value for key, value in wanted.items() if key != "conditions" and stored.get(key) != value}
    for key in {"capacity", "allocatable"} & patch.keys():
        # Maps are merged: a resource that has gone is said to be null.
        patch[key] = {**dict.fromkeys(stored.get(key) or {}), **patch[key]}
    had = {one["type"]: (one.get("status"), one.get("reason")) for one in stored.get("conditions") or ()}
    if any(had.get(one["type"]) != (one["status"], one["reason"]) for one in wanted["conditions"]):
        patch["conditions"] = wanted["conditions"]
    return patch
