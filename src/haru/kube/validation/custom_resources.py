"""Rules for custom resources: their schema, the counts of their scale, embedded objects, and lists with keys.

CEL rules come after these. Source: apiextensions.k8s.io/v1, the strategy of custom resources, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haru.kube.custom.structural import Structural
from haru.kube.custom.structural_checks import type_problems
from haru.kube.custom.value_validation import below, judge, repetitions, validate_object_values
from haru.kube.errors import FieldError, invalid
from haru.kube.go_values import go_type, go_value
from haru.kube.kinds import CustomType
from haru.kube.meta import Obj
from haru.kube.validation.metadata import validate_embedded_metadata

_MAX_REPLICAS = (1 << 31) - 1


def validate_custom(obj: Obj, custom: CustomType, old: Obj | None = None) -> list[FieldError]:
    """Validate an object against the definition of its kind; what is as it was in `old` is left alone."""
    found = validate_object_values(obj, custom.schema, old)
    found += _scale(obj, custom, ("specReplicasPath", "statusReplicasPath"))
    found += _embedded(obj, custom.schema, "")
    return found + _new_repetitions(obj, old, custom)


def validate_custom_status(new: Obj, old: Obj, custom: CustomType) -> list[FieldError]:
    """Validate a write to the status, of which alone the schema judges."""
    found: list[FieldError] = []
    schema = custom.schema.properties.get("status")
    if schema is not None and "status" in new:
        # The texts have the path from the status on, the fields the whole one.
        found += [below(problem, "status") for problem in judge(new["status"], schema, "", old.get("status"))]
    found += _scale(new, custom, ("statusReplicasPath",))
    return found + _new_repetitions(new, old, custom)


def _new_repetitions(new: Obj, old: Obj | None, custom: CustomType) -> list[FieldError]:
    """Items that occur twice, unless some did before."""
    found = list(repetitions(new, custom.schema, ""))
    return [] if found and old is not None and any(repetitions(old, custom.schema, "")) else found


# --- scale


def _scale(obj: Obj, custom: CustomType, counts: tuple[str, ...]) -> list[FieldError]:
    """What is wrong with the counts, and with the selector, that the scale shows."""
    if custom.scale is None:
        return []
    found = [error for name in counts for error in _count(obj, custom.scale[name])]
    if path := custom.scale.get("labelSelectorPath"):
        found += _of_type(obj, path, str, "", "string")[1]
    return found


def _count(obj: Obj, path: str) -> Iterator[FieldError]:
    value, problems = _of_type(obj, path, int, 0, "int64")
    yield from problems
    if not problems and value < 0:
        yield invalid(path, value, "should be a non-negative integer")
    elif not problems and value > _MAX_REPLICAS:
        yield invalid(path, value, f"should be less than or equal to {_MAX_REPLICAS}")


def _typed(value: Any) -> str:
    return f"{go_value(value)} is of the type {go_type(value)}"


def _of_type(obj: Obj, path: str, wanted: type, absent: Any, name: str) -> tuple[Any, list[FieldError]]:
    """The value at a path of the definition, and why there is none of that type."""
    value: Any = obj
    for step in path.removeprefix(".").split("."):
        if value is None:
            return absent, []
        if not isinstance(value, dict):
            why = f"{path} accessor error: {_typed(value)}, expected map[string]interface{{}}"
            return absent, [invalid(path, absent, why)]
        if step not in value:
            return absent, []
        value = value[step]
    if isinstance(value, bool) or not isinstance(value, wanted):
        why = f"{path} accessor error: {_typed(value)}, expected {name}"
        return absent, [invalid(path, absent, why)]
    return value, []


# --- embedded objects


def _embedded(value: Any, schema: Structural, path: str) -> list[FieldError]:
    """What is wrong with the type and metadata of the objects inside of an object."""
    found: list[FieldError] = []
    if isinstance(value, dict):
        if schema.embedded:
            found += _embedded_object(value, path)
        for name, inner in value.items():
            declared = schema.properties.get(name) or schema.additional
            if declared is not None:
                below = f"{path}.{name}" if name in schema.properties else f"{path}[{name}]"
                found += _embedded(inner, declared, below.removeprefix("."))
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            found += _embedded(item, schema.items, f"{path}[{index}]")
    return found


def _embedded_object(value: Obj, path: str) -> Iterator[FieldError]:
    yield from type_problems(value, path)
    if isinstance(value.get("metadata"), dict):
        yield from validate_embedded_metadata(value["metadata"], f"{path}.metadata")
    elif "metadata" in value:
        yield invalid(f"{path}.metadata", value["metadata"], "must be an object")
