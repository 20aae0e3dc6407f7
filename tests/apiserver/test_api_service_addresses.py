"""Addresses and ports of Services are given out once, however many are asked for at a time, and at whichever server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from api_caller import Caller, Clock, make_config

from etcd_process import Etcd
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore, Store
from haru.storage.etcd import EtcdStore, EtcdStoreOptions

Obj = dict[str, Any]
SERVICES = "/api/v1/namespaces/default/services"
IP_ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"


@pytest.fixture(params=["one server", "two servers"])
async def callers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Caller]]:
    """Clients of one server over a file, or of two over one etcd."""
    stores: list[Store] = [SqliteStore(tmp_path / "store.db")]
    if request.param == "two servers":
        etcd: Etcd = request.getfixturevalue("etcd")
        prefix = f"/tests/{uuid.uuid4()}"
        stores = [EtcdStore([etcd.url], EtcdStoreOptions(prefix=prefix, compaction_seconds=0)) for _ in range(2)]
    clock, servers = Clock(), []
    for store in stores:
        await store.start()
        servers.append(ApiServer(make_config(store, clock)))  # type: ignore[arg-type]
    # Both at once: each writes what every cluster starts with.
    await asyncio.gather(*(server.start() for server in servers))
    yield [Caller(server, clock) for server in servers]
    for server, store in zip(servers, stores, strict=True):
        await server.stop()
        await store.stop()


def service(name: str, **spec: Any) -> Obj:
    ports = [{"name": "web", "port": 80}, {"name": "more", "port": 81}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}}


async def test_concurrent_services_get_unique_ips_and_node_ports(callers: list[Caller]) -> None:
    asked = [
        callers[number % len(callers)]("POST", SERVICES, service(f"s{number}", type="NodePort")) for number in range(20)
    ]
    answers = await asyncio.gather(*asked)
    assert {answer.status for answer in answers} == {201}, [answer.body for answer in answers]
    listed = (await callers[-1].get(SERVICES))["items"]
    addresses = [item["spec"]["clusterIP"] for item in listed]
    ports = [port["nodePort"] for item in listed for port in item["spec"]["ports"] if "nodePort" in port]
    assert len(addresses) == len(set(addresses)) >= 20
    named = {item["metadata"]["name"] for item in (await callers[0].get(IP_ADDRESSES))["items"]}
    assert named == set(addresses), "each has its IPAddress, and nothing is left of those that lost a race"
    assert len(ports) == len(set(ports)) == 40


async def test_only_one_service_gets_a_requested_ip(callers: list[Caller]) -> None:
    asked = [
        callers[number % len(callers)]("POST", SERVICES, service(f"s{number}", clusterIP="10.96.0.77"))
        for number in range(6)
    ]
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status for answer in answers) == [201] + [422] * 5
    refused = next(answer for answer in answers if answer.status == 422)
    assert "provided IP is already allocated" in refused.json["message"]


async def test_services_changed_to_node_port_get_unique_ports(callers: list[Caller]) -> None:
    for number in range(6):
        await callers[0].create(SERVICES, service(f"s{number}"))
    patch = {"spec": {"type": "NodePort"}}
    kind = "application/merge-patch+json"
    asked = [callers[number % len(callers)]("PATCH", f"{SERVICES}/s{number}", patch, type=kind) for number in range(6)]
    answers = await asyncio.gather(*asked)
    ports = [port["nodePort"] for answer in answers for port in answer.json["spec"]["ports"]]
    assert {answer.status for answer in answers} == {200} and len(ports) == len(set(ports)) == 12
