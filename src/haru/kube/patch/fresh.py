"""The managed fields of an object that has just been made: what comparing it with nothing gives, in one walk.

Creations are most of the writes that there are; sets of fields are not worth building for them.
Source: as `haru.kube.patch.apply`.
"""

from __future__ import annotations

from typing import Any

from haru.kube.patch import managers
from haru.kube.patch.fieldset import FieldSet
from haru.kube.patch.managers import Owner
from haru.kube.patch.typed import Shape, new_fields

Obj = dict[str, Any]


def entries_of(obj: Obj, owner: Owner, now: str, shape: Shape, ignored: FieldSet) -> list[Obj]:
    """The managedFields list after `owner` has made an object of which nobody held anything."""
    fields = _without(_without(new_fields(obj, shape), ignored, whole=True), managers.SERVER_OWNED, whole=False)
    return [managers.entry(owner, now, _sorted(fields))] if fields else []


def _without(fields: Obj, gone: FieldSet, *, whole: bool) -> Obj:
    """The fields (FieldsV1) less a set: its members alone, or with everything below them (`whole`)."""
    found = dict(fields)
    for element in gone.members | gone.children.keys():
        inner = fields.get(element)
        if inner is None:
            continue
        below = {name: part for name, part in inner.items() if name != "."}
        member = not inner or "." in inner
        if element in gone.members:
            member = False
            if whole:
                below = {}
        if below and (child := gone.children.get(element)):
            below = _without(below, child, whole=whole)
        if below:
            found[element] = {".": {}, **below} if member else below
        elif member:
            found[element] = {}
        else:
            del found[element]
    return found


def _sorted(fields: Obj) -> Obj:
    return {element: _sorted(fields[element]) if fields[element] else {} for element in sorted(fields)}
