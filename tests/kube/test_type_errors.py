"""What server-side apply says of a configuration that is not as the schema declares; recorded with 1.36.2."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.custom.merging import root_declared
from haru.kube.custom.structural import parse
from haru.kube.kinds import by_kind
from haru.kube.patch.declared import declared_of
from haru.kube.patch.type_errors import type_errors

SPEC = ".spec.template.spec"
CONTAINERS = f"{SPEC}.containers"


def test_list_item_without_its_key_gets_the_error_of_kube_apiserver() -> None:
    kind = by_kind("v1", "ServiceAccount")
    assert kind is not None
    assert list(type_errors({"secrets": [{"name": None}, {"namespace": "x"}]}, declared_of(kind))) == [
        ".secrets: element 1: associative list with keys has an element that omits all key fields "
        '["name"] (and doesn\'t have default values for any key fields)'
    ]


def errors(pod_spec: Any) -> list[str]:
    kind = by_kind("apps/v1", "Deployment")
    assert kind is not None
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b"}}
    return sorted(type_errors({**deployment, "spec": {"template": {"spec": pod_spec}}}, declared_of(kind)))


@pytest.mark.parametrize(
    ("pod_spec", "expected"),
    [
        ({"containers": [{"image": "x"}], "nodeName": None}, []),
        ({"containers": [{"name": "a"}, {"name": "a"}]}, [f'{CONTAINERS}: duplicate entries for key [name="a"]']),
        (
            {"containers": [{"name": 3}]},
            [f"{CONTAINERS}[name=3].name: expected string, got &value.valueUnstructured{{Value:3}}"],
        ),
        (
            {"containers": ["a"]},
            [f"{CONTAINERS}: element 0: associative list with keys may not have non-map elements"],
        ),
        ({"containers": [None]}, [f"{CONTAINERS}: element 0: associative list with keys may not have a null element"]),
        ({"containers": {"a": 1}}, [f"{CONTAINERS}: expected list, got &{{map[a:1]}}"]),
        (
            {"containers": [{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 80}]}]},
            [f'{CONTAINERS}[name="c"].ports: duplicate entries for key [containerPort=80,protocol="TCP"]'],
        ),
        (
            {"containers": [{"name": "c", "args": "x", "command": [{"a": 2}]}]},
            [
                f'{CONTAINERS}[name="c"].args: expected list, got &{{x}}',
                f'{CONTAINERS}[name="c"].command[0]: expected string, '
                'got &value.valueUnstructured{Value:map[string]interface {}{"a":2}}',
            ],
        ),
        (
            {"overhead": {"cpu": [1]}, "terminationGracePeriodSeconds": True},
            [
                f"{SPEC}.overhead.cpu: expected any scalar, got &{{[1]}}",
                f"{SPEC}.terminationGracePeriodSeconds: expected numeric (int or float), got bool",
            ],
        ),
        (
            {"hostNetwork": {"a": 1.5, "b": None}, "dnsPolicy": 2.5, "tolerations": [1]},
            [
                f"{SPEC}.dnsPolicy: expected string, got &value.valueUnstructured{{Value:2.5}}",
                f"{SPEC}.hostNetwork: expected boolean, got &{{map[a:1.5 b:<nil>]}}",
                f"{SPEC}.tolerations[0]: expected map, got &{{1}}",
            ],
        ),
        (
            {"containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": {"a": 1}}}}], "y": 1, "x": {}},
            [f"{SPEC}.x: field not declared in schema"],
        ),
        ("x", [f"{SPEC}: expected map, got &{{x}}"]),
    ],
)
def test_configuration_gets_errors_of_kube_apiserver(pod_spec: Any, expected: list[str]) -> None:
    assert errors(pod_spec) == expected


def test_floats_are_told_as_go_prints_them() -> None:
    assert errors({"hostNetwork": [1e20, 1234567.5, -0.00001234, 12345678901234567890]}) == [
        f"{SPEC}.hostNetwork: expected boolean, got &{{[1e+20 1.2345675e+06 -1.234e-05 1.2345678901234567e+19]}}"
    ]
    assert errors({"hostname": 100000.5}) == [
        f"{SPEC}.hostname: expected string, got &value.valueUnstructured{{Value:100000.5}}"
    ]


KEYED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
}
WIDGET = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "when": {"type": "string", "format": "date-time"},
    "port": {"x-kubernetes-int-or-string": True},
    "texts": {"type": "object", "additionalProperties": {"type": "string"}},
    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "keyed": KEYED,
    "free": {"x-kubernetes-preserve-unknown-fields": True},
    "open": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "integer"}}
    },
    "bare": {"type": "object"},
    "object": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
}  # fmt: skip
VALUE = "got &value.valueUnstructured{Value:"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"s": 5}, [f".spec.s: expected string, {VALUE}5}}"]),
        ({"i": "a"}, [".spec.i: expected numeric (int or float), got string"]),
        ({"i": 1.5, "when": 5, "port": {"a": 1}, "free": 5, "s": None}, []),
        ({"when": [1]}, [".spec.when: expected any scalar, got &{[1]}"]),
        ({"texts": {"a": 5}}, [f".spec.texts.a: expected string, {VALUE}5}}"]),
        ({"grid": [[1, "a"], 1]}, [
            ".spec.grid[0][1]: expected numeric (int or float), got string",
            ".spec.grid[1]: expected list, got &{1}",
        ]),
        ({"set": ["a", "a"]}, ['.spec.set: duplicate entries for key [="a"]']),
        ({"set": [5]}, [f".spec.set[=5]: expected string, {VALUE}5}}"]),
        ({"set": [["a"]]}, [".spec.set: element 0: not supported: associative list with lists as elements"]),
        ({"set": [{}]}, [".spec.set: element 0: associative list without keys has an element that's a map type"]),
        ({"set": [None]}, [
            ".spec.set: element 0: associative list without keys has an element that's an explicit null"
        ]),
        ({"keyed": [{"v": 1}]}, [
            '.spec.keyed: element 0: associative list with keys has an element that omits all key fields ["k"] '
            "(and doesn't have default values for any key fields)"
        ]),
        ({"keyed": [{"k": "a", "v": "b"}]}, ['.spec.keyed[k="a"].v: expected numeric (int or float), got string']),
        ({"open": {"a": "x", "b": [1]}}, [".spec.open.a: expected numeric (int or float), got string"]),
        ({"bare": 5}, [".spec.bare: expected map, got &{5}"]),
        ({"bare": {"a": [1]}}, []),
        ({"object": {"metadata": {"name": 5}}}, [f".spec.object.metadata.name: expected string, {VALUE}5}}"]),
        ({"nope": 1, "also": 2}, [".spec.also: field not declared in schema"]),
        (5, [".spec: expected map, got &{5}"]),
    ],
)  # fmt: skip
def test_custom_resource_gets_errors_of_kube_apiserver(spec: Any, expected: list[str]) -> None:
    schema = parse({"type": "object", "properties": {"spec": {"type": "object", "properties": WIDGET}}})
    assert sorted(type_errors({"metadata": {"name": "w"}, "spec": spec}, root_declared(schema))) == expected
