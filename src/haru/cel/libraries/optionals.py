"""Optional values: `optional.of(x)`, `m[?k]`, `m.?f`, `orValue`."""

from __future__ import annotations

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.macros import OPTIONALS as MACROS
from haru.cel.overloads import function, member
from haru.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of, optional_of, param
from haru.cel.values import NONE, Optional, Value, find, find_field, index

_V, _K = param("V"), param("K")
_OPTIONAL = optional_of(_V)
OPTIONAL_TYPE = Type("opaque", "optional_type", (DYN,))


def _is_zero(value: Value) -> bool:
    if value.__class__ is Optional:
        return not value.present
    ns = getattr(value, "ns", None)
    return ns == 0 if ns is not None else not value


def _of_non_zero(value: Value) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _value(optional: Optional) -> Value:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _or(optional: Optional, other: Optional) -> Optional:
    return optional if optional.present else other


def _or_value(optional: Optional, default: Value) -> Value:
    return optional.value if optional.present else default


def _unwrap(optionals: list[Optional]) -> list[Value]:
    return [optional.value for optional in optionals if optional.present]


def _first(values: list[Value]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: list[Value]) -> Optional:
    return Optional(values[-1]) if values else NONE


LIBRARY = Library(
    "cel.lib.optional",
    {
        "optional.of": (function("optional_of", (_V,), _OPTIONAL, Optional),),
        "optional.ofNonZeroValue": (function("optional_ofNonZeroValue", (_V,), _OPTIONAL, _of_non_zero),),
        "optional.none": (function("optional_none", (), _OPTIONAL, lambda: NONE),),
        "optional.unwrap": (function("optional_unwrap", (list_of(_OPTIONAL),), list_of(_V), _unwrap),),
        "unwrapOpt": (member("optional_unwrapOpt", (list_of(_OPTIONAL),), list_of(_V), _unwrap),),
        "first": (member("list_first", (list_of(_V),), _OPTIONAL, _first),),
        "last": (member("list_last", (list_of(_V),), _OPTIONAL, _last),),
        "value": (member("optional_value", (_OPTIONAL,), _V, _value),),
        "hasValue": (member("optional_hasValue", (_OPTIONAL,), BOOL, lambda optional: optional.present),),
        "or": (member("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL, _or),),
        "orValue": (member("optional_orValue_value", (_OPTIONAL, _V), _V, _or_value),),
        "_?._": (function("select_optional_field", (DYN, STRING), _OPTIONAL, find_field),),
        "_[?_]": (
            function("list_optindex_optional_int", (list_of(_V), INT), _OPTIONAL, find),
            function("optional_list_optindex_optional_int", (optional_of(list_of(_V)), INT), _OPTIONAL, find),
            function("map_optindex_optional_value", (map_of(_K, _V), _K), _OPTIONAL, find),
            function("optional_map_optindex_optional_value", (optional_of(map_of(_K, _V)), _K), _OPTIONAL, find),
        ),
        "_[_]": (
            function("optional_list_index_int", (optional_of(list_of(_V)), INT), _OPTIONAL, index),
            function("optional_map_index_value", (optional_of(map_of(_K, _V)), _K), _OPTIONAL, index),
        ),
    },
    MACROS,
    types=(OPTIONAL_TYPE,),
)
