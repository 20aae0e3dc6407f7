"""A definition's schema as OpenAPI documents show it: with what its extensions say in words of OpenAPI.

Source: the OpenAPI builder of apiextensions.k8s.io, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.kube.meta import Obj

_EITHER = [{"type": "integer"}, {"type": "string"}]


def published(raw: Obj, type_meta: Obj) -> Obj:
    """A schema, with alternatives for integers that may be texts, and with `type_meta` in embedded objects."""
    made = dict(raw)
    if made.get("properties"):
        made["properties"] = {name: published(inner or {}, type_meta) for name, inner in made["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = published(made[name], type_meta)
    if made.get("x-kubernetes-int-or-string"):
        made |= _alternatives(made)
    if made.get("x-kubernetes-embedded-resource"):
        made["properties"] = {**(made.get("properties") or {}), **type_meta}
        given = made.get("required") or []
        made["required"] = [*given, *(name for name in ("kind", "apiVersion") if name not in given)]
    return made


def _alternatives(raw: Obj) -> dict[str, Any]:
    """The types of an integer that may be a text, where the schema does not name them."""
    any_of, all_of = raw.get("anyOf") or [], raw.get("allOf") or []
    if not any_of and not (all_of and all_of[0].get("anyOf") == _EITHER):
        return {"anyOf": _EITHER}
    if any_of == _EITHER or (all_of and all_of[0].get("anyOf") == _EITHER):
        return {}
    return {"allOf": [{"anyOf": _EITHER}, *all_of]}
