"""resourcequota-controller: says what quotas limit, and counts what of it is used.

Admission charges a quota together with every object that it lets through; this controller counts anew what was given
back, and what quotas count from now on. It reads the quota first and its objects after that, both as the server has
them, and writes only if the quota is still the same: whatever admission let through in between has changed it. So it
never counts too little.
Source: Kubernetes `resourcequota-controller`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from haru.client.definition_watch import DefinitionWatch
from haru.client.discovery import served_resources
from haru.client.informer import Informer, object_key
from haru.controllers.base import Context, Controller, gathering_pause, log
from haru.controllers.objects import CLAIMS, DEVICE_CLASSES, PODS, QUOTAS, SERVICES, VOLUME_CLAIMS, is_terminal
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, name_of, namespace_of
from haru.kube.quota.checking import evaluator_of, status_of, wanted_evaluators
from haru.kube.quota.claims import covers, extended_names, is_special, owning_pod
from haru.kube.quota.usage import Evaluator, Surroundings
from haru.kube.quota.volumes import changes_quota

_GATHER_SECONDS = 0.1
"""So long is waited after something was given back: more often is, and one look counts all of it."""
_FULL_SECONDS = 300.0
_UNHEARD_SECONDS = 1.0
"""After so long is counted again as long as deletions of what is counted are not heard of yet."""
_WHOLE = (PODS, CLAIMS, VOLUME_CLAIMS, SERVICES)
"""Kinds of which more than the number counts."""


class ResourceQuotaController(Controller):
    """Keeps the status of quotas; keys are `namespace/name`."""

    name: ClassVar[str] = "resourcequota-controller"
    needs: ClassVar[tuple[Kind, ...]] = (QUOTAS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.quotas = self.informer(QUOTAS)
        self.quotas.add_index("namespace", lambda quota: [namespace_of(quota)])
        self._sizes: dict[str, int] = {}
        """By quota, how many objects were listed when it was last counted."""
        self.quotas.add_handler(self._quota_added, self._quota_updated, self._quota_gone)
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._evaluators: dict[tuple[str, str], Evaluator] = {}
        self._heard: dict[tuple[str, str], Informer] = {}
        self._definitions = DefinitionWatch(self.client)
        self.classes = self.informer(DEVICE_CLASSES) if context.serves(DEVICE_CLASSES) else None
        for kind, changed in ((PODS, _gives_back), (VOLUME_CLAIMS, changes_quota), (SERVICES, _ports_differ)):
            informer = self._heard[kind.group, kind.plural] = self.informer(kind)
            informer.add_handler(on_update=self._on_update(changed), on_delete=self._given_back)

    def background(self) -> Iterable[Callable[[], Any]]:
        """Custom resources come and go."""
        return (self._definitions.run, self._keep_learning)

    async def run(self) -> None:
        """Learn what is served, then work until cancelled."""
        await self._learn()
        await super().run()

    async def _keep_learning(self) -> None:
        while True:
            await self._definitions.changed()
            try:
                await self._learn()
            except (StatusError, OSError) as error:
                log.warning("%s: cannot learn what is served: %s", self.name, error)

    async def _learn(self) -> None:
        served, kinds = await served_resources(self.client), dict[tuple[str, str], Kind]()
        for kind in served:
            evaluator = evaluator_of(kind.group, kind.plural)
            if kind.namespaced and evaluator is not None and {"list", "watch"} <= set(kind.verbs):
                kinds.setdefault((kind.group, kind.plural), kind)
                self._evaluators.setdefault((kind.group, kind.plural), evaluator)
        dropped = self.context.informers.drop_unserved(self._heard, served)
        others = kinds.keys() ^ self._kinds.keys() if self._kinds else ()
        keys = {*others, *((each.kind.group, each.kind.plural) for each in dropped)}
        self._kinds, changed = kinds, [self._evaluators[key] for key in keys]
        around = self._around()
        for quota in self.quotas.store.values() if changed else ():
            if wanted_evaluators(quota, changed, around):
                self.enqueue(quota)

    # -- what happened ------------------------------------------------------------------------------------------------

    def _quota_added(self, quota: Obj) -> None:
        self.queue.add(object_key(quota))

    def _quota_gone(self, quota: Obj) -> None:
        self._sizes.pop(object_key(quota), None)

    def _quota_updated(self, old: Obj, new: Obj) -> None:
        if old.get("spec") != new.get("spec"):
            self.queue.add(object_key(new))

    def _on_update(self, changed: Callable[[Obj, Obj], bool]) -> Callable[[Obj, Obj], None]:
        def updated(old: Obj, new: Obj) -> None:
            if self.quotas.store and changed(new, old):
                self._given_back(new)

        return updated

    def _given_back(self, obj: Obj) -> None:
        for quota in self.quotas.by_index("namespace", namespace_of(obj)) if self.quotas.store else ():
            key = object_key(quota)
            self.queue.add_after(key, max(_GATHER_SECONDS, gathering_pause(self._sizes.get(key, 0))))

    # -- one quota ----------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> float | None:
        """Count one quota anew."""
        namespace, _, name = key.partition("/")
        if self.quotas.get(name, namespace) is None:
            return None
        found = (await self.client.list(QUOTAS, namespace, field_selector=f"metadata.name={name}"))["items"]
        quota: Obj | None = found[0] if found else None
        if quota is None or is_being_deleted(quota):
            return None
        counted = self._counted(quota)
        if any(each not in counted for each in (quota.get("spec") or {}).get("hard") or ()):
            await self._learn()
        around = self._around()
        evaluators = wanted_evaluators(quota, self._evaluators.values(), around)
        heard = self._hear_of(evaluators)
        try:
            await self.update_status(self.quotas, quota, await self._status(quota, evaluators, around))
        except StatusError as error:
            if error.code == 409:
                # Charged meanwhile: what was counted may lack an object.
                return _GATHER_SECONDS
            if error.code != 404:
                raise
            return None
        return _FULL_SECONDS if heard else max(_UNHEARD_SECONDS, gathering_pause(self._sizes.get(key, 0)))

    def _around(self) -> Surroundings:
        classes = extended_names(self.classes.store.values()) if self.classes is not None else {}
        return Surroundings(self.now(), classes, self.gates.enabled("DRAExtendedResource"))

    def _counted(self, quota: Obj) -> set[str]:
        hard = (quota.get("spec") or {}).get("hard") or {}
        around = self._around()
        return {name for evaluator in self._evaluators.values() for name in evaluator.names(hard, around)}

    async def _status(self, quota: Obj, evaluators: Iterable[Evaluator], around: Surroundings) -> Obj:
        namespace = namespace_of(quota)
        objects: list[tuple[Evaluator, Sequence[Obj]]] = []
        pods: list[Obj] = []
        for evaluator in evaluators:
            kind = self._kinds.get((evaluator.group, evaluator.plural))
            if kind is None:  # served no longer: then there are none
                objects.append((evaluator, ()))
                continue
            listed = await self._all(kind, namespace)
            if kind.plural == CLAIMS.plural and around.extended and any(is_special(claim) for claim in listed):
                pods = await self._all(PODS, namespace)
                around = Surroundings(around.now, around.classes, True, _pods_of(pods, listed))
            objects.append((evaluator, listed))
        self._sizes[object_key(quota)] = sum(len(listed) for _, listed in objects)
        return status_of(quota, objects, around)

    async def _all(self, kind: Kind, namespace: str) -> list[Obj]:
        whole = any((kind.group, kind.plural) == (other.group, other.plural) for other in _WHOLE)
        client = self.client if whole else self.client.metadata_only()
        listed: list[Obj] = (await client.list(kind, namespace))["items"]
        return listed

    def _hear_of(self, evaluators: Iterable[Evaluator]) -> bool:
        """Hear of deletions of all that is counted; tell whether they are heard of already."""
        informers = []
        for evaluator in evaluators:
            key = (evaluator.group, evaluator.plural)
            if key not in self._heard and key in self._kinds:
                informer = self._heard[key] = self.context.informers.metadata(self._kinds[key])
                informer.add_handler(on_delete=self._given_back)
            if key in self._heard:
                informers.append(self._heard[key])
        return all(informer.has_synced for informer in informers)


def _gives_back(new: Obj, old: Obj) -> bool:
    """A pod has ended, is smaller than it was, or has come into another scope."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    return is_terminal(new) != is_terminal(old) or (spec is not before and spec != before)


def _ports_differ(new: Obj, old: Obj) -> bool:
    parts = ("type", "ports", "allocateLoadBalancerNodePorts")
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    return any(spec.get(part) != before.get(part) for part in parts)


def _pods_of(pods: Sequence[Obj], claims: Sequence[Obj]) -> Callable[[Obj], Obj | None]:
    """The pods whose own usage covers special claims."""
    by_owner = {(name_of(pod), pod["metadata"]["uid"]): pod for pod in pods}

    def pod_of(claim: Obj) -> Obj | None:
        owner = owning_pod(claim)
        pod = by_owner.get(owner) if owner is not None else None
        siblings = [other for other in claims if is_special(other) and owning_pod(other) == owner]
        return pod if pod is not None and covers(pod, claim, siblings) else None

    return pod_of
