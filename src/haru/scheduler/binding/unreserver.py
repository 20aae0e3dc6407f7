"""Take back what was written for a decision: claims' allocations and reservations, nominations, finalizers.

A rollback goes on until it is certain what is stored; until then the caller counts the devices as taken. Removing the
finalizer of a claim that turned out unallocated makes a write that is still under way fail, because it expects an older
version. Source: Unreserve of DynamicResources (KEP-4381, KEP-5004).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

from haru.client.api import ApiClient
from haru.engine.dra import extended_resource_claim_owner
from haru.engine.state import MemberDecision
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.scheduler.binding import extended_claim_writes
from haru.scheduler.binding.claim_updates import (
    FINALIZER,
    ClaimWrite,
    claim_writes,
    freed_status,
    is_protected_for_nothing,
    same_allocation,
    without_finalizer,
)
from haru.scheduler.binding.write_retry import ATTEMPTS, CLAIMS, PODS, WriteTimes, delay, is_transient
from haru.scheduler.binding.write_slots import WriteSlots
from haru.scheduler.shared import WatchedObjects

_log = logging.getLogger(__name__)


class Unreserver:
    """Undo what a `Binder` wrote, and free claims that nobody uses."""

    def __init__(self, client: ApiClient, objects: WatchedObjects, times: WriteTimes, slots: WriteSlots) -> None:
        self._client, self._objects, self._times, self._slots = client, objects, times, slots

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
            await self._times.sleep(delay(attempt))

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
        where = member.pod.name, member.pod.namespace
        self._objects.observe(PODS, await self._client.patch(PODS, where[0], patch, where[1], "merge", "status"))
