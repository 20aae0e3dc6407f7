"""An IPAddress stands for each address of a Service, as long as it has it; ServiceCIDRs say which there are."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import Caller

from haru.apiserver.ip_address_repair import IPAddressRepair
from haru.storage import Delete

Obj = dict[str, Any]
SERVICES = "/api/v1/namespaces/default/services"
NETWORKING = "/apis/networking.k8s.io/v1"
ADDRESSES, CIDRS = f"{NETWORKING}/ipaddresses", f"{NETWORKING}/servicecidrs"
MERGE = "application/merge-patch+json"
WEB = {"resource": "services", "namespace": "default", "name": "web"}
LABELS = {"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
TIME = "2026-01-01T00:00:00Z"
GATEWAY = {"group": "gateway.example.com", "resource": "gateways", "name": "g", "namespace": "default"}


def service(name: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def cidr(name: str, *networks: str) -> Obj:
    return {"metadata": {"name": name}, "spec": {"cidrs": list(networks)}}


def ip_address(address: str, **parent: str) -> Obj:
    return {"metadata": {"name": address, "labels": LABELS}, "spec": {"parentRef": parent}}


async def holders(api: Caller) -> dict[str, str]:
    """Who has which address."""
    items = (await api.get(ADDRESSES))["items"]
    return {item["metadata"]["name"]: item["spec"]["parentRef"]["name"] for item in items}


async def refusal(api: Caller, asked: Obj, query: str = "") -> str:
    answer = await api("POST", SERVICES + query, asked)
    assert answer.status == 422, answer.json
    return str(answer.json["details"]["causes"][0]["message"]).partition("]: ")[2]


async def test_service_and_its_ip_address_come_together_and_go_together(api: Caller) -> None:
    made = await api.create(SERVICES, service("web"))
    found = await api.get(f"{ADDRESSES}/{made['spec']['clusterIP']}")
    assert found["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}
    assert found["metadata"]["labels"] == LABELS and found["metadata"]["uid"] != made["metadata"]["uid"]
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["kube-apiserver"]
    await api("DELETE", f"{SERVICES}/web")
    assert await holders(api) == {}


async def test_ip_address_names_the_service_whose_name_was_made_up(api: Caller) -> None:
    made = await api.create(SERVICES, {**service(""), "metadata": {"generateName": "web-"}})
    assert await holders(api) == {made["spec"]["clusterIP"]: made["metadata"]["name"]}


@pytest.mark.parametrize("spec", [{"clusterIP": "None"}, {"type": "ExternalName", "externalName": "a.example.com"}])
async def test_service_without_an_address_has_no_ip_address(api: Caller, spec: Obj) -> None:
    await api.create(SERVICES, service("none", **spec))
    assert await holders(api) == {}


async def test_refused_and_tried_services_leave_no_ip_address(api: Caller) -> None:
    assert (await api("POST", SERVICES, service("Wrong_", clusterIP="10.96.0.9"))).status == 422
    assert (await api("POST", f"{SERVICES}?dryRun=All", service("tried", clusterIP="10.96.0.9"))).status == 201
    await api.create(SERVICES, service("first"))
    assert (await api("POST", SERVICES, service("first", clusterIP="10.96.0.9"))).status == 409
    assert list((await holders(api)).values()) == ["first"]


@pytest.mark.parametrize("cleared", [{}, {"clusterIP": ""}, {"clusterIP": "", "clusterIPs": None}])
async def test_service_that_becomes_a_name_gives_its_address_back(api: Caller, cleared: Obj) -> None:
    await api.create(SERVICES, service("web", clusterIP="10.96.0.9"))
    named = {"spec": {"type": "ExternalName", "externalName": "a.example.com", **cleared}}
    answer = await api("PATCH", f"{SERVICES}/web", named, type=MERGE)
    assert answer.status == 200 and "clusterIPs" not in answer.json["spec"], answer.json
    assert await holders(api) == {}
    back = {"spec": {"type": "ClusterIP", "externalName": None, "clusterIP": "10.96.0.10"}}
    assert (await api("PATCH", f"{SERVICES}/web", back, type=MERGE)).status == 200
    assert await holders(api) == {"10.96.0.10": "web"}


async def test_address_stays_until_the_last_finalizer_of_its_service_is_gone(api: Caller) -> None:
    asked = service("web", clusterIP="10.96.0.9")
    await api.create(SERVICES, {**asked, "metadata": {"name": "web", "finalizers": ["example.com/hold"]}})
    await api("DELETE", f"{SERVICES}/web")
    assert await holders(api) == {"10.96.0.9": "web"}
    await api("PATCH", f"{SERVICES}/web", {"metadata": {"finalizers": None}}, type=MERGE)
    assert await holders(api) == {}


async def test_ip_address_with_a_finalizer_is_marked_and_its_address_is_held(api: Caller) -> None:
    await api.create(SERVICES, service("web", clusterIP="10.96.0.9"))
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await api("PATCH", f"{ADDRESSES}/10.96.0.9", hold, type=MERGE)
    await api("DELETE", f"{SERVICES}/web")
    assert (await api.get(f"{ADDRESSES}/10.96.0.9"))["metadata"]["deletionTimestamp"]
    assert "provided IP is already allocated" in await refusal(api, service("again", clusterIP="10.96.0.9"))
    await api("PATCH", f"{ADDRESSES}/10.96.0.9", {"metadata": {"finalizers": None}}, type=MERGE)
    await api.create(SERVICES, service("again", clusterIP="10.96.0.9"))


async def test_collection_that_is_deleted_gives_all_addresses_back(api: Caller) -> None:
    for number in range(3):
        await api.create(SERVICES, service(f"s{number}"))
    assert len(await holders(api)) == 3
    assert (await api("DELETE", SERVICES)).status == 200
    assert await holders(api) == {}


async def test_address_that_somebody_else_has_is_not_given(api: Caller) -> None:
    await api.create(ADDRESSES, {"metadata": {"name": "10.96.1.1"}, "spec": {"parentRef": GATEWAY}})
    message = "failed to allocate IP 10.96.1.1: provided IP is already allocated"
    assert await refusal(api, service("asks", clusterIP="10.96.1.1")) == message
    assert (await api.create(SERVICES, service("takes")))["spec"]["clusterIP"] == "10.96.1.2"
    await api("DELETE", f"{ADDRESSES}/10.96.1.1")
    await api.create(SERVICES, service("asks", clusterIP="10.96.1.1"))


@pytest.mark.parametrize("address", ["10.200.0.5", "10.96.0.0", "10.96.255.255", "192.168.0.1"])
async def test_address_of_no_network_is_refused(api: Caller, address: str) -> None:
    asked = service("asks", clusterIP=address)
    why = f"failed to allocate IP {address}: the provided network does not match the current range"
    assert await refusal(api, asked) == why
    assert "The range of valid IPs is 10.96.0.0/16" in await refusal(api, asked, "?dryRun=All")


async def test_further_network_gives_addresses_until_it_is_deleted_or_not_ready(api: Caller) -> None:
    await api.create(CIDRS, cidr("more", "10.200.0.0/28"))
    await api.create(SERVICES, service("first", clusterIP="10.200.0.5"))
    assert (await holders(api))["10.200.0.5"] == "first"
    for edge in ("10.200.0.0", "10.200.0.15"):
        assert "does not match the current range" in await refusal(api, service("edge", clusterIP=edge))
    asked = service("asks", clusterIP="10.200.0.6")
    conditions = [{"type": "Ready", "status": "False", "reason": "r", "message": "", "lastTransitionTime": TIME}]
    live = await api.get(f"{CIDRS}/more")
    assert (await api("PUT", f"{CIDRS}/more/status", {**live, "status": {"conditions": conditions}})).status == 200
    assert "does not match the current range" in await refusal(api, asked)
    await api("DELETE", f"{CIDRS}/more")
    assert "does not match the current range" in await refusal(api, asked)


async def test_full_network_is_followed_by_the_next(api: Caller) -> None:
    await api.create(CIDRS, cidr("a", "10.200.0.0/29"))
    live = await api.get(f"{CIDRS}/kubernetes")
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await api("PATCH", f"{CIDRS}/kubernetes", hold, type=MERGE)
    await api("DELETE", f"{CIDRS}/kubernetes")
    made = [(await api.create(SERVICES, service(f"s{number}")))["spec"]["clusterIP"] for number in range(6)]
    assert made == [f"10.200.0.{last}" for last in range(1, 7)]
    full = await api("POST", SERVICES, service("late"))
    assert full.status == 500 and "range is full" in full.json["message"]
    await api.create(CIDRS, cidr("b", "10.201.0.0/30", "fd00::/112"))
    assert (await api.create(SERVICES, service("late")))["spec"]["clusterIP"] == "10.201.0.1"
    assert live["spec"] == {"cidrs": ["10.96.0.0/16"]}


async def test_overlapping_networks_know_of_each_others_addresses(api: Caller) -> None:
    for name, network in (("a", "10.200.0.0/24"), ("b", "10.200.0.0/28")):
        await api.create(CIDRS, cidr(name, network))
        await api.create(SERVICES, service(name, clusterIP=f"10.200.0.{ord(name) - 96}"))
    for taken in (1, 2):
        assert "already allocated" in await refusal(api, service("asks", clusterIP=f"10.200.0.{taken}"))
    await api("DELETE", f"{CIDRS}/a")
    await api("DELETE", f"{SERVICES}/a")
    await api.create(SERVICES, service("again", clusterIP="10.200.0.1"))


class TestRepair:
    """What Services and IPAddresses do not agree on."""

    @staticmethod
    async def repaired(api: Caller, repair: IPAddressRepair | None = None) -> dict[str, str]:
        await (repair or IPAddressRepair(api.app.components.loopback)).run()
        return await holders(api)

    async def test_service_of_an_older_version_gets_its_ip_address(self, api: Caller) -> None:
        made = await api.create(SERVICES, service("old", clusterIP="10.96.0.9"))
        await api.app.objects.store.transact(Delete("ipaddresses.networking.k8s.io/10.96.0.9"))
        assert "already allocated" in await refusal(api, service("asks", clusterIP="10.96.0.9"))
        assert await self.repaired(api) == {"10.96.0.9": "old"}
        assert (await api.get(f"{ADDRESSES}/10.96.0.9"))["metadata"]["labels"] == LABELS
        assert (await api.get(f"{SERVICES}/old"))["metadata"] == made["metadata"]

    async def test_store_in_agreement_stays_as_it_is(self, api: Caller) -> None:
        for name, spec in (("a", {}), ("b", {"clusterIP": "None"}), ("c", {"type": "NodePort"})):
            await api.create(SERVICES, service(name, **spec))
        await api.create(ADDRESSES, {"metadata": {"name": "10.96.5.5"}, "spec": {"parentRef": GATEWAY}})
        revision = api.app.objects.store.revision
        assert len(await self.repaired(api)) == 3
        assert api.app.objects.store.revision == revision

    @pytest.mark.parametrize(
        ("parent", "labels"), [(GATEWAY, LABELS), ({**WEB, "name": "gone"}, LABELS), (WEB, {}), (GATEWAY, {})]
    )
    async def test_ip_address_that_says_something_else_is_made_again(
        self, api: Caller, parent: Obj, labels: Obj
    ) -> None:
        await api.create(SERVICES, service("web", clusterIP="10.96.0.9"))
        repair = IPAddressRepair(api.app.components.loopback)
        assert await self.repaired(api, repair) == {"10.96.0.9": "web"}
        await api("DELETE", f"{ADDRESSES}/10.96.0.9")
        other = {"metadata": {"name": "10.96.0.9", "labels": labels}, "spec": {"parentRef": parent}}
        await api.create(ADDRESSES, other)
        assert await self.repaired(api, repair) == {"10.96.0.9": "web"}
        assert (await api.get(f"{ADDRESSES}/10.96.0.9"))["metadata"]["labels"] == LABELS

    async def test_ip_address_of_no_service_goes_after_a_minute(self, api: Caller) -> None:
        await api.create(ADDRESSES, ip_address("10.96.0.9", resource="services", namespace="default", name="gone"))
        await api.create(ADDRESSES, ip_address("10.96.0.10", **GATEWAY))
        repair = IPAddressRepair(api.app.components.loopback)
        assert await self.repaired(api, repair) == {"10.96.0.9": "gone"}
        api.clock.advance(seconds=61)
        assert await self.repaired(api, repair) == {}

    async def test_changes_whose_history_is_gone_are_found(self, api: Caller) -> None:
        await api.create(SERVICES, service("web", clusterIP="10.96.0.9"))
        repair = IPAddressRepair(api.app.components.loopback)
        await self.repaired(api, repair)
        store = api.app.objects.store
        await store.transact(Delete("services/default/web"))
        await store.compact(store.revision)
        api.clock.advance(seconds=61)
        assert await self.repaired(api, repair) == {}
