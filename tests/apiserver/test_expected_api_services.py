"""APIs whose extension API servers start soon after the API server: early requests wait, discovery keeps silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from api_caller import USER, Caller, Clock, make_config
from extension_server import GROUP, NAME, ROOT, SERVICES, VERSION, WAGONS, ExtensionServer, Keys, register, told

from haru.apiserver.aggregation import expected, remote
from haru.apiserver.server import ApiServer
from haru.embedded.options import UpOptions
from haru.embedded.part import expected_apis
from haru.explain_server import discovery as explain
from haru.simulated_nodes.metrics_server import documents as metrics
from haru.storage import SqliteStore

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@contextlib.asynccontextmanager
async def serving(store: SqliteStore, keys: Keys) -> AsyncIterator[Caller]:
    """A server that expects trains.example/v1."""
    options = replace(keys.options(), expected=((GROUP, VERSION),))
    clock = Clock()
    app = ApiServer(make_config(store, clock, aggregation=options))
    await app.start()
    yield Caller(app, clock)
    await app.stop()


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr(remote, "FIRST_RETRY_SECONDS", 0.1)
    store = SqliteStore(":memory:")
    await store.start()
    yield store
    await store.stop()


@pytest.fixture
async def trains(tmp_path: Path) -> AsyncIterator[ExtensionServer]:
    server = ExtensionServer(tmp_path, Keys.made())
    await server.start()
    yield server
    await server.stop()


async def groups(api: Caller) -> set[str]:
    """What both documents of discovery name."""
    whole = (await api("GET", "/apis", accept=AGGREGATED)).json["items"]
    plain = (await api("GET", "/apis")).json["groups"]
    return {each["metadata"]["name"] for each in whole} | {each["name"] for each in plain}


async def test_early_request_waits_for_an_expected_server_and_discovery_names_it_then(
    store: SqliteStore, trains: ExtensionServer
) -> None:
    async with serving(store, trains.keys) as api:
        assert GROUP not in await groups(api)
        early = asyncio.create_task(api("GET", WAGONS))
        refused = await api.as_(USER)("GET", WAGONS)
        assert refused.status == 403 and not early.done()
        await register(api, trains, trains.keys)
        answer = await asyncio.wait_for(early, 10)
        assert answer.status == 200 and answer.json["kind"] == "WagonList"
        assert GROUP in await groups(api)


async def test_api_service_of_an_earlier_start_is_waited_for_too(store: SqliteStore, trains: ExtensionServer) -> None:
    async with serving(store, trains.keys) as api:
        await register(api, trains, trains.keys)
    port = trains.port
    await trains.stop()
    async with serving(store, trains.keys) as api:
        await told(api, "False", "FailedDiscoveryCheck")
        early = asyncio.create_task(api("GET", WAGONS))
        assert GROUP not in await groups(api)
        await asyncio.sleep(0.1)
        assert not early.done()
        await trains.start()
        assert trains.port != port
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/trains"
        ports = [{"name": "", "port": trains.port, "protocol": "TCP"}]
        await api("PATCH", path, {"ports": ports}, type="application/merge-patch+json")
        assert (await asyncio.wait_for(early, 10)).status == 200


async def test_what_has_not_come_in_time_is_not_found(
    store: SqliteStore, trains: ExtensionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected, "WAIT_SECONDS", 0.05)
    async with serving(store, trains.keys) as api:
        assert (await api("GET", WAGONS)).status == 503
    monkeypatch.setattr(expected, "WAIT_SECONDS", 30.0)
    monkeypatch.setattr(expected, "EXPECTED_SECONDS", 0.2)
    async with serving(store, trains.keys) as api:
        assert (await api("GET", WAGONS)).status == 404
        assert (await api("GET", ROOT)).status == 404
        # From then on it is like any other: named though it cannot be used.
        await register(api, trains, trains.keys)
        trains.broken = True
        await api("PATCH", f"{SERVICES}/{NAME}", {"spec": {"versionPriority": 11}}, type="application/merge-patch+json")
        await told(api, "False", "FailedDiscoveryCheck")
        assert GROUP in await groups(api)


def test_haru_up_expects_the_apis_that_it_serves() -> None:
    served = ((explain.GROUP, explain.VERSION), (metrics.GROUP, metrics.VERSION))
    assert expected_apis(UpOptions(explain_api=True, metrics_api=True)) == served
    assert expected_apis(UpOptions(explain_api=True, metrics_api=True, simulated_nodes=False)) == served[:1]
    assert expected_apis(UpOptions(explain_api=False, metrics_api=False)) == ()
