"""What the mutations of policies return, put into effect: configurations that are applied, JSON patches.

Source: KEP 3962, as behaviour; the words are those of 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haru.apiserver.admission.dynamic.attributes import Attributes, RequestView
from haru.apiserver.admission.dynamic.texts import Texts
from haru.cel.libraries import MisplacedError, PatchValueError, to_json
from haru.cel.values import Struct
from haru.kube.decoding import strict_decode
from haru.kube.defaulting import apply_defaults, stays_complete
from haru.kube.errors import StatusError, internal_error
from haru.kube.json_form import json_form
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.patch.declared import declared_of
from haru.kube.patch.json_patch import REJECTED, TestFailedError, apply_json_patch
from haru.kube.patch.overlay import OverlayError, check_overlay, is_plain
from haru.kube.patch.shapes import shape_of
from haru.kube.patch.typed import merge


class MutationError(Exception):
    """A mutation contributes nothing; the policy's `failurePolicy` decides what follows."""


def configured(obj: Obj, value: Any, seen: RequestView, attributes: Attributes) -> Obj:
    """The object with an `Object{}` laid over it, with defaults. Raises MutationError."""
    partial = _json(value, "error applying patch", as_go=True)
    kind = _kind(seen, attributes)
    partial["apiVersion"], partial["kind"] = kind.api_version, kind.kind
    try:
        partial = _fitting(partial, kind)
    except OverlayError as error:
        raise MutationError(f"error applying patch: {error}") from None
    except StatusError as error:
        why = error.message.partition(": ")[2]
        raise MutationError(f"unable to convert unstructured object to {kind.group_version_kind}: {why}") from None
    laid = merge(obj, partial, shape_of(kind.message_type))
    return obj if laid == obj else _defaulted(laid, obj, kind, attributes)


def with_texts(obj: Obj, found: Sequence[str], texts: Texts, attributes: Attributes) -> Obj:
    """As `configured`, for a configuration of texts."""
    laid = texts.put(obj, found)
    return laid if laid is obj or texts.is_complete else _defaulted(laid, obj, texts.kind, attributes)


def _fitting(partial: Obj, kind: Kind) -> Obj:
    """What a policy adds in the form that the kind has; the object itself has been decoded before.

    Raises OverlayError and StatusError.
    """
    shape = shape_of(kind.message_type)
    try:
        decoded, _ = strict_decode(partial, kind)
    except StatusError:
        check_overlay(partial, shape, declared_of(kind))  # in its words, where it has some
        raise
    if kind.custom is not None or decoded is not partial or not is_plain(partial, shape):
        check_overlay(partial, shape, declared_of(kind))
    return decoded


def patched(obj: Obj, value: Any, seen: RequestView, attributes: Attributes) -> Obj:
    """The object after a list of `JSONPatch{}`, with defaults; as it was where a `test` does not hold.

    Raises MutationError, and StatusError (500) where the result is no object of its kind.
    """
    operations = [_operation(each) for each in value]
    if not operations:
        return obj
    try:
        found = apply_json_patch(obj, operations, replace_adds=True, shared=True)
    except TestFailedError:
        return obj
    except StatusError as error:
        raise MutationError(f"JSON Patch: {error.message.removeprefix(REJECTED)}") from None
    kind = _kind(seen, attributes)
    if found == obj:
        return obj
    if (found.get("apiVersion"), found.get("kind")) != (kind.api_version, kind.kind):
        raise internal_error(f"a patch may not make {kind} another kind of object")
    try:
        decoded, problems = strict_decode(found, kind)
    except StatusError as error:
        raise internal_error(error.message) from None
    if problems:
        raise internal_error(f"strict decoding error: {', '.join(problems)}")
    return _defaulted(decoded, obj, kind, attributes)


def _defaulted(changed: Obj, before: Obj, kind: Kind, attributes: Attributes) -> Obj:
    """The changed object with defaults. What is in metadata has none, but for labels that others are copied to."""
    gates, now = attributes.call.objects.gates, attributes.call.now
    metadata = changed.get("metadata") or {}
    if kind.custom is not None:
        return apply_defaults(changed, kind, gates, now)
    if stays_complete(changed, before, kind):
        return json_form(changed, kind)
    seen = {name: metadata[name] for name in ("name", "labels") if name in metadata}
    filled = apply_defaults({**changed, "metadata": seen}, kind, gates, now, own=True)
    filled["metadata"] = {**metadata, **filled["metadata"]}
    return json_form(filled, kind)


def _operation(given: Any) -> Obj:
    """One JSONPatch{} as an operation."""
    if not isinstance(given, Struct):
        raise MutationError("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    found: Obj = {"op": "", "path": ""}
    for name in ("op", "path", "from"):
        text = given.get(name, "")
        if not isinstance(text, str):
            raise MutationError(f"unexpected type {type(text).__name__} for JSONPatchType '{name}' field")
        if text or name != "from":
            found[name] = text
    if "value" in given:
        why = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"
        found["value"] = _json(given["value"], why)
    return found


def _json(value: Any, why: str, *, as_go: bool = False) -> Any:
    """A value as JSON, with every `Object…{}` in its place. Raises MutationError."""
    try:
        return to_json(value, as_go=as_go)
    except MisplacedError as error:
        raise MutationError(f"type mismatch: {error}") from None
    except PatchValueError as error:
        raise MutationError(f"{why}: {error}") from None


def _kind(seen: RequestView, attributes: Attributes) -> Kind:
    """The kind of what is patched: the resource's in the version that the policy sees, or that of a body."""
    if attributes.is_whole:
        return seen.target.kind
    named = seen.kind
    return known_kind(f"{named.group}/{named.version}" if named.group else named.version, named.name)
