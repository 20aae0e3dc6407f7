"""Credential programs that give out client certificates, against a server of HTTPS that knows its clients by them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tls_server import Pair, certificate, pem, served, server_tls, subject_of

from haru.client.api import ApiClient
from haru.client.credentials import CredentialError
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.names import format_time

PODS = kinds.lookup("", "v1", "pods")
assert PODS is not None
# Prints the next of the statuses that a file lists, the last again and again.
SCRIPT = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
statuses = json.loads((folder / "statuses").read_text())
(folder / "info").write_text(json.dumps(info))
(folder / "statuses").write_text(json.dumps(statuses[1:] or statuses))
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": statuses[0]}))
"""


def credential(pair: Pair, **more: str) -> dict[str, str]:
    cert, key = pem(pair)
    return {"clientCertificateData": cert.decode(), "clientKeyData": key.decode(), **more}


class Server:
    """Answers whom it sees, 401 to those without a certificate or on a list; /watch goes on until it is cut off."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority, self.url = folder, certificate("ca", ca=True), ""
        self.refused: set[str] = set()
        self.over = asyncio.Event()
        self.seen: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        who = subject_of(request)
        self.seen.append(who)
        if not who or who in self.refused:
            body = {"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized", "message": "who?"}
            return web.json_response(body, status=401)
        if request.path != "/watch":
            return web.json_response({"who": who, "token": request.headers.get("authorization", "")})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(who.encode())
        await self.over.wait()
        return response

    def client(self, *statuses: Any, version: str = "v1", user: str = "", **options: Any) -> ApiClient:
        """A client by a kubeconfig whose program prints these statuses one after the other."""
        (self.folder / "statuses").write_text(json.dumps(statuses))
        program = {
            "apiVersion": f"client.authentication.k8s.io/{version}",
            "command": sys.executable,
            "args": ["-c", SCRIPT, str(self.folder)],
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
        ca = base64.b64encode(pem(self.authority)[0]).decode()
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority-data": ca}}],
            "users": [{"name": "c", "user": {"exec": program, **json.loads(user or "{}")}}],
        }
        (self.folder / "config").write_text(json.dumps(config))
        return ApiClient.from_kubeconfig(self.folder / "config", **options)

    def pair(self, name: str) -> Pair:
        return certificate(name, self.authority)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    found = Server(tmp_path)
    async with served(found.answer, server_tls(tmp_path, found.authority, ssl.CERT_OPTIONAL)) as found.url:
        yield found
        found.over.set()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("multiplexed", [False, True])
async def test_certificate_of_program_is_presented(server: Server, version: str, multiplexed: bool) -> None:
    client = server.client(credential(server.pair("me")), version=version, multiplexed=multiplexed)
    async with client:
        assert (await client.get(PODS, "a", "ns"))["who"] == "me"
        assert (await client.create(PODS, {"metadata": {"name": "a"}}, "ns"))["who"] == "me"
    info = json.loads((server.folder / "info").read_text())
    assert info["apiVersion"] == f"client.authentication.k8s.io/{version}"
    assert info["spec"]["interactive"] is False and info["spec"]["cluster"]["server"] == server.url


async def test_token_and_certificate_of_one_program_are_both_sent(server: Server) -> None:
    async with server.client(credential(server.pair("me"), token="secret")) as client:
        assert await client.get(PODS, "a", "ns") == {"who": "me", "token": "Bearer secret"}


async def test_certificate_is_renewed_when_credential_expires_and_streams_end(server: Server) -> None:
    gone = format_time(datetime.now(UTC) - timedelta(minutes=1))
    statuses = [credential(server.pair("one"), expirationTimestamp=gone), credential(server.pair("two"))]
    async with server.client(*statuses) as client:
        stream = client.stream_raw("/watch")
        assert await anext(stream) == b"one"
        assert [(await client.get(PODS, "a", "ns"))["who"] for _ in range(2)] == ["two", "two"]
        with pytest.raises(OSError):  # it was of the client that the old certificate named
            await anext(stream)


async def test_refused_certificate_is_renewed_once(server: Server) -> None:
    server.refused = {"one"}
    pairs = [server.pair(name) for name in ("one", "two", "three")]
    async with server.client(*map(credential, pairs)) as client:
        assert (await client.get(PODS, "a", "ns"))["who"] == "two"
        server.refused = {"two", "three"}
        with pytest.raises(StatusError, match=r"who\?"):
            await client.get(PODS, "a", "ns")
    assert server.seen == ["one", "two", "two", "three"]


async def test_same_certificate_again_keeps_connections(server: Server) -> None:
    gone = format_time(datetime.now(UTC) - timedelta(minutes=1))
    async with server.client(credential(server.pair("me"), expirationTimestamp=gone)) as client:
        stream = client.stream_raw("/watch")
        assert await anext(stream) == b"me"
        assert (await client.get(PODS, "a", "ns"))["who"] == "me"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(stream)


async def test_certificate_is_not_presented_any_more_once_program_gives_a_token_alone(server: Server) -> None:
    gone = format_time(datetime.now(UTC) - timedelta(minutes=1))
    async with server.client(credential(server.pair("me"), expirationTimestamp=gone), {"token": "t"}) as client:
        await client.get(PODS, "a", "ns")
        with pytest.raises(StatusError):
            await client.get(PODS, "a", "ns")
    assert server.seen[:2] == ["me", ""]


async def test_program_is_not_run_where_kubeconfig_has_a_certificate(server: Server) -> None:
    cert, key = (base64.b64encode(data).decode() for data in pem(server.pair("me")))
    user = json.dumps({"client-certificate-data": cert, "client-key-data": key})
    async with server.client({}, user=user) as client:
        assert (await client.get(PODS, "a", "ns"))["who"] == "me"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"clientCertificateData": "x"}, "it gave clientCertificateData without clientKeyData"),
        ({"clientKeyData": "x", "token": "t"}, "it gave clientKeyData without clientCertificateData"),
        ({"clientCertificateData": "x", "clientKeyData": "y"}, "its client certificate and key can not be used: "),
        ({}, "it gave neither a token nor a client certificate and its key"),
        (None, "it gave neither a token nor a client certificate and its key"),
        ("x", "it did not print an ExecCredential"),
    ],
)
async def test_credential_that_can_not_be_used_is_named(server: Server, status: Any, message: str) -> None:
    async with server.client(status) as client:
        with pytest.raises(CredentialError, match=f"credential program {sys.executable}: {message}"):
            await client.get(PODS, "a", "ns")
    assert server.seen == []


async def test_pair_that_is_none_is_named(server: Server) -> None:
    mixed = {**credential(server.pair("one")), "clientKeyData": credential(server.pair("two"))["clientKeyData"]}
    async with server.client(mixed) as client:
        with pytest.raises(CredentialError, match=r"certificate and key can not be used: .*MISMATCH"):
            await client.get(PODS, "a", "ns")
