"""Whether a value of a custom resource is what it was before an update: what did not change is not refused (KEP 4008).

The schema says so, as in 1.36: an item of a list with keys is compared with the one of the same keys, wherever that is,
and what holds a member that the schema does not declare is another value in any case.
Source: k8s.io/apiserver `cel/common` CorrelatedObject, as behaviour.
"""

from __future__ import annotations

import json
from typing import Any

from haru.kube.custom.structural import Structural
from haru.kube.equality import same_json
from haru.kube.meta import Obj


def is_unchanged(new: Any, old: Any, schema: Structural) -> bool:
    """Whether a value means what it meant before; 1 is neither 1.0 nor true."""
    if new != old:
        if not schema.has_keyed_lists:
            return False
    elif not schema.has_undeclared:
        return same_json(new, old)
    if isinstance(new, dict) and isinstance(old, dict):
        return new.keys() == old.keys() and _are_members_unchanged(new, old, schema)
    if isinstance(new, list) and isinstance(old, list) and schema.list_type == "map" and schema.items is not None:
        return len(new) == len(old) and _are_items_unchanged(new, old, schema, schema.items)
    return same_json(new, old)


def _are_members_unchanged(new: Obj, old: Obj, schema: Structural) -> bool:
    # What differs to the letter comes first: as a rule it differs, and the rest need not be looked at.
    names = sorted(new, key=lambda name: bool(new[name] == old[name]))
    declared = ((name, schema.properties.get(name) or schema.additional) for name in names)
    return all(inner is not None and is_unchanged(new[name], old[name], inner) for name, inner in declared)


def _are_items_unchanged(new: list[Any], old: list[Any], schema: Structural, inner: Structural) -> bool:
    pairs = list(zip(new, old, strict=True))
    elsewhere = items_by_key([before for item, before in pairs if item != before], schema)
    moved = ((item, elsewhere.get(item_key(item, schema))) for item, before in pairs if item != before)
    return all(before is not None and is_unchanged(item, before, inner) for item, before in moved) and all(
        is_unchanged(item, before, inner) for item, before in pairs if item == before
    )


def items_by_key(items: Any, schema: Structural) -> dict[str | None, Any]:
    """The items of a list with keys by those, of equal ones the first; empty for lists whose items have none."""
    if not isinstance(items, list) or schema.list_type != "map":
        return {}
    found = {item_key(item, schema): item for item in reversed(items)}
    found.pop(None, None)
    return found


def item_key(item: Any, schema: Structural) -> str | None:
    """What tells an item of a list with keys apart from the others; None where it lacks one of them."""
    if not isinstance(item, dict):
        return None
    keys = [item.get(key) for key in schema.list_map_keys]
    return json.dumps(keys) if all(isinstance(key, str | int | float) for key in keys) else None
