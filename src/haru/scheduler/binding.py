"""Carrying a decision out: claims are reserved for every member first, then the members are bound.

The order makes a gang whole through any crash: allocation and reservation of all its claims, and the nominated node
of each member, are stored before the first binding is sent. Whoever schedules next finds them and can only finish.
Source: KEP-4381 (PreBind of DynamicResources), KEP-5278 (nominated node name), the Binding subresource.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.client.api import ApiClient
from haru.engine.decision import ClaimAllocation, MemberDecision, PodKey, Reservation
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, by_kind

Obj = dict[str, Any]

FINALIZER = "resource.kubernetes.io/delete-protection"
_CONFLICT_ATTEMPTS = 6
_BIND_ATTEMPTS = 4
_PARALLEL = 16
_ALLOCATION_FIELDS = ("reservedFor", "allocation", "devices")
_log = logging.getLogger(__name__)


def _kind(api_version: str, name: str) -> Kind:
    kind = by_kind(api_version, name)
    if kind is None:
        raise LookupError(f"{api_version} {name} is not a known kind")
    return kind


PODS = _kind("v1", "Pod")
CLAIMS = _kind("resource.k8s.io/v1", "ResourceClaim")


class BindingError(Exception):
    """A member could not be carried to its node; the text says at which write, and why."""


class PodGoneError(BindingError):
    """The pod was deleted, replaced or bound by somebody else: nothing is left to do for it."""


class OutcomeUnknownError(BindingError):
    """The binding was sent but nobody could be asked what became of it: its claims must stay as they are."""


@dataclass(slots=True)
class ClaimWrite:
    """What has to be written to one claim on behalf of the members of one decision."""

    namespace: str
    name: str
    uid: str
    allocation: Obj | None = None
    consumers: list[Obj] = field(default_factory=list)
    pods: set[PodKey] = field(default_factory=set)

    @property
    def path(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def claim_writes(members: Iterable[MemberDecision]) -> dict[str, ClaimWrite]:
    """One write per claim: the allocation and every consumer that the decision adds."""
    writes: dict[str, ClaimWrite] = {}
    for member in members:
        items: tuple[ClaimAllocation | Reservation, ...] = (*member.allocations, *member.reservations)
        for item in items:
            path = f"{item.claim_namespace}/{item.claim_name}"
            write = writes.setdefault(path, ClaimWrite(item.claim_namespace, item.claim_name, item.claim_uid))
            if isinstance(item, ClaimAllocation):
                write.allocation = item.allocation
            if all(known["uid"] != item.reserve_for["uid"] for known in write.consumers):
                write.consumers.append(item.reserve_for)
            write.pods.add(member.pod)
    return writes


def reserved_claim(claim: Obj, write: ClaimWrite, timestamp: str | None) -> Obj:
    """The claim as it must be stored: protected, allocated and reserved. Raises BindingError if it may not be.

    `timestamp` becomes `allocationTimestamp` where the gate DRADeviceBindingConditions is on.
    """
    metadata, status = claim["metadata"], claim.get("status") or {}
    if metadata.get("uid") != write.uid:
        raise BindingError(f"claim {write.path} was replaced by another one of that name")
    if metadata.get("deletionTimestamp"):
        raise BindingError(f"claim {write.path} got deleted in the meantime")
    current = status.get("allocation")
    if current is None and write.allocation is None:
        raise BindingError(f"claim {write.path} lost its allocation in the meantime")
    if current is not None and write.allocation is not None and not same_allocation(current, write.allocation):
        raise BindingError(f"claim {write.path} got allocated elsewhere")
    allocation = current
    if allocation is None:
        allocation = dict(write.allocation or {})
        if timestamp and "allocationTimestamp" not in allocation:
            allocation["allocationTimestamp"] = timestamp
    reserved = list(status.get("reservedFor") or ())
    known = {entry.get("uid") for entry in reserved}
    reserved += [entry for entry in write.consumers if entry["uid"] not in known]
    finalizers = list(metadata.get("finalizers") or ())
    if current is None and FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    result = {**claim, "metadata": dict(metadata), "status": {**status, "allocation": allocation}}
    result["status"]["reservedFor"] = reserved
    if finalizers:
        result["metadata"]["finalizers"] = finalizers
    return result


def same_allocation(left: Obj, right: Obj) -> bool:
    """Whether two allocations are the same but for the time they were made."""
    return {k: v for k, v in left.items() if k != "allocationTimestamp"} == {
        k: v for k, v in right.items() if k != "allocationTimestamp"
    }


class Binder:
    """Writes claims, nominations and bindings. `cached_claim` answers from the informer, without a request."""

    def __init__(
        self,
        client: ApiClient,
        cached_claim: Callable[[str], Obj | None],
        timestamp: Callable[[], str | None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._cached_claim = cached_claim
        self._timestamp = timestamp
        self._sleep = sleep
        self._slots = asyncio.Semaphore(_PARALLEL)

    async def reserve(self, members: Sequence[MemberDecision], nominate: bool) -> dict[PodKey, Exception]:
        """Stores allocations, reservations and (if asked) nominations; returns the members for which that failed."""
        writes = list(claim_writes(members).values())
        outcomes = await asyncio.gather(*(self._write_claim(w) for w in writes), return_exceptions=True)
        failures: dict[PodKey, Exception] = {}
        for write, outcome in zip(writes, outcomes, strict=True):
            if isinstance(outcome, Exception):
                failures.update(dict.fromkeys(write.pods, outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
        if nominate:
            standing = [m for m in members if m.pod not in failures]
            answers = await asyncio.gather(*(self._nominate(m) for m in standing), return_exceptions=True)
            for member, answer in zip(standing, answers, strict=True):
                if isinstance(answer, Exception):
                    failures[member.pod] = answer
                elif isinstance(answer, BaseException):
                    raise answer
        return failures

    async def bind(self, member: MemberDecision) -> None:
        """Sends the binding; an unclear answer is cleared up by reading the pod. Raises BindingError."""
        binding: Obj = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": member.pod.name, "namespace": member.pod.namespace, "uid": member.pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": member.node},
        }
        problem: Exception | None = None
        for attempt in range(_BIND_ATTEMPTS):
            if attempt:
                await self._sleep(0.1 * 2**attempt)
            try:
                async with self._slots:
                    await self._client.create_subresource(
                        PODS, member.pod.name, "binding", binding, member.pod.namespace
                    )
                return
            except StatusError as error:
                if error.code == 404:
                    raise PodGoneError(f"pod {member.pod.path} is gone") from error
                if error.code == 409 and await self._bound_to_ours(member):
                    return
                if error.code < 500:
                    raise BindingError(f"binding of {member.pod.path} to {member.node}: {error}") from error
                problem = error
            except OSError as error:
                problem = error
            if await self._bound_to_ours(member):
                return
        raise OutcomeUnknownError(f"binding of {member.pod.path} to {member.node}: {problem}")

    async def release(self, members: Iterable[MemberDecision]) -> None:
        """Takes back what `reserve` stored for members that will not be bound now. Best effort, bounded."""
        writes = claim_writes(members)
        results = await asyncio.gather(*(self._undo_claim(w) for w in writes.values()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, StatusError | OSError | BindingError):
                raise result

    async def deallocate(self, claim: Obj) -> None:
        """Frees a claim that nobody can use, unless it has changed since it was seen. Best effort."""
        status = {k: v for k, v in (claim.get("status") or {}).items() if k not in _ALLOCATION_FIELDS}
        try:
            async with self._slots:
                await self._free(claim, status)
        except StatusError as error:
            if error.code not in (404, 409):
                _log.warning("freeing claim %s: %s", claim["metadata"]["name"], error)
        except OSError as error:
            _log.warning("freeing claim %s: %s", claim["metadata"]["name"], error)

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _free(self, claim: Obj, status: Obj) -> None:
        claim = await self._client.update_status(CLAIMS, {**claim, "status": status})
        if FINALIZER in (claim["metadata"].get("finalizers") or ()):
            metadata = dict(claim["metadata"])
            metadata["finalizers"] = [f for f in metadata["finalizers"] if f != FINALIZER]
            await self._client.update(CLAIMS, {**claim, "metadata": metadata})

    async def _nominate(self, member: MemberDecision) -> None:
        patch = {"metadata": {"uid": member.pod.uid}, "status": {"nominatedNodeName": member.node}}
        async with self._slots:
            try:
                await self._client.patch(PODS, member.pod.name, patch, member.pod.namespace, "merge", "status")
            except StatusError as error:
                if error.code in (404, 409):
                    raise PodGoneError(f"pod {member.pod.path} is gone") from error
                raise

    async def _bound_to_ours(self, member: MemberDecision) -> bool:
        try:
            pod = await self._client.get(PODS, member.pod.name, member.pod.namespace)
        except StatusError as error:
            if error.code == 404:
                raise PodGoneError(f"pod {member.pod.path} is gone") from error
            return False
        except OSError:
            return False
        if pod["metadata"].get("uid") != member.pod.uid or pod["metadata"].get("deletionTimestamp"):
            raise PodGoneError(f"pod {member.pod.path} is being deleted or was replaced")
        node = (pod.get("spec") or {}).get("nodeName")
        if node and node != member.node:
            raise PodGoneError(f"pod {member.pod.path} was bound to {node} by somebody else")
        return bool(node)

    async def _write_claim(self, write: ClaimWrite) -> Obj:
        claim = self._cached_claim(write.path)
        problem: StatusError | None = None
        for _ in range(_CONFLICT_ATTEMPTS):
            if claim is None:
                claim = await self._read_claim(write)
            wanted = reserved_claim(claim, write, self._timestamp())
            try:
                async with self._slots:
                    if wanted["metadata"].get("finalizers") != claim["metadata"].get("finalizers"):
                        claim = await self._client.update(CLAIMS, {**claim, "metadata": wanted["metadata"]})
                        wanted = reserved_claim(claim, write, self._timestamp())
                    if wanted.get("status") == claim.get("status"):
                        return claim
                    return await self._client.update_status(CLAIMS, wanted)
            except StatusError as error:
                if error.code not in (404, 409):
                    raise
                problem, claim = error, None
        raise BindingError(f"claim {write.path}: {problem}")

    async def _read_claim(self, write: ClaimWrite) -> Obj:
        try:
            return await self._client.get(CLAIMS, write.name, write.namespace)
        except StatusError as error:
            if error.code == 404:
                raise BindingError(f"claim {write.path} got deleted in the meantime") from error
            raise

    async def _undo_claim(self, write: ClaimWrite) -> None:
        ours = {entry["uid"] for entry in write.consumers}
        for _ in range(_CONFLICT_ATTEMPTS):
            claim = await self._read_claim(write)
            status = dict(claim.get("status") or {})
            if claim["metadata"].get("uid") != write.uid or not status:
                return
            left = [entry for entry in status.get("reservedFor") or () if entry.get("uid") not in ours]
            status["reservedFor"] = left
            try:
                async with self._slots:
                    if not left and write.allocation is not None:
                        await self._free(claim, {k: v for k, v in status.items() if k not in _ALLOCATION_FIELDS})
                    else:
                        await self._client.update_status(CLAIMS, {**claim, "status": status})
                return
            except StatusError as error:
                if error.code != 409:
                    raise
