"""Write a decision: first the claims of all members, then the bindings.

The order keeps a gang whole through any crash: the allocation and reservation of all its claims, and the nominated node
of each member whose claims do not say it, are stored before the first binding is sent. The next scheduler finds them
and completes the gang.

A timeout proves nothing: after it, or after an error of the server, the object is read again, and a rollback goes on
until it is certain what is stored. Until then the caller counts the devices as taken. Removing the finalizer of a
claim that turned out unallocated makes a write that is still under way fail, because it expects an older version.
Source: KEP-4381 and KEP-5004 (PreBind of DynamicResources), KEP-5278 (nominated node name), the Binding subresource.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haru.client.api import ApiClient
from haru.client.transforms import strip_managed_fields
from haru.engine.dra import extended_resource_claim_owner
from haru.engine.state import MemberDecision, PodKey
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.scheduler.binding import extended_claim_writes
from haru.scheduler.binding.claim_updates import (
    FINALIZER,
    BindingError,
    ClaimWrite,
    claim_writes,
    freed_status,
    is_place_reserved,
    is_protected_for_nothing,
    reserved_claim,
    same_allocation,
    without_finalizer,
)
from haru.scheduler.binding.extended_claims import ClaimMaker
from haru.scheduler.binding.volume_binder import VolumeBinder
from haru.scheduler.binding.write_retry import ATTEMPTS, CLAIMS, PODS, delay, is_transient
from haru.scheduler.binding.write_slots import WriteSlots
from haru.scheduler.shared import WatchedObjects

__all__ = ["CLAIMS", "PODS", "Binder", "PodGoneError", "is_transient"]

# A server shares itself among requests: with as few as those who create pods have, their pods pile up unbound. Far
# below the 200 mutating requests at a time that kube-apiserver takes.
_PARALLEL = 64
_log = logging.getLogger(__name__)


class PodGoneError(BindingError):
    """Raised for a pod that was deleted, replaced or bound by another scheduler."""


def _never() -> bool:
    return False


def _nothing() -> str:
    return ""


def _uncounted(_status: str) -> None:
    return None


def _unheard(_path: str, _uid: str, _allocation: Obj) -> None:
    return None


@dataclass(frozen=True, slots=True)
class WriteTimes:
    """Times of writes. `claims`: allocations get a timestamp (DRADeviceBindingConditions)."""

    clock: Callable[[], datetime]
    claims: bool = True
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic

    def now(self) -> str:
        """Return the time as the API has it."""
        return format_time(self.clock())

    def allocation_time(self) -> str | None:
        """Return the timestamp of an allocation, if there is to be one."""
        return self.now() if self.claims else None


class Binder:
    """Write claims, nominations and bindings.

    `count` is called with `success` or `failure` for every claim that was to be created; `announce` with path, UID and
    allocation before an allocation is written.
    """

    def __init__(
        self,
        client: ApiClient,
        objects: WatchedObjects,
        times: WriteTimes,
        count: Callable[[str], None] = _uncounted,
        announce: Callable[[str, str, Obj], None] = _unheard,
    ) -> None:
        self._client = client
        self._announce = announce
        self._objects = objects
        self._times = times
        self._sleep = times.sleep
        self.slots = self._slots = WriteSlots(_PARALLEL)
        self._volumes = VolumeBinder(client, objects, times.monotonic, times.sleep)
        self._maker = ClaimMaker(client, self._slots, times.sleep, objects.observe, count)

    # -- reserving ----------------------------------------------------------------------------------------------------

    async def create_claims(
        self, members: Sequence[MemberDecision], insist: Callable[[], bool] = _never
    ) -> dict[str, Obj | Exception]:
        """Create the claims that do not exist yet; return them, or the error, by provisional path.

        While `insist()` is true, what may still succeed is tried again for ever.
        """
        return await self._maker.create(members, insist)

    async def reserve(
        self, members: Sequence[MemberDecision], nominate: bool, insist: Callable[[], bool] = _never
    ) -> dict[PodKey, Exception]:
        """Write allocations, reservations, the pods' statuses about them and, if asked, nominations.

        Returns the members for which that failed. While `insist()` is true, what may still succeed is tried again for
        ever.
        """
        writes = list(claim_writes(members).values())
        failures: dict[PodKey, Exception] = {}
        outcomes = await failures_of([self._write_claim(w, insist) for w in writes])
        for write, outcome in zip(writes, outcomes, strict=True):
            if outcome is not None:
                failures.update(dict.fromkeys(write.pods, outcome))
        standing = [(m, nominate and not is_place_reserved(m)) for m in members if m.pod not in failures]
        telling = [(m, nominating) for m, nominating in standing if self._has_to_tell(m, nominating)]
        answers = await failures_of([self._tell(m, nominating, insist) for m, nominating in telling])
        failures |= {m.pod: answer for (m, _), answer in zip(telling, answers, strict=True) if answer is not None}
        return failures

    def _known_pod(self, member: MemberDecision) -> Obj | None:
        pod = self._objects.get(PODS, member.pod.path)
        return pod if pod is not None and pod["metadata"].get("uid") == member.pod.uid else None

    def _has_to_tell(self, member: MemberDecision, nominate: bool) -> bool:
        """Tell whether the pod's status does not say yet what it must say before the pod is bound."""
        return extended_claim_writes.place_patch(member, self._known_pod(member), nominate=nominate) is not None

    async def _write_claim(self, write: ClaimWrite, insist: Callable[[], bool]) -> None:
        claim = self._objects.get(CLAIMS, write.path)
        attempt = 0
        while True:
            try:
                async with self._slots:
                    await self._write_claim_once(write, claim)
                return
            except (StatusError, OSError) as error:
                conflict = isinstance(error, StatusError) and error.code in (404, 409)
                if not conflict and not is_transient(error):
                    raise
                attempt += 1
                if attempt >= ATTEMPTS and not insist():
                    raise BindingError(f"claim {write.path}: {error}") from error
            claim = None
            if not conflict or attempt > 1:
                await self._sleep(delay(attempt))

    async def _write_claim_once(self, write: ClaimWrite, claim: Obj | None) -> None:
        if claim is None:
            claim = await self._read_claim(write)
            self._objects.observe(CLAIMS, claim)
        allocated_at = self._times.allocation_time()
        wanted = reserved_claim(claim, write, allocated_at)
        try:
            if wanted["metadata"].get("finalizers") != claim["metadata"].get("finalizers"):
                claim = strip_managed_fields(
                    await self._client.update(CLAIMS, {**claim, "metadata": wanted["metadata"]})
                )
                self._objects.announce(CLAIMS, claim)
                wanted = reserved_claim(claim, write, allocated_at)
            if wanted.get("status") != claim.get("status"):
                if write.allocation is not None:
                    self._announce(write.path, write.uid, write.allocation)
                claim = await self._client.update_status(CLAIMS, wanted)
        finally:
            self._objects.observe(CLAIMS, claim)

    async def _read_claim(self, write: ClaimWrite) -> Obj:
        try:
            return await self._client.get(CLAIMS, write.name, write.namespace)
        except StatusError as error:
            if error.code == 404:
                raise BindingError(f"claim {write.path} got deleted in the meantime") from error
            raise

    async def _tell(self, member: MemberDecision, nominate: bool, insist: Callable[[], bool]) -> None:
        """Write the pod's status: which claim serves its extended resources, and its nominated node."""
        pod = self._known_pod(member)
        attempt = 0
        while True:
            if pod is None and extended_claim_writes.unrecorded(member, None):
                pod = await self._ours(member)
            patch = extended_claim_writes.place_patch(member, pod, nominate=nominate)
            if patch is None:
                return
            try:
                async with self._slots:
                    self._objects.observe(PODS, await self._patch_pod(member, patch))
                return
            except (StatusError, OSError) as error:
                # A conflict may mean another pod of that name, or only a writer that was faster.
                pod = await self._ours(member)
                if isinstance(error, StatusError) and error.code != 409 and not is_transient(error):
                    raise
                attempt += 1
                if attempt >= ATTEMPTS and not insist():
                    raise BindingError(f"status of {member.pod.path}: {error}") from error
            await self._sleep(delay(attempt))

    async def _patch_pod(self, member: MemberDecision, patch: Obj) -> Obj:
        return await self._client.patch(PODS, member.pod.name, patch, member.pod.namespace, "merge", "status")

    async def bind_volumes(
        self, members: Sequence[MemberDecision], timeout: float, needed: int = 0
    ) -> dict[PodKey, Exception]:
        """Bind the volume claims that waited for these pods' nodes; return the members for which that failed.

        `needed`: how many members have to stay. As soon as too few are left, none is waited for.
        """
        return await self._volumes.bind(members, timeout, needed)

    # -- binding ------------------------------------------------------------------------------------------------------

    async def bind(
        self,
        member: MemberDecision,
        insist: Callable[[], bool] = _never,
        obstacle: Callable[[], str] = _nothing,
    ) -> None:
        """Send the binding until its outcome is certain. Raises BindingError.

        While `insist()` is true a refusal is no answer either: the pod's gang would be left without a member.
        `obstacle()` names what makes further attempts senseless.
        """
        attempt = 0
        pod = self._objects.get(PODS, member.pod.path)
        while True:
            try:
                async with self._slots:
                    await self._client.create_subresource(
                        PODS, member.pod.name, "binding", _binding(member, pod), member.pod.namespace
                    )
                return
            except (StatusError, OSError) as error:
                attempt += 1
                pod = await self._ours(member)
                bound = None if pod is None else bool((pod.get("spec") or {}).get("nodeName"))
                if bound:
                    return
                text = f"binding of {member.pod.path} to {member.node}: {error}"
                if why := obstacle():
                    raise BindingError(f"{text}; {why}") from error
                answered = isinstance(error, StatusError) and bound is False
                final = isinstance(error, StatusError) and error.code not in (404, 409) and not is_transient(error)
                if answered and (final or attempt >= ATTEMPTS) and not insist():
                    raise BindingError(text) from error
            if attempt >= ATTEMPTS:
                _log.warning("%s; trying again", text)
            await self._sleep(delay(attempt))

    async def _ours(self, member: MemberDecision) -> Obj | None:
        """Read the pod; None if the server does not answer. Raises PodGoneError if there is nothing left to bind."""
        try:
            pod = await self._client.get(PODS, member.pod.name, member.pod.namespace)
        except StatusError as error:
            if error.code == 404:
                raise PodGoneError(f"pod {member.pod.path} is gone") from error
            return None
        except OSError:
            return None
        if pod["metadata"].get("uid") != member.pod.uid or pod["metadata"].get("deletionTimestamp"):
            raise PodGoneError(f"pod {member.pod.path} is being deleted or was replaced")
        node = (pod.get("spec") or {}).get("nodeName")
        if node and node != member.node:
            raise PodGoneError(f"pod {member.pod.path} was bound to {node} by somebody else")
        return pod

    # -- taking back --------------------------------------------------------------------------------------------------

    async def release(
        self,
        members: Iterable[MemberDecision],
        kept_consumers: Collection[str] = (),
        nominated: Iterable[MemberDecision] = (),
    ) -> None:
        """Undo the writes of `reserve` for members that are not bound, and go on until that is certain.

        `kept_consumers` are UIDs in `reservedFor` that stand for others too (the group of members that stay);
        `nominated` are the members whose nomination goes as well.
        """
        members = list(members)
        works = [
            self._until_certain(w.path, self._undo_claim, w, kept_consumers)
            for w in claim_writes(members).values()
            if w.uid  # what was not created need not be taken back
        ]
        cleared = {m.pod: (m, extended_claim_writes.to_clear(m)) for m in members}
        for member in nominated:
            cleared[member.pod] = (member, [*extended_claim_writes.to_clear(member), "nominatedNodeName"])
        works += [self._until_certain(m.pod.path, self._clear, m, fields) for m, fields in cleared.values() if fields]
        await asyncio.gather(*works)

    async def deallocate(self, claim: Obj, pods: Sequence[Obj] = ()) -> None:
        """Deallocate a claim that no pod can use, unless it has changed since. Best effort.

        `pods` are those that wait with it: a binding that a scheduler before this one has sent, and that has not
        arrived yet, must come to nothing first. A claim for extended resources is of no use afterwards, and removed.
        """
        try:
            async with self._slots:
                for pod in pods:
                    await self._outdate(pod)
                claim = await self._free(claim)
                if extended_resource_claim_owner(claim):
                    await self._delete(claim)
        except (StatusError, OSError) as error:
            if not isinstance(error, StatusError) or error.code not in (404, 409):
                _log.warning("freeing claim %s: %s", claim["metadata"]["name"], error)

    async def _outdate(self, pod: Obj) -> None:
        """Give the pod a later version than any that a binding under way may name. StatusError if it is bound."""
        metadata = pod["metadata"]
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata.get("resourceVersion")}
        probed = {"type": "PodScheduled", "status": "False", "lastProbeTime": self._times.now()}
        patch = {"metadata": preconditions, "status": {"conditions": [probed]}}
        where = metadata["name"], metadata.get("namespace", "")
        try:
            answer = await self._client.patch(PODS, where[0], patch, where[1], "strategic", "status")
        except StatusError as error:
            if error.code != 409:
                raise
            # It has a later version already, unless that came of being bound.
            answer = await self._client.get(PODS, *where)
            if (answer.get("spec") or {}).get("nodeName") or answer["metadata"].get("uid") != metadata["uid"]:
                raise
        self._objects.observe(PODS, answer)

    async def unprotect(self, claim: Obj) -> None:
        """Remove the finalizer of a claim that is not allocated, unless it has changed. Best effort."""
        try:
            async with self._slots:
                self._objects.observe(CLAIMS, await self._client.update(CLAIMS, without_finalizer(claim)))
        except (StatusError, OSError) as error:
            if not isinstance(error, StatusError) or error.code not in (404, 409):
                _log.warning("claim %s: its finalizer: %s", claim["metadata"]["name"], error)

    async def _until_certain(self, what: str, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        attempt = 0
        while True:
            try:
                async with self._slots:
                    await work(*args)
                return
            except (StatusError, OSError) as error:
                if isinstance(error, StatusError) and error.code == 404:
                    return
                if isinstance(error, StatusError) and error.code != 409 and not is_transient(error):
                    _log.error("taking back what was written to %s: %s", what, error)
                    return
                attempt += 1
                if attempt >= ATTEMPTS:
                    _log.warning("taking back what was written to %s: %s; trying again", what, error)
            await self._sleep(delay(attempt))

    async def _undo_claim(self, write: ClaimWrite, kept_consumers: Collection[str]) -> None:
        claim = await self._client.get(CLAIMS, write.name, write.namespace)
        if claim["metadata"].get("uid") != write.uid:
            return
        status = claim.get("status") or {}
        if extended_resource_claim_owner(claim) and write.allocation is not None and not status.get("allocation"):
            await self._delete(await self._free(claim))
            return
        if is_protected_for_nothing(claim):
            self._objects.observe(CLAIMS, await self._client.update(CLAIMS, without_finalizer(claim)))
            return
        ours = {entry["uid"] for entry in write.consumers}.difference(kept_consumers)
        left = [entry for entry in status.get("reservedFor") or () if entry.get("uid") not in ours]
        made = write.allocation is not None and same_allocation(status.get("allocation") or {}, write.allocation)
        if made and not left:
            claim = await self._free(claim)
            if extended_resource_claim_owner(claim):
                await self._delete(claim)
        elif len(left) < len(status.get("reservedFor") or ()):
            claim = {**claim, "status": {**status, "reservedFor": left}}
            self._objects.observe(CLAIMS, await self._client.update_status(CLAIMS, claim))
        else:
            self._objects.observe(CLAIMS, claim)

    async def _free(self, claim: Obj) -> Obj:
        if (claim.get("status") or {}) != freed_status(claim):
            claim = await self._client.update_status(CLAIMS, {**claim, "status": freed_status(claim)})
            self._objects.observe(CLAIMS, claim)
        if FINALIZER in (claim["metadata"].get("finalizers") or ()):
            claim = await self._client.update(CLAIMS, without_finalizer(claim))
            self._objects.observe(CLAIMS, claim)
        return claim

    async def _delete(self, claim: Obj) -> None:
        """Delete a claim that is not allocated, unless it has changed since."""
        metadata = claim["metadata"]
        version = metadata.get("resourceVersion") or ""
        await self._client.delete(CLAIMS, metadata["name"], metadata["namespace"], metadata["uid"], version)
        self._objects.observe_deleted(CLAIMS, claim)

    async def _clear(self, member: MemberDecision, fields: Sequence[str]) -> None:
        pod = await self._client.get(PODS, member.pod.name, member.pod.namespace)
        bound = (pod.get("spec") or {}).get("nodeName")
        told = [field for field in fields if (pod.get("status") or {}).get(field)]
        if pod["metadata"].get("uid") != member.pod.uid or bound or not told:
            return
        precondition = {"uid": member.pod.uid, "resourceVersion": pod["metadata"].get("resourceVersion")}
        patch = {"metadata": precondition, "status": dict.fromkeys(told)}
        self._objects.observe(PODS, await self._patch_pod(member, patch))


async def failures_of(works: Sequence[Coroutine[Any, Any, None]]) -> list[Exception | None]:
    """Do all of it at once, and return what each raised. To do one thing takes no task of its own, nothing no turn."""
    if not works:
        return []
    if len(works) != 1:
        outcomes = await asyncio.gather(*works, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        return [outcome if isinstance(outcome, Exception) else None for outcome in outcomes]
    try:
        await works[0]
    except Exception as error:
        return [error]
    return [None]


def _binding(member: MemberDecision, pod: Obj | None) -> Obj:
    """Return the binding with the pod's last seen version, so that the server refuses one that arrives late."""
    metadata = {"name": member.pod.name, "namespace": member.pod.namespace, "uid": member.pod.uid}
    if pod is not None and pod["metadata"].get("uid") == member.pod.uid:
        metadata["resourceVersion"] = pod["metadata"].get("resourceVersion") or ""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": member.node},
    }
