"""Share devices with other schedulers: find devices allocated twice, and give back what was allocated second.

While others allocate devices here, an allocation is confirmed before anything is bound: the watch has shown it, and
with it every allocation that was written before. If one of these has the device, this scheduler's is given back. Alone
on its devices a scheduler confirms nothing.
Source: our own; the order of revisions is the API's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from haru.client.events import EventRecorder
from haru.engine.dra import DeviceId, allocated_devices
from haru.engine.state import GroupKey, namespaced_name
from haru.kube.meta import Obj, allocation_of
from haru.scheduler.binding.claim_updates import BindingError, users_of
from haru.scheduler.coexistence.allocation_ledger import AllocationLedger, ShownAllocation
from haru.scheduler.coexistence.device_conflicts import DeviceConflicts
from haru.scheduler.coexistence.foreign_pods import ForeignPods
from haru.scheduler.shared import SchedulerState

Confirmation = Literal["auto", "always", "never"]
CONFIRM_SECONDS = 10.0


class Coexistence:
    """What one scheduler knows of others, from the events that it is passed."""

    def __init__(self, state: SchedulerState, recorder: EventRecorder) -> None:
        self._state = state
        self._cluster = state.cluster
        self._served = state.config.scheduler_names
        self._mode: Confirmation = state.config.confirm_allocations
        self.ledger = AllocationLedger(self._is_served, self._is_inside)
        self.conflicts = DeviceConflicts(state, self.ledger, recorder)
        self._pods = ForeignPods(state.cluster, self._served, state.metrics.coexistence, recorder)
        state.metrics.coexistence.foreign_allocations = lambda: self.ledger.foreign
        self.overlaps: Callable[[], bool] = lambda: False
        """Whether a running scheduler of Haru is known to allocate the same devices."""

    # -- events --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take in what is there once the first lists are complete."""
        claims = [claim for claim in self._cluster.snapshot().claims.values() if allocation_of(claim)]
        self.ledger.start(claims)
        self.conflicts.changed(map(allocation_of, claims))
        for claim in claims:
            self._look_for_foreign_pods(claim)

    def pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Hear of a pod that is in the cache already."""
        self._pods.pod_changed(old, new)

    def claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Hear of a claim that is in the cache already."""
        before, after = allocation_of(old), allocation_of(new)
        if not self._state.ready.is_set() or (before is None and after is None):
            if new is None and old is not None:
                self.ledger.gone(old)
            return
        if new is None:
            self.ledger.gone(old or {})
        else:
            self.ledger.shown(new, listed=not self._state.objects.informers["ResourceClaim"].resource_version)
            self._look_for_foreign_pods(new)
        if before != after:
            self.conflicts.changed((before, after))

    def _look_for_foreign_pods(self, claim: Obj) -> None:
        shown = self.ledger.get(namespaced_name(claim))
        if shown is not None and not shown.own:
            self._pods.claim_changed(claim)

    # -- confirming ----------------------------------------------------------------------------------------------------

    @property
    def must_confirm(self) -> bool:
        """Whether other schedulers allocate devices here, as far as is known."""
        if self._mode == "auto":
            # Where the pods of others go is not known: those of a partition's neighbours would always wait.
            waiting = self._pods.wait_for_devices and self._cluster.partition.is_whole
            return self.ledger.foreign > 0 or waiting or self.overlaps()
        return self._mode == "always"

    async def confirm(self, claims: Iterable[str]) -> None:
        """Wait until the watch has shown these allocations. Raises BindingError after ten seconds."""
        shown = [one for path in claims if (one := self.ledger.get(path)) is not None]
        revision = max((one.revision for one in shown), default=0)
        if not revision:
            return
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._state.objects.informers["ResourceClaim"].wait_seen(revision)
        except TimeoutError:
            text = f"the watch of claims did not show the allocation within {CONFIRM_SECONDS:g} s"
            raise BindingError(text) from None
        self._state.metrics.coexistence.confirmed(len(shown))

    def lost_to(self, path: str) -> str:
        """Why a claim must give its devices back: another claim had one first; "" if none had."""
        own = self.ledger.get(path)
        if own is None or self._is_bound(path):
            return ""
        for conflict in self.conflicts.of(allocated_devices(own.allocation)):
            for other in conflict.claims:
                shown = self.ledger.get(other)
                if other != path and shown is not None and self._wins(other, shown, path, own):
                    since = "is bound" if self._is_bound(other) else f"was first, at revision {shown.revision}"
                    beyond = f" (its {conflict.exceeded})" if conflict.exceeded else ""
                    return f"device {conflict.device}{beyond} is allocated to claim {other} too, which {since}"
        return ""

    def _wins(self, other: str, theirs: ShownAllocation, path: str, own: ShownAllocation) -> bool:
        if self._is_bound(other):
            return True
        # Two claims of one revision do not exist; of one list they may have none that is known.
        return theirs.precedes(own) or (not own.precedes(theirs) and other < path)

    def _is_bound(self, path: str) -> bool:
        """Tell whether a pod that uses the claim is known to be bound."""
        snapshot = self._cluster.snapshot()
        claim = snapshot.claims.get(path)
        if claim is None:
            return False
        for entry in (claim.get("status") or {}).get("reservedFor") or ():
            key = GroupKey(claim["metadata"].get("namespace", ""), entry.get("name", ""))
            if entry.get("resource") == "podgroups" and snapshot.group_state(key).assigned:
                return True
        pods = (snapshot.pods.get(user) for user in users_of(claim))
        return any(pod is not None and pod.node and not self._cluster.is_assumed(pod.key) for pod in pods)

    def _is_inside(self, device: DeviceId) -> bool:
        """Tell whether a device is in the partition: by its pool, and by a node that sees it."""
        partition = self._cluster.partition
        if not partition.has_pool(device.driver, device.pool):
            return False
        pool = self._cluster.devices.pools.get(f"{device.driver}/{device.pool}") if partition.limits_nodes else None
        if pool is None:
            return True
        names = {item.placement.node_name for item in pool.slices}
        nodes = (self._cluster.snapshot().nodes.get(name) for name in names if name)
        return not all(names) or any(node and partition.has_node(node.labels, node.taints) for node in nodes)

    def _is_served(self, claim: Obj) -> bool:
        """Tell whether no consumer of a claim names another scheduler."""
        snapshot = self._cluster.snapshot()
        paths = list(users_of(claim))
        for entry in (claim.get("status") or {}).get("reservedFor") or ():
            if entry.get("resource") == "podgroups":
                key = GroupKey(claim["metadata"].get("namespace", ""), entry.get("name", ""))
                paths += snapshot.group_state(key).all
        pods = (snapshot.pods.get(path) for path in paths)
        return all(pod is None or pod.scheduler_name in self._served for pod in pods)
