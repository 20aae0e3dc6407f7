"""A request that comes while the server ends."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from api_caller import MAPS, Caller, Clock, config_map, make_config

from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore


async def test_write_to_a_closed_store_is_answered_503_and_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = SqliteStore(tmp_path / "state.db"), Clock()
    await store.start()
    server = ApiServer(make_config(store, clock))
    await server.start()
    api = Caller(server, clock)
    await api.create(MAPS, config_map("before"))
    await store.stop()
    caplog.set_level(logging.WARNING)
    answer = await api("POST", MAPS, config_map("after"))
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    assert "not open" in answer.json["message"]
    assert caplog.records == []
    await server.stop()
