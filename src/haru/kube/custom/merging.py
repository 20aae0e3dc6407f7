"""How values of a structural schema take part in server-side apply: what is declared of them, and how they merge.

Maps merge by name, keyed lists by key, and the rest is replaced whole.

Source: structured-merge-diff schemas made of structural schemas, as behaviour (KEP 555).
"""

from __future__ import annotations

from typing import Final

from haru.kube.custom.structural import Structural
from haru.kube.patch.declared import ANY as UNTYPED
from haru.kube.patch.declared import BOOLEAN, NUMERIC, SCALAR, STRING, Declared, declared_by
from haru.kube.patch.shapes import ANY, LEAF, Shape, shape_of
from haru.kube.schema import message_type

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class SchemaShape(Shape):
    """The shape of an object whose members a schema declares; others may be anything."""

    __slots__ = ("_declared", "_open", "_resource")

    def __init__(self, schema: Structural, *, resource: bool) -> None:
        super().__init__("object")
        self._declared = schema.properties
        self._open = schema.preserves_unknown
        self._resource = resource or schema.embedded

    def field(self, name: str) -> Shape:
        """The shape of a member."""
        found = self._fields.get(name)
        if found is None:
            found = self._fields[name] = self._shape(name)
        return found

    def _shape(self, name: str) -> Shape:
        if self._resource and name == "metadata":
            return shape_of(message_type(_META))
        if self._resource and name in ("apiVersion", "kind"):
            return LEAF
        declared = self._declared.get(name)
        return schema_shape(declared) if declared is not None else ANY

    def names(self, name: str) -> bool:
        """Whether the schema declares this member."""
        return name in self._declared or (self._resource and name in ("apiVersion", "kind", "metadata"))

    def allows(self, name: str) -> bool:
        """Whether an object may have this member."""
        return self._open or self.names(name)

    def never_absent(self, name: str) -> bool:
        """No member of a custom resource exists without being given."""
        return False


def root_shape(schema: Structural) -> Shape:
    """The shape of whole objects."""
    return SchemaShape(schema, resource=True)


def schema_shape(schema: Structural) -> Shape:
    """The shape of a part of an object."""
    if schema.type == "array":
        return _list_shape(schema)
    if schema.int_or_string or schema.type not in ("", "object"):
        return LEAF
    if schema.map_type == "atomic":
        return LEAF
    if schema.additional is not None:
        return Shape("map", element=schema_shape(schema.additional))
    if schema.properties or schema.embedded:
        return SchemaShape(schema, resource=False)
    return ANY


def _list_shape(schema: Structural) -> Shape:
    items = schema.items
    if items is None or schema.list_type not in ("set", "map"):
        return LEAF
    if schema.list_type == "set":
        return Shape("set", element=schema_shape(items))
    defaults = {key: items.properties.get(key) for key in schema.list_map_keys}
    keys = tuple((key, found.default if found is not None else None) for key, found in defaults.items())
    return Shape("keyed", element=schema_shape(items), keys=keys)


# --- what is declared


def root_declared(schema: Structural) -> Declared:
    """What is declared of whole objects."""
    return _declared_object(schema, resource=True)


def _declared(schema: Structural) -> Declared:
    if schema.type == "array":
        items = _declared(schema.items) if schema.items is not None else UNTYPED
        return Declared("list", items, _list_shape(schema))
    if schema.type == "object" or schema.properties or schema.embedded:
        return _declared_object(schema, resource=False)
    if schema.type == "string" and schema.checks.get("format") not in (None, "", "byte"):
        return SCALAR
    return _SCALARS.get(schema.type, UNTYPED)


def _declared_object(schema: Structural, *, resource: bool) -> Declared:
    if schema.additional is not None:
        return Declared("map", _declared(schema.additional))
    is_resource = resource or schema.embedded
    if not schema.properties and not is_resource:
        return Declared("map", UNTYPED)

    def find(name: str) -> Declared | None:
        if is_resource and name == "metadata":
            return declared_by(message_type(_META))
        if is_resource and name in ("apiVersion", "kind"):
            return STRING
        found = schema.properties.get(name)
        return _declared(found) if found is not None else None

    return Declared("object", find=find, keeps_unknown=schema.preserves_unknown)


_SCALARS: Final = {"string": STRING, "integer": NUMERIC, "number": NUMERIC, "boolean": BOOLEAN}
