"""Names, addresses and links in responses of `pods/proxy` and `services/proxy`."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.apiserver.proxy.links import TAG_BYTES, Links, Page
from haru.apiserver.proxy.targets import ProxyRequest, ProxyTarget, is_proxyable, proxy_request_of, split_name

PREFIX = "/api/v1/namespaces/n/pods/web:80/proxy"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/api/v1/namespaces/n/pods/web/proxy", ProxyRequest("pods", "n", "web", "")),
        ("/api/v1/namespaces/n/services/https:web:x/proxy/", ProxyRequest("services", "n", "https:web:x", "/")),
        ("/api/v1/namespaces/n/pods/web:80/proxy/a/b", ProxyRequest("pods", "n", "web:80", "/a/b")),
        ("/api/v1/namespaces/n/pods/web/proxies", None),
        ("/api/v1/nodes/web/proxy/", None),
        ("/api/v1/namespaces/n/endpoints/web/proxy", None),
    ],
)
def test_proxy_path_is_parsed(path: str, wanted: ProxyRequest | None) -> None:
    assert proxy_request_of(path) == wanted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("web", ("http", "web", "")),
        ("web:80", ("http", "web", "80")),
        ("https:web:80", ("https", "web", "80")),
        ("https:web:", ("https", "web", "")),
        ("http:web:name", ("http", "web", "name")),
        ("ftp:web:80", None),
        (":web:80", None),
        ("https::80", None),
        ("", None),
        (":80", None),
        ("a:b:c:d", None),
    ],
)
def test_proxied_name_with_scheme_and_port_is_parsed(text: str, found: tuple[str, str, str] | None) -> None:
    assert split_name(text) == found


@pytest.mark.parametrize("address", ["10.1.2.3", "192.0.2.2", "8.8.8.8", "fd00::2", "2001:db8::1"])
def test_address_of_another_host_is_proxyable(address: str) -> None:
    assert is_proxyable(address)


OWN = ("", "localhost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "0177.0.0.1", "10.1.2")
SHARED = ("169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "224.0.0.1", "ff02::1", "255.255.255.255")


@pytest.mark.parametrize("address", [*OWN, *SHARED])
def test_own_and_special_addresses_are_not_proxyable(address: str) -> None:
    assert not is_proxyable(address)


def test_ipv6_address_is_bracketed_in_url() -> None:
    assert ProxyTarget("http", "10.1.2.3", 80).netloc == "10.1.2.3"
    assert ProxyTarget("https", "fd00::1", 8443).netloc == "[fd00::1]:8443"


LINKS = Links(PREFIX, "10.1.2.3", "api:6443")


@pytest.mark.parametrize(
    ("link", "new"),
    [
        ("/", f"{PREFIX}/"),
        ("/a/b?c=d#e", f"{PREFIX}/a/b?c=d#e"),
        ("/a/", f"{PREFIX}/a/"),
        ("/a/../../x", "/api/v1/namespaces/n/pods/web:80/x"),
        ("http://10.1.2.3/a", f"{PREFIX}/a"),
        ("https://api:6443/a", f"{PREFIX}/a"),
        (f"{PREFIX}/a", f"{PREFIX}/a"),
        ("a/b", "a/b"),
        ("?q", "?q"),
        ("#x", "#x"),
        ("//elsewhere/a", "//elsewhere/a"),
        ("http://elsewhere/a", "http://elsewhere/a"),
        ("mailto:a@b", "mailto:a@b"),
        ("http://[broken", "http://[broken"),
    ],
)
def test_link_is_rewritten_below_proxy_path(link: str, new: str) -> None:
    assert LINKS.url(link) == new


PAGE = b"""<!DOCTYPE html><html><head><LINK rel=stylesheet HREF=/s.css><!-- <a href="/no"> --><script src='/s.js'>
if (a < b) x = '<a href="/no">';</script></head><body><p class="/no">1 < 2 <a data-href="/no" href="/a?b=1&amp;c=2">
</a><img src="http://elsewhere/x.png"><img src='i.png' usemap="/m"><form action="/f"></form></body></html>"""
WRITTEN = (
    PAGE.replace(b"HREF=/s.css", b'HREF="P/s.css"')
    .replace(b"src='/s.js'", b'src="P/s.js"')
    .replace(b'href="/a?', b'href="P/a?')
    .replace(b'usemap="/m"', b'usemap="P/m"')
    .replace(b'action="/f"', b'action="P/f"')
    .replace(b'"P/', b'"' + PREFIX.encode() + b"/")
)


@given(st.lists(st.integers(0, len(PAGE)), max_size=6))
def test_html_page_is_rewritten_at_any_chunk_boundary(cuts: list[int]) -> None:
    page, marks = Page(LINKS), [0, *sorted(cuts), len(PAGE)]
    written = b"".join(page.feed(PAGE[begin:end]) for begin, end in pairwise(marks)) + page.end()
    assert written == WRITTEN


@given(st.binary(max_size=200))
def test_html_without_links_is_unchanged(data: bytes) -> None:
    page = Page(LINKS)
    if b"=" not in data:
        assert page.feed(data) + page.feed(b"") + page.end() == data


def test_unterminated_tag_is_not_buffered_without_limit() -> None:
    page = Page(LINKS)
    sent = [b"<a " + b"x" * 1000] + [b"y" * 1000] * 100
    given_back = sum(len(page.feed(piece)) for piece in sent)
    assert given_back > 100 * 1000 - TAG_BYTES
