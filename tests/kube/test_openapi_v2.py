"""OpenAPI v2: complete, sound in itself, and the same in protobuf."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from haru.kube.kinds import all_kinds, group_versions
from haru.kube.openapi import openapi_v3_document
from haru.kube.openapi_v2 import openapi_v2_document
from haru.kube.openapi_wire import encode_document
from protobuf_wire import fields

Obj = dict[str, Any]


def whole() -> Obj:
    kinds = all_kinds()
    return openapi_v2_document(openapi_v3_document(group, version, kinds) for group, version in group_versions())


def parts(value: Any) -> Iterator[Obj]:
    if isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if not name.startswith("x-") and name not in ("default", "enum"):
                yield from parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from parts(inner)


def test_openapi_v2_has_no_dangling_references_or_v3_keywords() -> None:
    document = whole()
    referred = {part["$ref"] for part in parts(document) if isinstance(part.get("$ref"), str)}
    assert referred <= {f"#/definitions/{name}" for name in document["definitions"]}
    assert len(referred) > 300
    schemas = [part for definition in document["definitions"].values() for part in parts(definition)]
    for schema in schemas:
        # A property may be called so: then its value is a schema.
        assert not any(isinstance(schema.get(name), list) for name in ("oneOf", "anyOf", "allOf"))
        assert not isinstance(schema.get("nullable"), bool)


def test_every_operation_has_body_and_path_parameters() -> None:
    document = whole()
    identities = []
    for path, item in document["paths"].items():
        for method in ("get", "put", "post", "delete", "patch"):
            if method not in item:
                continue
            operation = item[method]
            identities.append(operation["operationId"])
            bodies = [parameter for parameter in operation["parameters"] if parameter["in"] == "body"]
            assert len(bodies) == (method != "get"), (path, method)
            assert operation["produces"] and operation["consumes"] and "requestBody" not in operation
            places = {p["name"] for p in item["parameters"] if p["in"] == "path"}
            assert places == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    assert len(identities) == len(set(identities))


def test_quantities_are_strings_and_merge_keys_are_kept() -> None:
    definitions = whole()["definitions"]
    quantity = definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity["type"] == "string" and "oneOf" not in quantity
    assert definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"] == "int-or-string"
    containers = definitions["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"] == {"$ref": "#/definitions/io.k8s.api.core.v1.Container"}


def test_custom_resource_schema_drops_unsupported_keywords() -> None:
    raw = {
        "type": "object",
        "required": ["list", "some"],
        "properties": {
            "size": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "more": {"type": "object", "additionalProperties": True, "nullable": True},
            "list": {"type": "array", "items": {"type": "string"}, "nullable": True, "description": "some"},
            "some": {"type": "integer", "minimum": 1, "not": {"enum": [3]}, "default": 2},
        },
    }
    document = openapi_v2_document([{"paths": {}, "components": {"schemas": {"x": raw}}}])
    assert document["definitions"]["x"]["required"] == ["some"]
    assert document["definitions"]["x"]["properties"] == {
        "size": {"x-kubernetes-int-or-string": True},
        "more": {"additionalProperties": True},
        "list": {"description": "some"},
        "some": {"type": "integer", "minimum": 1},
    }


# --- protobuf: read back by the numbers of the message, one level after the other


def under(data: bytes, number: int) -> list[Any]:
    return [value for found, value in fields(data) if found == number]


def named(data: bytes, number: int) -> dict[str, bytes]:
    return {under(one, 1)[0].decode(): under(one, 2)[0] for one in under(data, number)}


def test_protobuf_form_equals_json_form() -> None:
    document = whole()
    data = encode_document(document)
    definitions = named(under(data, 9)[0], 1)
    assert list(definitions) == list(document["definitions"])
    paths = named(under(data, 8)[0], 2)
    assert list(paths) == list(document["paths"])

    spec = document["definitions"]["io.k8s.api.core.v1.PodSpec"]
    read = definitions["io.k8s.api.core.v1.PodSpec"]
    assert under(under(read, 22)[0], 1) == [b"object"]
    assert under(read, 19) == [name.encode() for name in spec["required"]]
    properties = named(under(read, 25)[0], 1)
    assert list(properties) == list(spec["properties"])
    containers = properties["containers"]
    assert under(under(under(containers, 23)[0], 1)[0], 1) == [b"#/definitions/io.k8s.api.core.v1.Container"]
    extensions = {name: orjson.loads(under(value, 2)[0]) for name, value in named(containers, 31).items()}
    assert extensions == {k: v for k, v in spec["properties"]["containers"].items() if k.startswith("x-")}

    patch = under(paths["/api/v1/namespaces/{namespace}/pods/{name}"], 8)[0]
    expected = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert under(patch, 5) == [expected["operationId"].encode()]
    assert under(patch, 7) == [media.encode() for media in expected["consumes"]]
    given = [under(item, 1)[0] for item in under(patch, 8)]
    assert under(under(given[0], 1)[0], 3) == [b"body"]
    queries = [under(under(under(one, 2)[0], 3)[0], 4)[0].decode() for one in given[1:]]
    assert queries == [parameter["name"] for parameter in expected["parameters"][1:]]
