"""The rules of the mixed version proxy, each by itself: names, paths, headers, what is excluded, how often is asked."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from haru.apiserver.auth.certificates import client_pair, new_authority
from haru.apiserver.peers.client import ACCEPT
from haru.apiserver.peers.discovery_cache import pauses
from haru.apiserver.peers.endpoints import url_of
from haru.apiserver.peers.identity import has_run_out, server_id
from haru.apiserver.peers.options import FrontProxyOptions
from haru.apiserver.peers.proxy import forwarded_headers, identity_headers
from haru.apiserver.peers.request_header import Authorities, fingerprints
from haru.apiserver.peers.routes import ResourceRequest, resource_request_of, target_of
from haru.apiserver.request.http import Request
from haru.apiserver.server import UserInfo
from haru.embedded.options import OptionError
from haru.embedded.peers import PeerFiles
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates

Obj = dict[str, Any]
NOW = datetime(2026, 11, 22, tzinfo=UTC)


# --- names and paths


def test_server_id_is_hash_of_hostname() -> None:
    data = b"\x00\x06node-1" + b"\x00\x0ekube-apiserver"
    assert server_id("node-1") == f"apiserver-{b32encode(hashlib.sha256(data).digest()[:16]).decode()[:26].lower()}"
    assert server_id("node-1") != server_id("node-2") and len(server_id("x" * 300)) == 36


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/api/v1/widgets", ResourceRequest(("", "v1", "widgets"))),
        ("/apis/a.b/v1/widgets", ResourceRequest(("a.b", "v1", "widgets"))),
        ("/apis/a.b/v1/widgets/x/", ResourceRequest(("a.b", "v1", "widgets"), "", "x")),
        ("/apis/a.b/v1/widgets/x/status", ResourceRequest(("a.b", "v1", "widgets"), "", "x", "status")),
        ("/apis/a.b/v1/widgets/x/proxy/and/more", ResourceRequest(("a.b", "v1", "widgets"), "", "x", "proxy")),
        ("/apis/a.b/v1/namespaces/n/widgets", ResourceRequest(("a.b", "v1", "widgets"), "n")),
        ("/apis/a.b/v1/namespaces/n/widgets/x/scale", ResourceRequest(("a.b", "v1", "widgets"), "n", "x", "scale")),
        ("/apis/a.b/v1/watch/namespaces/n/widgets/x", ResourceRequest(("a.b", "v1", "widgets"), "n", "x", "", True)),
        ("/apis/a.b/v1/namespaces/n/status", ResourceRequest(("a.b", "v1", "namespaces"), "", "n", "status")),
        ("/apis/a.b/v1/namespaces", ResourceRequest(("a.b", "v1", "namespaces"))),
        ("/apis/a.b/v1", None),
        ("/apis", None),
        ("/version", None),
        ("/apis/a.b/v1/widgets/../x", None),
        ("/apis/a.b/v1//widgets", None),
        ("/apis/a.b/v1/./widgets", None),
        ("/apis/a.b/v1/widgets/%2e", None),
        ("/apis/a.b/v1/widgets/a\nb", None),
    ],
)
def test_resource_is_parsed_from_path(path: str, asked: ResourceRequest | None) -> None:
    assert resource_request_of(path) == asked


@pytest.mark.parametrize(
    ("path", "query", "target"),
    [
        ("/apis/a/v1/w", b"", "/apis/a/v1/w"),
        ("/apis/a/v1/w/ü?#", b"", "/apis/a/v1/w/%C3%BC%3F%23"),
        ("/apis/a/v1/w/system:x@y", b"", "/apis/a/v1/w/system:x@y"),
        (
            "/apis/a/v1/w",
            b"watch=1&a=b%26c&labelSelector=x%3Dy&a=",
            "/apis/a/v1/w?a=b%26c&a=&labelSelector=x%3Dy&watch=1",
        ),
        ("/apis/a/v1/w", b"x=%ff", "/apis/a/v1/w?x=%FF"),
        ("/apis/a/v1/w", b"x=a+b", "/apis/a/v1/w?x=a%20b"),
    ],
)
def test_path_and_query_are_encoded_again(path: str, query: bytes, target: str) -> None:
    assert target_of(path, query) == target


# --- headers


def request(*headers: tuple[str, str]) -> Request:
    async def never() -> Obj:
        raise AssertionError

    async def ignore(message: Any) -> None:
        raise AssertionError

    sent = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": sent, "client": ("192.0.2.9", 1234)}
    return Request(scope, never, ignore)


def test_forwarded_headers_exclude_credentials_and_hop_headers() -> None:
    asked = request(
        ("Accept", "application/json"),
        ("Authorization", "Bearer secret"),
        ("Connection", "keep-alive, X-Mine"),
        ("X-Mine", "1"),
        ("Te", "trailers"),
        ("Host", "here"),
        ("X-Remote-User", "root"),
        ("X-Remote-Extra-A", "b"),
        ("Impersonate-User", "root"),
        ("X-Kubernetes-Peer-Proxied", "false"),
        ("X-Forwarded-For", "198.51.100.1"),
        ("Audit-Id", "the-id"),
    )
    asked.user = UserInfo("jane", ("a", "b"), "7", {"k%Ey/1": ["x", "y"]})
    assert forwarded_headers(asked) == [
        ("accept", "application/json"),
        ("x-kubernetes-peer-proxied", "true"),
        ("audit-id", "the-id"),
        ("x-forwarded-for", "198.51.100.1, 192.0.2.9"),
        ("X-Remote-User", "jane"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-k%25Ey%2F1", "x"),
        ("X-Remote-Extra-k%25Ey%2F1", "y"),
    ]


@pytest.mark.parametrize("name", ["a\r\nX-Remote-Group: system:masters", "a\0", " a", "a\x7f"])
def test_user_name_invalid_in_a_header_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="X-Remote-User can not be told"):
        identity_headers(UserInfo(name))


FRONT, CLIENTS = new_authority(NOW, "front"), new_authority(NOW, "clients")
(FRONT_ANCHOR,), (CLIENT_ANCHOR,) = fingerprints(FRONT.certificate), fingerprints(CLIENTS.certificate)


def peer(name: str, anchor: str) -> Obj:
    return {"names": [name], "organizations": [], "anchor": anchor}


def test_front_proxy_headers_require_its_certificate() -> None:
    authorities = Authorities(CLIENTS.certificate, FrontProxyOptions(FRONT.certificate, ("proxy",)))
    said = (("X-Remote-User", "zoe"), ("X-Remote-Group", "a"), ("X-Remote-Group", "b"), ("X-Remote-Extra-A%2fB", "c"))
    asked = request(*said)
    user = authorities.front_proxy_user(asked, peer("proxy", FRONT_ANCHOR))
    assert user == UserInfo("zoe", ("a", "b", "system:authenticated"), "", {"a/b": ["c"]})
    for certificate in (peer("proxy", FRONT_ANCHOR), peer("proxy", CLIENT_ANCHOR), None):
        asked = request(*said, ("Accept", "x"))
        authorities.front_proxy_user(asked, certificate)
        assert asked.headers == {b"accept": b"x"} and asked.scope["headers"] == [(b"accept", b"x")]
    assert authorities.front_proxy_user(request(*said), peer("proxy", CLIENT_ANCHOR)) is None
    assert authorities.front_proxy_user(request(*said), peer("proxy", "")) is None
    with pytest.raises(StatusError) as refused:
        authorities.front_proxy_user(request(*said), peer("other", FRONT_ANCHOR))
    assert refused.value.code == 401
    assert authorities.is_user(peer("x", CLIENT_ANCHOR)) and not authorities.is_user(peer("x", FRONT_ANCHOR))
    assert not authorities.is_user(peer("x", ""))


def test_without_front_proxy_ca_headers_are_ignored() -> None:
    authorities = Authorities(CLIENTS.certificate, None)
    assert authorities.front_proxy_user(request(("X-Remote-User", "zoe")), peer("proxy", CLIENT_ANCHOR)) is None
    assert authorities.is_user(peer("proxy", CLIENT_ANCHOR))


def test_ca_used_for_both_purposes_serves_both() -> None:
    both = Authorities(FRONT.certificate, FrontProxyOptions(FRONT.certificate, ("proxy",)))
    assert both.front_proxy_user(request(("X-Remote-User", "zoe")), peer("carol", FRONT_ANCHOR)) is None
    assert both.is_user(peer("carol", FRONT_ANCHOR))


# --- times and places


def test_discovery_retries_back_off_for_about_80_seconds() -> None:
    found = list(pauses())
    assert len(found) == 20 and found[:3] == [0.005, 0.01, 0.02] and 60 < sum(found) < 90


@pytest.mark.parametrize(
    ("spec", "out"),
    [
        ({"renewTime": "2026-11-21T23:30:00.000000Z", "leaseDurationSeconds": 3600}, False),
        ({"renewTime": "2026-11-21T22:59:59.000000Z", "leaseDurationSeconds": 3600}, True),
        ({"leaseDurationSeconds": 3600}, True),
        ({"renewTime": "yesterday", "leaseDurationSeconds": 3600}, True),
        ({"renewTime": "2026-11-21T23:30:00Z"}, True),
    ],
)
def test_lease_has_expired_or_not(spec: Obj, out: bool) -> None:
    assert has_run_out({"metadata": {}, "spec": spec}, NOW) is out


def test_peer_urls_bracket_ipv6_addresses() -> None:
    assert url_of(("192.0.2.1", 1)) == "https://192.0.2.1:1" and url_of(("::1", 2)) == "https://[::1]:2"
    assert ACCEPT.count("APIGroupDiscoveryList") == 2 and ACCEPT.endswith(",application/json")


# --- flags


def test_peer_flags_need_feature_gate(tmp_path: Path) -> None:
    off = FeatureGates(minor=35)
    for files, flag in (
        (PeerFiles(peer_ca=tmp_path / "x"), "--peer-ca-file"),
        (PeerFiles(advertise_ip="192.0.2.1"), "--peer-advertise-ip"),
        (PeerFiles(advertise_port=7), "--peer-advertise-port"),
    ):
        with pytest.raises(OptionError, match=f"{flag}: Forbidden while the feature gate Unknown.* is off"):
            files.peers(off)
    assert not PeerFiles().peers(off).complete
    assert not FeatureGates.parse("APIServerIdentity=false").enabled("UnknownVersionInteroperabilityProxy")


def test_invalid_peer_files_are_refused(tmp_path: Path) -> None:
    on = FeatureGates()
    for name, content in (
        ("ca.crt", FRONT.certificate),
        ("text", b"no certificate"),
        ("a.crt", (first := client_pair(FRONT, "a", (), NOW)).certificate),
        ("a.key", first.key),
        ("b.key", client_pair(FRONT, "b", (), NOW).key),
    ):
        (tmp_path / name).write_bytes(content)
    ca, text, cert, key, other = (tmp_path / name for name in ("ca.crt", "text", "a.crt", "a.key", "b.key"))
    options = PeerFiles("node", ca, "192.0.2.1", 7, cert, key).peers(on)
    assert options.complete and (options.hostname, options.advertise_ip, options.advertise_port) == (
        "node",
        "192.0.2.1",
        7,
    )
    assert (
        not PeerFiles(peer_ca=ca).peers(on).complete
        and not PeerFiles(proxy_cert=cert, proxy_key=key).peers(on).complete
    )
    for files, problem in (
        (PeerFiles(proxy_cert=cert), "belong together: give both or none"),
        (PeerFiles(peer_ca=tmp_path / "none"), "--peer-ca-file: .*none: No such file"),
        (PeerFiles(peer_ca=ca, proxy_cert=cert, proxy_key=other), "no certificates and key that belong together"),
        (PeerFiles(proxy_cert=cert, proxy_key=other), "no certificate and key that belong together"),
        (PeerFiles(peer_ca=text, proxy_cert=cert, proxy_key=key), "no certificates and key that belong together"),
        (PeerFiles(advertise_ip="here"), '--peer-advertise-ip: Invalid value: "here": write an IP address'),
    ):
        with pytest.raises(OptionError, match=problem):
            files.peers(on)
    assert PeerFiles().front_proxy(None, on) is None
    front = PeerFiles(front_proxy_ca=ca, names=("proxy",)).front_proxy(None, on)
    assert front == FrontProxyOptions(FRONT.certificate, ("proxy",))
    without = PeerFiles(front_proxy_ca=ca).front_proxy(None, FeatureGates.parse("RemoteRequestHeaderUID=false"))
    assert without is not None and without.uid == ()
    for files, problem in (
        (PeerFiles(front_proxy_ca=text), "holds no certificate in PEM"),
        (PeerFiles(front_proxy_ca=ca, user_headers=("a b",)), '--requestheader-username-headers: Invalid value: "a b"'),
    ):
        with pytest.raises(OptionError, match=problem):
            files.front_proxy(None, on)


def test_ca_shared_by_users_and_front_proxy_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(FRONT.certificate)
    PeerFiles(front_proxy_ca=path).front_proxy(CLIENTS.certificate, FeatureGates())
    assert not caplog.records
    PeerFiles(front_proxy_ca=path).front_proxy(FRONT.certificate, FeatureGates())
    assert "can speak for any user" in caplog.text
