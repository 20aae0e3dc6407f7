"""An API server in memory, for the virtual time of the running loop, with the token `admin` for its administrator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import virtual_time
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore

EVERY_API = {"api/all": True}


async def started_server(gates: FeatureGates, runtime_config: Mapping[str, bool] = EVERY_API) -> ApiServer:
    """Start a server with these feature gates; every API is served unless `runtime_config` says otherwise."""
    config = ServerConfig(
        store=SqliteStore(":memory:", clock=asyncio.get_running_loop().time),
        gates=gates,
        runtime_config=runtime_config,
        authentication=AuthenticationOptions(tokens={"admin": UserInfo("admin", ("system:masters",))}),
        clock=virtual_time.now,
    )
    server = ApiServer(config)
    await server.start()
    return server
