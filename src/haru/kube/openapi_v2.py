"""OpenAPI v2: one document for everything, made of the documents of version 3.

Terraform, Argo CD and kubectl before 1.27 read it. Version 2 has no alternatives (`oneOf`, `anyOf`, `not`), no nulls
and no defaults, lets descriptions stand beside references, and puts bodies among the parameters.
Source: the OpenAPI v2 of Kubernetes 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable

from haru.kube.meta import Obj

_COMPONENTS, _DEFINITIONS = "#/components/schemas/", "#/definitions/"
_KEPT = (
    "description", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maxProperties",
    "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "required", "title",
    "type", "uniqueItems",
)  # fmt: skip
_UNKNOWN, _KIND = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-group-version-kind"
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_TEXT_OR_NUMBER = ("io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString")


def openapi_v2_document(documents: Iterable[Obj]) -> Obj:
    """The document for all that these documents of version 3 describe."""
    paths: Obj = {}
    definitions: Obj = {}
    for document in documents:
        for path, item in document["paths"].items():
            paths[path] = _path_item(item)
        for name, raw in document["components"]["schemas"].items():
            definitions.setdefault(name, _definition(name, raw))
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
        "securityDefinitions": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}},
        "security": [{"BearerToken": []}],
    }


# --- schemas


def _definition(name: str, raw: Obj) -> Obj:
    if _UNKNOWN in raw and _KIND in raw:
        # With any property named, kubectl would refuse those that are not.
        return {"type": "object", _KIND: raw[_KIND]}
    # Values that are texts or numbers are texts where there are no alternatives.
    return _schema({**raw, "type": "string"} if name in _TEXT_OR_NUMBER else raw)


def _schema(raw: Obj) -> Obj:
    """A schema of version 3 as version 2 can say it; of alternatives nothing is left."""
    reference = raw.get("$ref") or next((part["$ref"] for part in raw.get("allOf") or () if "$ref" in part), None)
    if reference is not None:
        found: Obj = {"$ref": _DEFINITIONS + reference.removeprefix(_COMPONENTS)}
        if raw.get("description"):
            found["description"] = raw["description"]
        return found | _extensions(raw)
    found = {key: raw[key] for key in _KEPT if raw.get(key) is not None}
    if raw.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    if raw.get(_UNKNOWN):
        if found.get("type") in ("object", "array"):
            del found["type"]
        return found | _extensions(raw)
    inner = raw.get("properties") or {}
    nullable = {name for name, one in inner.items() if one.get("nullable")}
    if nullable and (required := [name for name in found.pop("required", ()) if name not in nullable]):
        found["required"] = required
    if raw.get("nullable"):
        # With a type, kubectl would refuse null; without one, it takes neither properties nor items.
        found.pop("type", None)
    else:
        if inner:
            found["properties"] = {name: _schema(one) for name, one in inner.items()}
        if isinstance(raw.get("items"), dict):
            found["items"] = _schema(raw["items"])
    if isinstance(raw.get("additionalProperties"), dict):
        found["additionalProperties"] = _schema(raw["additionalProperties"])
    elif raw.get("additionalProperties") is True:
        found["additionalProperties"] = True
    return found | _extensions(raw)


def _extensions(raw: Obj) -> Obj:
    return {key: value for key, value in raw.items() if key.startswith("x-")}


# --- paths


def _path_item(item: Obj) -> Obj:
    found: Obj = {method: _operation(item[method]) for method in _METHODS if method in item}
    return found | {"parameters": [_parameter(one) for one in item.get("parameters") or ()]}


def _operation(operation: Obj) -> Obj:
    kept: Obj = {key: operation[key] for key in ("operationId", "tags", "description") if key in operation}
    parameters = [_parameter(one) for one in operation.get("parameters") or ()]
    produces = {media: None for answer in operation["responses"].values() for media in answer.get("content") or ()}
    consumes = ["*/*"]
    body = operation.get("requestBody")
    if body is not None:
        consumes = list(body["content"])
        schema = next(iter(body["content"].values()))["schema"]
        given: Obj = {"name": "body", "in": "body", "schema": _schema(schema)}
        parameters.insert(0, given | ({"required": True} if body.get("required") else {}))
    made: Obj = {
        **kept,
        "consumes": consumes,
        "produces": list(produces),
        "schemes": ["https"],
        "parameters": parameters,
        "responses": {code: _response(answer) for code, answer in operation["responses"].items()},
        **_extensions(operation),
    }
    return made


def _parameter(parameter: Obj) -> Obj:
    return {key: value for key, value in parameter.items() if key != "schema"} | _schema(parameter.get("schema") or {})


def _response(answer: Obj) -> Obj:
    found: Obj = {"description": answer["description"]}
    for content in (answer.get("content") or {}).values():
        found["schema"] = _schema(content["schema"])
    return found
