"""The kubelet API over real sockets: certificates, tokens, what each path answers, streams."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest
from kubelet_pieces import NODE, POD, Authority, Kubelet, client_context, kubelet

from haru.node.api.kubelet import KubeletServer, ServedNode
from haru.node.api.options import AuthenticationOptions, AuthorizationOptions, ServerOptions
from waiting import until

ALL = tuple(
    (verb, name)
    for verb in ("get", "create")
    for name in ("pods", "healthz", "configz", "statusz", "stats", "metrics", "log", "checkpoint", "proxy")
)


async def text(session: aiohttp.ClientSession, path: str, **options: object) -> tuple[int, str]:
    async with session.request(options.pop("method", "GET"), path, allow_redirects=False, **options) as answer:  # type: ignore[arg-type]
        return answer.status, await answer.text()


async def test_kubelet_requires_credentials_and_permission(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as node:
        headers = node.grant("carol", ("get", "pods"))
        async with node.session() as session:
            assert await text(session, "/pods") == (401, "Unauthorized")
            async with session.get("/healthz") as answer:
                assert answer.status == 401 and "WWW-Authenticate" not in answer.headers
            assert await text(session, "/pods", headers={"Authorization": "Bearer nobody"}) == (401, "Unauthorized")
            status, body = await text(session, "/pods", headers=headers)
            assert status == 200 and json.loads(body)["items"] == [POD]
            told = "Forbidden (user=carol, verb=get, resource=nodes, subresource(s)=[stats])"
            assert await text(session, "/stats/summary", headers=headers) == (403, told)
            told = "Forbidden (user=carol, verb=get, resource=nodes, subresource(s)=[healthz proxy])"
            assert await text(session, "/healthz", headers=headers) == (403, told)
            # HEAD has an empty verb.
            assert (await text(session, "/pods", method="HEAD", headers=headers))[0] == 403


async def test_client_certificates_are_authenticated(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as node:
        node.reviews.grants["eve"] = {("get", "configz")}
        async with node.session(node.clients.client("eve", "ops", "staff")) as session:
            assert await text(session, "/configz") == (200, '{"kubeletconfig":{"port":10250}}')
        spec = node.reviews.asked[-1]
        assert spec["user"] == "eve" and spec["groups"] == ["ops", "staff", "system:authenticated"]
        assert spec["resourceAttributes"]["name"] == NODE
        stranger = Authority(tmp_path / "strangers", "strangers").client("eve")
        with pytest.raises((aiohttp.ClientError, OSError)):
            async with node.session(stranger) as session:
                await text(session, "/configz")


async def test_unreachable_api_server_denies_new_requests(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as node:
        headers = node.grant("carol", ("get", "pods"), ("get", "stats"))
        async with node.session() as session:
            assert (await text(session, "/pods", headers=headers))[0] == 200
            node.reviews.down = True
            assert (await text(session, "/pods", headers=headers))[0] == 200
            status, body = await text(session, "/stats/summary", headers=headers)
            told = "Authorization error (user=carol, verb=get, resource=nodes, subresource=stats)"
            assert (status, body) == (500, told)
            assert (await text(session, "/pods", headers={"Authorization": "Bearer new"}))[0] == 401


async def test_anonymous_access_when_enabled(tmp_path: Path) -> None:
    async with (
        kubelet(tmp_path, authentication=AuthenticationOptions(anonymous=True)) as node,
        node.session() as session,
    ):
        assert (await text(session, "/healthz"))[0] == 403
        assert node.reviews.asked[0]["user"] == "system:anonymous"
        assert node.reviews.asked[0]["groups"] == ["system:unauthenticated"]
        assert (await text(session, "/healthz", headers={"Authorization": "Bearer bad"}))[0] == 401


async def test_always_allow_mode_still_requires_authentication(tmp_path: Path) -> None:
    async with kubelet(tmp_path, authorization=AuthorizationOptions("AlwaysAllow")) as node, node.session() as session:
        assert (await text(session, "/pods"))[0] == 401
        assert (await text(session, "/pods", headers=node.grant("x")))[0] == 200
        assert [spec for spec in node.reviews.asked if "resourceAttributes" in spec] == []


def request_line(path: str, headers: dict[str, str]) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: node", "Connection: close", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def raw(node: Kubelet, data: bytes) -> bytes:
    context = client_context(node.servers.file)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.server.port, ssl=context, server_hostname="127.0.0.1"
    )
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/logs/../exec/default/web/main", "/exec/default/web/main"),
        ("/pods/%2e%2e/configz", "/configz"),
        ("/stats/..%2fpods", "/pods"),
        ("//pods", "/pods"),
        ("/metrics//cadvisor?a=b", "/metrics/cadvisor?a=b"),
    ],
)
async def test_unclean_path_is_redirected(tmp_path: Path, path: str, where: str) -> None:
    async with kubelet(tmp_path) as node:
        headers = node.grant("carol", *ALL)
        answer = await raw(node, request_line(path, headers))
        assert answer.startswith(b"HTTP/1.1 301"), answer
        assert f"location: {where}\r\n".encode() in answer
        assert node.reviews.asked == []


async def test_paths_answer_with_expected_status_and_content(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("secret")
    async with kubelet(tmp_path) as node, node.session() as session:
        logs = tmp_path / "log"
        (logs / "sys log").write_text("line\n")
        (logs / "pods").mkdir()
        (logs / "out").symlink_to(tmp_path / "elsewhere")
        (logs / "in").symlink_to("sys log")
        headers = node.grant("root", *ALL)

        async def get(path: str, **options: object) -> tuple[int, str]:
            return await text(session, path, headers=headers, **options)

        for path in ("/pods", "/runningpods/", "/runningpods"):
            status, body = await get(path)
            assert status == 200 and json.loads(body)["kind"] == "PodList"
        for path in ("/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"):
            assert await get(path) == (200, "ok")
        assert await get("/healthz?verbose") == (
            200,
            "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n",
        )
        assert json.loads((await get("/stats/summary"))[1])["only"] is False
        assert json.loads((await get("/stats/summary?only_cpu_and_memory=true"))[1])["only"] is True
        assert await get("/metrics/cadvisor") == (200, "# cadvisor\n")
        assert await get("/metrics/resource") == (200, "# resource\n")
        assert await get("/metrics/probes") == (200, "")
        own = (await get("/metrics"))[1]
        for line in (
            'kubelet_http_requests_total{long_running="false",method="GET",path="metrics/cadvisor",'
            'server_type="readwrite"} 1',
            'kubernetes_feature_enabled{name="KubeletFineGrainedAuthz",stage=""} 1',
            'kubernetes_feature_enabled{name="KubeletPSI",stage=""} 1',
        ):
            assert line in own
        status, body = await get("/statusz")
        assert status == 200 and body.startswith("\nkubelet statusz\n") and "Binary version: 1.36.0" in body
        status, body = await get("/flagz")
        assert status == 200 and body.endswith("\nv=2\n")
        refused = {**headers, "Accept": "application/json"}
        assert (await text(session, "/statusz", headers=refused))[0] == 406
        assert await get("/logs/sys%20log") == (200, "line\n")
        assert await get("/logs/in") == (200, "line\n")
        assert (await get("/logs/out"))[0] == 404
        assert (await get("/logs/none"))[0] == 404
        assert (await get("/logs/pods"))[0] == 301
        assert '<a href="pods/">pods/</a>' in (await get("/logs/"))[1]
        assert (await get("/logs/?query=kubelet"))[0] == 403
        assert await get("/run/default/web/main?cmd=ls%20-l", method="POST") == (200, "ls -l")
        # Who may only get may run nothing.
        assert (await get("/run/default/web/main?cmd=ls%20-l"))[0] == 405
        assert await get("/checkpoint/default/web/main", method="POST") == (200, '{"items":["/checkpoints/one.tar"]}')
        assert (await get("/checkpoint/default/web/main"))[0] == 405
        assert await get("/exec/default/web/none?output=1") == (404, 'container "none" not found in pod\n')
        assert await get("/exec/default/nil/main?output=1") == (404, "pod does not exist\n")
        assert await get("/exec/default/web/u-2/main?output=1") == (404, "pod does not exist\n")
        assert await get("/exec/default/web/u-1/main?output=1&command=ls") == (400, "Upgrade request required\n")
        assert (await get("/exec/default/web/main?command=ls"))[0] == 400
        for path in ("/podsfoo", "/stats", "/metrics/none", "/spec/", "/pods/x", "/healthz/none", "/debug/pprof/heap"):
            assert (await get(path))[0] == 404, path


async def test_unhealthy_agent_fails_healthz(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as node, node.session() as session:
        headers = node.grant("root", *ALL)
        node.shown.health_problem = lambda: "no look at the runtime for 3 minutes"
        status, body = await text(session, "/healthz", headers=headers)
        assert status == 500 and "[-]syncloop failed: no look at the runtime for 3 minutes" in body
        assert (await text(session, "/healthz/ping", headers=headers))[0] == 200


async def test_disabled_debugging_handlers_answer_405_after_authorization(tmp_path: Path) -> None:
    async with kubelet(tmp_path, debugging_handlers=False) as node, node.session() as session:
        headers, poor = node.grant("root", *ALL), node.grant("poor")
        for path in ("/exec/default/web/main", "/containerLogs/default/web/main", "/logs/", "/runningpods/"):
            assert (await text(session, path))[0] == 401
            assert (await text(session, path, headers=poor))[0] == 403
            assert await text(session, path, headers=headers) == (405, "Debug endpoints are disabled.\n")
        assert (await text(session, "/pods", headers=headers))[0] == 200


async def test_plain_healthz_port_serves_nothing_else(tmp_path: Path) -> None:
    async with (
        kubelet(tmp_path) as node,
        aiohttp.ClientSession(f"http://127.0.0.1:{node.server.healthz_port}") as plain,
    ):
        assert await text(plain, "/healthz") == (200, "ok")
        for path in ("/pods", "/metrics", "/healthz/..", "/"):
            assert (await text(plain, path))[0] == 404


async def test_too_long_bodies_and_headers_are_handled(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as node:
        headers = node.grant("root", *ALL)
        large = request_line("/pods", {**headers, "X-Large": "x" * 2_000_000})
        try:
            answer = await raw(node, large)
        except ConnectionError:
            answer = b""  # cut off while we still wrote
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
        async with node.session() as session:
            # A body that nobody reads does no harm.
            async with session.post(
                "/run/default/web/main?cmd=ls", headers=headers, data=BytesIO(b"x" * 5_000_000)
            ) as said:
                assert said.status == 200
            token = {"Authorization": "Bearer " + "x" * 60_000}
            assert (await text(session, "/pods", headers=token))[0] == 401


async def test_rotated_certificate_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with kubelet(tmp_path) as node:
        headers = node.grant("root", *ALL)

        def serial() -> bytes:
            return ssl.get_server_certificate(("127.0.0.1", node.server.port)).encode()

        before = await asyncio.to_thread(serial)
        async with node.session() as session:
            assert (await text(session, "/pods", headers=headers))[0] == 200
            node.certificate[1].write_text("half a key")  # nonsense is not taken
            await until(lambda: "the certificates were not read again" in caplog.text)
            assert await asyncio.to_thread(serial) == before
            node.servers.server()
            newer = Authority(tmp_path / "newer", "newer")
            node.clients.file.write_bytes(newer.file.read_bytes())

            async def is_new() -> bool:
                return await asyncio.to_thread(serial) != before

            await until(is_new)
            # Who was there stays.
            assert (await text(session, "/pods", headers=headers))[0] == 200
        node.reviews.grants["zoe"] = {("get", "pods")}
        certificate = newer.client("zoe")

        async def zoe_comes_in() -> bool:
            try:
                async with node.session(certificate) as session:
                    return (await text(session, "/pods"))[0] == 200
            except (aiohttp.ClientError, OSError):
                return False

        await until(zoe_comes_in)


async def test_missing_certificate_is_generated_and_kept(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    options = {"cert_file": None, "key_file": None, "cert_dir": directory}
    async with kubelet(tmp_path, **options) as node, node.session(authority=directory / "kubelet.crt") as session:
        assert (await text(session, "/pods", headers=node.grant("root", *ALL)))[0] == 200
    made = (directory / "kubelet.crt").read_bytes()
    assert (directory / "kubelet.key").stat().st_mode & 0o077 == 0
    (tmp_path / "again").mkdir()
    async with kubelet(tmp_path / "again", **options):
        assert (directory / "kubelet.crt").read_bytes() == made


def test_conflicting_server_options_are_refused(tmp_path: Path) -> None:
    node = Kubelet(tmp_path)
    for options, why in (
        (ServerOptions(cert_file=tmp_path), "go together"),
        (ServerOptions(), "no place for a serving certificate"),
        (ServerOptions(cert_dir=tmp_path), "no client of an API server"),
        (
            ServerOptions(cert_dir=tmp_path, authorization=AuthorizationOptions("AlwaysAllow")),
            "no client of an API server",
        ),
    ):
        with pytest.raises(ValueError, match=why):
            KubeletServer(ServedNode(NODE), node.shown, options, client=None)
    alone = ServerOptions(
        cert_dir=tmp_path,
        authentication=AuthenticationOptions(webhook=False),
        authorization=AuthorizationOptions("AlwaysAllow"),
    )
    KubeletServer(ServedNode(NODE), node.shown, alone, client=None)


# -- streams ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def runtime(status: str = "101 Switching Protocols") -> AsyncGenerator[tuple[int, list[bytes]], None]:
    """A streaming server that says back what it hears in capitals."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        extra = "" if status.startswith("101") else "Content-Length: 4\r\n"
        writer.write(f"HTTP/1.1 {status}\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n{extra}\r\n".encode())
        if extra:
            writer.write(b"nope")
        while piece := await reader.read(65536):
            writer.write(piece.upper())
            if piece.endswith(b"bye"):
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()


def upgrade(path: str, headers: dict[str, str], method: str = "POST", protocol: str = "SPDY/3.1") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: node", "Connection: Upgrade", f"Upgrade: {protocol}"]
    lines += [f"{k}: {v}" for k, v in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def connected(node: Kubelet) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
    context = client_context(node.servers.file)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.server.port, ssl=context, server_hostname="127.0.0.1"
    )
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize(("method", "protocol"), [("POST", "SPDY/3.1"), ("GET", "websocket")])
async def test_exec_stream_is_connected_to_runtime(tmp_path: Path, method: str, protocol: str) -> None:
    async with runtime() as (port, heads), kubelet(tmp_path) as node:
        node.source.stream_port = port
        headers = node.grant("root", ("get", "proxy"), ("create", "proxy"))
        path = "/exec/default/web/main?command=sh&command=-c&input=1&output=1&error=1"
        async with connected(node) as (reader, writer):
            writer.write(upgrade(path, {**headers, "X-Stream-Protocol-Version": "v4.channel.k8s.io"}, method, protocol))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
            writer.write(b"x" * 300_000)
            assert await reader.readexactly(300_000) == b"X" * 300_000
            writer.write(b"bye")
            assert await reader.read() == b"BYE"
        kind, options, _ = node.source.opened[0]
        assert kind == "exec" and options.command == ("sh", "-c")
        assert (options.stdin, options.stdout, options.stderr, options.tty) == (True, True, True, False)
        sent = heads[0].lower()
        assert sent.startswith(f"{method} /stream http/1.1".lower().encode())
        assert b"x-stream-protocol-version: v4.channel.k8s.io" in sent and b"authorization" not in sent


async def test_refusing_runtime_gives_error_status(tmp_path: Path) -> None:
    async with runtime("404 Not Found") as (port, _), kubelet(tmp_path) as node:
        node.source.stream_port = port
        headers = node.grant("root", ("create", "proxy"))
        async with connected(node) as (reader, writer):
            writer.write(upgrade("/attach/default/web/main?output=1", headers))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 404") and await reader.readexactly(4) == b"nope"
    (tmp_path / "away").mkdir()
    async with kubelet(tmp_path / "away") as node:
        node.source.stream_port = 1  # nobody
        headers = node.grant("root", ("create", "proxy"))
        async with connected(node) as (reader, writer):
            writer.write(upgrade("/attach/default/web/main?output=1", headers))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 500")


async def test_web_socket_port_forward_options_are_checked(tmp_path: Path) -> None:
    async with runtime() as (port, _), kubelet(tmp_path) as node:
        node.source.stream_port = port
        headers = node.grant("root", ("get", "proxy"))
        for query, status in (("?port=80,443&port=8080", 101), ("", 400), ("?port=0", 400), ("?port=x", 400)):
            async with connected(node) as (reader, writer):
                writer.write(upgrade("/portForward/default/web" + query, headers, "GET", "websocket"))
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(f"HTTP/1.1 {status}".encode())
        assert [options for _, options, _ in node.source.opened] == [[80, 443, 8080]]


async def test_stream_limit_answers_503(tmp_path: Path) -> None:
    async with runtime() as (port, _), kubelet(tmp_path, most_streams=1) as node:
        node.source.stream_port = port
        headers = node.grant("root", ("create", "proxy"))
        line = upgrade("/attach/default/web/main?output=1", headers)

        async def status() -> bytes:
            async with connected(node) as (reader, writer):
                writer.write(line)
                return (await reader.readuntil(b"\r\n\r\n"))[9:12]

        async with connected(node) as (reader, writer):
            writer.write(line)
            assert (await reader.readuntil(b"\r\n\r\n"))[9:12] == b"101"
            assert await status() == b"503"

        async def has_room() -> bool:
            return await status() == b"101"

        await until(has_room)


async def test_stopping_server_ends_streams_and_followers(tmp_path: Path) -> None:
    async with runtime() as (port, _), kubelet(tmp_path) as node:
        node.source.stream_port = port
        node.source.log("main").write_bytes(b"2026-01-01T00:00:00.5Z stdout F one\n")
        headers = node.grant("root", *ALL)
        async with connected(node) as (reader, writer), node.session() as session:
            writer.write(upgrade("/attach/default/web/main?output=1", headers))
            await reader.readuntil(b"\r\n\r\n")
            async with session.get("/containerLogs/default/web/main?follow=true", headers=headers) as answer:
                assert await answer.content.readexactly(4) == b"one\n"
                async with asyncio.timeout(30):
                    await node.server.stop()
                    assert await reader.read() == b""
                    with pytest.raises(aiohttp.ClientError):
                        await answer.content.read()
