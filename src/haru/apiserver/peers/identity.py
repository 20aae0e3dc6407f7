"""Who is there: a Lease in kube-system for each API server, which everybody may read and nobody is routed by.

A Lease carries a holder that changes with every start of the process; the others then ask anew what it serves. It is
renewed every ten seconds and removed at an orderly end; those of servers that ended otherwise are collected once an
hour, when they have run out.
Source: API server identity (KEP 1965), with the clean-up of Kubernetes 1.36, as behaviour.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import struct
import uuid
from datetime import datetime, timedelta

from haru.apiserver.encoding.objects import shared
from haru.apiserver.registry.loopback import Loopback
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import format_micro_time, parse_time
from haru.storage import CompareFailed, Delete

COMPONENT = "kube-apiserver"
LABEL = "apiserver.kubernetes.io/identity"
ADDRESS = "kubernetes.io/peer-advertise-address"
NAMESPACE = "kube-system"
PREFIX = f"leases.coordination.k8s.io/{NAMESPACE}/"
LEASE_SECONDS = 3600
RENEW_SECONDS = 10.0
COLLECT_SECONDS = 3600.0
_LOG = logging.getLogger("haru.apiserver")


def server_id(hostname: str) -> str:
    """The name of the API server of a host: 26 characters in base 32 of a digest, behind `apiserver-`."""
    parts = (hostname.encode(), COMPONENT.encode())
    data = b"".join(struct.pack(">H", len(part)) + part for part in parts)
    digest = hashlib.sha256(data).digest()[:16]
    return "apiserver-" + base64.b32encode(digest).decode().rstrip("=").lower()


def is_identity(lease: Obj) -> bool:
    """Whether a Lease is that of an API server."""
    return (lease["metadata"].get("labels") or {}).get(LABEL) == COMPONENT


def has_run_out(lease: Obj, now: datetime) -> bool:
    """Whether a Lease has not been renewed in its time, or does not say."""
    spec = lease.get("spec") or {}
    try:
        renewed = parse_time(spec["renewTime"])
        return renewed + timedelta(seconds=spec["leaseDurationSeconds"]) < now
    except (KeyError, ValueError, TypeError):
        return True


class Identity:
    """The Lease of one server."""

    def __init__(self, loopback: Loopback, hostname: str) -> None:
        self._loopback, self._objects = loopback, loopback.objects
        self._hostname = hostname
        self.name = server_id(hostname)
        self.holder = f"{self.name}_{uuid.uuid4()}"
        self._address = ""

    async def claim(self, address: str) -> None:
        """Write the Lease of this start; `address` (`ip:port`) is told. One of an earlier start is dropped first."""
        self._address = address
        await self._warn_of_a_namesake()
        await self._drop()
        await self._loopback.ensure(self._lease())

    async def _warn_of_a_namesake(self) -> None:
        """Two servers of one name take each other for themselves: neither forwards anything to the other."""
        record = await self._objects.store.get(f"{PREFIX}{self.name}")
        if record is None:
            return
        lease = shared(record)
        told = (lease["metadata"].get("annotations") or {}).get(ADDRESS)
        soon = {**lease, "spec": {**(lease.get("spec") or {}), "leaseDurationSeconds": int(2 * RENEW_SECONDS)}}
        if told != self._address and not has_run_out(soon, self._objects.clock()):
            _LOG.warning(
                "another API server at %s has this one's hostname %s, or has just ended without saying so: "
                "several on one machine need a --hostname-override each",
                told,
                self._hostname,
            )

    async def renew(self) -> None:
        """Say that the server is still there; a Lease that somebody has deleted is written again."""

        async def make(live: Obj) -> Obj:
            renewed = {"renewTime": format_micro_time(self._objects.clock()), "leaseDurationSeconds": LEASE_SECONDS}
            return {**live, "spec": {**(live.get("spec") or {}), **renewed}}

        try:
            await self._loopback.update(self._lease(), make)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._loopback.ensure(self._lease())

    async def withdraw(self) -> None:
        """Remove the Lease, if it is still that of this start."""
        await self._drop(holder=self.holder)

    async def collect(self) -> int:
        """Remove the Leases of servers that have ended without doing so; how many those were."""
        removed = 0
        for record in (await self._objects.store.range(PREFIX)).records:
            lease = shared(record)
            if is_identity(lease) and has_run_out(lease, self._objects.clock()):
                try:
                    await self._objects.store.transact(Delete(record.key, record.revision))
                    removed += 1
                except CompareFailed:
                    continue  # it was renewed meanwhile, or another server was faster
        if removed:
            _LOG.info("removed %d Leases of API servers that are gone", removed)
        return removed

    async def _drop(self, holder: str = "") -> None:
        record = await self._objects.store.get(f"{PREFIX}{self.name}")
        if record is None or (holder and (shared(record).get("spec") or {}).get("holderIdentity") != holder):
            return
        try:
            await self._objects.store.transact(Delete(record.key, record.revision))
        except CompareFailed:
            return  # somebody else has changed it: it is not this start's any more

    def _lease(self) -> Obj:
        labels = {LABEL: COMPONENT, "kubernetes.io/hostname": self._hostname}
        metadata = {
            "name": self.name,
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": {ADDRESS: self._address},
        }
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(self._objects.clock()),
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
