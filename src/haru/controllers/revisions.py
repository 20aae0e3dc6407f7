"""Histories of pod templates: one ControllerRevision for each template that a workload object has had.

The newest revision is the present template's; going back to an earlier template renumbers its revision. Pods say in the
label `controller-revision-hash` which revision they are of: a StatefulSet's by its name, a DaemonSet's by its hash.
Source: Kubernetes controller history, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from haru.client.informer import Informer
from haru.controllers.base import Controller
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, annotations_of, labels_of, name_of, namespace_of, owner_reference, uid_of
from haru.kube.names import short_hash

REVISIONS = known_kind("apps/v1", "ControllerRevision")
POD_LABEL = "controller-revision-hash"
_HASH_LABELS = {"StatefulSet": "controller.kubernetes.io/hash"}
"""The label of a revision that has its hash, where that is not `controller-revision-hash`."""
_KEPT = 10
_ATTEMPTS = 5


def template_data(owner: Obj) -> Obj:
    """What a revision keeps of its owner: the template, as a patch that puts it back; in the order of the names,
    as everybody writes it who compares its bytes."""
    found: Obj = _sorted({"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}})
    return found


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def revision_of(pod: Obj) -> str:
    """What a pod says of the revision that it was made from: its name or its hash."""
    return labels_of(pod).get(POD_LABEL, "")


def hash_of(revision: Obj) -> str:
    """The hash that pods of a DaemonSet's revision carry."""
    return labels_of(revision).get(POD_LABEL, "")


def owned_revisions(informer: Informer, owner: Obj) -> list[Obj]:
    """The revisions of an owner, the oldest first."""
    found = informer.by_index("controller", uid_of(owner))
    return sorted(found, key=lambda r: (r.get("revision", 0), name_of(r)))


async def present_revision(controller: Controller, informer: Informer, owner: Obj, kind: Kind) -> Obj:
    """The revision of the owner's present template, made or renumbered where that is needed."""
    data = template_data(owner)
    known = owned_revisions(informer, owner)
    newest = known[-1].get("revision", 0) if known else 0
    equal = next((revision for revision in reversed(known) if revision.get("data") == data), None)
    if equal is not None:
        if equal.get("revision", 0) == newest:
            return equal
        return await controller.patch(informer, equal, {"revision": newest + 1}) or equal
    return await _make(controller, informer, owner, kind, newest + 1)


async def _make(controller: Controller, informer: Informer, owner: Obj, kind: Kind, number: int) -> Obj:
    data = template_data(owner)
    collisions = int((owner.get("status") or {}).get("collisionCount") or 0)
    for attempt in range(_ATTEMPTS):
        digest = short_hash(json.dumps([data, collisions + attempt], sort_keys=True))
        given = labels_of(owner["spec"]["template"])
        labels = {**given, _HASH_LABELS.get(kind.kind, POD_LABEL): digest}
        metadata: Obj = {
            "name": f"{name_of(owner)}-{digest}",
            "namespace": namespace_of(owner),
            "labels": labels,
            "ownerReferences": [owner_reference(owner, kind)],
        }
        if annotations_of(owner):
            metadata["annotations"] = dict(annotations_of(owner))
        body: Obj = {"apiVersion": REVISIONS.api_version, "kind": REVISIONS.kind, "metadata": metadata}
        try:
            return await controller.create(informer, {**body, "data": data, "revision": number})
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            live = await controller.live(REVISIONS, metadata["name"], metadata["namespace"])
            if live is not None and live.get("data") == data:
                return live
    raise RuntimeError(f"no name is left for a revision of {kind.kind} {name_of(owner)}")


async def forget_old(controller: Controller, informer: Informer, owner: Obj, used: Collection[str]) -> None:
    """Delete the oldest revisions beyond the owner's limit, but for those whose names are `used`."""
    limit: Any = owner["spec"].get("revisionHistoryLimit")
    spare = [revision for revision in owned_revisions(informer, owner) if name_of(revision) not in used]
    for revision in spare[: max(0, len(spare) - (_KEPT if limit is None else int(limit)))]:
        await controller.delete(informer, revision)
