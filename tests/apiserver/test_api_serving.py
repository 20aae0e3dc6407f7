"""The HTTP server: TLS, certificates, ports, and an end that clients notice."""

from __future__ import annotations

import asyncio
import socket
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from api_caller import ADMIN
from kubectl_runner import Kubectl, require_kubectl

from haru.apiserver.auth import certificates
from haru.apiserver.encoding import response_writer
from haru.apiserver.encoding.response_writer import PIECE_BYTES
from haru.apiserver.registry import watch_encoder
from haru.apiserver.serving import HttpServer
from haru.files import write_whole
from haru.kube import yaml
from waiting import until


def trust(served: Kubectl, client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(served.directory / "ca.crt"))
    if client:
        context.load_cert_chain(served.directory / "client.crt", served.directory / "client.key")
    return context


AS_ADMIN = {"Authorization": f"Bearer {ADMIN}"}


async def test_server_certificate_is_signed_by_own_ca(served: Kubectl) -> None:
    async with aiohttp.ClientSession(headers=AS_ADMIN) as session:
        for host in ("127.0.0.1", "localhost"):
            url = f"https://{host}:{served.server.port}/version"
            async with session.get(url, ssl=trust(served)) as answer:
                assert (await answer.json())["minor"] == "36"


async def test_client_certificate_authenticates_user(served: Kubectl) -> None:
    url = f"{served.server.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json={}, ssl=trust(served, client=True)) as answer:
            info = (await answer.json())["status"]["userInfo"]
        assert info == {"username": "cert-admin", "groups": ["system:masters", "system:authenticated"]}
        async with session.post(url, json={}, ssl=trust(served)) as answer:
            assert answer.status == 403


async def test_client_certificate_of_foreign_ca_is_refused(served: Kubectl, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    forged = certificates.client_pair(certificates.new_authority(now), "cert-admin", ["system:masters"], now)
    (tmp_path / "client.crt").write_bytes(forged.certificate)
    (tmp_path / "client.key").write_bytes(forged.key)
    async with aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await session.get(f"{served.server.url}/api/v1/pods", ssl=trust(served, client=True))


async def test_stopping_server_ends_watches(served: Kubectl) -> None:
    url = f"{served.server.url}/api/v1/pods?watch=1"
    async with aiohttp.ClientSession(headers=AS_ADMIN) as session, session.get(url, ssl=trust(served)) as answer:
        assert answer.status == 200
        reading = asyncio.create_task(answer.content.read())
        await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            await served.server.stop()
            assert await reading == b""


async def test_disconnected_client_releases_its_watch(served: Kubectl) -> None:
    url = f"{served.server.url}/api/v1/pods?watch=1"
    async with aiohttp.ClientSession(headers=AS_ADMIN) as session, session.get(url, ssl=trust(served)) as answer:
        assert answer.status == 200
        assert len(served.app.streams.watches) == 1
        answer.close()
    await until(lambda: not served.app.streams.watches)


async def test_client_that_does_not_read_its_watch_is_disconnected(
    served: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_encoder, "SEND_SECONDS", 0.2)
    server = HttpServer(served.app)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    path = "/api/v1/namespaces/default/configmaps?watch=1"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
    assert b"200 OK" in await reader.readline()
    await fill(server.url, 30)
    await until(lambda: not served.app.metrics.watches)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(100_000_000)
    writer.close()
    await server.stop()


async def fill(url: str, count: int) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}) as session:
        for number in range(count):
            body = {"metadata": {"name": f"m{number}"}, "data": {"k": "x" * 900_000}}
            async with session.post(f"{url}/api/v1/namespaces/default/configmaps", json=body) as answer:
                assert answer.status == 201


async def test_large_response_is_complete(served: Kubectl) -> None:
    server = HttpServer(served.app)
    await server.start()
    await fill(server.url, 4)
    headers = {"Authorization": f"Bearer {ADMIN}", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(headers=headers) as session:
        url = f"{server.url}/api/v1/namespaces/default/configmaps"
        for _ in range(2):  # on one connection
            async with session.get(url) as answer:
                found = await answer.json()
                assert len(found["items"]) == 4 and int(answer.headers["Content-Length"]) > 3 * PIECE_BYTES
        async with session.head(f"{server.url}/openapi/v3/api/v1") as answer:
            assert int(answer.headers["Content-Length"]) > 0 and await answer.read() == b""
    await server.stop()


async def test_client_that_does_not_read_a_large_response_is_disconnected(
    served: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_writer, "PIECE_SECONDS", 0.2)
    server = HttpServer(served.app)
    await server.start()
    await fill(server.url, 20)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    path = "/api/v1/namespaces/default/configmaps"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
    assert b"200 OK" in await reader.readline()
    assert server._server is not None
    state = server._server.server_state
    await until(lambda: not state.connections)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(18_000_000)
    writer.close()
    await server.stop()


async def test_idle_connection_does_not_delay_stop(served: Kubectl) -> None:
    def connect_and_ask() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", served.server.port))
        connection = trust(served).wrap_socket(plain, server_hostname="localhost")
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in connection.recv(100)
        return connection

    connection = await asyncio.to_thread(connect_and_ask)
    assert served.server._server is not None
    served.server._server.config.timeout_graceful_shutdown = 600
    async with asyncio.timeout(60):
        await served.server.stop()
    connection.close()


async def test_kubernetes_service_points_to_the_server(served: Kubectl) -> None:
    require_kubectl()

    async def where() -> list[Any]:
        found = []
        for resource, path in (
            ("service", "{.spec.clusterIP} {.spec.ports[0].port} {.spec.ports[0].targetPort}"),
            ("endpoints", "{.subsets[0].addresses[0].ip} {.subsets[0].ports[0].port}"),
            ("endpointslice", "{.endpoints[0].addresses[0]} {.ports[0].port}"),
        ):
            found.append((await served.ok("get", resource, "kubernetes", "-o", f"jsonpath={path}")).split())
        return found

    port = str(served.server.port)
    assert await where() == [["10.96.0.1", "443", port], ["127.0.0.1", port], ["127.0.0.1", port]]
    other = HttpServer(served.app)
    await other.start()
    assert [parts[-1] for parts in await where()] == [str(other.port)] * 3, "the last to listen is the one to find"
    await other.stop()


async def test_port_in_use_is_named(served: Kubectl) -> None:
    with pytest.raises(OSError, match=r"can not be served.*choose another --port"):
        await HttpServer(served.app, port=served.server.port).start()


async def test_server_without_tls_serves_http(served: Kubectl) -> None:
    server = HttpServer(served.app)
    await server.start()
    assert server.url.startswith("http://127.0.0.1:")
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/readyz") as answer:
        assert await answer.text() == "ok"
    await server.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(server.url.rpartition(":")[2]))) != 0


def test_kubeconfig_file_is_private_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_whole(path, certificates.kubeconfig("https://127.0.0.1:1", b"PEM", "secret", namespace="ns"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config: Any = yaml.load(path.read_text())
    assert config["current-context"] == "haru"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert config["contexts"][0]["context"] == {"cluster": "haru", "user": "haru", "namespace": "ns"}
    assert config["users"][0]["user"] == {"token": "secret"}


def test_server_certificate_names_its_hosts() -> None:
    from cryptography import x509

    now = datetime.now(UTC)
    pair = certificates.server_pair(certificates.new_authority(now), ("gpu.example", "10.0.0.1", "0.0.0.0"), now)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kubernetes.default.svc.cluster.local", "gpu.example"} <= set(
        names.get_values_for_type(x509.DNSName)
    )
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {
        "127.0.0.1",
        "::1",
        "10.96.0.1",
        "10.0.0.1",
    }
