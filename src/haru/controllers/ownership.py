"""Who manages what: a controller adopts matching objects that nobody manages and lets go of those that match no more.

Before adopting, the owner is read past any cache: an owner that is gone or being deleted adopts nothing.
Source: Kubernetes `controller_ref_manager`.
"""

from __future__ import annotations

from typing import Any

from haru.client.informer import Informer
from haru.controllers.base import Controller
from haru.controllers.objects import by_controller, by_orphan_namespace
from haru.kube.errors import StatusError
from haru.kube.meta import is_being_deleted, labels_of, name_of, namespace_of, owner_reference, uid_of
from haru.kube.selectors import LabelSelector

Obj = dict[str, Any]


def add_ownership_indexes(informer: Informer) -> None:
    """The indexes that `claim` reads."""
    informer.add_index("controller", by_controller)
    informer.add_index("orphan", by_orphan_namespace)


async def claim(
    controller: Controller, owners: Informer, owner: Obj, dependents: Informer, selector: LabelSelector
) -> list[Obj]:
    """What `owner` manages after adoption and release, in the order in which it came."""
    owned = []
    for obj in dependents.by_index("controller", uid_of(owner)):
        if selector.matches(labels_of(obj)):
            owned.append(obj)
        elif not is_being_deleted(owner):
            await _release(controller, dependents, obj, owner)
    if is_being_deleted(owner):
        return owned
    orphans = [o for o in dependents.by_index("orphan", namespace_of(owner)) if selector.matches(labels_of(o))]
    if orphans and await _may_adopt(controller, owners, owner):
        for orphan in orphans:
            if adopted := await _adopt(controller, dependents, orphan, owner, owners):
                owned.append(adopted)
    return owned


async def _may_adopt(controller: Controller, owners: Informer, owner: Obj) -> bool:
    live = await controller.live(owners.kind, name_of(owner), namespace_of(owner))
    return live is not None and uid_of(live) == uid_of(owner) and not is_being_deleted(live)


async def _adopt(controller: Controller, dependents: Informer, orphan: Obj, owner: Obj, owners: Informer) -> Obj | None:
    references = [*(orphan["metadata"].get("ownerReferences") or ()), owner_reference(owner, owners.kind)]
    return await _set_references(controller, dependents, orphan, references)


async def _release(controller: Controller, dependents: Informer, obj: Obj, owner: Obj) -> None:
    references = [r for r in obj["metadata"]["ownerReferences"] if r.get("uid") != uid_of(owner)]
    await _set_references(controller, dependents, obj, references)


async def _set_references(controller: Controller, dependents: Informer, obj: Obj, references: list[Obj]) -> Obj | None:
    metadata = {"ownerReferences": references or None, "resourceVersion": obj["metadata"].get("resourceVersion")}
    try:
        await controller.patch(dependents, obj, {"metadata": metadata})
    except StatusError as error:
        if error.code == 404:
            return None
        raise
    return dependents.get(name_of(obj), namespace_of(obj))
