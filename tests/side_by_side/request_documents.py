"""What is compared of documents about all kinds: of discovery and OpenAPI what they tell of the kinds of a seed."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
_OURS = ".example.com"


def about_custom(value: Any) -> Any:
    """A document about all kinds, without what it tells of others; any other object as it is."""
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if kind == "APIGroupList":
        return {**value, "groups": [one for one in value["groups"] if one["name"].endswith(_OURS)]}
    if kind == "APIGroupDiscoveryList":
        return {
            **value,
            "items": [_in_order(one) for one in value["items"] if one["metadata"].get("name", "").endswith(_OURS)],
        }
    if kind == "APIResourceList":
        return {**value, "resources": sorted(_in_order(value["resources"]), key=lambda one: str(one["name"]))}
    if str(value.get("openapi")).startswith("3."):
        return _openapi(value)
    return value


def _in_order(value: Any) -> Any:
    """What discovery tells, with names, verbs and subresources in one order: it means nothing."""
    if isinstance(value, dict):
        return {name: _in_order(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    made = [_in_order(one) for one in value]
    return sorted(made, key=str) if all(isinstance(one, str) or "subresource" in one for one in made) else made


def _openapi(document: Obj) -> Obj:
    """The schemas of custom kinds, without descriptions, and the methods of each path."""
    named = {name: one for name, one in document["components"]["schemas"].items() if name.startswith("com.example.")}
    lists = {
        name for name, one in named.items() if "items" in one.get("properties", ()) and "spec" not in one["properties"]
    }
    paths = {path: sorted(one.keys() - {"parameters"}) for path, one in document["paths"].items()}
    return {"schemas": {name: _without_texts(one) for name, one in named.items() if name not in lists}, "paths": paths}


def _without_texts(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_texts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_texts(one)
        for name, one in schema.items()
        if not (name == "description" and isinstance(one, str))
    }
