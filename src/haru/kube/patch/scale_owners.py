"""Who owns the count of a workload, as its Scale tells it, and back.

An apply of a Scale goes by the Scale alone: by the owners of the count, and by what the Scale shows of it. Afterwards
those that lost the count there lose it in the workload.
Source: k8s.io/apimachinery `util/managedfields` ScaleHandler, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.patch import managers
from haru.kube.patch.fieldset import FieldSet, less
from haru.kube.patch.managers import Holding, Holdings, Owner

SCALE_VERSION: Final = "autoscaling/v1"
_IN_SCALE: Final = FieldSet.of(("f:spec", "f:replicas"))


def in_scale(entries: Sequence[Mapping[str, Any]] | None, path: Sequence[str]) -> list[Obj]:
    """The managedFields of a Scale: of the owners of a workload those of the count, which lies at this path."""
    count, held = _count_at(path), managers.read(entries)
    return managers.write({who: replace(one, fields=_IN_SCALE) for who, one in held.items() if one.fields.meets(count)})


def in_workload(
    entries: Sequence[Mapping[str, Any]] | None, path: Sequence[str], scale: Obj, applier: Owner, api_version: str
) -> list[Obj]:
    """The managedFields of the workload after the applier's apply of a Scale.

    The applier itself loses nothing, even if it no longer sets the count, as in 1.36.
    """
    count, after = _count_at(path), managers.read((scale.get("metadata") or {}).get("managedFields"))
    found: Holdings = {}
    for who, one in managers.read(entries).items():
        is_lost = one.fields.meets(count) and who not in after and who != applier.identity
        found[who] = replace(one, fields=less(one.fields, count)) if is_lost else one
    for who, one in after.items():
        if who not in found and one.fields.meets(_IN_SCALE):
            owner = one.owner._replace(api_version=api_version)
            found.setdefault(owner.identity, Holding(owner, "", count))
    return managers.write(found)


def _count_at(path: Sequence[str]) -> FieldSet:
    return FieldSet.of(tuple(f"f:{name}" for name in path))
