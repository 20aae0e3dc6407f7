"""Warnings about CustomResourceDefinitions: formats that nobody checks."""

from __future__ import annotations

import json
from collections.abc import Iterator

from haru.kube.custom.formats import check_of
from haru.kube.custom.structural_checks import Raw, below_combinations
from haru.kube.meta import Obj

_OF_NUMBERS = {"integer": {"int32", "int64"}, "number": {"float", "double"}}


def definition_warnings(definition: Obj) -> Iterator[str]:
    """One for each format that its schemas name and 1.36 does not know."""
    for version in (definition.get("spec") or {}).get("versions") or ():
        for name in _unknown_formats((version.get("schema") or {}).get("openAPIV3Schema") or {}):
            yield f"unrecognized format {json.dumps(name, ensure_ascii=False)}"


def _unknown_formats(raw: Raw) -> Iterator[str]:
    name, kind = str(raw.get("format") or ""), raw.get("type") or ""
    known = check_of(name) is not None if kind in ("", "string") else name in _OF_NUMBERS.get(kind, ())
    if name and not known:
        yield name
    items, additional = raw.get("items"), raw.get("additionalProperties")
    inner = [*(raw.get("properties") or {}).values(), *(below for _, below in below_combinations(raw))]
    inner += items if isinstance(items, list) else [items]
    for below in [*inner, additional]:
        if isinstance(below, dict):
            yield from _unknown_formats(below)
