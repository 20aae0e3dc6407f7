"""The real kubectl against a real server: TLS on the loopback, a kubeconfig, a home of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_caller import ADMIN, KEY, USER

from haru.apiserver.auth import certificates
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.files import write_whole
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore

BINARY = shutil.which("kubectl") or "/usr/bin/kubectl"


def require_kubectl() -> None:
    if not Path(BINARY).exists():
        if os.environ.get("HARU_REQUIRE_ALL") == "1":
            pytest.fail("kubectl is required but not installed")
        pytest.skip("kubectl is not installed")


@dataclass
class Result:
    """What a command wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Kubectl:
    """Runs kubectl against one server."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.directory = directory
        self.config = config
        self.home = directory
        self.namespace = "default"
        self.server: HttpServer
        self.app: ApiServer
        self.authority: certificates.Pair

    async def start(self) -> None:
        now = datetime.now(UTC)
        authority = certificates.new_authority(now)
        pair = certificates.server_pair(authority, ("haru.example",), now)
        cert, key, ca = (self.directory / name for name in ("tls.crt", "tls.key", "ca.crt"))
        cert.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        ca.write_bytes(authority.certificate)
        self.store = SqliteStore(self.directory / "store.db")
        await self.store.start()
        tokens = {ADMIN: UserInfo("admin", ("system:masters",)), USER: UserInfo("jane", ("devs",))}
        self.app = ApiServer(
            ServerConfig(
                self.store,
                FeatureGates.accelerator_defaults(),
                {"api/beta": True, "api/alpha": True},
                AuthenticationOptions(tokens, service_account_key_pem=KEY),
                **self.config,
            )
        )
        await self.app.start()
        self.server = HttpServer(self.app, tls=TlsFiles(cert, key, ca))
        await self.server.start()
        self.authority = authority
        self._write_configs()
        client = certificates.client_pair(authority, "cert-admin", ["system:masters"], now)
        write_whole(self.directory / "client.crt", client.certificate)
        write_whole(self.directory / "client.key", client.key)

    def _write_configs(self) -> None:
        for name, token in (("config", ADMIN), ("jane", USER)):
            config = certificates.kubeconfig(
                self.server.url, self.authority.certificate, token, namespace=self.namespace
            )
            write_whole(self.directory / name, config)

    async def in_namespace(self, directory: Path, namespace: str) -> Kubectl:
        """The same server and home, in a new namespace."""
        other = copy(self)
        other.directory, other.namespace = directory, namespace
        other._write_configs()
        await other.ok("create", "namespace", namespace)
        return other

    async def stop(self) -> None:
        await self.server.stop()
        await self.app.stop()
        await self.store.stop()

    async def spawn(self, *args: str, config: str = "config") -> asyncio.subprocess.Process:
        environment = {"HOME": str(self.home), "KUBECONFIG": str(self.directory / config), "PATH": "/usr/bin:/bin"}
        environment["KUBE_EDITOR"] = "true"
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            BINARY, *args, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )

    async def run(self, *args: str, input: str = "", config: str = "config", timeout: float = 120) -> Result:
        """Run a command to its end."""
        process = await self.spawn(*args, config=config)
        out, err = await asyncio.wait_for(process.communicate(input.encode()), timeout)
        return Result(process.returncode or 0, out.decode(), err.decode())

    async def ok(self, *args: str, input: str = "", config: str = "config") -> str:
        """Run a command that must succeed; what it prints."""
        result = await self.run(*args, input=input, config=config)
        assert result.code == 0, f"kubectl {' '.join(args)}: {result.out}{result.err}"
        return result.out
