"""One served version of a custom resource: what decodes, defaults, judges, merges and prints its objects.

It hangs on the `Kind`, so that everything that is done with a kind finds it there.
Source: apiextensions.k8s.io/v1 CustomResourceDefinitionVersion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from haru.kube.custom.merging import root_declared, root_shape
from haru.kube.custom.shaping import defaulted, pruned
from haru.kube.custom.structural import ANYTHING, Structural, parse
from haru.kube.decoding import TypeMismatchError, cannot_handle, decode_metadata
from haru.kube.errors import bad_request_error
from haru.kube.go_values import HTML_ESCAPES, LARGE, without_fractions
from haru.kube.json_path import JsonPathError, compile_path
from haru.kube.kinds import STANDARD_VERBS, Kind
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.printing.base import INVALID, UNKNOWN, Age, Printer, age, column, name
from haru.kube.repeated_names import unknown_field
from haru.kube.schema import Field, MessageType


class CustomType:
    """One version of a CustomResourceDefinition, decoded."""

    def __init__(
        self, version: Obj, label: str, *, terminating: bool = False, warning: str = "", list_kind: str = ""
    ) -> None:
        raw = (version.get("schema") or {}).get("openAPIV3Schema")
        self.raw: Obj = raw or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        self.schema: Structural = parse(raw) if raw else ANYTHING
        subresources = version.get("subresources") or {}
        self.has_status = subresources.get("status") is not None
        self.scale: Obj | None = subresources.get("scale")
        self.selectable: Mapping[str, str] = {
            path: path for item in version.get("selectableFields") or () if (path := item["jsonPath"].lstrip("."))
        }
        self.warning = warning
        """What to warn of who uses the version; empty: nothing."""
        self.list_kind = list_kind
        self.terminating = terminating
        """Whether the definition is being deleted, so that no object may be made any more."""
        self.message = self._message(label)
        self.declared = root_declared(self.schema)
        self.rules: Any = None
        """The compiled rules of the schema, once somebody asked: CEL is a room above this one."""
        self.converter: Any = None
        """Who converts objects into other versions; None: they differ in their apiVersion only."""
        self.reader: Any = None
        """Who completes objects that were stored under other schemas, where they are stored."""
        self.printer = _printer(version.get("additionalPrinterColumns") or ())

    def _message(self, label: str) -> MessageType:
        """The type as writes to the main resource and to `/status` divide it."""
        names = dict.fromkeys(("apiVersion", "kind", "metadata", *self.schema.properties))
        if not self.has_status:
            names.pop("status", None)
        else:
            names["status"] = None
        fields = {each: Field(each, None, "json") for each in names}
        message = MessageType(label, fields, "", {})
        message.shape = root_shape(self.schema)
        return message

    def decode(self, obj: Any, kind: Kind) -> tuple[Obj, list[str]]:
        """The object without what the schema does not know, and `unknown field "…"` for each of that.

        Raises 400 where the object, or its metadata, have the wrong form.
        """
        if not isinstance(obj, dict):
            raise bad_request_error(f"{kind.kind} in version {kind.version!r} is no object")
        metadata, unknown = decode_metadata(obj.get("metadata"), kind)
        try:
            kept, more = pruned(obj, self.schema)
        except TypeMismatchError as mismatch:
            raise cannot_handle(kind, str(mismatch)) from None
        kept = without_fractions(kept)
        if metadata is not obj.get("metadata"):
            kept = {**kept, "metadata": metadata}
        return kept, unknown + [unknown_field(path) for path in sorted(more)]

    def default(self, obj: Obj) -> Obj:
        """The object with the schema's defaults."""
        return defaulted(obj, self.schema)

    def with_stray_nulls(self, obj: Obj) -> Obj | None:
        """The object with defaults and with nulls that mean nothing; None if it has no such nulls."""
        kept = defaulted(obj, self.schema, keep_nulls=True)
        return kept if kept != self.default(obj) else None


def _deprecation(version: Obj, group: str, kind: str, versions: list[Obj]) -> str:
    """What to warn of who uses a version; it names the best newer one that stays, if the definition has no text."""
    if not version.get("deprecated"):
        return ""
    if text := version.get("deprecationWarning"):
        return str(text)
    better = sorted(
        (other for other in versions if other.get("served") and not other.get("deprecated")), key=_preference
    )
    told = f"{group}/{version['name']} {kind} is deprecated"
    if better and _preference(better[0]) < _preference(version):
        told += f"; use {group}/{better[0]['name']} {kind}"
    return told


def custom_kinds(definition: Obj) -> tuple[Kind, ...]:
    """The kinds of all versions that a definition serves, the preferred one first; empty before its names are its own.

    Objects are stored in the one version that is marked for it, served or not: `storage_kind` of each tells.
    """
    accepted = (definition.get("status") or {}).get("acceptedNames") or {}
    if not accepted.get("plural") or not accepted.get("kind"):
        return ()
    versions = sorted(definition["spec"]["versions"], key=_preference)
    return tuple(_kind(definition, version) for version in versions if version.get("served"))


def storage_kind_of(definition: Obj) -> Kind:
    """The kind of the version that objects are stored in."""
    (version,) = (version for version in definition["spec"]["versions"] if version.get("storage"))
    return _kind(definition, version)


def _kind(definition: Obj, version: Obj) -> Kind:
    spec, accepted = definition["spec"], definition["status"]["acceptedNames"]
    group, kind = spec["group"], accepted["kind"]
    terminating = bool(definition["metadata"].get("deletionTimestamp"))
    warning = _deprecation(version, group, kind, spec["versions"])
    custom = CustomType(
        version,
        f"{group}/{version['name']} {kind}",
        terminating=terminating,
        warning=warning,
        list_kind=accepted.get("listKind") or "",
    )
    subresources = (["scale"] if custom.scale else []) + (["status"] if custom.has_status else [])
    return Kind(
        group=group,
        version=version["name"],
        kind=kind,
        plural=accepted["plural"],
        singular=accepted.get("singular") or kind.lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(accepted.get("shortNames") or ()),
        categories=tuple(accepted.get("categories") or ()),
        verbs=STANDARD_VERBS,
        subresources=tuple(subresources),
        storage_version=next(v["name"] for v in spec["versions"] if v.get("storage")),
        type_name=f"{'.'.join(reversed(group.split('.')))}.{version['name']}.{kind}",
        virtual=False,
        custom=custom,
    )


def _preference(version: Obj) -> tuple[int, int, int, str]:
    return preference(version["name"])


def preference(name: str) -> tuple[int, int, int, str]:
    """Rank a version: v2 before v1 before v1beta2 before v1alpha1; names of another form last, in their order."""
    match = re.fullmatch(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?", name)
    if match is None:
        return (3, 0, 0, name)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), "")


# --- columns


_COLUMN = "Custom resource definition column (in JSONPath format): "


def _printer(columns: Any) -> Printer:
    """The name, the columns that the definition asks for, or the age where it asks for none."""
    chosen = list(columns) or [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    cells = [_cell(item) for item in chosen]
    definitions = [
        {
            "name": item["name"],
            "type": item["type"],
            "format": item.get("format") or "",
            "description": item.get("description") or f"{_COLUMN}{item['jsonPath']}",
            "priority": item.get("priority") or 0,
        }
        for item in chosen
    ]
    return Printer((column("Name"), *definitions), lambda obj: [name(obj), *(cell(obj) for cell in cells)])


def _cell(item: Obj) -> Callable[[Obj], Any]:
    kind = item["type"]
    if kind == "date" and item["jsonPath"] == ".metadata.creationTimestamp":
        return age
    try:
        find = compile_path(item["jsonPath"])
    except JsonPathError:
        return lambda obj: None

    def cell(obj: Obj) -> Any:
        found = find(obj)
        return _TYPED[kind](found[0]) if found else None

    return cell


def _text(value: Any) -> str:
    if value is None:
        return "<no value>"
    if isinstance(value, dict | list):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode().translate(HTML_ESCAPES)
    return value if isinstance(value, str) else json.dumps(value)


def _date(value: Any) -> Any:
    if not isinstance(value, str):
        return None
    if value in ("", "null"):
        return UNKNOWN
    try:
        return Age(parse_time(value))
    except ValueError:
        return INVALID


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer(value: Any) -> Any:
    number = _number(value)
    return number if number is None or abs(number) >= LARGE else int(number)


_TYPED: Mapping[str, Callable[[Any], Any]] = {
    "string": _text,
    "date": _date,
    "integer": _integer,
    "number": _number,
    "boolean": lambda value: value if isinstance(value, bool) else None,
}
"""The cell of a value in a column of a type; none for one of another type."""
