"""Bind the volumes of pods that have a node: reserve volumes, request others, wait until all claims are bound.

A volume gets its claim's reference, a claim without one the node that its volume is to be provisioned for; the
controllers and the provisioner do the rest. As in kube-scheduler nothing that was written is taken back: a provisioner
that fails removes the node from the claim, and that ends the waiting.
Source: kube-scheduler 1.36's PreBind of VolumeBinding (BindPodVolumes), as behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from haru.client.api import ApiClient
from haru.engine.state import MemberDecision, PodKey, VolumeBinding
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, annotations_of, labels_of, name_of, uid_of
from haru.kube.selectors import node_selector_matches
from haru.kube.volume_binding import (
    SELECTED_NODE,
    claim_for_node,
    is_fully_bound,
    is_reserved_for,
    volume_for_claim,
)
from haru.scheduler.binding.claim_updates import BindingError
from haru.scheduler.binding.member_waits import for_each
from haru.scheduler.binding.write_retry import ATTEMPTS, PODS, delay, is_transient
from haru.scheduler.shared import WatchedObjects

VOLUMES: Final = known_kind("v1", "PersistentVolume")
VOLUME_CLAIMS: Final = known_kind("v1", "PersistentVolumeClaim")
NODES: Final = known_kind("v1", "Node")
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_TOO_FEW: Final = "too few siblings have volumes"


class VolumeBinder:
    """Write what binds volumes, and wait for the controllers that complete it."""

    def __init__(
        self,
        client: ApiClient,
        objects: WatchedObjects,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._objects = objects
        self._monotonic = monotonic
        self._sleep = sleep

    async def bind(self, members: Sequence[MemberDecision], timeout: float, needed: int) -> dict[PodKey, Exception]:
        """Bind the volumes of these members; return the members for which that failed, at the latest after `timeout`.

        As soon as fewer than `needed` members are left, nobody is waited for; what was written stays.
        """
        late = [member for member in members if member.volumes]
        failures = await for_each(late, self._write_all, len(late), _TOO_FEW)
        if len(members) - len(failures) >= needed:
            written = [member for member in late if member.pod not in failures]
            spare = len(members) - len(failures) - needed if needed else len(written)
            failures |= await for_each(written, partial(self._wait, timeout=timeout), spare, _TOO_FEW)
        return {
            pod: BindingError(f'running PreBind plugin "VolumeBinding": {error}') for pod, error in failures.items()
        }

    async def _write_all(self, member: MemberDecision) -> None:
        for binding in member.volumes:
            await (self._reserve(binding) if binding.volume else self._request(binding, member.node or ""))

    async def _wait(self, member: MemberDecision, timeout: float) -> None:
        deadline, pause = self._monotonic() + timeout, _FIRST_PAUSE
        while not self._is_complete(member):
            left = deadline - self._monotonic()
            if left <= 0:
                raise BindingError("binding volumes: context deadline exceeded")
            await self._sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    # -- writes -------------------------------------------------------------------------------------------------------

    async def _reserve(self, binding: VolumeBinding) -> None:
        """Write the reference to the claim into its volume."""
        claim = await self._claim(binding)

        def change(volume: Obj) -> Obj:
            if (volume.get("spec") or {}).get("claimRef") and not is_reserved_for(volume, claim):
                raise BindingError(f'volume "{binding.volume}" was taken by another claim')
            return volume_for_claim(volume, claim)

        await self._write(VOLUMES, binding.volume, "", change)

    async def _request(self, binding: VolumeBinding, node: str) -> None:
        """Write the node into the claim whose volume is to be provisioned."""

        def change(claim: Obj) -> Obj:
            if uid_of(claim) != binding.claim_uid:
                raise BindingError(f'PVC "{binding.claim_name}" was replaced')
            return claim if is_fully_bound(claim) else claim_for_node(claim, node)

        await self._write(VOLUME_CLAIMS, binding.claim_name, binding.claim_namespace, change)

    async def _claim(self, binding: VolumeBinding) -> Obj:
        claim = self._objects.get(VOLUME_CLAIMS, binding.path)
        if claim is None or uid_of(claim) != binding.claim_uid:
            raise BindingError(f'could not find PVC "{binding.path}"')
        return claim

    async def _write(self, kind: Kind, name: str, namespace: str, change: Callable[[Obj], Obj]) -> None:
        """Change an object unless it has changed meanwhile; then read it and change that. Raises BindingError."""
        known = self._objects.get(kind, f"{namespace}/{name}" if namespace else name)
        attempt = 0
        while True:
            try:
                before = known if known is not None else await self._client.get(kind, name, namespace)
                self._objects.observe(kind, before)
                after = change(before)
                if after is not before:
                    self._objects.observe(kind, await self._client.update(kind, after))
                return
            except (StatusError, OSError) as error:
                conflict = isinstance(error, StatusError) and error.code == 409
                attempt += 1
                if attempt >= ATTEMPTS or not (conflict or is_transient(error)):
                    raise BindingError(str(error)) from error
            known = None
            await self._sleep(delay(attempt))

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _is_complete(self, member: MemberDecision) -> bool:
        """Whether all claims are bound. Raises BindingError where they will not be, and the pod needs another node."""
        pod = self._objects.get(PODS, member.pod.path)
        if pod is None or uid_of(pod) != member.pod.uid:
            raise BindingError(f'binding volumes: pod does not exist any more: pod "{member.pod.name}" not found')
        node = self._objects.get(NODES, member.node or "")
        if node is None:
            raise BindingError(f'binding volumes: failed to get node "{member.node}": node "{member.node}" not found')
        bound = [self._is_bound(binding, node) for binding in member.volumes]
        return all(bound)

    def _is_bound(self, binding: VolumeBinding, node: Obj) -> bool:
        claim = self._objects.get(VOLUME_CLAIMS, binding.path)
        if claim is None:
            raise BindingError(f'binding volumes: failed to check binding: could not find PVC "{binding.path}"')
        if binding.volume:
            volume = self._objects.get(VOLUMES, binding.volume)
            if volume is None:
                raise BindingError(f'binding volumes: failed to check binding: could not find PV "{binding.volume}"')
            _check_reach(volume, node)
            if not ((volume.get("spec") or {}).get("claimRef") or {}).get("uid"):
                raise BindingError(f'binding volumes: ClaimRef got reset for pv "{binding.volume}"')
            return is_fully_bound(claim)
        if annotations_of(claim).get(SELECTED_NODE) != name_of(node) and not is_fully_bound(claim):
            what = "provisioning failed" if annotations_of(claim) else "selectedNode annotation reset"
            raise BindingError(f'binding volumes: {what} for PVC "{binding.claim_name}"')
        name = (claim.get("spec") or {}).get("volumeName")
        if name:
            volume = self._objects.get(VOLUMES, name)
            if volume is None:
                return False
            _check_reach(volume, node)
        return is_fully_bound(claim)


def _check_reach(volume: Mapping[str, Any], node: Mapping[str, Any]) -> None:
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if required is not None and not node_selector_matches(required, name_of(node), labels_of(node)):
        text = f'pv "{name_of(volume)}" node affinity doesn\'t match node "{name_of(node)}"'
        raise BindingError(f"binding volumes: {text}: no matching NodeSelectorTerms")
