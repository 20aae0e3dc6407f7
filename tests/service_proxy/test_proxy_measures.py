"""What a proxy measures of its syncs: how long changes took, flows that were deleted, chains that could not be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from haru.client.api import ApiClient
from haru.clock import utc_now
from haru.kube.names import format_micro_time
from haru.service_proxy import proxy as proxy_module
from haru.service_proxy.nftables import NftError
from haru.service_proxy.proxy import ServiceProxy, ServiceProxyOptions
from haru.service_proxy.table import CHAIN_REST_SECONDS
from haru_process import free_port

Obj = dict[str, Any]
SERVICE: Obj = {
    "metadata": {"namespace": "d", "name": "s"},
    "spec": {"clusterIPs": ["10.96.0.9"], "internalTrafficPolicy": "Local", "ports": [{"port": 53, "protocol": "UDP"}]},
}


def slice_of(family: str, ago: float, *addresses: str) -> Obj:
    at = format_micro_time(utc_now() - timedelta(seconds=ago))
    metadata = {
        "namespace": "d",
        "name": f"s-{family}",
        "labels": {"kubernetes.io/service-name": "s"},
        "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": at},
    }
    endpoints = [{"addresses": [address], "nodeName": "here"} for address in addresses]
    return {
        "metadata": metadata,
        "addressType": family,
        "ports": [{"port": 53, "protocol": "UDP"}],
        "endpoints": endpoints,
    }


class Nft:
    """What was written; `refuses` is what a transaction may not have in it."""

    def __init__(self) -> None:
        self.refuses = ""
        self.written: list[str] = []

    async def run(self, commands: Iterable[str]) -> None:
        lines = list(commands)
        if self.refuses and any(self.refuses in line for line in lines):
            raise NftError("Device or resource busy")
        self.written += lines


async def nothing_there(_family: str) -> None:
    return None


@pytest.fixture
def nft(monkeypatch: pytest.MonkeyPatch) -> Nft:
    made = Nft()
    monkeypatch.setattr(proxy_module, "run_nft", made.run)
    monkeypatch.setattr(proxy_module, "names_in_table", nothing_there)
    monkeypatch.setattr(proxy_module, "delete_stale_flows", lambda *_: 3)
    return made


@pytest.fixture
def proxy() -> ServiceProxy:
    return ServiceProxy(ApiClient.http("http://127.0.0.1:1"), ServiceProxyOptions("here"))


def lines_of(proxy: ServiceProxy, name: str) -> list[str]:
    return [line for line in proxy.health.metrics.lines() if line.startswith(f"kubeproxy_{name}")]


async def test_changes_of_endpoints_are_timed_from_what_caused_them(nft: Nft, proxy: ServiceProxy) -> None:
    count = "network_programming_duration_seconds_count"
    proxy._tracker.note_service(None, SERVICE)
    proxy._tracker.note_slice(None, slice_of("IPv4", 100, "10.0.0.1"))
    await proxy.sync()
    assert lines_of(proxy, count) == [], "what happened before the proxy began is not timed"
    first, second = slice_of("IPv4", -1, "10.0.0.1"), slice_of("IPv4", -1, "10.0.0.1", "10.0.0.2")
    proxy._tracker.note_slice(None, first)
    proxy._tracker.note_slice(first, second)
    proxy._tracker.note_slice(None, slice_of("IPv6", -1, "fd00::1"))
    await proxy.sync()
    assert lines_of(proxy, count) == [f'kubeproxy_{count}{{ip_family="IPv{n}"}} {m}' for n, m in ((4, 2), (6, 1))]
    proxy._tracker.note_slice(second, slice_of("IPv4", -1))
    proxy._tracker.note_slice(slice_of("IPv4", -1), None)
    await proxy.sync()
    assert lines_of(proxy, count)[0].endswith(" 2"), "nor what has gone"


async def test_flows_and_ports_without_local_endpoints_are_counted(nft: Nft, proxy: ServiceProxy) -> None:
    proxy._tracker.note_service(None, SERVICE)
    elsewhere = slice_of("IPv4", 0, "10.0.0.1")
    elsewhere["endpoints"][0]["nodeName"] = "there"
    proxy._tracker.note_slice(None, elsewhere)
    await proxy.sync()
    assert lines_of(proxy, "conntrack_reconciler_deleted") == [
        'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 3'
    ]
    wanted = 'kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 1'
    assert wanted in lines_of(proxy, "sync_proxy_rules_no_local")


async def test_chain_that_nftables_will_not_delete_costs_no_full_sync(
    nft: Nft, proxy: ServiceProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haru.service_proxy.table.CHAIN_REST_SECONDS", 0.0)
    assert CHAIN_REST_SECONDS > 0
    used = slice_of("IPv4", 0, "10.0.0.1")
    proxy._tracker.note_service(None, SERVICE)
    proxy._tracker.note_slice(None, used)
    await proxy.sync()
    proxy._tracker.note_slice(used, slice_of("IPv4", 0))
    await proxy.sync()
    nft.refuses, nft.written = "delete chain", []
    await proxy.sync()
    failures = "sync_proxy_rules_nftables_cleanup_failures_total"
    assert lines_of(proxy, failures) == [f'kubeproxy_{failures}{{ip_family="IPv{n}"}} 1' for n in (4, 6)]
    assert nft.written == [] and proxy._tables, "the rules stay"
    nft.refuses = ""
    await proxy.sync()
    assert [line.split(" ")[:2] for line in nft.written] == [["delete", "chain"]]


async def test_service_that_went_in_a_sync_that_failed_is_answered_for_no_more(nft: Nft, proxy: ServiceProxy) -> None:
    port = free_port()
    served = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port}
    service = {**SERVICE, "spec": {**SERVICE["spec"], **served}}
    proxy._tracker.note_service(None, service)
    await proxy.sync()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        proxy._tracker.note_service(service, None)
        nft.refuses = "10.96.0.9"
        with pytest.raises(NftError):
            await proxy.sync()
        nft.refuses = ""
        proxy._tables.clear()  # as it does before it tries again
        await proxy.sync()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
    finally:
        proxy._health_checks.close()
