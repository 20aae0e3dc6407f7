"""Enact a decision beside the cycles that follow: assume, reserve as a whole, bind, or take back as a whole.

A binding task is what one decision asks for. Binding tasks of one group go through the reserving phase one after the
other, and each counts only siblings that are bound or certain to be: so none relies on another that may still fail.
Once a gang is past the barrier, its members are bound until that is certain; what they hold is not given up unless
the pod or its node is gone. Source: docs/adr/0002.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Protocol
from weakref import WeakValueDictionary

from haru.engine.plugins import assumed_objects, resolve_claims
from haru.engine.podgroup import required_members
from haru.engine.state import GroupKey, MemberDecision, PodKey, namespaced_name
from haru.gangs import is_translated
from haru.kube.meta import Obj
from haru.scheduler.binding.binder import Binder, PodGoneError
from haru.scheduler.binding.claim_updates import BindingError, claim_writes, reserved_claim
from haru.scheduler.binding.extended_claim_writes import claims_to_create, stale_claims, unrecorded, with_created
from haru.scheduler.binding.write_retry import CLAIMS
from haru.scheduler.metrics import BIND_CALL
from haru.scheduler.shared import SchedulerState

_MANY = 1000


class HeldBackError(Exception):
    """The pod was fine, but its gang is not bound: siblings failed and too few are left."""


@dataclass(slots=True)
class Attempt:
    """When a unit's cycle began, and when the unit first came to the active queue; how often it was tried."""

    profile: str = ""
    began: float = 0.0
    first_active: float = 0.0
    number: int = 1
    flushed: bool = False


@dataclass(slots=True)
class BindingTask:
    """The members to be bound together. `minimum` is the gang's minCount, 1 without a gang.

    `bind_timeout`: the seconds that the binding of their volumes may take, `device_timeout` their devices.
    """

    group: GroupKey | None
    minimum: int
    members: tuple[MemberDecision, ...]
    unit_errors: int = 0
    attempt: Attempt = field(default_factory=Attempt)
    claims: dict[str, Obj] = field(default_factory=dict)
    nominated_before: frozenset[PodKey] = frozenset()
    bind_timeout: float = 600.0
    device_timeout: float = 600.0

    @property
    def is_gang(self) -> bool:
        """Whether members may not be bound one by one."""
        return self.group is not None and self.minimum > 1


class DeviceLostError(BindingError):
    """Raised for a claim whose device another scheduler's claim had first."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"claim {path} is given back: {why}")
        self.path = path


class AllocationConfirmer(Protocol):
    """Who knows of allocations by other schedulers."""

    @property
    def must_confirm(self) -> bool:
        """Whether other schedulers allocate devices here."""

    async def confirm(self, claims: Iterable[str]) -> None:
        """Wait until the watch has shown the allocations of claims. Raises BindingError."""

    def lost_to(self, path: str) -> str:
        """Why a claim must give its devices back; "" if it need not."""


class DecisionWriter(Protocol):
    """Who sends the binding tasks out, and hears what became of them."""

    def member_bound(self, binding_task: BindingTask, member: MemberDecision) -> None:
        """A member has its node."""

    def devices_awaited(self, member: MemberDecision) -> None:
        """A member's devices may not be ready yet."""

    def members_returned(self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]) -> None:
        """These members have no place any more; nothing of theirs is assumed or stored but what the text says."""

    def devices_lost(self, path: str, *, deallocate: bool) -> None:
        """Another scheduler has a device of this claim; `deallocate`: the allocation is an earlier one, and stands."""


class BindingCycle:
    """Carries binding tasks out. `silence` stops reports about a pod, which would be late."""

    def __init__(
        self,
        state: SchedulerState,
        binder: Binder,
        sender: DecisionWriter,
        silence: Callable[[str], None],
        confirmer: AllocationConfirmer | None = None,
    ) -> None:
        self._metrics = state.metrics
        self.running = 0
        """How many members are being bound."""
        self._cluster = state.cluster
        self._objects = state.objects
        self._confirmer = confirmer
        self._binder = binder
        self._sender = sender
        self._silence = silence
        self._workload_claims = state.config.workload_claims
        self._gang_scheduling = state.config.gang_scheduling
        self._uncertain: set[PodKey] = set()
        self._under_way: dict[PodKey, int] = {}
        self._most_under_way = _MANY
        self._lowest = math.inf
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def assume(self, binding_task: BindingTask) -> None:
        """Counts the members as placed and their claims as allocated from now on."""
        known = self._cluster.now
        group = known.pod_group(binding_task.group) if binding_task.group is not None else None
        volumes = any(member.volumes for member in binding_task.members)
        volumes_to_assume = assumed_objects(self._cluster.snapshot(), binding_task.members) if volumes else ()
        nominated = set()
        for member in binding_task.members:
            info = known.pods.get(member.pod.path)
            if info is not None and info.nominated_node == member.node:
                nominated.add(member.pod)
            self._cluster.assume_pod(member.pod, member.node or "", member.claimed, member.joined)
            self._uncertain.add(member.pod)
            if info is not None:
                priority = info.priority if group is None else int((group.get("spec") or {}).get("priority") or 0)
                self._under_way[member.pod] = priority
                self._lowest = min(self._lowest, priority)
            self._silence(member.pod.path)
        if len(self._under_way) > self._most_under_way:
            self._forget_arrived()
        for volume in volumes_to_assume:
            self._cluster.assume_volume(volume)
        binding_task.nominated_before = frozenset(nominated)
        new = claims_to_create(binding_task.members)
        for path, write in claim_writes(binding_task.members).items():
            claim = known.claims.get(path)
            if path in new:
                pod, body = new[path]
                # A pod of the same name, made anew, may have such a claim under way as well.
                claim = {**body, "metadata": {**body["metadata"], "name": f"{body['metadata']['name']}{pod.uid}"}}
            if claim is not None and write.allocation is not None:
                binding_task.claims[path] = reserved_claim(claim, write, None)
                self._cluster.assume_claim(binding_task.claims[path])

    def is_binding_below(self, priority: int) -> bool:
        """Whether a less important pod (by its group, if it has one) has a place that the watch has not shown yet."""
        if priority > self._lowest:
            self._forget_arrived()
        return priority > self._lowest

    def _forget_arrived(self) -> None:
        self._under_way = {pod: known for pod, known in self._under_way.items() if self._cluster.is_assumed(pod)}
        self._lowest = min(self._under_way.values(), default=math.inf)
        # Twice as many before all are looked through again, however many are under way.
        self._most_under_way = max(_MANY, 2 * len(self._under_way))

    async def carry_out(self, binding_task: BindingTask) -> None:
        """Ends when every member is bound or has been given back."""
        self.running += len(binding_task.members)
        self._binder.slots.new_decision()
        try:
            await self._carry_out(binding_task)
        finally:
            self.running -= len(binding_task.members)

    async def _carry_out(self, binding_task: BindingTask) -> None:
        if binding_task.group is None:
            ready = await self._reserve(binding_task)
        else:
            turn = self._turns.setdefault(binding_task.group.path, asyncio.Lock())
            async with turn:
                ready = await self._reserve(binding_task)
        if len(ready) == 1:
            await self._bind(binding_task, ready[0])
        else:
            await asyncio.gather(*(self._bind(binding_task, member) for member in ready))

    # -- the reserving phase ------------------------------------------------------------------------------------------

    async def _reserve(self, binding_task: BindingTask) -> Sequence[MemberDecision]:
        began = self._metrics.clock()
        failures = await self._create_claims(binding_task)
        made = tuple([m for m in binding_task.members if m.pod not in failures])
        failures |= await self._binder.reserve(
            made, nominate=binding_task.is_gang, insist=lambda: self._is_half_placed(binding_task)
        )
        failures |= await self._confirm(binding_task, failures)
        failures |= await self._wait_for_devices(binding_task, failures)
        if any(member.volumes for member in binding_task.members):
            held = [m for m in binding_task.members if m.pod not in failures]
            needed = binding_task.minimum - len(self._certain(binding_task)) if binding_task.is_gang else 0
            failures |= await self._binder.bind_volumes(held, binding_task.bind_timeout, needed)
        if inherited := self._check_members(binding_task, failures):
            await self._binder.confirm(inherited)
            self._check_members(binding_task, failures)
        ready = [m for m in binding_task.members if m.pod not in failures]
        self._raise_minimum(binding_task)
        if ready and binding_task.is_gang and len(self._certain(binding_task)) + len(ready) < binding_task.minimum:
            # All or nothing: what was written for the others is taken back, and nobody is bound.
            text = "; ".join(sorted({str(e) for e in failures.values()})) or "siblings have lost their places"
            failures.update({m.pod: HeldBackError(f"a sibling could not be reserved: {text}") for m in ready})
            ready = []
        self._uncertain.difference_update(m.pod for m in ready)
        self._measure_reserving(binding_task, failures, self._metrics.clock() - began)
        await self._take_back(binding_task, failures)
        self._report_lost(binding_task, failures)
        if stale := [claim for member in ready for claim in stale_claims(self._cluster.now, member)]:
            await asyncio.gather(*(self._binder.unreserver.deallocate(claim) for claim in stale))
        return ready

    def _measure_reserving(
        self, binding_task: BindingTask, failures: Mapping[PodKey, Exception], seconds: float
    ) -> None:
        """Observe PreBind for each member, and for those of a gang that they waited for each other meanwhile."""
        problems = Counter(type(failures.get(member.pod)) for member in binding_task.members)
        for problem, times in problems.items():
            status = "Success" if problem is NoneType else "Error"
            self._metrics.extension_point("PreBind", status, binding_task.attempt.profile, seconds, runs=times)
            if binding_task.is_gang:
                result = "Unschedulable" if issubclass(problem, HeldBackError) else status
                self._metrics.waited_for_siblings(result, seconds, times)

    async def _confirm(
        self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]
    ) -> dict[PodKey, Exception]:
        """Wait, if other schedulers allocate devices too, until what was allocated before is known."""
        if self._confirmer is None or not self._confirmer.must_confirm:
            return {}
        writes = claim_writes([m for m in binding_task.members if m.pod not in failures])
        if not writes:
            return {}
        try:
            await self._confirmer.confirm(writes)
        except BindingError as error:
            return {pod: error for write in writes.values() for pod in write.pods}
        return {}

    async def _wait_for_devices(
        self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]
    ) -> dict[PodKey, Exception]:
        """Wait until the members' devices are ready; return the members for which they will not be."""
        held = [m for m in binding_task.members if m.pod not in failures]
        conditions = self._binder.conditions
        found = ((m.pod, conditions.waited_for(m, self._reserved_before(binding_task, m))) for m in held)
        claims = {pod: paths for pod, paths in found if paths}
        if not claims:
            return {}
        needed = binding_task.minimum - len(self._certain(binding_task)) if binding_task.is_gang else 0
        spare = len(held) - needed if needed > 0 else len(claims)
        waiting = [m for m in held if m.pod in claims]
        for member in waiting:
            self._sender.devices_awaited(member)
        measure = partial(self._metrics.devices_awaited, binding_task.attempt.profile)
        return await conditions.wait(waiting, claims, binding_task.device_timeout, spare, measure)

    def _reserved_before(self, binding_task: BindingTask, member: MemberDecision) -> Sequence[str]:
        """The claims of a member of which the decision says nothing: an earlier one has reserved them for it."""
        snapshot = self._cluster.now
        info = snapshot.pods.get(member.pod.path)
        decided = {one.path for one in member.allocations} | {one.path for one in member.reservations}
        if info is None or len(info.claims) + (member.extended is not None) <= len(decided):
            return ()
        group = snapshot.pod_group(binding_task.group) if binding_task.group is not None else None
        uses = resolve_claims(snapshot, info, group, workload_claims=self._workload_claims)
        return [use.path for use in uses if use.path not in decided] if isinstance(uses, tuple) else ()

    def _lost(self, paths: Iterable[str]) -> DeviceLostError | None:
        if self._confirmer is not None and self._confirmer.must_confirm:
            for path in paths:
                if why := self._confirmer.lost_to(path):
                    return DeviceLostError(path, why)
        return None

    def _report_lost(self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]) -> None:
        lost = {error.path for error in failures.values() if isinstance(error, DeviceLostError)}
        writes = claim_writes(binding_task.members) if lost else {}
        for path in lost:
            write = writes.get(path)
            self._sender.devices_lost(path, deallocate=write is None or write.allocation is None)

    async def _create_claims(self, binding_task: BindingTask) -> dict[PodKey, Exception]:
        """Claims that have to be made first take the places of their stand-ins; the members for which that failed."""
        new = claims_to_create(binding_task.members)
        if not new:
            return {}
        answers = await self._binder.create_claims(
            binding_task.members, insist=lambda: self._is_half_placed(binding_task)
        )
        created = {path: claim for path, claim in answers.items() if isinstance(claim, dict)}
        binding_task.members = tuple(with_created(m, created) for m in binding_task.members)
        writes = claim_writes(binding_task.members)
        for path, claim in created.items():
            known = namespaced_name(claim)
            binding_task.claims[known] = reserved_claim(claim, writes[known], None)
            self._cluster.assume_claim(binding_task.claims[known])
            stand_in = binding_task.claims.pop(path)
            self._cluster.forget_claim(namespaced_name(stand_in), stand_in)
        return {new[path][0]: error for path, error in answers.items() if isinstance(error, Exception)}

    def _certain(self, binding_task: BindingTask) -> frozenset[str]:
        """The group's members that are bound, or reserved beyond recall."""
        if binding_task.group is None:
            return frozenset()
        snapshot = self._cluster.now
        placed = snapshot.group_state(binding_task.group).scheduled
        return frozenset([path for path in placed if snapshot.pods[path].key not in self._uncertain])

    def _raise_minimum(self, binding_task: BindingTask) -> None:
        """Take over a larger minCount: the group was made anew, or it is another project's, which may change."""
        group = self._cluster.now.pod_group(binding_task.group) if binding_task.group is not None else None
        if group is not None:
            gangs = self._gang_scheduling or is_translated(group)
            binding_task.minimum = max(binding_task.minimum, required_members(group, gang_scheduling=gangs))

    def _is_half_placed(self, binding_task: BindingTask) -> bool:
        return binding_task.is_gang and 0 < len(self._certain(binding_task)) < binding_task.minimum

    def _check_members(self, binding_task: BindingTask, failures: dict[PodKey, Exception]) -> list[Obj]:
        """Note the members that have lost what they counted on; return the inherited claims of the others."""
        inherited: dict[str, Obj] = {}
        for member in binding_task.members:
            if member.pod in failures:
                continue
            relied_on = self._relied_on(binding_task, member)
            if isinstance(relied_on, BindingError):
                failures[member.pod] = relied_on
                continue
            for path in relied_on:
                claim = self._objects.get(CLAIMS, path)
                if claim is not None and self._objects.is_inherited(claim):
                    inherited[path] = claim
        return list(inherited.values())

    def _relied_on(self, binding_task: BindingTask, member: MemberDecision) -> Sequence[str] | BindingError:
        """The claims of a member that was reserved, or why it must not be bound after all: one of them went away."""
        snapshot = self._cluster.now
        info = snapshot.pods.get(member.pod.path)
        if info is None or info.key.uid != member.pod.uid or info.deleting:
            return PodGoneError(f"pod {member.pod.path} is gone")
        if why := self._obstacle(member):
            return BindingError(f"pod {member.pod.path}: {why}")
        group = snapshot.pod_group(binding_task.group) if binding_task.group is not None else None
        uses = resolve_claims(snapshot, info, group, workload_claims=self._workload_claims)
        if not isinstance(uses, tuple):
            return BindingError(uses.message)
        for use in uses:
            if use.allocation is None or not use.is_reserved or use.path in snapshot.claim_index.in_flight:
                return BindingError(f"claim {use.path} is not reserved any more")
        extended = (member.extended.path,) if member.extended is not None else ()
        paths = [*(use.path for use in uses), *extended]
        return self._lost(paths) or self._without_devices(member, info.obj) or paths

    def _without_devices(self, member: MemberDecision, pod: Obj) -> BindingError | None:
        """Why the claim of a pod's extended resources is not in order."""
        if missing := unrecorded(member, pod):
            return BindingError(f"pod {member.pod.path}: its status does not say {', '.join(missing)}")
        if member.extended is None:
            return None
        path, snapshot = member.extended.path, self._cluster.now
        status = (snapshot.claims.get(path) or {}).get("status") or {}
        reserved = any(entry.get("uid") == member.pod.uid for entry in status.get("reservedFor") or ())
        if not status.get("allocation") or not reserved or path in snapshot.claim_index.in_flight:
            return BindingError(f"claim {path} is not reserved any more")
        return None

    def _obstacle(self, member: MemberDecision) -> str:
        node = self._cluster.now.nodes.get(member.node or "")
        return "" if node is not None and node.present else f"node {member.node} is gone"

    # -- the binding phase --------------------------------------------------------------------------------------------

    async def _bind(self, binding_task: BindingTask, member: MemberDecision) -> None:
        began, profile = self._metrics.clock(), binding_task.attempt.profile
        try:
            await self._binder.bind(
                member, insist=lambda: self._lacks_members(binding_task), obstacle=lambda: self._obstacle(member)
            )
        except Exception as error:
            self._measure_bind("Error", profile, began)
            await self._take_back(binding_task, {member.pod: error})
        else:
            self._measure_bind("Success", profile, began)
            self._sender.member_bound(binding_task, member)

    def _measure_bind(self, status: str, profile: str, began: float) -> None:
        seconds = self._metrics.clock() - began
        self._metrics.extension_point("Bind", status, profile, seconds)
        self._metrics.api_call(BIND_CALL, status.lower(), seconds)

    def _lacks_members(self, binding_task: BindingTask) -> bool:
        if not binding_task.is_gang or binding_task.group is None:
            return False
        return len(self._cluster.now.group_state(binding_task.group).assigned) < binding_task.minimum

    # -- taking back --------------------------------------------------------------------------------------------------

    async def _take_back(self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]) -> None:
        if not failures:
            return
        began = self._metrics.clock()
        failed = [m for m in binding_task.members if m.pod in failures]
        await self._binder.unreserver.release(
            failed, self._kept_consumers(binding_task, failed), self._to_unnominate(binding_task, failed)
        )
        for path in claim_writes(failed):
            if path in binding_task.claims:
                self._cluster.forget_claim(namespaced_name(binding_task.claims[path]), binding_task.claims[path])
        for kind, path in _volumes_of(failed) - _volumes_of(m for m in binding_task.members if m not in failed):
            self._cluster.forget_volume(kind, path)
        for member in failed:
            self._cluster.forget_pod(member.pod)
            self._uncertain.discard(member.pod)
            seconds = self._metrics.clock() - began
            self._metrics.extension_point("Unreserve", "Success", binding_task.attempt.profile, seconds)
        self._sender.members_returned(binding_task, failures)

    def _kept_consumers(self, binding_task: BindingTask, failed: Iterable[MemberDecision]) -> frozenset[str]:
        """The group's own reservation stands for all its members: it stays as long as one of them has a place."""
        if binding_task.group is None:
            return frozenset()
        snapshot = self._cluster.now
        group = snapshot.pod_group(binding_task.group)
        staying = snapshot.group_state(binding_task.group).scheduled - {m.pod.path for m in failed}
        return frozenset((group["metadata"].get("uid", ""),)) if group is not None and staying else frozenset()

    def _to_unnominate(self, binding_task: BindingTask, failed: Sequence[MemberDecision]) -> list[MemberDecision]:
        """Members of a gang that runs in part keep the place that was reserved for them before."""
        if not binding_task.is_gang:
            return []
        kept = binding_task.nominated_before if self._is_half_placed(binding_task) else frozenset()
        return [m for m in failed if m.pod not in kept or self._obstacle(m)]


def _volumes_of(members: Iterable[MemberDecision]) -> set[tuple[str, str]]:
    """The volumes, and claims for which volumes are provisioned: kind and path."""
    return {
        ("PersistentVolume", binding.volume) if binding.volume else ("PersistentVolumeClaim", binding.path)
        for member in members
        for binding in member.volumes
    }
