"""HTTP/2: the same server, many requests on a connection, with clients whose protocol is not ours."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from api_caller import ADMIN, USER
from h2.settings import SettingCodes
from http2_client import Http2Client
from kubectl_runner import Kubectl, require_kubectl
from left_over import left_to_a_collection
from test_api_serving import trust

from haru.apiserver.registry import watch_encoder
from haru.apiserver.request.http import BODY_LIMIT
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.http2 import stream as stream_module
from waiting import until

MAPS = "/api/v1/namespaces/default/configmaps"
INTERNAL_ERROR, PROTOCOL_ERROR = 2, 1


@pytest.fixture
async def client(served: Kubectl) -> AsyncIterator[Http2Client]:
    opened = await Http2Client.open(served.server.port, trust(served))
    yield opened
    await opened.close()


def config_map(name: str, size: int = 1) -> Any:
    return {"metadata": {"name": name}, "data": {"k": "x" * size}}


def negotiated(port: int, context: ssl.SSLContext, offered: list[str]) -> str | None:
    if offered:
        context.set_alpn_protocols(offered)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.selected_alpn_protocol()


@pytest.mark.parametrize(
    ("offered", "streams", "chosen"),
    [
        (["h2", "http/1.1"], 100, "h2"),
        (["http/1.1", "h2"], 100, "h2"),
        (["http/1.1"], 100, "http/1.1"),
        ([], 100, None),
        (["h2", "http/1.1"], 0, "http/1.1"),
        (["h2"], 0, None),
    ],
)
async def test_protocol_is_negotiated_by_alpn_and_flag(
    served: Kubectl, offered: list[str], streams: int, chosen: str | None
) -> None:
    server = HttpServer(
        served.app,
        tls=TlsFiles(served.directory / "tls.crt", served.directory / "tls.key"),
        http2_streams=streams,
    )
    await server.start()
    assert await asyncio.to_thread(negotiated, server.port, trust(served), offered) == chosen
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/readyz", ssl=trust(served)) as answer:
        assert await answer.text() == "ok"
    await server.stop()


async def test_requests_of_every_kind_work_over_http2(client: Http2Client) -> None:
    made = await client.ask("POST", MAPS, body=config_map("a"))
    assert (made.status, made.json["metadata"]["name"]) == (201, "a")
    assert made.headers["content-type"] == "application/json" and made.headers["date"]
    assert int(made.headers["content-length"]) == len(made.body)
    assert (await client.ask("GET", f"{MAPS}/a")).json == made.json
    head, whole = await client.ask("HEAD", "/version"), await client.ask("GET", "/version")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", whole.headers["content-length"])
    assert (await client.ask("HEAD", f"{MAPS}/a")).status == 405
    assert (await client.ask("GET", f"{MAPS}?labelSelector=a%3Db&limit=1")).json["items"] == []
    assert (await client.ask("GET", f"{MAPS}/%61")).json == made.json
    patch = ("content-type", "application/merge-patch+json")
    number = client.begin("PATCH", f"{MAPS}/a", patch, ends=False)
    await client.send(number, b'{"data":{"k":"y"}}')
    assert (await client.answer(number)).json["data"] == {"k": "y"}
    assert (await client.ask("DELETE", f"{MAPS}/a")).status == 200
    assert (await client.ask("GET", f"{MAPS}/a")).json["reason"] == "NotFound"
    assert (await client.ask("GET", MAPS, token="wrong")).status == 401
    assert (await client.ask("GET", MAPS, token=USER)).status == 403


async def test_hundred_concurrent_requests_share_a_connection(client: Http2Client) -> None:
    numbers = [client.begin("GET", "/readyz") for _ in range(100)]
    assert [(await client.answer(number)).body for number in numbers] == [b"ok"] * 100
    made = await asyncio.gather(*(client.ask("POST", MAPS, body=config_map(f"m{n}", 5_000)) for n in range(90)))
    assert {answer.status for answer in made} == {201}
    assert len((await client.ask("GET", MAPS)).json["items"]) >= 90


async def test_connection_and_its_requests_need_no_garbage_collection(served: Kubectl) -> None:
    async def visit() -> None:
        client = await Http2Client.open(served.server.port, trust(served))
        for name in ("kept", "kept", "other"):
            await client.ask("POST", MAPS, body=config_map(name))
        client.begin("GET", f"{MAPS}?watch=1&timeoutSeconds=60")
        await client.ask("GET", "/readyz")
        await client.close()
        await until(lambda: not served.server.connections)

    await visit()
    with left_to_a_collection() as garbage:
        for _ in range(3):
            await visit()
    assert [kind for kind in garbage if kind.startswith(("haru.", "uvicorn."))] == []


async def test_client_certificate_authenticates_http2_user(served: Kubectl) -> None:
    client = await Http2Client.open(served.server.port, trust(served, client=True))
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    for _ in range(2):
        info = (await client.ask("POST", path, body={}, token="")).json["status"]["userInfo"]
        assert info == {"username": "cert-admin", "groups": ["system:masters", "system:authenticated"]}
    await client.close()


async def test_hundred_watches_share_a_connection(served: Kubectl, client: Http2Client) -> None:
    watches = [client.begin("GET", f"{MAPS}?watch=1") for _ in range(99)]
    await client.until(lambda: all(client.answers[number].headers for number in watches))
    assert len(served.app.streams.watches) == 99 and served.server.connections == 1
    for n in range(5):
        assert (await client.ask("POST", MAPS, body=config_map(f"m{n}", 30_000))).status == 201

    def names(number: int) -> list[str]:
        lines = client.answers[number].body.split(b"\n")[:-1]
        return [json.loads(line)["object"]["metadata"]["name"] for line in lines]

    wanted = [f"m{n}" for n in range(5)]
    await client.until(lambda: all(client.answers[number].body.count(b"\n") == 5 for number in watches))
    assert all(names(number) == wanted for number in watches)
    # One that is given up frees what it held, and nothing else.
    client.h2.reset_stream(watches[0])
    client.flush()
    await until(lambda: len(served.app.streams.watches) == 98)
    assert (await client.ask("GET", f"{MAPS}/m0")).status == 200


@pytest.mark.parametrize("window", [1, 1_000, 70_000, 10_000_000])
async def test_responses_are_complete_with_any_window_size(served: Kubectl, client: Http2Client, window: int) -> None:
    size = 3_000 if window == 1 else 900_000
    for n in range(3):
        assert (await client.ask("POST", MAPS, body=config_map(f"m{n}", size))).status == 201
    narrow = await Http2Client.open(
        served.server.port,
        trust(served),
        {SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.MAX_FRAME_SIZE: 20_000},
    )
    whole, one = narrow.begin("GET", MAPS), narrow.begin("GET", f"{MAPS}/m1")
    watch = narrow.begin("GET", f"{MAPS}?watch=1")
    assert len((await narrow.answer(whole)).json["items"]) == 3
    assert (await narrow.answer(one)).json["metadata"]["name"] == "m1"
    await narrow.until(lambda: narrow.answers[watch].body.count(b"\n") == 3)
    zipped = await narrow.ask("GET", MAPS, ("accept-encoding", "gzip"))
    assert zipped.status == 200
    assert zipped.headers.get("content-encoding") == ("gzip" if size > 3_000 else None)
    await narrow.close()


@pytest.mark.parametrize("size", [0, 100, 65_536])
async def test_client_may_change_header_table_size(served: Kubectl, size: int) -> None:
    """Decoders insist on being told that a smaller one is kept to."""
    small = await Http2Client.open(served.server.port, trust(served), {SettingCodes.HEADER_TABLE_SIZE: size})
    for _ in range(3):
        assert (await small.ask("GET", "/readyz")).body == b"ok"
        small.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: size // 2})
        small.flush()
    await small.close()


async def test_unread_stream_is_reset_without_affecting_others(
    served: Kubectl, client: Http2Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_encoder, "SEND_SECONDS", 0.3)
    monkeypatch.setattr(stream_module, "STALL_SECONDS", 0.3)
    await client.ask("POST", MAPS, body=config_map("m", 20_000))
    lazy = await Http2Client.open(
        served.server.port, trust(served), {SettingCodes.INITIAL_WINDOW_SIZE: 1_000}, reads=False
    )
    watch, get = lazy.begin("GET", f"{MAPS}?watch=1"), lazy.begin("GET", f"{MAPS}/m")
    assert (await lazy.answer(watch)).reset == INTERNAL_ERROR
    assert (await lazy.answer(get)).reset == INTERNAL_ERROR
    assert (await lazy.ask("GET", "/readyz")).body == b"ok"
    assert not served.app.streams.watches and served.app.in_flight == 0
    await lazy.close()


async def test_client_that_reads_nothing_is_disconnected(
    served: Kubectl, client: Http2Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "STALL_SECONDS", 0.3)
    for n in range(20):
        await client.ask("POST", MAPS, body=config_map(f"m{n}", 900_000))
    wide = {SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1}
    deaf = await Http2Client.open(served.server.port, trust(served), wide)
    deaf.h2.increment_flow_control_window(2**30)
    deaf._pump.cancel()
    deaf.writer.transport.pause_reading()
    deaf.begin("GET", f"{MAPS}?watch=1")
    deaf.begin("GET", MAPS)
    await until(lambda: served.server.connections == 2)
    await until(lambda: served.server.connections == 1)
    assert not served.app.streams.watches
    assert (await client.ask("GET", "/readyz")).status == 200
    await deaf.close()


async def test_stopping_server_sends_goaway_and_ends_watches(served: Kubectl, client: Http2Client) -> None:
    watch = client.begin("GET", f"{MAPS}?watch=1")
    await client.until(lambda: client.answers[watch].headers)
    stopping = asyncio.create_task(served.server.stop())
    ended = await client.answer(watch)
    assert ended.ended and ended.reset is None
    assert await client.over() == 0
    await asyncio.wait_for(stopping, 30)


async def test_requests_in_flight_finish_after_goaway(served: Kubectl, client: Http2Client) -> None:
    number = client.begin("POST", MAPS, ("content-type", "application/json"), ends=False)
    await client.ask("GET", "/readyz")
    stopping = asyncio.create_task(served.server.stop())
    await client.until(lambda: client.goaway is not None)
    client.h2.state_machine.state = client.h2.state_machine.state.CLIENT_OPEN  # the farewell leaves older streams alone
    await client.send(number, json.dumps(config_map("late")).encode())
    assert (await client.answer(number)).status == 201
    await asyncio.wait_for(stopping, 30)


@pytest.mark.parametrize("length", [None, BODY_LIMIT + 10])
async def test_body_above_limit_is_refused(client: Http2Client, length: int | None) -> None:
    told = [("content-length", str(length))] if length else []
    number = client.begin("POST", MAPS, ("content-type", "application/json"), *told, ends=False)
    await client.send(number, b" " * (BODY_LIMIT + 10))
    answer = await client.answer(number)
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    # What was sent in vain is forgotten: the window of the connection is there again.
    for _ in range(12):
        await client.ask("POST", MAPS, body=b" " * (BODY_LIMIT + 10))
    assert (await client.ask("POST", MAPS, body=config_map("a", 2_000_000))).status in (201, 422)


async def test_large_body_in_small_frames_is_accepted(client: Http2Client) -> None:
    data = json.dumps(config_map("large", 1_000_000)).encode()
    number = client.begin("POST", MAPS, ("content-type", "application/json"), ends=False)
    for begin in range(0, len(data), 5_000):
        await client.send(number, data[begin : begin + 5_000], ends=False)
    client.h2.send_headers(number, [("x-checksum", "1")], end_stream=True)  # trailers
    client.flush()
    assert (await client.answer(number)).status == 201


async def test_upgrade_over_http2_resets_stream(client: Http2Client) -> None:
    number = client.begin("POST", "/api/v1/namespaces/default/pods/a/exec?command=x", ("upgrade", "SPDY/3.1"))
    assert (await client.answer(number)).reset == PROTOCOL_ERROR
    assert (await client.ask("GET", "/readyz")).status == 200


# --- real clients


async def test_httpx_works_over_http2(served: Kubectl) -> None:
    async with httpx.AsyncClient(http2=True, verify=trust(served), base_url=served.server.url) as session:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        answer = await session.post(MAPS, json=config_map("a"), headers=headers)
        assert (answer.status_code, answer.http_version) == (201, "HTTP/2")
        answers = await asyncio.gather(*(session.get(f"{MAPS}/a", headers=headers) for _ in range(50)))
        assert {answer.json()["data"]["k"] for answer in answers} == {"x"}
    assert served.server.requests == 51


async def test_curl_works_over_http2(served: Kubectl, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = tmp_path / "body.json"
    body.write_text(json.dumps(config_map("large", 900_000)))
    common = [
        curl,
        "-sS",
        "--http2",
        "--cacert",
        str(served.directory / "ca.crt"),
        "-H",
        f"Authorization: Bearer {ADMIN}",
    ]

    async def run(*args: str) -> bytes:
        process = await asyncio.create_subprocess_exec(*common, *args, stdout=asyncio.subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        return out

    told = ["-o", str(tmp_path / "out"), "-w", "%{http_version} %{http_code}"]
    url = f"{served.server.url}{MAPS}"
    assert await run(*told, "-H", "Content-Type: application/json", "--data-binary", f"@{body}", url) == b"2 201"
    assert await run(*told, f"{url}/large") == b"2 200"
    assert json.loads((tmp_path / "out").read_bytes())["data"] == {"k": "x" * 900_000}
    assert await run(*told, "-I", f"{served.server.url}/version") == b"2 200"


async def test_watches_through_kubectl_proxy_share_a_connection(served: Kubectl) -> None:
    """`kubectl proxy` passes requests on through client-go's transport."""
    require_kubectl()
    proxy = await served.spawn("proxy", "--port=0", "--keepalive=30s")
    assert proxy.stdout is not None
    port = int((await asyncio.wait_for(proxy.stdout.readline(), 20)).rsplit(b":", 1)[1])
    seen: list[Any] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as session:

        async def watch() -> None:
            async with session.get(f"{MAPS}?watch=1") as answer:
                listening.append(1)
                while len(seen) < 80 * 3 and (line := await answer.content.readline()):
                    seen.append(json.loads(line)["object"]["metadata"]["name"])
                    if seen.count("m2") == 80:
                        return

        listening: list[int] = []
        watches = [asyncio.create_task(watch()) for _ in range(80)]
        await until(lambda: len(listening) == 80)
        assert len(served.app.streams.watches) == 80 and served.server.connections == 1
        for n in range(3):
            async with session.post(MAPS, json=config_map(f"m{n}")) as made:
                assert made.status == 201
        await until(lambda: len(seen) == 240)
        assert sorted(seen) == ["m0"] * 80 + ["m1"] * 80 + ["m2"] * 80
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    proxy.terminate()
    await proxy.wait()
