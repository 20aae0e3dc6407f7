"""EndpointSlices and Endpoints: what stands behind a Service, written with as few writes as possible."""

from __future__ import annotations

from typing import Any

import pytest
from controller_cluster import Kubelet, pod_body
from hypothesis import given
from hypothesis import strategies as st

from haru.controllers.endpoints import subsets_of
from haru.controllers.objects import ENDPOINT_SLICES, ENDPOINTS, NODES, PODS, SERVICES
from haru.controllers.service_pods import face, ports_of
from haru.controllers.slice_plan import MOST, Group, Port, group_of, plan, wanted_of

Obj = dict[str, Any]

APP = {"app": "x"}
HTTP = {"name": "http", "port": 80, "targetPort": 8080}


def service(*ports: Obj, name: str = "web", labels: Obj | None = None, **spec: Any) -> Obj:
    metadata = {"name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels or {}}
    return {"metadata": metadata, "spec": {"selector": APP, "ports": list(ports), **spec}}


def pod(name: str, ip: str, ready: bool = True, node: str = "n1", going: bool = False, **more: Any) -> Obj:
    phase = more.pop("phase", "Running")
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-02T00:00:00Z"}
    metadata: Obj = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": APP}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ips = [{"ip": each} for each in more.pop("ips", [ip])]
    ports = [{"name": "metrics", "containerPort": more.pop("metrics", 9000)}]
    spec = {"nodeName": node, "containers": [{"name": "c", "ports": ports}], **more}
    status = {"phase": phase, "podIP": ip, "podIPs": ips, "conditions": [condition]}
    return {"metadata": metadata, "spec": spec, "status": status}


def told(made: Obj) -> tuple[str, str]:
    """Names of pods with their conditions, in order."""
    flags = made["conditions"]
    return made["targetRef"]["name"], "".join(key[0] for key in ("ready", "serving", "terminating") if flags[key])


# -- what stands behind a Service --------------------------------------------------------------------------------------


def test_endpoint_conditions_follow_pod_readiness_and_termination() -> None:
    pods = [
        pod("up", "10.0.0.1"),
        pod("starting", "10.0.0.2", ready=False),
        pod("going", "10.0.0.3", going=True),
        pod("gone", "10.0.0.4", phase="Succeeded"),
        pod("new", ""),
    ]
    port = (Port("http", 8080, "TCP", ""),)
    wanted = wanted_of(service(HTTP), pods, {"n1": "z1"})
    assert [told(one) for one in wanted["IPv4", port]] == [("up", "rs"), ("starting", ""), ("going", "st")]
    assert {one["zone"] for one in wanted["IPv4", port]} == {"z1"}
    unready = wanted_of(service(HTTP, publishNotReadyAddresses=True), pods, {})
    assert [told(one) for one in unready["IPv4", port]] == [("up", "rs"), ("starting", "r"), ("going", "rst")]
    assert "zone" not in unready["IPv4", port][0]


def test_target_ports_resolve_by_number_and_name() -> None:
    named = {"name": "m", "port": 9, "targetPort": "metrics", "appProtocol": "http"}
    both = service(named, HTTP, {"name": "x", "port": 1, "targetPort": "nothing"}, {"port": 53, "protocol": "UDP"})
    assert ports_of(both, pod("a", "10.0.0.1", metrics=9001)) == (
        Port("", 53, "UDP", ""),
        Port("http", 8080, "TCP", ""),
        Port("m", 9001, "TCP", "http"),
    )
    wanted = wanted_of(service(named), [pod("a", "10.0.0.1"), pod("b", "10.0.0.2", metrics=9001)], {})
    assert sorted(port.port for _, (port,) in wanted) == [9000, 9001]


def test_endpoints_of_headless_service_have_hostnames() -> None:
    headless = service(clusterIP="None")
    pods = [pod("a", "10.0.0.1", hostname="a", subdomain="web"), pod("b", "10.0.0.2", hostname="b", subdomain="other")]
    wanted = wanted_of(headless, pods, {})
    assert [one.get("hostname") for one in wanted["IPv4", ()]] == ["a", None]
    (subset,), _ = subsets_of(headless, pods)
    assert [one.get("hostname") for one in subset["addresses"]] == ["a", None]
    assert "ports" not in subset


def test_dual_stack_service_has_slices_per_family() -> None:
    pods = [pod("a", "10.0.0.1", ips=["10.0.0.1", "fd00::1"]), pod("b", "10.0.0.2")]
    wanted = wanted_of(service(HTTP, ipFamilies=["IPv4", "IPv6"]), pods, {})
    assert {family: len(endpoints) for (family, _), endpoints in wanted.items()} == {"IPv4": 2, "IPv6": 1}
    only = wanted_of(service(HTTP, ipFamilies=["IPv6"]), pods[1:], {})
    assert only == {("IPv6", ()): []}


@pytest.mark.parametrize(
    ("near", "hints"),
    [
        (None, None),
        ("PreferClose", {"forZones": [{"name": "z"}]}),
        ("PreferSameZone", {"forZones": [{"name": "z"}]}),
        ("PreferSameNode", {"forZones": [{"name": "z"}], "forNodes": [{"name": "n1"}]}),
    ],
)
def test_traffic_distribution_gives_zone_and_node_hints(near: str | None, hints: Obj | None) -> None:
    pods = [pod("a", "10.0.0.1"), pod("b", "10.0.0.2", ready=False), pod("c", "10.0.0.3", node="n2")]
    ((_, found),) = wanted_of(service(HTTP, trafficDistribution=near), pods, {"n1": "z"}).items()
    assert [one.get("hints") for one in found] == [hints, None, None]


def test_subsets_list_ready_and_not_ready_addresses() -> None:
    pods = [
        pod("b", "10.0.0.10"),
        pod("a", "10.0.0.9"),
        pod("c", "10.0.0.2", ready=False),
        pod("d", "10.0.0.3", going=True),
        pod("e", "10.0.0.4", metrics=9001),
    ]
    (first, second), is_cut = subsets_of(service({"port": 1, "targetPort": "metrics"}), pods)
    assert [one["ip"] for one in first["addresses"]] == ["10.0.0.9", "10.0.0.10"]
    assert [one["ip"] for one in first["notReadyAddresses"]] == ["10.0.0.2"]
    assert first["ports"] == [{"port": 9000, "protocol": "TCP"}]
    assert [one["ip"] for one in second["addresses"]] == ["10.0.0.4"]
    assert first["addresses"][0] == {
        "ip": "10.0.0.9",
        "nodeName": "n1",
        "targetRef": {"kind": "Pod", "name": "a", "namespace": "ns", "uid": "uid-a"},
    }
    assert not is_cut


def test_endpoints_are_truncated_at_1000_ready_addresses_first() -> None:
    pods = [pod(f"p{n}", f"10.0.{n // 250}.{n % 250 + 1}", ready=n % 2 == 0) for n in range(1200)]
    (subset,), is_cut = subsets_of(service(HTTP), pods)
    assert is_cut
    assert (len(subset["addresses"]), len(subset["notReadyAddresses"])) == (600, 400)


def test_endpoints_depend_on_pod_ip_readiness_and_termination() -> None:
    before = pod("a", "10.0.0.1")
    same = {**before, "status": {**before["status"], "startTime": "x"}}
    assert face(same) == face(before)
    for other in (pod("a", "10.0.0.2"), pod("a", "10.0.0.1", ready=False), pod("a", "10.0.0.1", going=True)):
        assert face(other) != face(before)


# -- fewest writes -----------------------------------------------------------------------------------------------------


def endpoint(number: int) -> Obj:
    return {"addresses": [f"10.0.{number // 250}.{number % 250}"], "targetRef": {"uid": str(number)}}


def slices_of(wanted: dict[Group, list[Obj]], before: list[Obj]) -> tuple[list[Obj], int]:
    """The slices after a plan was carried out, and how many writes that took."""
    found = plan(before, wanted)
    changed = [*((each, group, endpoints) for each, group, endpoints in found.change)]
    made = [({}, group, endpoints) for group, endpoints in found.create]
    written = [
        {**each, "addressType": group[0], "ports": [port.told() for port in group[1]], "endpoints": list(endpoints)}
        for each, group, endpoints in (*changed, *made)
    ]
    return [*found.keep, *written], len(written) + len(found.remove)


PORTS = [(), (Port("a", 1, "TCP", ""),), (Port("a", 2, "TCP", ""),)]
GROUPS = st.dictionaries(
    st.tuples(st.sampled_from(["IPv4", "IPv6"]), st.sampled_from(PORTS)), st.sets(st.integers(0, 350)), max_size=4
)


@given(st.lists(GROUPS, min_size=1, max_size=5))
def test_endpoint_slices_converge_and_second_pass_writes_nothing(steps: list[dict[Group, set[int]]]) -> None:
    slices: list[Obj] = []
    for step in steps:
        wanted = {group: [endpoint(number) for number in sorted(numbers)] for group, numbers in step.items()}
        slices, _ = slices_of(wanted, slices)
        found: dict[Group, list[str]] = {}
        for each in slices:
            assert len(each["endpoints"]) <= MOST
            found.setdefault(group_of(each), []).extend(one["targetRef"]["uid"] for one in each["endpoints"])
        assert {group: sorted(uids) for group, uids in found.items()} == {
            group: sorted(map(str, numbers)) for group, numbers in step.items()
        }
        for group, numbers in step.items():
            empty = [each for each in slices if group_of(each) == group and not each["endpoints"]]
            assert len(empty) == (0 if numbers else 1)
        assert slices_of(wanted, slices)[1] == 0


def test_one_removed_pod_changes_one_slice() -> None:
    group: Group = ("IPv4", PORTS[1])
    slices, writes = slices_of({group: [endpoint(number) for number in range(250)]}, [])
    assert writes == 3
    slices, writes = slices_of({group: [endpoint(number) for number in range(250) if number != 120]}, slices)
    assert writes == 1
    slices, writes = slices_of({group: [endpoint(number) for number in range(251) if number != 120]}, slices)
    assert writes == 1
    assert slices_of({("IPv4", ()): []}, slices)[1] == 3


# -- on the API server -------------------------------------------------------------------------------------------------


class Addresses(Kubelet):
    """A kubelet that gives addresses."""

    async def _set(self, pod: Obj, wanted: str) -> None:
        number = int(pod["metadata"]["name"].partition("-")[2]) + 1
        body = {"status": {"podIP": f"10.1.0.{number}", "podIPs": [{"ip": f"10.1.0.{number}"}]}}
        named = pod["metadata"]["name"], body, pod["metadata"]["namespace"]
        await self.client.patch(PODS, *named, type="strategic", subresource="status")
        await super()._set(pod, wanted)


async def test_endpoints_of_service_follow_its_pods(cluster: Any) -> None:
    await cluster.client.patch(NODES, "n1", {"metadata": {"labels": {"topology.kubernetes.io/zone": "z1"}}}, "")
    await cluster.play(Addresses(cluster.client).run())
    await cluster.start("endpointslice-controller", "endpoints-controller")
    await cluster.create(SERVICES, {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": service(HTTP)["spec"]})

    async def addresses() -> tuple[list[str], list[str]]:
        slices, endpoints = await cluster.items(ENDPOINT_SLICES), await cluster.get(ENDPOINTS, "web")
        new = [one["addresses"][0] for each in slices for one in each["endpoints"] or []]
        old = [one["ip"] for each in (endpoints or {}).get("subsets") or [] for one in each.get("addresses") or []]
        return sorted(new), sorted(old)

    async def are(*wanted: str) -> bool:
        return await addresses() == (list(wanted), list(wanted))

    (empty,) = await cluster.eventually(lambda: cluster.items(ENDPOINT_SLICES))
    assert empty["metadata"]["labels"] == {
        "a": "b",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert empty["metadata"]["ownerReferences"][0]["kind"] == "Service"
    assert (empty["addressType"], empty["endpoints"]) == ("IPv4", None)
    for number in range(3):
        body = pod_body(f"p-{number}")
        body["metadata"]["labels"] = APP
        await cluster.create(PODS, body)
    await cluster.eventually(lambda: are("10.1.0.1", "10.1.0.2", "10.1.0.3"))
    (full,) = await cluster.items(ENDPOINT_SLICES)
    assert full["metadata"]["uid"] == empty["metadata"]["uid"]
    assert {one["zone"] for one in full["endpoints"]} == {"z1"}
    assert full["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    await cluster.client.patch(PODS, "p-1", {"metadata": {"labels": {"app": "y"}}}, "ns")
    await cluster.eventually(lambda: are("10.1.0.1", "10.1.0.3"))
    await cluster.client.delete(PODS, "p-0", "ns")
    await cluster.eventually(lambda: are("10.1.0.3"))
    versions = {each["metadata"]["resourceVersion"] for each in await cluster.items(ENDPOINT_SLICES)}
    await cluster.client.patch(PODS, "p-2", {"metadata": {"annotations": {"x": "y"}}}, "ns")

    async def untouched() -> bool:
        return versions == {each["metadata"]["resourceVersion"] for each in await cluster.items(ENDPOINT_SLICES)}

    await cluster.always(untouched)
    (current,) = await cluster.items(ENDPOINT_SLICES)
    await cluster.client.delete(ENDPOINT_SLICES, current["metadata"]["name"], "ns")
    await cluster.eventually(lambda: are("10.1.0.3"))
    await cluster.client.delete(SERVICES, "web", "ns")

    async def gone() -> bool:
        return await cluster.get(ENDPOINTS, "web") is None

    await cluster.eventually(gone)


async def test_endpoints_of_service_without_selector_are_not_changed(cluster: Any) -> None:
    """A Service without a selector has the endpoints that somebody gives it, before it is there, too."""
    theirs = {"metadata": {"name": "db"}, "subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 1}]}]}
    await cluster.create(ENDPOINTS, theirs)
    await cluster.start("endpointslice-controller", "endpoints-controller")

    async def stands() -> bool:
        found = await cluster.get(ENDPOINTS, "db")
        return found is not None and found["subsets"][0]["addresses"] == [{"ip": "10.9.9.9"}]

    await cluster.always(stands)
    await cluster.create(SERVICES, {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 1}]}})
    await cluster.always(stands)
    await cluster.client.delete(SERVICES, "db", "ns")

    async def gone() -> bool:
        return await cluster.get(ENDPOINTS, "db") is None

    await cluster.eventually(gone)


async def test_custom_endpoints_are_mirrored_to_slices(cluster: Any) -> None:
    address = {"ip": "10.9.9.9", "hostname": "a", "nodeName": "n1"}
    subset = {"addresses": [address], "notReadyAddresses": [{"ip": "fd00::1"}], "ports": [{"name": "p", "port": 1}]}
    await cluster.create(ENDPOINTS, {"metadata": {"name": "db", "labels": {"a": "b"}}, "subsets": [subset]})
    await cluster.start("endpointslice-mirroring-controller", "endpointslice-controller", "endpoints-controller")
    await cluster.create(SERVICES, {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 1}]}})

    async def slices(count: int) -> list[Obj]:
        found = sorted(await cluster.items(ENDPOINT_SLICES), key=lambda each: each["addressType"])
        return found if len(found) == count else []

    first, second = await cluster.eventually(lambda: slices(2))
    assert first["endpoints"] == [
        {"addresses": ["10.9.9.9"], "conditions": {"ready": True}, "hostname": "a", "nodeName": "n1"}
    ]
    assert (second["addressType"], second["endpoints"][0]["conditions"]) == ("IPv6", {"ready": False})
    assert first["ports"] == [{"name": "p", "port": 1, "protocol": "TCP"}]
    assert first["metadata"]["ownerReferences"][0]["kind"] == "Endpoints"
    assert first["metadata"]["labels"] == {
        "a": "b",
        "kubernetes.io/service-name": "db",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    }
    del subset["notReadyAddresses"]
    await cluster.client.patch(ENDPOINTS, "db", {"subsets": [subset]}, "ns")
    await cluster.eventually(lambda: slices(1))
    await cluster.client.patch(SERVICES, "db", {"spec": {"selector": APP}}, "ns")

    async def taken_over() -> bool:
        found = await cluster.items(ENDPOINT_SLICES)
        managers = [each["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] for each in found]
        return managers == ["endpointslice-controller.k8s.io"]

    await cluster.eventually(taken_over)
