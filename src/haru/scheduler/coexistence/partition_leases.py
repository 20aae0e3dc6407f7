"""Check the partitions of Haru's schedulers against each other: each is published on the Lease of its leader.

Leases of all namespaces are compared; those of the own namespace alone where the others may not be listed.
A scheduler whose partition overlaps that of a running one is refused at its start. Of two that started at once the one
whose partition was published later stops. A Lease that is not renewed while it is watched counts for nothing.
Source: our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from haru.client.api import ApiClient
from haru.client.informer import Informer, Selection
from haru.engine import Snapshot
from haru.engine.state import Partition, object_path, published_partition
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, name_of, namespace_of
from haru.kube.partition_names import PARTITION, SINCE
from haru.scheduler.coexistence.overlap import partitions_overlap, shared_devices

_log = logging.getLogger(__name__)
LABELS = {"scheduler.haru.dev/instance": "true"}
_SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())
_LEASES = known_kind("coordination.k8s.io/v1", "Lease")
_LONGEST_LEASE_SECONDS = 60
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 60.0
_SEVERAL = 3


class OverlapError(Exception):
    """Raised for a scheduler whose partition overlaps that of another one."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A scheduler that published its partition. `since`: the revision of that; 0 while it is not written."""

    lease: str
    holder: str
    names: tuple[str, ...]
    partition: Partition
    since: int = 0

    def __str__(self) -> str:
        return f"scheduler {', '.join(self.names)} (Lease {self.lease}, held by {self.holder}; {self.partition})"


def annotations_of(names: Collection[str], partition: Partition) -> dict[str, str]:
    """What a scheduler writes on its Lease."""
    told = {"schedulerNames": sorted(names), "partition": partition.as_dict()}
    return {PARTITION: json.dumps(told, sort_keys=True, separators=(",", ":"))}


def instance_of(lease: Obj) -> Instance | None:
    """The scheduler that holds a Lease; None if it is released, or its holder published no partition."""
    found = published_partition(lease)
    if found is None:
        return None
    annotations, holder = lease["metadata"]["annotations"], str(lease["spec"]["holderIdentity"])
    since = str(annotations.get(SINCE) or "")
    return Instance(object_path(lease), holder, *found, int(since) if since.isdigit() else 0)


class PartitionGuard:
    """Checks the partition of one scheduler. `lease` is the path of its own Lease, which replicas share."""

    def __init__(
        self,
        client: ApiClient,
        lease: str,
        partition: Partition,
        *,
        allow: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`allow`: an overlap is logged, not refused."""
        self._client = client
        self._lease = lease
        self._namespace = ""
        self._partition = partition
        self._allow = allow
        self._sleep = sleep
        self._shown: Mapping[str, Obj] = {}
        self._renewed: set[str] = set()
        self._changed = asyncio.Event()
        self._compared: set[str] = set()
        self._told: set[str] = set()
        self.overlapping = 0
        """How many running schedulers are known to overlap."""

    # -- at the start -------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Look at the Leases once. Raises OverlapError; waits up to a minute to see whether a holder is alive."""
        for lease in await self._leases() or ():
            other = instance_of(lease)
            if other is not None and self._overlaps(other) and await self._is_renewed(lease):
                self._refuse(other)

    async def _leases(self) -> list[Obj] | None:
        """The published Leases, of the own namespace if no others may be listed; None where none may be."""
        why = ""
        for namespace, what in (("", "in other namespaces "), (self._lease.partition("/")[0], "")):
            try:
                items: list[Obj] = (await self._client.list(_LEASES, namespace, label_selector=_SELECTOR))["items"]
            except StatusError as error:
                if error.code not in (401, 403, 404):
                    raise
                why = f"partitions of other schedulers {what}are not compared: {error.message}"
            else:
                self._namespace = namespace
                self._warn(why)
                return items
        self._warn(why)
        return None

    async def _is_renewed(self, lease: Obj) -> bool:
        spec = lease.get("spec") or {}
        patience = min(int(spec.get("leaseDurationSeconds") or 0) + 1, _LONGEST_LEASE_SECONDS)
        _log.info("Lease %s: waiting up to %d s to see whether it is renewed", object_path(lease), patience)
        for _ in range(patience):
            await self._sleep(_LOOK_SECONDS)
            try:
                now = await self._client.get(_LEASES, name_of(lease), namespace_of(lease))
            except StatusError as error:
                if error.code == 404:
                    return False
                raise
            after = now.get("spec") or {}
            if after.get("holderIdentity") != spec.get("holderIdentity"):
                return bool(after.get("holderIdentity")) and instance_of(now) is not None
            if after.get("renewTime") != spec.get("renewTime"):
                return True
        return False

    # -- while it runs ------------------------------------------------------------------------------------------------

    async def watch(self, snapshot: Callable[[], Snapshot]) -> None:
        """Compare with every scheduler that comes or changes, until cancelled. Raises OverlapError."""
        if await self._leases() is None:
            await asyncio.Event().wait()
        informer = Informer(self._client, _LEASES, Selection(self._namespace, _SELECTOR))
        informer.add_handler(on_update=self._updated)
        self._shown = informer.store
        watching = asyncio.create_task(informer.run(), name="scheduler leases")
        try:
            while True:
                self._changed.clear()
                self._compare(snapshot())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_SECONDS):
                        await self._changed.wait()
        finally:
            await cancelled(watching)

    def _updated(self, old: Obj, new: Obj) -> None:
        path = object_path(new)
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if before.get("renewTime") == after.get("renewTime"):
            return
        is_news = path not in self._renewed or instance_of(old) != instance_of(new)
        self._renewed.add(path)
        if is_news:
            self._changed.set()

    def _compare(self, snapshot: Snapshot) -> None:
        own = self._shown.get(self._lease)
        ours = instance_of(own) if own is not None else None
        self.overlapping = 0
        for path in sorted(self._renewed):
            lease = self._shown.get(path)
            other = instance_of(lease) if lease is not None else None
            if other is None or path == self._lease:
                continue
            shared = [str(d) for d in islice(shared_devices(snapshot, self._partition, other.partition), _SEVERAL)]
            if not self._overlaps(other) and not shared:
                continue
            self.overlapping += 1
            # Who came first stays; who cannot tell which of them it is, too.
            later = ours is not None and 0 < other.since < ours.since
            if later and (self._overlaps(other) or other.lease not in self._compared):
                self._refuse(other, shared)
            else:
                # Devices that both see by now are no reason to stop what runs.
                self._tell(other, shared)
            self._compared.add(other.lease)

    # -- what is said -------------------------------------------------------------------------------------------------

    def _overlaps(self, other: Instance) -> bool:
        return other.lease != self._lease and partitions_overlap(self._partition, other.partition)

    def _refuse(self, other: Instance, shared: Iterable[str] = ()) -> None:
        if not self._allow:
            raise OverlapError(
                f"{self._text(other, shared)}: confine both to different nodes, pools, drivers or device classes "
                "(--partition-…), or allow it with --allow-overlapping-partitions"
            )
        self._tell(other, shared)

    def _tell(self, other: Instance, shared: Iterable[str] = ()) -> None:
        self._warn(self._text(other, shared))

    def _warn(self, text: str) -> None:
        if text and text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)

    def _text(self, other: Instance, shared: Iterable[str]) -> str:
        devices = f", for example {', '.join(shared)}" if shared else ""
        return f"this scheduler ({self._partition}) and {other} may allocate the same devices{devices}"
