"""A CustomResourceDefinition with a bit of everything, and objects of it."""

from __future__ import annotations

from typing import Any

from api_caller import Caller

Obj = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "trainings.ml.example.com"
TRAININGS = "/apis/ml.example.com/v1/namespaces/default/trainings"

SPEC: Obj = {
    "type": "object",
    "required": ["model"],
    "properties": {
        "model": {"type": "string", "minLength": 2, "maxLength": 10, "pattern": "^[a-z]+$"},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
        "strategy": {"type": "string", "enum": ["Fast", "Safe"], "default": "Safe"},
        "rate": {"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "zones": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 3},
        "stages": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "steps": {"type": "integer", "default": 10},
                    "when": {"type": "string", "format": "date-time"},
                },
            },
        },
        "source": {
            "type": "object",
            "properties": {"git": {"type": "string"}, "image": {"type": "string"}},
            "oneOf": [{"required": ["git"]}, {"required": ["image"]}],
        },
    },
}
STATUS: Obj = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "startedAt": {"type": "string", "format": "date-time"},
        "conditions": {
            "type": "array",
            "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}},
        },
    },
}
COLUMNS = [
    {"name": "Model", "type": "string", "jsonPath": ".spec.model"},
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def version(name: str = "v1", **changes: Any) -> Obj:
    schema = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    made: Obj = {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": COLUMNS,
        "selectableFields": [{"jsonPath": ".spec.model"}],
    }
    return {**made, **changes}


def definition(*versions: Obj, **changes: Any) -> Obj:
    spec: Obj = {
        "group": "ml.example.com",
        "names": {"plural": "trainings", "kind": "Training", "shortNames": ["tr"], "categories": ["all"]},
        "scope": "Namespaced",
        "versions": list(versions) or [version()],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {**spec, **changes},
    }


def with_schema(schema: Obj, **changes: Any) -> Obj:
    """A definition of one version with this schema and nothing else."""
    plain: Obj = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **changes}
    return definition(plain)


def training(name: str = "t", **spec: Any) -> Obj:
    return {
        "apiVersion": "ml.example.com/v1",
        "kind": "Training",
        "metadata": {"name": name},
        "spec": {"model": "llm", **spec},
    }


async def define(api: Caller, obj: Obj | None = None) -> None:
    answer = await api("POST", DEFINITIONS, obj or definition())
    assert answer.status == 201, answer.json
