"""An API server in memory, for the virtual time of the running loop, with the token `admin` for its administrator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import virtual_time
from begun_store import begun, has_begun
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore

EVERY_API = {"api/all": True}


async def started_server(gates: FeatureGates, runtime_config: Mapping[str, bool] = EVERY_API) -> ApiServer:
    """Start a server with these feature gates; every API is served unless `runtime_config` says otherwise."""
    config, store = _config(gates, runtime_config)
    if not has_begun(config):
        # In a time of its own: the first one takes no more of this time than all others do.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(virtual_time.run, _begin_and_stop(gates, runtime_config)).result()
    return await begun(config, store)


def _config(gates: FeatureGates, runtime_config: Mapping[str, bool]) -> tuple[ServerConfig, SqliteStore]:
    store = SqliteStore(":memory:", clock=asyncio.get_running_loop().time)
    authentication = AuthenticationOptions(tokens={"admin": UserInfo("admin", ("system:masters",))})
    settings: dict[str, Any] = {"gates": gates, "runtime_config": runtime_config, "authentication": authentication}
    return ServerConfig(store=store, clock=virtual_time.now, **settings), store


async def _begin_and_stop(gates: FeatureGates, runtime_config: Mapping[str, bool]) -> None:
    await (await begun(*_config(gates, runtime_config))).stop()
