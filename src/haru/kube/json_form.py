"""The JSON form of an object: which fields without a value are written, and as what.

Kubernetes keeps objects as Go structs, so that an object tells nothing of how it was sent: `paused: false` and no
`paused` are one. What is written is a fact of each field: an empty one is left out, or it is there as null, zero or an
object of such fields. Every message type is compiled once to a function that returns what it is given where there is
nothing to do. Custom resources are no structs and stay as they are.
Source: the JSON tags of the Go API types (`Field.written`, `Field.pointer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from operator import is_
from typing import Any, Literal, Protocol

from haru.kube.conversion import convert
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.schema import SCALARS, SCHEMA_OF_JSON, SCHEMAS_IN_JSON, Field, MessageType, message_type, type_of


class _Form(Protocol):
    """The function of a message: what it returns of a value, some of which may be as it should be already."""

    def __call__(self, value: Any, known: Any = None, /) -> Any: ...


_AS_GIVEN = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})
"""Groups whose objects are stored as JSON: an empty list is no absent one there, as it is in protobuf."""
_NOTHING: Mapping[str, Any] = {}
Empties = Literal["dropped", "given", "kept"]
"""Whether an empty list or map is none, only where the field is not written without a value, or never."""
_forms: dict[tuple[str, Empties], _Form] = {}


def json_form(obj: Obj, kind: Kind, known: Obj | None = None, *, empties: Empties | None = None) -> Obj:
    """The object as the API server writes it; the object itself where that is how it is.

    `known` was written before: what is as in it needs no look. With `kept` a list that was sent empty is no absent one,
    as in what is judged; with `given` it is one where null would be written, as in what has owners.
    """
    if kind.custom is not None:
        return obj
    empties = empties or ("given" if kind.group in _AS_GIVEN else "dropped")
    found: Obj = _form(type_of(kind), empties)(obj, known)
    return found


def served(obj: Obj, to: Kind) -> Obj:
    """An object in the version of a kind that no webhook converts, as it is written there."""
    found = convert(obj, to)
    return found if found is obj else json_form(found, to)


def _form(target: MessageType, empties: Empties) -> _Form:
    """The function for objects of a message."""
    key = (target.name, empties)
    known = _forms.get(key)
    if known is not None:
        return known
    nested: dict[str, _Form] = {}
    emptied = frozenset(name for name, field in target.fields.items() if _has_no_empty_value(field, empties))
    always: dict[str, Callable[[], Any]] = {}

    def form(obj: Any, known: Any = None, /) -> Any:
        if type(obj) is not dict:
            return obj
        changed: dict[str, Any] = {}
        gone: list[str] = []
        if not all(obj.values()):
            for name, value in obj.items():
                if not value and (value is None or name in emptied):
                    zero_of = always.get(name)
                    if zero_of is None:
                        gone.append(name)
                    elif (zero := zero_of()) is not value:
                        changed[name] = zero
        before = known if type(known) is dict else _NOTHING
        for name in parts.intersection(obj):
            value, part = obj[name], before.get(name)
            if value is not part and value != part and (found := nested[name](value, part)) is not value:
                changed[name] = found
        if always and not always.keys() <= obj.keys():
            for name, zero_of in always.items():
                if name not in obj:
                    changed[name] = zero_of()
        if not changed and not gone:
            return obj
        whole = {**obj, **changed}
        for name in gone:
            del whole[name]
        return whole

    _forms[key] = form  # before the fields: types may contain themselves
    for name, field in target.fields.items():
        if field.is_message:
            nested[name] = _within(_form(message_type(field.type), empties), field)
        elif target.name == SCHEMA_OF_JSON and name in SCHEMAS_IN_JSON:
            nested[name] = _schemas(form)
        if field.written:
            always[name] = _zero_of(field, empties)
    parts = frozenset(nested)
    return form


_NEVER_EMPTY = frozenset({"json", "fieldsV1", "intOrString", "quantity"})


def _has_no_empty_value(field: Field, empties: Empties) -> bool:
    """Whether an empty value of the field is none."""
    if field.container != "one":
        return empties == "dropped" or (empties == "given" and not field.written)
    return not (field.written or field.pointer or field.is_message or field.type in _NEVER_EMPTY)


def _zero_of(field: Field, empties: Empties) -> Callable[[], Any]:
    if field.container != "one" or field.pointer or field.type in ("bytes", "json"):
        return lambda: None
    if field.is_message:
        target = message_type(field.type)
        return lambda: _form(target, empties)({})
    zero = SCALARS[field.type].zero
    return lambda: zero


def _within(one: _Form, field: Field) -> _Form:
    """A message's function for what a field holds."""
    if field.container == "list":

        def form_items(values: Any, known: Any = None, /) -> Any:
            if type(values) is not list:
                return values
            if type(known) is list and known:
                pairs = zip_longest(values, known[: len(values)])
                found = [value if value == part else one(value, part) for value, part in pairs]
            else:
                found = [one(value) for value in values]
            return values if all(map(is_, found, values)) else found

        return form_items
    if field.container == "map":

        def form_values(values: Any, known: Any = None, /) -> Any:
            if type(values) is not dict:
                return values
            found = {key: one(value) for key, value in values.items()}
            return values if all(map(is_, found.values(), values.values())) else found

        return form_values
    return one


def _schemas(one: _Form) -> _Form:
    """The function for a member of a schema that holds a schema, several of them, or something else."""
    return lambda value, known=None, /: [one(item) for item in value] if type(value) is list else one(value)
