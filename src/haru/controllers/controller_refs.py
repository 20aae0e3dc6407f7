"""Who manages what: a controller adopts matching objects that nobody manages and lets go of those that match no more.

Before adopting, the owner is read past any cache: an owner that is gone or being deleted adopts nothing.
Source: Kubernetes `controller_ref_manager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from haru.client.informer import Informer
from haru.controllers.base import Controller
from haru.controllers.objects import by_controller, by_orphan_namespace
from haru.errors import raise_first
from haru.kube.errors import StatusError, conflict_error
from haru.kube.meta import Obj, is_being_deleted, labels_of, name_of, namespace_of, owner_reference, uid_of
from haru.kube.selectors import LabelSelector


def add_ownership_indexes(informer: Informer) -> None:
    """The indexes that `claim` reads."""
    informer.add_index("controller", by_controller)
    informer.add_index("orphan", by_orphan_namespace)


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """Say which objects belong to an owner: those that the selector matches and that fit.

    Only objects `among` these are considered. `finalizers` are added and removed with the owner reference.
    """

    selector: LabelSelector
    among: Callable[[Obj], bool] = lambda obj: True
    fits: Callable[[Obj], bool] = lambda obj: True
    finalizers: Sequence[str] = ()

    def belongs(self, obj: Obj) -> bool:
        """Tell whether an object belongs to the owner."""
        return self.selector.matches(labels_of(obj)) and self.fits(obj)


async def claim(
    controller: Controller, owners: Informer, owner: Obj, dependents: Informer, rule: ClaimRule
) -> list[Obj]:
    """Adopt and release by the rule; return what `owner` manages then, in the order in which it came.

    A failure to change one object does not stop the others: the first failure is raised at the end, a conflict if the
    owner may adopt nothing any more.
    """
    finalizers = rule.finalizers
    owned: list[Obj] = []
    failures: list[Exception] = []
    for obj in filter(rule.among, dependents.by_index("controller", uid_of(owner))):
        if rule.belongs(obj):
            owned.append(obj)
        elif not is_being_deleted(owner):
            try:
                await _release(controller, dependents, obj, owner, finalizers)
            except (StatusError, OSError) as error:
                failures.append(error)
    if not is_being_deleted(owner):
        found = filter(rule.among, dependents.by_index("orphan", namespace_of(owner)))
        if orphans := [obj for obj in found if rule.belongs(obj)]:
            await _recheck(controller, owners, owner)
        for obj in orphans:
            try:
                if adopted := await _adopt(
                    controller, dependents, obj, owner_reference(owner, owners.kind), finalizers
                ):
                    owned.append(adopted)
            except (StatusError, OSError) as error:
                failures.append(error)
    raise_first(failures)
    return owned


async def _recheck(controller: Controller, owners: Informer, owner: Obj) -> None:
    """Read the owner past any cache; a conflict if it is gone or goes."""
    live = await controller.live(owners.kind, name_of(owner), namespace_of(owner))
    if live is None or uid_of(live) != uid_of(owner):
        why = f"it is gone (uid {uid_of(owner)}) and adopts nothing"
    elif is_being_deleted(live):
        why = "it is being deleted and adopts nothing"
    else:
        return
    raise conflict_error(owners.kind.group, owners.kind.plural, name_of(owner), why)


async def _adopt(
    controller: Controller, dependents: Informer, orphan: Obj, reference: Obj, finalizers: Sequence[str]
) -> Obj | None:
    others = [r for r in orphan["metadata"].get("ownerReferences") or () if r.get("uid") != reference["uid"]]
    held = orphan["metadata"].get("finalizers") or ()
    change: Obj = {"ownerReferences": [*others, reference]}
    if added := [name for name in finalizers if name not in held]:
        change["finalizers"] = [*held, *added]
    return await _change(controller, dependents, orphan, change, (404,))


async def _release(
    controller: Controller, dependents: Informer, obj: Obj, owner: Obj, finalizers: Sequence[str]
) -> None:
    others = [r for r in obj["metadata"]["ownerReferences"] if r.get("uid") != uid_of(owner)]
    held = obj["metadata"].get("finalizers") or ()
    change: Obj = {"ownerReferences": others or None}
    if any(name in held for name in finalizers):
        change["finalizers"] = [name for name in held if name not in finalizers] or None
    await _change(controller, dependents, obj, change, (404, 422))


async def _change(
    controller: Controller, dependents: Informer, obj: Obj, change: Obj, ignored: Collection[int]
) -> Obj | None:
    """Write these parts of the metadata, unless somebody wrote in between; None if the object is not there."""
    metadata = {**change, "resourceVersion": obj["metadata"].get("resourceVersion")}
    try:
        await controller.patch(dependents, obj, {"metadata": metadata})
    except StatusError as error:
        if error.code in ignored:
            return None
        raise
    return dependents.get(name_of(obj), namespace_of(obj))
