"""Write a decision: first the claims of all members, then the bindings.

The order keeps a gang whole through any crash: the allocation and reservation of all its claims, and the nominated node
of each member whose claims do not say it, are stored before the first binding is sent. The next scheduler finds them
and completes the gang.

A timeout proves nothing: after it, or after an error of the server, the object is read again. What is to be undone
`Unreserver` takes back.
Source: KEP-4381 and KEP-5004 (PreBind of DynamicResources), KEP-5278 (nominated node name), the Binding subresource.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from haru.client.api import ApiClient
from haru.client.transforms import strip_managed_fields
from haru.engine.state import MemberDecision, PodKey
from haru.kube.errors import StatusError
from haru.kube.meta import Obj, name_of, namespace_of
from haru.scheduler.binding import extended_claim_writes
from haru.scheduler.binding.claim_updates import (
    BindingError,
    ClaimWrite,
    as_kept,
    claim_writes,
    confirmed_claim,
    is_place_reserved,
    reserved_claim,
)
from haru.scheduler.binding.device_conditions import DeviceConditions
from haru.scheduler.binding.extended_claims import ClaimMaker
from haru.scheduler.binding.unreserver import Unreserver
from haru.scheduler.binding.volume_binder import VolumeBinder
from haru.scheduler.binding.write_retry import ATTEMPTS, CLAIMS, PODS, WriteTimes, delay, is_transient
from haru.scheduler.binding.write_slots import WriteSlots
from haru.scheduler.shared import WatchedObjects

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
        self.unreserver = Unreserver(client, objects, times, self._slots)
        self.conditions = DeviceConditions(objects, times)
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
        standing = [(m, nominate and not self._is_place_told(m)) for m in members if m.pod not in failures]
        telling = [(m, nominating) for m, nominating in standing if self._has_to_tell(m, nominating)]
        answers = await failures_of([self._tell(m, nominating, insist) for m, nominating in telling])
        failures |= {m.pod: answer for (m, _), answer in zip(telling, answers, strict=True) if answer is not None}
        return failures

    def _known_pod(self, member: MemberDecision) -> Obj | None:
        pod = self._objects.get(PODS, member.pod.path)
        return pod if pod is not None and pod["metadata"].get("uid") == member.pod.uid else None

    def _is_place_told(self, member: MemberDecision) -> bool:
        """Tell whether a claim says the member's place, and no nomination, left by a scheduler that died, another."""
        told = ((self._known_pod(member) or {}).get("status") or {}).get("nominatedNodeName")
        return is_place_reserved(member) and told in (None, "", member.node)

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
        known, kept = self._objects.get(CLAIMS, write.path), None
        wanted = reserved_claim(claim, write, allocated_at)
        self._objects.hold_events(CLAIMS, claim)
        try:
            if wanted["metadata"].get("finalizers") != claim["metadata"].get("finalizers"):
                before = claim.get("status")
                claim = strip_managed_fields(
                    await self._client.update(CLAIMS, {**claim, "metadata": wanted["metadata"]})
                )
                self._objects.announce(CLAIMS, claim)
                # Nobody wrote in between: what follows from the status is the same, if that is.
                unchanged = claim.get("status") == before
                wanted = (
                    {**claim, "status": wanted["status"]} if unchanged else reserved_claim(claim, write, allocated_at)
                )
            if wanted.get("status") != claim.get("status"):
                if write.allocation is not None:
                    self._announce(write.path, write.uid, write.allocation)
                claim = await self._client.update_status(CLAIMS, wanted)
                kept = as_kept(claim, wanted, known)
        finally:
            self._objects.observe(CLAIMS, claim if kept is None else kept, is_kept=kept is not None)

    async def confirm(self, claims: Iterable[Obj]) -> None:
        """Write claims that stand as a scheduler before this one left them, and that are relied on from now on.

        It may have sent their release just before its end: a claim of a later version is not released any more.
        """
        await failures_of([self._confirm(claim) for claim in claims])

    async def _confirm(self, claim: Obj) -> None:
        attempt, where = 0, (name_of(claim), namespace_of(claim))
        while self._objects.is_inherited(claim):
            try:
                async with self._slots:
                    if attempt:
                        claim = await self._client.get(CLAIMS, *where)
                    if self._objects.is_inherited(claim):
                        claim = await self._client.update(CLAIMS, confirmed_claim(claim, self._objects.began))
                self._objects.observe(CLAIMS, claim)
            except (StatusError, OSError) as error:
                if isinstance(error, StatusError) and error.code != 409 and not is_transient(error):
                    _log.warning("confirming claim %s: %s", where[0], error)
                    return
                attempt += 1
                await self._sleep(delay(attempt))

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
