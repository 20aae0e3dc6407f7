"""From `kubectl apply` to `kubectl apply --server-side`: the configuration that the former left in an annotation.

What a client applied itself and what has not changed since is no conflict for a server-side apply by `kubectl`, and the
annotation follows what it applies, so that either way of applying goes on from it. Other managers do without both.
Source: KEP-2155, and the field managers of k8s.io/apimachinery, as behaviour.
"""

from __future__ import annotations

from typing import Final

import orjson

from haru.kube.errors import StatusError
from haru.kube.go_values import HTML_ESCAPES
from haru.kube.meta import Obj, annotations_of
from haru.kube.patch.fieldset import EMPTY, FieldSet
from haru.kube.patch.shapes import Shape
from haru.kube.patch.typed import compare, field_set

ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER: Final = "kubectl"
_SIZE_LIMIT: Final = 256 * 1024


def applied_by_the_client(live: Obj, shape: Shape, api_version: str) -> FieldSet:
    """The fields that the annotation of a live object names with the values that they still have."""
    try:
        last = orjson.loads(annotations_of(live).get(ANNOTATION) or "null")
        if not isinstance(last, dict) or last.get("apiVersion") != api_version:
            return EMPTY
        named, difference = field_set(last, shape), compare(last, live, shape)
    except (ValueError, AttributeError, TypeError, StatusError):
        return EMPTY  # it holds no object of the kind
    return named - difference.changed - difference.removed


def with_last_applied(merged: Obj, applied: Obj) -> Obj:
    """The object after an apply; its annotation, if it has one, says what was applied."""
    annotations = annotations_of(merged)
    if not annotations.get(ANNOTATION):
        return merged
    metadata = applied.get("metadata") or {}
    if ANNOTATION in annotations_of(applied):
        kept = {key: value for key, value in metadata["annotations"].items() if key != ANNOTATION}
        metadata = {**metadata, "annotations": kept}
        applied = {**applied, "metadata": metadata}
    text = orjson.dumps(applied, option=orjson.OPT_SORT_KEYS).decode().translate(HTML_ESCAPES) + "\n"
    annotations = {**annotations, ANNOTATION: text}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _SIZE_LIMIT:
        del annotations[ANNOTATION]
    return {**merged, "metadata": {**merged["metadata"], "annotations": annotations}}
