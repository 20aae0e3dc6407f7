"""Variables of Services in containers, as the kubelet sets them."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.indexed_objects import ListedObjects
from haru.kube.pod_environment import service_environment as variables
from haru.kube.pod_environment.environment import ReferencedObjects, environment
from haru.kube.pod_environment.fields import DownwardFacts

Obj = dict[str, Any]


def service(name: str, namespace: str = "default", address: str = "10.96.0.9", *ports: Obj) -> Obj:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": address, "ports": list(ports)}}


API = service("kubernetes", "default", "10.96.0.1", {"name": "https", "port": 443, "protocol": "TCP"})


def pod(namespace: str = "team", **spec: Any) -> Obj:
    return {"metadata": {"name": "p", "namespace": namespace}, "spec": spec}


def service_environment(pod: Obj, services: list[Obj]) -> list[tuple[str, str]]:
    return variables.service_environment(pod, ListedObjects(services))


def test_api_server_has_all_its_variables() -> None:
    assert dict(service_environment(pod(), [API])) == {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        "KUBERNETES_PORT": "tcp://10.96.0.1:443",
        "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
        "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_443_TCP_PORT": "443",
        "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
    }


@pytest.mark.parametrize(
    ("namespace", "links", "expected"),
    [
        ("team", True, {"KUBERNETES", "MY_DB"}),
        ("team", False, {"KUBERNETES"}),
        ("default", True, {"KUBERNETES", "WEB"}),
        ("default", False, {"KUBERNETES"}),
        ("other", True, {"KUBERNETES"}),
    ],
)
def test_services_of_own_namespace_are_linked_unless_switched_off(
    namespace: str, links: bool, expected: set[str]
) -> None:
    services = [API, service("my-db", "team"), service("web", "default"), service("headless", "team", "None")]
    found = service_environment(pod(namespace, enableServiceLinks=links), services)
    assert {name.removesuffix("_SERVICE_HOST") for name, _ in found if name.endswith("_SERVICE_HOST")} == expected


def test_service_named_kubernetes_in_own_namespace_goes_before_the_api_server() -> None:
    found = dict(service_environment(pod(), [service("kubernetes", "team", "10.96.7.7"), API]))
    assert found["KUBERNETES_SERVICE_HOST"] == "10.96.7.7"
    without_links = dict(service_environment(pod(enableServiceLinks=False), [service("kubernetes", "team"), API]))
    assert without_links["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"


def test_address_of_ipv6_is_in_brackets_in_urls_only() -> None:
    found = dict(service_environment(pod(), [service("db", "team", "fd00::1", {"port": 53, "protocol": "UDP"})]))
    assert found["DB_PORT_53_UDP"] == "udp://[fd00::1]:53"
    assert found["DB_PORT_53_UDP_ADDR"] == found["DB_SERVICE_HOST"] == "fd00::1"


def test_own_variables_override_and_may_refer_to_those_of_services() -> None:
    own = [{"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}, {"name": "URL", "value": "$(KUBERNETES_SERVICE_HOST)"}]
    nothing = ReferencedObjects(lambda name: None, lambda name: None)
    facts = DownwardFacts(host_ips=(), pod_ips=())
    found = environment(pod(), {"name": "c", "env": own}, nothing, facts, service_environment(pod(), [API]))
    assert (found["KUBERNETES_SERVICE_PORT"], found["URL"]) == (b"6443", b"10.96.0.1")
