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
    return [managers.entry(owner, now, fields)] if fields else []


def _without(fields: Obj, gone: FieldSet, *, whole: bool) -> Obj:
    """The fields (FieldsV1) less a set: its members alone, or with everything below them (`whole`)."""
    if not gone:
        return fields
    found: Obj = {}
    for element, inner in fields.items():
        is_gone, child = element in gone.members, gone.children.get(element)
        if not is_gone and (child is None or not inner):
            found[element] = inner
        elif inner and not (is_gone and whole):
            below = _without(inner, child, whole=whole) if child else dict(inner)
            is_member = below.pop(".", None) is not None and not is_gone
            if below:
                found[element] = {".": {}, **below} if is_member else below
            elif is_member:
                found[element] = {}
    return found
