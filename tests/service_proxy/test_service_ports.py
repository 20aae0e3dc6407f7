"""Which endpoints serve the ports of a Service, on one node."""

from __future__ import annotations

from typing import Any

import pytest

from haru.service_proxy.services import OTHER_PROXY, Endpoint, ServicePort, service_ports

Obj = dict[str, Any]
A, B, C = Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080), Endpoint("10.0.0.3", 8080)


def service(**spec: Any) -> Obj:
    ports = [{"name": "web", "port": 80, "protocol": "TCP"}]
    return {
        "metadata": {"namespace": "n", "name": "s"},
        "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::9"], "ports": ports, **spec},
    }


def endpoint(place: Endpoint, node: str = "here", **conditions: bool) -> Obj:
    return {"addresses": [place.address], "nodeName": node, "conditions": conditions}


def slice_of(*endpoints: Obj, family: int = 4, name: str = "web") -> Obj:
    return {
        "metadata": {"namespace": "n", "name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": f"IPv{family}",
        "endpoints": list(endpoints),
        "ports": [{"name": name, "port": 8080, "protocol": "TCP"}],
    }


def one(of: Obj, *slices: Obj, family: int = 4) -> ServicePort:
    (found,) = service_ports([of], slices, "here", family)
    return found


def test_ready_endpoints_of_all_slices_serve_the_cluster_ip() -> None:
    found = one(service(), slice_of(endpoint(B), endpoint(A, ready=True)), slice_of(endpoint(C, ready=False)))
    assert (found.name, found.cluster_ip, found.port, found.protocol) == ("n/s:web", "10.96.0.9", 80, "tcp")
    assert found.internal == (A, B)


def test_terminating_endpoints_serve_where_none_is_ready() -> None:
    ending = endpoint(A, ready=False, serving=True, terminating=True)
    assert one(service(), slice_of(ending, endpoint(B, ready=False))).internal == (A,)
    assert one(service(), slice_of(ending, endpoint(B, ready=True))).internal == (B,)


def test_local_policies_keep_traffic_on_the_node() -> None:
    slices = slice_of(endpoint(A), endpoint(B, "there"))
    found = one(service(externalTrafficPolicy="Local", type="NodePort"), slices)
    assert (found.internal, found.external, found.external_local) == ((A, B), (A,), True)
    found = one(service(internalTrafficPolicy="Local"), slice_of(endpoint(B, "there")))
    assert (found.internal, found.has_endpoints) == ((), True)


def test_addresses_are_those_of_the_family() -> None:
    balancer = {
        "ingress": [{"ip": "192.0.2.1"}, {"ip": "fd00::1"}, {"hostname": "x"}, {"ip": "192.0.2.2", "ipMode": "Proxy"}]
    }
    of = service(externalIPs=["192.0.2.3"]) | {"status": {"loadBalancer": balancer}}
    assert one(of).external_ips == ("192.0.2.3", "192.0.2.1")
    six = one(of, slice_of(endpoint(Endpoint("fd00::a", 8080)), family=6), family=6)
    assert (six.cluster_ip, six.external_ips, six.internal) == ("fd00::9", ("fd00::1",), (Endpoint("fd00::a", 8080),))


@pytest.mark.parametrize(
    "of",
    [
        service(clusterIP="None", clusterIPs=["None"]),
        service(clusterIP="", clusterIPs=None),
        service(type="ExternalName"),
        service() | {"metadata": {"namespace": "n", "name": "s", "labels": {OTHER_PROXY: "x"}}},
    ],
    ids=["headless", "no address yet", "external name", "another proxy"],
)  # fmt: skip
def test_services_that_are_not_proxied_are_left_out(of: Obj) -> None:
    assert service_ports([of], [slice_of(endpoint(A))], "here", 4) == []


def test_port_is_matched_by_name_and_affinity_has_its_default() -> None:
    found = one(service(sessionAffinity="ClientIP"), slice_of(endpoint(A), name="other"))
    assert (found.internal, found.affinity_seconds) == ((), 10_800)
