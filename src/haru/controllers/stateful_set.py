"""statefulset-controller: pods with names that stay, each with volumes of its own, one after the other.

Pod N is created when all before it are ready, and removed when all after it are gone (Parallel: all at once). A new
template replaces pods from the highest number down to `partition`. Volume claims outlive pods unless the set's
retention policy says otherwise.
Source: apps/v1 StatefulSet, as behaviour; KEP-1847 (retention), KEP-3335 (start ordinal).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from haru.controllers.base import Context
from haru.controllers.controller_refs import ClaimRule, add_ownership_indexes, claim
from haru.controllers.objects import STATEFUL_SETS, VOLUME_CLAIMS, available_in, is_ready, is_terminal
from haru.controllers.pod_owner import PodOwnerController
from haru.controllers.revisions import (
    REVISIONS,
    forget_old,
    owned_revisions,
    present_revision,
    revision_of,
)
from haru.controllers.stateful_pods import (
    claim_owners,
    claims_of,
    first_ordinal,
    ordinal_of,
    replica_names,
    retained,
    stateful_pod,
)
from haru.errors import raise_first
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, name_of, namespace_of, owner_reference
from haru.kube.selectors import label_selector_from


def _update_strategy(stateful_set: Obj) -> tuple[str, int]:
    """The type of the strategy, and how many pods, the first ones, keep their template."""
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    return strategy.get("type") or "RollingUpdate", int(partition)


def _is_parallel(stateful_set: Obj) -> bool:
    return bool(stateful_set["spec"].get("podManagementPolicy") == "Parallel")


class StatefulSetController(PodOwnerController):
    """Keeps the numbered pods of each StatefulSet."""

    name: ClassVar[str] = "statefulset-controller"
    needs: ClassVar[tuple[Kind, ...]] = (STATEFUL_SETS, REVISIONS)

    def __init__(self, context: Context) -> None:
        super().__init__(context, STATEFUL_SETS)
        self.claims = self.informer(VOLUME_CLAIMS)
        self.revisions = self.informer(REVISIONS)
        add_ownership_indexes(self.revisions)
        self.follow(self.revisions)

    async def sync(self, key: str) -> float | None:
        """Bring one StatefulSet a step further."""
        namespace, _, name = key.partition("/")
        stateful_set = self.sets.get(name, namespace)
        if stateful_set is None or is_being_deleted(stateful_set):
            return None
        selector = label_selector_from(stateful_set["spec"].get("selector"))
        if selector.empty:
            return None
        await claim(self, self.sets, stateful_set, self.revisions, ClaimRule(selector))
        rule = ClaimRule(selector, fits=lambda pod: ordinal_of(stateful_set, pod) >= 0)
        await claim(self, self.sets, stateful_set, self.pods, rule)
        update = await present_revision(self, self.revisions, stateful_set, STATEFUL_SETS)
        current = self._current_revision(stateful_set, update)
        failures: list[Exception] = []
        try:
            await self._manage(stateful_set, current, update)
        except (StatusError, OSError) as error:
            failures.append(error)
        again = await self._write_status(self.sets.get(name, namespace) or stateful_set, current, update)
        used = {name_of(current), name_of(update), *map(revision_of, self._own(stateful_set))}
        await forget_old(self, self.revisions, stateful_set, used)
        raise_first(failures)
        return again

    def _own(self, stateful_set: Obj) -> list[Obj]:
        """The set's pods by their numbers."""
        own = self.pods.by_index("controller", stateful_set["metadata"]["uid"])
        return sorted(
            (pod for pod in own if ordinal_of(stateful_set, pod) >= 0), key=lambda p: ordinal_of(stateful_set, p)
        )

    def _current_revision(self, stateful_set: Obj, update: Obj) -> Obj:
        """The revision that pods have which are not updated yet."""
        wanted = (stateful_set.get("status") or {}).get("currentRevision")
        for revision in owned_revisions(self.revisions, stateful_set):
            if name_of(revision) == wanted:
                return revision
        return update

    # --- pods

    async def _manage(self, stateful_set: Obj, current: Obj, update: Obj) -> None:
        by_name = {name_of(pod): pod for pod in self._own(stateful_set)}
        wanted = replica_names(stateful_set)
        for name, pod in by_name.items():
            await self._keep_claims(stateful_set, pod, surplus=name not in wanted)
        if not await self._fill(stateful_set, wanted, by_name, current, update):
            return
        if not await self._shrink(stateful_set, wanted, by_name):
            return
        await self._roll(stateful_set, wanted, by_name, update)

    async def _fill(
        self, stateful_set: Obj, wanted: Sequence[str], by_name: dict[str, Obj], current: Obj, update: Obj
    ) -> bool:
        """Create missing pods in order; return whether all are available, so that surplus pods may be removed."""
        parallel = _is_parallel(stateful_set)
        for name in wanted:
            pod = by_name.get(name)
            if pod is not None and is_terminal(pod) and not is_being_deleted(pod):
                await self._delete(stateful_set, pod)
                pod = by_name.pop(name)
                if not parallel:
                    return False
                continue
            if pod is None:
                by_name[name] = await self._create(stateful_set, name, current, update)
                if not parallel:
                    return False
            elif not parallel and (is_being_deleted(pod) or not self._is_available(stateful_set, pod)):
                return False
        return True

    async def _shrink(self, stateful_set: Obj, wanted: Sequence[str], by_name: dict[str, Obj]) -> bool:
        """Remove surplus pods, the highest ordinal first; return whether there is none left.

        A pod that is not available stays until it is, unless all below it are: whoever repairs it may need its peers.
        """
        parallel = _is_parallel(stateful_set)
        surplus = [pod for name, pod in by_name.items() if name not in wanted]
        surplus.sort(key=lambda pod: -ordinal_of(stateful_set, pod))
        if not surplus:
            return True
        unwell = [pod for pod in surplus if is_being_deleted(pod) or not self._is_available(stateful_set, pod)]
        for pod in surplus:
            if is_being_deleted(pod):
                if not parallel:
                    return False
                continue
            if not parallel and pod in unwell and pod is not unwell[-1]:
                return False
            await self._delete(stateful_set, pod)
            if not parallel:
                return False
        return False

    async def _roll(self, stateful_set: Obj, wanted: Sequence[str], by_name: dict[str, Obj], update: Obj) -> None:
        """Replace the highest pod of an old template, once all above it are well."""
        strategy, partition = _update_strategy(stateful_set)
        if strategy != "RollingUpdate":
            return
        for index in range(len(wanted) - 1, partition - 1, -1):
            pod = by_name.get(wanted[index])
            if pod is None or is_being_deleted(pod):
                return
            if revision_of(pod) != name_of(update):
                await self._delete(stateful_set, pod)
                return
            if not self._is_available(stateful_set, pod):
                return

    async def _create(self, stateful_set: Obj, name: str, current: Obj, update: Obj) -> Obj:
        ordinal = int(name.rpartition("-")[2])
        strategy, partition = _update_strategy(stateful_set)
        keeps = strategy == "RollingUpdate" and ordinal - first_ordinal(stateful_set) < partition
        revision = current if keeps else update
        try:
            for body in claims_of(stateful_set, ordinal):
                if self.claims.get(name_of(body), namespace_of(body)) is None:
                    await self._create_claim(stateful_set, body, name)
            made = await self.create(self.pods, stateful_pod(stateful_set, ordinal, revision))
        except StatusError as error:
            if error.reason == "AlreadyExists":
                raise  # a pod that is not the set's has the name; once it is gone there is another try
            text = f"Create Pod {name} in StatefulSet {name_of(stateful_set)} failed error: {error}"
            self.events.event(stateful_set, "Warning", "FailedCreate", text)
            raise
        text = f"Create Pod {name} in StatefulSet {name_of(stateful_set)} successful"
        self.events.event(stateful_set, "Normal", "SuccessfulCreate", text)
        return made

    async def _create_claim(self, stateful_set: Obj, body: Obj, pod_name: str) -> None:
        if not retained(stateful_set, "whenDeleted"):
            body["metadata"]["ownerReferences"] = [owner_reference(stateful_set, STATEFUL_SETS)]
        what = f"Create Claim {name_of(body)}"
        try:
            await self.create(self.claims, body)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            text = f"{what} for Pod {pod_name} in StatefulSet {name_of(stateful_set)} failed error: {error}"
            self.events.event(stateful_set, "Warning", "FailedCreate", text)
            raise
        text = f"{what} Pod {pod_name} in StatefulSet {name_of(stateful_set)} success"
        self.events.event(stateful_set, "Normal", "SuccessfulCreate", text)

    async def _keep_claims(self, stateful_set: Obj, pod: Obj, *, surplus: bool) -> None:
        """Let the claims of a pod belong to whom the retention policy says, now that it or the pod has changed."""
        for body in claims_of(stateful_set, ordinal_of(stateful_set, pod)):
            live = self.claims.get(name_of(body), namespace_of(body))
            owners = claim_owners(stateful_set, pod, live, surplus=surplus) if live is not None else None
            if live is not None and owners is not None:
                # Its role lets it update claims, not patch them.
                await self.update(self.claims, {**live, "metadata": {**live["metadata"], "ownerReferences": owners}})

    async def _delete(self, stateful_set: Obj, pod: Obj) -> None:
        if await self.delete(self.pods, pod):
            text = f"Delete Pod {name_of(pod)} in StatefulSet {name_of(stateful_set)} successful"
            self.events.event(stateful_set, "Normal", "SuccessfulDelete", text)

    # --- status

    async def _write_status(self, stateful_set: Obj, current: Obj, update: Obj) -> float | None:
        own = [pod for pod in self._own(stateful_set) if not is_terminal(pod)]
        min_ready = stateful_set["spec"].get("minReadySeconds") or 0
        times = [available_in(pod, min_ready, self.now()) for pod in own]
        standing = [pod for pod in own if not is_being_deleted(pod)]
        updated = sum(revision_of(pod) == name_of(update) for pod in standing)
        wanted = len(replica_names(stateful_set))
        done = updated == len(standing) == wanted and all(map(is_ready, standing))
        shown = update if done and _update_strategy(stateful_set)[0] == "RollingUpdate" else current
        optional = {
            "readyReplicas": sum(map(is_ready, own)),
            "currentReplicas": sum(revision_of(pod) == name_of(shown) for pod in standing),
            "updatedReplicas": updated,
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
        }
        status: Obj = {
            "replicas": len(own),
            "collisionCount": (stateful_set.get("status") or {}).get("collisionCount", 0),
            "availableReplicas": sum(time == 0 for time in times),
            "currentRevision": name_of(shown),
            "updateRevision": name_of(update),
            **{name: value for name, value in optional.items() if value},
        }
        await self.update_status(self.sets, stateful_set, status)
        waits = [time for time in times if time]
        return min(waits) if waits else None
