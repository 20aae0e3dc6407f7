"""What a signer outside may answer, and what is not believed: headers, signatures, keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fake_signer import FakeSigner, TestKey, ec_key, socket_of
from signed_api import JWKS, REVIEWS, ask, is_good, metric, server, signed_by, token_of

from haru import externaljwt as messages
from haru.errors import HaruError
from haru.jose import encode
from protobuf_wire import chunk, integer

HEADERS: dict[str, Callable[[TestKey], str]] = {
    "a member more": lambda key: key.header(jku="https://evil.example/keys"),
    "crit": lambda key: key.header(crit=["exp"]),
    "no typ": lambda key: key.header(typ=None),
    "another typ": lambda key: key.header(typ="at+jwt"),
    "typ in small letters": lambda key: key.header(typ="jwt"),
    "no kid": lambda key: key.header(kid=None),
    "an empty kid": lambda key: key.header(kid=""),
    "a kid of 1025 bytes": lambda key: key.header(kid="k" * 1025),
    "an unknown kid": lambda key: key.header(kid="nobody's"),
    "a kid that is a number": lambda key: key.header(kid=7),
    "HS256": lambda key: key.header(alg="HS256"),
    "none": lambda key: key.header(alg="none"),
    "PS256": lambda key: key.header(alg="PS256"),
    "another key's algorithm": lambda key: key.header(alg="RS256"),
    "a member twice": lambda key: encode(b'{"alg":"none","alg":"ES256","kid":"k","typ":"JWT"}'),
    "no JSON": lambda key: encode(b"ES256"),
    "a list": lambda key: encode(b'["ES256"]'),
    "padding": lambda key: key.header() + "=",
    "the other base64": lambda key: key.header().replace("e", "+", 1),
    "nothing": lambda key: "",
}


async def test_invalid_signer_headers_give_no_token(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        for name, header in HEADERS.items():
            signer.header = header
            answer = await ask(api)
            assert answer.status == 500 and b"eyJ" not in answer.body, name
            assert answer.json["message"].startswith("Internal error occurred: failed to generate token: "), name
        assert await metric(api, 'apiserver_externaljwt_sign_request_total{code="unknown-non-grpc"}') == len(HEADERS)
        signer.header = None
        assert await is_good(api, await token_of(api))
        assert await metric(api, 'apiserver_externaljwt_sign_request_total{code="OK"}') == 1


async def test_signature_is_verified_before_token_is_returned(tmp_path: Path) -> None:
    signer, other = FakeSigner(socket_of(tmp_path), [ec_key("k")]), ec_key("k")
    wrong: list[Callable[[TestKey, bytes], bytes]] = [
        lambda key, signed: b"",
        lambda key, signed: bytes(64),
        lambda key, signed: other.private.sign(signed, ec.ECDSA(_sha256())),
        lambda key, signed: key.private.sign(signed, ec.ECDSA(_sha256())),  # DER, not two numbers
    ]
    async with signed_by(signer) as api:
        for signature in wrong:
            signer.signature = signature
            answer = await ask(api)
            assert answer.status == 500 and "failed to generate token" in answer.json["message"]


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


async def test_key_excluded_from_signing_is_refused_for_new_tokens(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("old", excluded=True), ec_key("new")])
    async with signed_by(signer) as api:
        answer = await ask(api)
        assert answer.status == 500 and "for checking only" in answer.json["message"]
        assert [key["kid"] for key in (await api.get(JWKS))["keys"]] == ["new"]
        old, new = signer.keys
        signer.keys = [new, old]
        claims = jwt.decode(await token_of(api), options={"verify_signature": False})
        assert await is_good(api, old.token(claims)), "what it has signed elsewhere is good"


def _keys(*parts: bytes, stamp: bytes | None = None, hint: int = 60) -> bytes:
    told = chunk(2, integer(1, 1_700_000_000) if stamp is None else stamp, always=stamp is None)
    return b"".join(chunk(1, part, always=True) for part in parts) + told + integer(3, hint)


GOOD = chunk(1, b"k") + chunk(2, ec_key("k").public().der)
LITTLE_RSA = rsa.generate_private_key(65537, 1024).public_key()  # too short, on purpose
DER = LITTLE_RSA.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
LIES = {
    "refresh_hint_seconds: Invalid value: 0": _keys(GOOD, hint=0),
    "refresh_hint_seconds: Invalid value: -5": _keys(GOOD, hint=-5),
    "keys: Required value": _keys(),
    "data_timestamp: Invalid value": chunk(1, GOOD) + integer(3, 60),
    "data_timestamp: Invalid": _keys(GOOD, stamp=integer(1, 300_000_000_000)),
    "data_timestamp:": _keys(GOOD, stamp=integer(1, 1_700_000_000) + integer(2, 10**9)),
    "keys[1].key_id: Invalid value": _keys(GOOD, chunk(2, ec_key("k").public().der)),
    "keys[0].key_id: Invalid value": _keys(chunk(1, b"k" * 1025) + chunk(2, ec_key("k").public().der)),
    "keys[1].key: Invalid value: is no public key in PKIX DER": _keys(GOOD, chunk(1, b"x") + chunk(2, b"rubbish")),
    "keys[0].key: Invalid value: is no public key": _keys(chunk(1, b"x")),
    "keys[0].key: Invalid value: is an RSA key of 1024 bits": _keys(chunk(1, b"x") + chunk(2, DER)),
    "/FetchKeys: the bytes are no FetchKeysResponse": b"\x0a\x7f",
    "the bytes are no FetchKeysResponse": _keys(chunk(1, b"\xff") + chunk(2, DER)),
}


@pytest.mark.parametrize("text", LIES)
async def test_invalid_signer_keys_prevent_start(tmp_path: Path, text: str) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")], answer_keys=lambda: LIES[text])
    await signer.start()
    try:
        with pytest.raises(HaruError) as error:
            async with server(signer.endpoint):
                pass
        assert str(error.value).startswith("--service-account-signing-endpoint: ") and text in str(error.value)
    finally:
        await signer.stop()


async def test_invalid_later_keys_are_ignored(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        token = await token_of(api)
        signer.answer_keys = lambda: _keys(GOOD, hint=0)
        claims = jwt.decode(token, options={"verify_signature": False})
        assert not await is_good(api, ec_key("unknown").token(claims))
        assert await metric(api, 'apiserver_externaljwt_fetch_keys_request_total{code="unknown-non-grpc"}') == 1
        assert await is_good(api, token)
        assert await is_good(api, await token_of(api))


async def test_token_parts_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        token = await token_of(api)
        signer.header = HEADERS["a member more"]
        await ask(api)
        forged = ec_key("k").token(jwt.decode(token, options={"verify_signature": False}))
        assert not await is_good(api, forged)
        review = await api("POST", REVIEWS, {"spec": {"token": forged}})
        assert review.json["status"]["error"].startswith("[invalid bearer token, ")
    parts = [part for each in (token, forged) for part in each.split(".")[1:]] + signer.payloads
    assert all(part not in caplog.text for part in parts)
    assert "no token for ServiceAccount default/robot" in caplog.text


def test_signer_messages_round_trip() -> None:
    keys = messages.Keys([ec_key("a").public(), ec_key("b", excluded=True).public()], 1_700_000_000_000_000_001, 7)
    assert messages.read_keys_answer(messages.keys_answer(keys)) == keys
    early = messages.Keys([ec_key("a").public()], -1, 7)
    assert messages.read_keys_answer(messages.keys_answer(early)) == early, "before 1970"
    assert messages.read_sign_request(messages.sign_request("abc")) == "abc"
    assert messages.read_sign_answer(messages.sign_answer("h", "s")) == ("h", "s")
    assert messages.read_metadata_answer(messages.metadata_answer(1 << 40)) == 1 << 40
