"""What load balancers are told at the healthCheckNodePort of a Service."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from haru import acceptor
from haru.service_proxy.health_checks import HealthChecks
from haru.service_proxy.services import HealthCheck, Place, health_check
from haru_process import free_port
from waiting import until

Obj = dict[str, Any]
PLACE = Place("here")


def service(**spec: Any) -> Obj:
    given = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_999, **spec}
    return {"metadata": {"namespace": "n", "name": "s"}, "spec": given}


def endpoint(address: str, node: str = "here", **conditions: bool) -> Obj:
    return {"addresses": [address], "nodeName": node, "conditions": conditions}


def test_ready_addresses_of_this_node_are_counted_once() -> None:
    one = {"endpoints": [endpoint("10.0.0.1"), endpoint("10.0.0.2", "there"), endpoint("10.0.0.3", ready=False)]}
    assert health_check(service(), [one, {"endpoints": [endpoint("10.0.0.1")]}], PLACE) == HealthCheck(30_999, 1)
    assert health_check(service(externalTrafficPolicy="Cluster"), [one], PLACE) is None
    assert health_check(service(healthCheckNodePort=0), [one], PLACE) is None
    others = service()
    others["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "other"}
    assert health_check(others, [one], PLACE) is None


async def ask(port: int) -> tuple[int, str, Obj]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as answer:
        return answer.status, answer.headers["X-Load-Balancing-Endpoint-Weight"], json.loads(await answer.text())


async def test_answer_is_200_while_the_node_has_endpoints_and_503_without() -> None:
    checks, port, other = HealthChecks(), free_port(), free_port()
    told: Obj = {"service": {"namespace": "n", "name": "s"}, "serviceProxyHealthy": True}
    await checks.update({"n/s": HealthCheck(port, 2), "n/none": None})
    try:
        assert await ask(port) == (200, "2", {**told, "localEndpoints": 2})
        await checks.update({"n/s": HealthCheck(port, 0)})
        assert await ask(port) == (503, "0", {**told, "localEndpoints": 0})
        # Another Service may take the port in the same change.
        await checks.update({"n/t": HealthCheck(port, 1), "n/s": HealthCheck(other, 1)})
        assert (await ask(port))[2]["service"]["name"] == "t" and (await ask(other))[0] == 200
        await checks.update({"n/t": None})
        await assert_closed(port)
    finally:
        checks.close()
        await asyncio.sleep(0)


async def assert_closed(port: int) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask(port)


async def test_node_whose_proxy_is_behind_gets_no_traffic() -> None:
    well, port = [True], free_port()
    checks = HealthChecks(lambda: well[0])
    await checks.update({"n/s": HealthCheck(port, 2)})
    try:
        assert (await ask(port))[0] == 200
        well[0] = False
        status, weight, told = await ask(port)
        assert (status, weight, told["serviceProxyHealthy"], told["localEndpoints"]) == (503, "2", False, 2)
    finally:
        checks.close()


async def test_requests_wait_while_no_descriptor_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "limit", lambda: 1)
    checks, port = HealthChecks(), free_port()
    await checks.update({"n/s": HealthCheck(port, 2)})
    asking = asyncio.create_task(ask(port))
    try:
        await until(lambda: "new connections wait until others are closed" in caplog.text)
        assert not asking.done()
        [(_, server)] = checks._servers.values()
        monkeypatch.setattr(server, "_most", 1_000_000)
        assert (await asking)[0] == 200
    finally:
        checks.close()


async def test_port_that_was_taken_is_tried_again_with_the_next_changes() -> None:
    checks, port = HealthChecks(), free_port()
    other = await asyncio.start_server(lambda reader, writer: writer.close(), port=port)
    await checks.update({"n/s": HealthCheck(port, 2)})
    other.close()
    await other.wait_closed()
    try:
        await assert_closed(port)
        await checks.update({"n/else": None})
        assert (await ask(port))[0] == 200
    finally:
        checks.close()


async def test_service_that_is_not_among_all_is_not_answered_for() -> None:
    checks, port, other = HealthChecks(), free_port(), free_port()
    await checks.update({"n/s": HealthCheck(port, 2), "n/t": HealthCheck(other, 1)})
    try:
        await checks.update({"n/t": HealthCheck(other, 1)}, whole=True)
        await assert_closed(port)
        assert (await ask(other))[0] == 200
    finally:
        checks.close()
