"""Which endpoints serve the ports of a Service, on one node."""

from __future__ import annotations

from typing import Any

import pytest

from haru.service_proxy.services import OTHER_PROXY, Endpoint, Place, ServicePort, place_of, service_ports

Obj = dict[str, Any]
BALANCED = {
    "status": {
        "loadBalancer": {
            "ingress": [
                {"ip": "192.0.2.1"},
                {"ip": "fd00::1"},
                {"hostname": "x"},
                {"ip": "192.0.2.2", "ipMode": "Proxy"},
            ]
        }
    }
}
NODE_PORT = {"name": "web", "port": 80, "protocol": "TCP", "nodePort": 30_080}
A, B, C = Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080), Endpoint("10.0.0.3", 8080)


def service(**spec: Any) -> Obj:
    ports = [{"name": "web", "port": 80, "protocol": "TCP"}]
    return {
        "metadata": {"namespace": "n", "name": "s"},
        "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::9"], "ports": ports, **spec},
    }


def endpoint(place: Endpoint, node: str = "here", hints: Obj | None = None, **conditions: bool) -> Obj:
    return {"addresses": [place.address], "nodeName": node, "conditions": conditions, "hints": hints}


def hints(**names: str) -> Obj:
    """For example forZones="a"."""
    return {kind: [{"name": name}] for kind, name in names.items()}


def slice_of(*endpoints: Obj, family: int = 4, name: str = "web") -> Obj:
    return {
        "metadata": {"namespace": "n", "name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": f"IPv{family}",
        "endpoints": list(endpoints),
        "ports": [{"name": name, "port": 8080, "protocol": "TCP"}],
    }


HERE = Place("here", "a", ("192.0.2.200",))


def one(of: Obj, *slices: Obj, family: int = 4, place: Place = HERE) -> ServicePort:
    (found,) = service_ports(of, slices, place, family)
    return found


def test_ready_endpoints_of_all_slices_serve_the_cluster_ip() -> None:
    found = one(service(), slice_of(endpoint(B), endpoint(A, ready=True)), slice_of(endpoint(C, ready=False)))
    assert (found.name, found.cluster_ip, found.port, found.protocol) == ("n/s:web", "10.96.0.9", 80, "tcp")
    assert (found.cluster, found.here) == ((A, B), (A, B))


def test_terminating_endpoints_serve_where_none_is_ready() -> None:
    ending = endpoint(A, ready=False, serving=True, terminating=True)
    assert one(service(), slice_of(ending, endpoint(B, ready=False))).cluster == (A,)
    assert one(service(), slice_of(ending, endpoint(B, ready=True))).cluster == (B,)
    ended = endpoint(A, ready=False, serving=False, terminating=True)
    assert not one(service(), slice_of(ended)).has_endpoints


def test_address_of_terminating_pod_that_a_new_pod_has_counts_as_the_new_one() -> None:
    ending, ready = endpoint(A, ready=False, serving=True, terminating=True), endpoint(A, ready=True)
    for slices in ([slice_of(ending), slice_of(ready)], [slice_of(ready), slice_of(ending)]):
        assert one(service(), *slices, slice_of(endpoint(B))).cluster == (A, B)


def test_local_policies_keep_traffic_on_the_node() -> None:
    slices = slice_of(endpoint(A), endpoint(B, "there"))
    found = one(service(externalTrafficPolicy="Local", type="NodePort", ports=[NODE_PORT]), slices)
    assert (found.cluster, found.local, found.here, found.external_local) == ((A, B), (A,), (A,), True)
    found = one(service(internalTrafficPolicy="Local"), slice_of(endpoint(B, "there")))
    assert (found.cluster, found.local, found.has_endpoints) == ((), (), True)
    # The node's own terminating endpoint serves, though others are ready elsewhere.
    ending = endpoint(A, ready=False, serving=True, terminating=True)
    assert one(service(internalTrafficPolicy="Local"), slice_of(ending, endpoint(B, "there"))).local == (A,)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ([hints(forZones="a"), hints(forZones="b")], (A,)),
        ([hints(forZones="a"), None], (A, B)),
        ([hints(forZones="b"), hints(forZones="c")], (A, B)),
        ([hints(forNodes="there"), hints(forNodes="here")], (B,)),
        ([hints(forNodes="here", forZones="b"), hints(forZones="a")], (B,)),
        ([hints(forNodes="there", forZones="a"), hints(forNodes="there", forZones="b")], (A,)),
    ],
)
def test_hints_keep_traffic_in_the_zone_or_on_the_node(given: list[Obj | None], chosen: tuple[Endpoint, ...]) -> None:
    slices = slice_of(endpoint(A, hints=given[0]), endpoint(B, hints=given[1]))
    assert one(service(), slices).cluster == chosen


def test_hints_of_endpoints_that_are_not_ready_do_not_count() -> None:
    slices = slice_of(endpoint(A, hints=hints(forZones="a")), endpoint(B, ready=False))
    assert one(service(), slices, slice_of(endpoint(C, hints=hints(forZones="b")))).cluster == (A,)


def test_place_of_node_has_its_zone_and_internal_addresses() -> None:
    addresses = [{"type": "InternalIP", "address": "192.0.2.200"}, {"type": "Hostname", "address": "here"}]
    node = {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}, "status": {"addresses": addresses}}
    assert (place_of("here", node), place_of("here", None)) == (HERE, Place("here"))


def test_addresses_are_those_of_the_family() -> None:
    of = service(externalIPs=["192.0.2.3"]) | BALANCED
    found = one(of)
    assert (found.external_ips, found.balancer_ips) == (("192.0.2.3",), ("192.0.2.1",))
    six = one(of, slice_of(endpoint(Endpoint("fd00::a", 8080)), family=6), family=6)
    assert (six.cluster_ip, six.balancer_ips, six.cluster) == ("fd00::9", ("fd00::1",), (Endpoint("fd00::a", 8080),))


@pytest.mark.parametrize(
    ("ranges", "allowed"),
    [
        ([" 10.1.0.0/16 ", "10.1.2.0/24", "fd00::/8"], ("10.1.0.0/16",)),
        (["10.1.0.0/16", "0.0.0.0/0"], ()),
        (["192.0.2.128/25"], ("192.0.2.1/32", "192.0.2.128/25")),
        ([], ()),
    ],
    ids=["overlap", "everybody", "this node, which may come as the balancer", "none"],
)  # fmt: skip
def test_source_ranges_are_networks_without_overlaps(ranges: list[str], allowed: tuple[str, ...]) -> None:
    assert one(service(loadBalancerSourceRanges=ranges) | BALANCED).source_ranges == allowed


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
    assert service_ports(of, [slice_of(endpoint(A))], HERE, 4) == []


def test_port_is_matched_by_name_and_affinity_has_its_default() -> None:
    found = one(service(sessionAffinity="ClientIP"), slice_of(endpoint(A), name="other"))
    assert (found.cluster, found.affinity_seconds) == ((), 10_800)
