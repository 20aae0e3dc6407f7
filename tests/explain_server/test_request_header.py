"""Headers about users are believed with the aggregation layer's certificate alone."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime
from typing import Any

import pytest

from haru.apiserver.auth import client_pair, new_authority
from haru.secure_serving.identity import Unauthenticated, User
from haru.secure_serving.request_header import front_proxy_of, user_told

NOW = datetime.now(UTC)
FRONT, USERS = new_authority(NOW, "front-proxy"), new_authority(NOW, "users")
JANE = [(b"x-remote-user", b"jane"), (b"x-remote-group", b"devs"), (b"X-Remote-Group", b"ops")]


def config(**changes: Any) -> dict[str, str]:
    data = {
        "client-ca-file": USERS.certificate.decode(),
        "requestheader-client-ca-file": FRONT.certificate.decode(),
        "requestheader-allowed-names": json.dumps(["proxy"]),
        "requestheader-username-headers": json.dumps(["X-Remote-User"]),
        "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
        "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
    }
    named = {key.replace("_", "-"): value for key, value in changes.items()}
    return {key: value for key, value in {**data, **named}.items() if value is not None}


def certificate(name: str = "proxy") -> bytes:
    return ssl.PEM_cert_to_DER_cert(client_pair(FRONT, name, (), NOW).certificate.decode())


def test_user_groups_and_extra_come_from_the_headers() -> None:
    more = [(b"x-remote-extra-scopes%2Fa", b"one"), (b"x-remote-extra-Scopes%2fA", b"two"), (b"x-other", b"no")]
    told = user_told(front_proxy_of(config()), certificate(), [*JANE, *more])
    assert told == User("jane", ("devs", "ops", "system:authenticated"), "", {"scopes/a": ["one", "two"]})


def test_uid_comes_from_its_header_where_one_is_named() -> None:
    headers = [*JANE, (b"x-remote-uid", b"7")]
    assert user_told(front_proxy_of(config()), certificate(), headers).uid == ""
    named = config(requestheader_uid_headers='["X-Remote-Uid"]')
    assert user_told(front_proxy_of(named), certificate(), headers).uid == "7"


def test_anonymous_users_stay_anonymous() -> None:
    headers = [(b"x-remote-user", b"system:anonymous"), (b"x-remote-group", b"system:unauthenticated")]
    told = user_told(front_proxy_of(config()), certificate(), headers)
    assert told.groups == ("system:unauthenticated",)


@pytest.mark.parametrize(
    ("shown", "headers"),
    [
        (None, JANE),
        (certificate("jane"), JANE),
        (certificate(), []),
        (certificate(), [(b"x-remote-user", b"")]),
        (certificate(), [(b"x-remote-group", b"devs")]),
        (certificate(), [(b"x-remote-user", b"\xff")]),
    ],
)
def test_refused_without_certificate_of_that_name_or_without_user(
    shown: bytes | None, headers: list[tuple[bytes, bytes]]
) -> None:
    with pytest.raises(Unauthenticated):
        user_told(front_proxy_of(config()), shown, headers)


def test_nobody_is_believed_before_the_config_map_is_read() -> None:
    with pytest.raises(Unauthenticated, match="not known yet"):
        user_told(None, certificate(), JANE)


def test_any_name_will_do_where_none_is_named() -> None:
    front_proxy = front_proxy_of(config(requestheader_allowed_names="[]"))
    assert user_told(front_proxy, certificate("other"), JANE).name == "jane"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"requestheader_client_ca_file": None}, "--requestheader-client-ca-file"),
        ({"requestheader_client_ca_file": "none"}, "."),
        ({"requestheader_username_headers": None}, "username-headers"),
        ({"requestheader_username_headers": "X-Remote-User"}, "no JSON"),
        ({"requestheader_group_headers": "{}"}, "no list"),
        (
            {"requestheader_allowed_names": "[]", "client_ca_file": FRONT.certificate.decode()},
            "any user could speak for others",
        ),
    ],
)
def test_config_maps_that_cannot_be_used(changes: dict[str, Any], why: str) -> None:
    with pytest.raises((ValueError, ssl.SSLError), match=why):
        front_proxy_of(config(**changes))
