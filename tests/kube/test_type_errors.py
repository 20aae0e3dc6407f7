"""What server-side apply says of a configuration that is not as the schema declares; recorded with 1.36.2."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.kinds import by_kind
from haru.kube.patch.type_errors import type_errors
from haru.kube.schema import type_of

SPEC = ".spec.template.spec"
CONTAINERS = f"{SPEC}.containers"


def test_list_item_without_its_key_gets_the_error_of_kube_apiserver() -> None:
    kind = by_kind("v1", "ServiceAccount")
    assert kind is not None
    assert list(type_errors({"secrets": [{"name": None}, {"namespace": "x"}]}, type_of(kind))) == [
        ".secrets: element 1: associative list with keys has an element that omits all key fields "
        '["name"] (and doesn\'t have default values for any key fields)'
    ]


def errors(pod_spec: Any) -> list[str]:
    kind = by_kind("apps/v1", "Deployment")
    assert kind is not None
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b"}}
    return sorted(type_errors({**deployment, "spec": {"template": {"spec": pod_spec}}}, type_of(kind)))


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
