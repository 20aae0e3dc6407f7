"""Which proxy leads to a server, and servers that are reached through one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tls_server import certificate, pem, served, server_tls

from haru.client.api import ApiClient
from haru.client.kubeconfig import ClusterConfig
from haru.fair_loop import FairLoop
from haru.kube import kinds
from haru.proxy_settings import Proxy, proxy_to
from small_proxy import SmallProxy, proxied

PODS = kinds.lookup("", "v1", "pods")
assert PODS is not None
PROXY = Proxy("http", "proxy", 3128)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://proxy", Proxy("http", "proxy", 80)),
        ("https://proxy", Proxy("https", "proxy", 443)),
        ("socks5://a%40b:c%3Ad@[fd00::1]", Proxy("socks5", "fd00::1", 1080, "a@b", "c:d")),
    ],
)
def test_url_of_proxy_is_read(url: str, expected: Proxy) -> None:
    assert Proxy.of(url) == expected
    assert Proxy.of(expected.url) == expected


@pytest.mark.parametrize("url", ["proxy:3128", "ftp://proxy", "http://", "http://proxy:port"])
def test_text_that_is_no_url_of_a_proxy_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|Port"):
        Proxy.of(url)


@pytest.mark.parametrize(
    ("server", "environ", "is_proxied"),
    [
        ("https://h:6443", {"HTTPS_PROXY": "http://proxy:3128"}, True),
        ("https://h:6443", {"https_proxy": "proxy:3128"}, True),
        ("https://h:6443", {"HTTP_PROXY": "http://proxy:3128"}, False),
        ("http://h:6443", {"HTTP_PROXY": "http://proxy:3128"}, True),
        ("http://h:6443", {"HTTP_PROXY": "http://proxy:3128", "REQUEST_METHOD": "GET"}, False),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://proxy:3128"}, False),
        ("https://127.1.2.3:6443", {"HTTPS_PROXY": "http://proxy:3128"}, False),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://proxy:3128"}, False),
        ("https://h", {"HTTPS_PROXY": ""}, False),
        ("https://h", {}, False),
    ],
)
def test_environment_names_the_proxy_by_the_scheme_of_the_server(
    server: str, environ: dict[str, str], is_proxied: bool
) -> None:
    assert proxy_to(server, "", environ) == (PROXY if is_proxied else None)


def test_environment_with_something_else_than_a_proxy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="HTTPS_PROXY: 'ftp://p' is not an http"):
        proxy_to("https://h", "", {"https_proxy": "ftp://p"})


def test_proxy_of_kubeconfig_goes_before_environment_and_its_exceptions() -> None:
    environ = {"HTTPS_PROXY": "http://other", "NO_PROXY": "*"}
    assert proxy_to("https://127.0.0.1:6443", "http://proxy:3128", environ) == PROXY


@pytest.mark.parametrize(
    ("exceptions", "host", "is_exempt"),
    [
        ("*", "h", True),
        ("other, h ", "h", True),
        ("H", "h", True),
        ("h", "sub.h", True),
        (".h", "h", False),
        (".h", "sub.h", True),
        ("*.h", "sub.h", True),
        ("*.h", "h", False),
        ("*h", "ah", False),
        ("h", "ah", False),
        ("h:6443", "h", True),
        ("h:443", "h", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("fd00::/8", "[fd00::1]", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:6443", "10.1.2.3", True),
        ("10.1.2.3:443", "10.1.2.3", False),
        ("[fd00::1]:6443", "[fd00::1]", True),
        ("fd00:0::1", "[fd00::1]", True),
        ("3", "10.1.2.3", False),
        ("a/b", "h", False),
        (":6443", "h", False),
        ("", "h", False),
    ],
)
def test_exceptions_are_names_addresses_and_networks(exceptions: str, host: str, is_exempt: bool) -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": exceptions}
    assert proxy_to(f"https://{host}:6443", "", environ) == (None if is_exempt else PROXY)


async def answer(request: web.Request) -> web.StreamResponse:
    return web.json_response({"path": request.path, "method": request.method})


def on_either_loop(run: Coroutine[Any, Any, None], make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(run)


@pytest.mark.parametrize("make", [asyncio.new_event_loop, FairLoop])
@pytest.mark.parametrize("multiplexed", [False, True])
@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
def test_server_of_https_is_reached_through_a_tunnel(
    tmp_path: Path, scheme: str, multiplexed: bool, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def run() -> None:
        authority, proxy = certificate("ca", ca=True), SmallProxy()
        tls = server_tls(tmp_path, authority, ssl.CERT_NONE)
        async with (
            served(answer, tls) as url,
            proxied(proxy, tls if scheme == "https" else None) as place,
            ApiClient.from_config(
                ClusterConfig(url, ca_pem=pem(authority)[0], proxy=f"{scheme}://{place}"), multiplexed=multiplexed
            ) as client,
        ):
            for _ in range(2):
                assert await client.get(PODS, "a", "ns") == {"path": "/api/v1/namespaces/ns/pods/a", "method": "GET"}
            assert (await client.create(PODS, {"metadata": {"name": "a"}}, "ns"))["method"] == "POST"
            target = url.removeprefix("https://")
        # Another connection asks for HTTP/2, which this server does not speak.
        assert set(proxy.asked) == {target if scheme == "socks5" else f"CONNECT {target}"}
        assert len(proxy.asked) == (2 if multiplexed else 1)

    on_either_loop(run(), make)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_server_of_http_is_reached_through_a_proxy(scheme: str) -> None:
    proxy = SmallProxy()
    runner = web.AppRunner(web.Application())
    runner.app.router.add_route("*", "/{tail:.*}", answer)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    place = f"127.0.0.1:{runner.addresses[0][1]}"
    async with (
        proxied(proxy) as at,
        ApiClient.from_config(ClusterConfig(f"http://{place}", proxy=f"{scheme}://{at}")) as client,
    ):
        assert (await client.get(PODS, "a", "ns"))["method"] == "GET"
    await runner.cleanup()
    path = "/api/v1/namespaces/ns/pods/a"
    assert proxy.asked == [place if scheme == "socks5" else f"GET http://{place}{path}"]


async def test_name_of_server_is_looked_up_by_the_socks_proxy_and_held_against_its_certificate(tmp_path: Path) -> None:
    authority, proxy = certificate("ca", ca=True), SmallProxy("me:secret")
    async with (
        served(answer, server_tls(tmp_path, authority, ssl.CERT_NONE)) as url,
        proxied(proxy) as place,
        ApiClient.from_config(
            ClusterConfig(
                url.replace("127.0.0.1", "api.example"),
                ca_pem=pem(authority)[0],
                tls_server_name="127.0.0.1",
                proxy=f"socks5://me:secret@{place}",
            )
        ) as client,
    ):
        assert (await client.get(PODS, "a", "ns"))["method"] == "GET"
    assert proxy.asked[0].startswith("api.example:")


async def test_user_of_the_url_is_shown_to_the_proxy(tmp_path: Path) -> None:
    authority, proxy = certificate("ca", ca=True), SmallProxy("bWU6c2VjcmV0")
    async with served(answer, server_tls(tmp_path, authority, ssl.CERT_NONE)) as url, proxied(proxy) as place:
        config = ClusterConfig(url, ca_pem=pem(authority)[0], proxy=f"http://me:secret@{place}")
        async with ApiClient.from_config(config) as client:
            assert (await client.get(PODS, "a", "ns"))["method"] == "GET"


@pytest.mark.parametrize(
    ("scheme", "refusal", "login", "message"),
    [
        ("http", b"HTTP/1.1 403 Forbidden\r\n\r\n", "", "it does not connect to h:1: 403 Forbidden"),
        ("http", b"", "x", "it does not connect to h:1: 407 Proxy Authentication Required"),
        ("http", b"no HTTP", "", "it closed the connection, or does not speak the protocol"),
        ("socks5", b"\x05", "", "it does not connect to h:1: connection refused"),
        ("socks5", b"", "x:y", "it takes no login that we have"),
        ("socks5://x:z", b"", "x:y", "it refuses user and password"),
    ],
)
async def test_refusal_of_a_proxy_is_told(scheme: str, refusal: bytes, login: str, message: str) -> None:
    proxy = SmallProxy(login)
    proxy.refusal = refusal
    async with proxied(proxy) as place:
        named = f"{scheme}@{place}" if "@" not in scheme and ":" in scheme else f"{scheme}://{place}"
        async with ApiClient.from_config(ClusterConfig("https://h:1", insecure=True, proxy=named)) as client:
            with pytest.raises(ConnectionError, match=f"proxy {scheme[:4]}.*://{place}: {message}"):
                await client.create(PODS, {"metadata": {"name": "a"}}, "ns")


async def test_proxy_that_is_not_there_is_told() -> None:
    async with proxied(SmallProxy()) as place:
        pass
    async with ApiClient.from_config(ClusterConfig("https://h:1", proxy=f"http://{place}")) as client:
        with pytest.raises(ConnectionError, match=f"proxy http://{place}: .*onnect"):
            await client.create(PODS, {"metadata": {"name": "a"}}, "ns")
