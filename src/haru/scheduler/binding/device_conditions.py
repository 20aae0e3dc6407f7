"""Wait until drivers say of allocated devices that they are ready for the pod's node (KEP-5007).

A device with `bindingConditions` is, for example, attached to the node only after a claim has it. Its pod is bound when
all of them are true in the claim's `status.devices`. One of `bindingFailureConditions`, or the timeout, ends the
waiting: the pod is not bound, what was written is taken back, and it competes anew.
Source: kube-scheduler 1.36's PreBind of DynamicResources, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from haru.engine.state import MemberDecision, PodInfo, PodKey
from haru.kube.binding_conditions import conditional, conditions_told, is_overdue
from haru.kube.meta import Obj, allocation_of, name_of, uid_of
from haru.scheduler.binding.claim_updates import BindingError
from haru.scheduler.binding.member_waits import for_each
from haru.scheduler.binding.write_retry import CLAIMS, PODS, WriteTimes
from haru.scheduler.shared import WatchedObjects

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


Measure = Callable[[str, float, Sequence[Obj]], None]
"""Takes in how the waiting of a pod ended (`success`, `failure`, `timeout`, `error`), its seconds and the devices."""


class _NotReady(BindingError):
    """Devices will not be ready."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class DeviceConditions:
    """Wait for the conditions of the devices of pods, as the claims' watch tells of them."""

    def __init__(
        self,
        objects: WatchedObjects,
        times: WriteTimes,
    ) -> None:
        self._objects = objects
        self._times = times

    def waited_for(self, member: MemberDecision, reserved: Sequence[str]) -> list[str]:
        """Return those of a member's claims that have such devices; `reserved` were reserved for it before."""
        found = [one.path for one in member.allocations if has_conditions(one.allocation)]
        joined = (*[one.path for one in member.reservations], *reserved)
        return found + [path for path in joined if has_conditions(allocation_of(self._objects.get(CLAIMS, path)))]

    async def wait(
        self,
        members: Sequence[MemberDecision],
        claims: Mapping[PodKey, Sequence[str]],
        timeout: float,
        spare: int,
        measure: Measure,
    ) -> dict[PodKey, Exception]:
        """Return the members whose devices do not become ready; after more than `spare` nobody is waited for."""

        async def ready(member: MemberDecision) -> None:
            began, status, results = self._times.monotonic(), "error", self._results(claims[member.pod])
            try:
                await self._until_ready(member, claims[member.pod], timeout)
                status = "success"
            except _NotReady as error:
                status = error.status
                raise
            finally:
                measure(status, self._times.monotonic() - began, results)

        failures = await for_each(members, ready, spare, "too few siblings have devices that are ready")
        return {
            pod: BindingError(f'running PreBind plugin "DynamicResources": {error}') for pod, error in failures.items()
        }

    async def _until_ready(self, member: MemberDecision, paths: Sequence[str], timeout: float) -> None:
        pause, deadline = _FIRST_PAUSE, self._times.monotonic() + timeout
        while not self._are_ready(paths):
            self._check_pod(member)
            left = deadline - self._times.monotonic()
            # Whoever joins a claim later waits no longer than those who had it before.
            late = [path for path in paths if self._is_overdue(path, timeout)] or (paths if left <= 0 else ())
            if late:
                raise _NotReady("timeout", f"device binding timeout: claim={late[0].rpartition('/')[2]}")
            await self._times.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_overdue(self, path: str, timeout: float) -> bool:
        return is_overdue(self._objects.get(CLAIMS, path) or {}, timeout, self._times.clock().timestamp())

    def _results(self, paths: Sequence[str]) -> list[Obj]:
        """The devices of claims."""
        allocations = [allocation_of(self._objects.get(CLAIMS, path)) or {} for path in paths]
        return [result for one in allocations for result in (one.get("devices") or {}).get("results") or ()]

    def _check_pod(self, member: MemberDecision) -> None:
        pod = self._objects.get(PODS, member.pod.path)
        if pod is None or uid_of(pod) != member.pod.uid or pod["metadata"].get("deletionTimestamp"):
            raise BindingError(f"pod {member.pod.path} is gone")

    def _are_ready(self, paths: Sequence[str]) -> bool:
        found = [self._is_ready(path) for path in paths]  # each may raise
        return all(found)

    def _is_ready(self, path: str) -> bool:
        """Whether all conditions of a claim's devices are true. Raises BindingError where they will not be."""
        claim = self._objects.get(CLAIMS, path)
        allocation = allocation_of(claim)
        if claim is None or allocation is None:
            raise BindingError(f"claim {path} got deallocated elsewhere in the meantime")
        found = [_is_met(claim, result, told) for result, told in conditions_told(claim)]
        return all(found)


def awaits_devices(member: MemberDecision, pod: PodInfo) -> bool:
    """Tell whether devices for a member may not be ready at once: it gets such ones, or has a claim of before."""
    claims = len(pod.claims) + (member.extended is not None)
    return claims > len(member.allocations) or any(has_conditions(one.allocation) for one in member.allocations)


def has_conditions(allocation: Obj | None) -> bool:
    """Tell whether an allocation has devices that are not ready at once."""
    return any(True for _ in conditional(allocation))


def _is_met(claim: Obj, result: Obj, told: Mapping[str, Obj]) -> bool:
    for name in result.get("bindingFailureConditions") or ():
        if name in told:
            reason, message = told[name].get("reason", ""), told[name].get("message", "")
            text = f'claim={name_of(claim)}, reason={reason}, message="{message}"'
            raise _NotReady("failure", f"device binding failed: {text}")
    return all(name in told for name in result["bindingConditions"])
