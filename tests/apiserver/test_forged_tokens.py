"""ServiceAccount tokens that somebody has made up, and those out of Secrets: which are refused, and why."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from account_api import ACCOUNTS, DEFAULT, SECRETS, Obj, own_key, review, said, token_of, why_not
from api_caller import Caller
from cryptography.hazmat.primitives.asymmetric import ec
from fake_signer import TestKey

from haru.jose import JoseError, decode, encode


def changed(claims: Obj, **more: Any) -> Obj:
    return {name: value for name, value in {**claims, **more}.items() if value is not None}


TIMES = "no time that can be read"
FORGED: dict[str, tuple[Callable[[Obj], str], str]] = {
    "another key, the same kid": (
        lambda c: TestKey(own_key().key_id, ec.generate_private_key(ec.SECP256R1())).token(c),
        "no key of this server has signed",
    ),
    "another key, no kid": (
        lambda c: TestKey("", ec.generate_private_key(ec.SECP256R1())).token(c, kid=None),
        "no key of this server has signed",
    ),
    "an unknown kid": (lambda c: own_key().token(c, kid="x"), "no key of this server has signed"),
    "alg none, no signature": (
        lambda c: own_key().token(c, alg="none").rpartition(".")[0] + ".",
        "no key of this server has signed",
    ),
    "alg none, a good signature": (lambda c: own_key().token(c, alg="none"), "no key of this server has signed"),
    "no alg": (lambda c: own_key().token(c, alg=None), "no key of this server has signed"),
    "another algorithm": (lambda c: own_key().token(c, alg="ES384"), "no key of this server has signed"),
    "the public key as a secret": (
        lambda c: jwt.encode(c, base64.b64encode(own_key().public().der), "HS256", {"kid": own_key().key_id}),
        "no key of this server has signed",
    ),
    "a key in the header": (lambda c: own_key().token(c, jwk={"kty": "EC"}), ""),
    "crit": (lambda c: own_key().token(c, crit=["exp"]), ""),
    "a typ of others": (lambda c: own_key().token(c, typ="at+jwt"), ""),
    "padding": (lambda c: own_key().token(c) + "==", ""),
    "bits after the end": (lambda c: _last_bits(own_key().token(c)), ""),
    "another issuer": (lambda c: own_key().token(changed(c, iss="https://other")), ""),
    "no issuer": (lambda c: own_key().token(changed(c, iss=None)), ""),
    "an issuer that is a list": (lambda c: own_key().token(changed(c, iss=[DEFAULT])), ""),
    "another audience": (lambda c: own_key().token(changed(c, aud=["x"])), 'audiences ["x"] is invalid'),
    "no audience": (lambda c: own_key().token(changed(c, aud=None)), "audiences [] is invalid"),
    "over": (lambda c: own_key().token(changed(c, exp=c["iat"] - 61)), "service account token has expired"),
    "without an end": (lambda c: own_key().token(changed(c, exp=None)), TIMES),
    "an end in words": (lambda c: own_key().token(changed(c, exp="never")), TIMES),
    "an end that is true": (lambda c: own_key().token(changed(c, exp=True)), TIMES),
    "an end beyond all numbers": (lambda c: own_key().token(changed(c, exp=10**400)), TIMES),
    "not yet": (lambda c: own_key().token(changed(c, nbf=c["iat"] + 61)), "is not valid yet"),
    "issued tomorrow": (lambda c: own_key().token(changed(c, iat=c["iat"] + 86400)), "is not valid yet"),
    "nobody": (lambda c: own_key().token(changed(c, **{"kubernetes.io": None})), "names no account"),
    "private claims in words": (lambda c: own_key().token(changed(c, **{"kubernetes.io": "x"})), "names no account"),
    "an account that is a list": (
        lambda c: own_key().token(changed(c, **{"kubernetes.io": {"namespace": "default", "serviceaccount": []}})),
        "names no account",
    ),
    "another uid": (
        lambda c: own_key().token(
            changed(
                c,
                **{"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": "other"}}},
            )
        ),
        "has been made anew",
    ),
    "a list as payload": (lambda c: own_key().token([c]), ""),  # type: ignore[arg-type]
    "too long": (lambda c: own_key().token(changed(c, pad="x" * 70_000)), ""),
}


def _last_bits(token: str) -> str:
    """The same signature, written in another way: 64 bytes leave four bits over."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + letters[letters.index(token[-1]) | 1]


@pytest.mark.parametrize("name", FORGED)
async def test_forged_token_is_refused(robot: Caller, name: str) -> None:
    good = await token_of(robot)
    assert (await review(robot, own_key().token(said(good))))["authenticated"], "made by hand, it is good"
    make, reason = FORGED[name]
    error = await why_not(robot, make(said(good)))
    assert error == "invalid bearer token" if not reason else reason in error


async def test_responses_to_forged_tokens_are_identical(robot: Caller) -> None:
    claims = said(await token_of(robot))
    tried = [make(claims) for make, _ in FORGED.values()] + ["guessed", "a.b.c"]
    answers = [await robot.as_(token)("GET", "/api/v1/namespaces") for token in tried]
    assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}
    told = {name for answer in answers for name, value in answer.headers.items() if "token" in value.lower()}
    assert not told


async def test_one_minute_of_clock_skew_is_allowed(robot: Caller) -> None:
    claims = said(await token_of(robot))
    for good in ({"exp": claims["iat"] - 60}, {"nbf": claims["iat"] + 60}, {"aud": DEFAULT}, {"nbf": None}):
        assert (await review(robot, own_key().token(changed(claims, **good))))["authenticated"], good


async def test_valid_token_is_verified_on_every_use(robot: Caller) -> None:
    token = await token_of(robot, expirationSeconds=600)
    for _ in range(3):
        assert (await review(robot, token))["authenticated"]
    robot.clock.advance(seconds=661)
    assert "service account token has expired" in await why_not(robot, token)


NO_TOKENS = (
    "..",
    "a.b",
    "a.b.c",
    "....",
    "\x00.\x00.\x00",
    "é.é.é",
    "=" * 9 + "..",
    "e30.e30.",
    "W10.W10.",
    "bm8.bm8.",
)


async def test_text_that_is_no_token_is_refused(robot: Caller) -> None:
    for text in NO_TOKENS:
        assert (await review(robot, text))["error"] == "invalid bearer token", text


def test_base64url_decoding_is_strict() -> None:
    for size in range(40):
        data = bytes(range(200, 200 + size))
        assert decode(encode(data)) == data
    for text in ("A", "AB=", "AA==", "A+", "A/", "AB", "AAB", "é", "A A", "AAAAA"):
        with pytest.raises(JoseError):
            decode(text)


# --- tokens out of Secrets


async def test_legacy_secret_token_is_valid_until_secret_is_deleted(robot: Caller) -> None:
    uid = (await robot.get(f"{ACCOUNTS}/robot"))["metadata"]["uid"]
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    }
    token = own_key().token(claims)
    assert "its Secret does not hold it" in await why_not(robot, token)
    secret = {
        "metadata": {"name": "robot-token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token",
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }
    await robot.create(SECRETS, secret)
    status = await review(robot, token)
    assert status["user"]["username"] == "system:serviceaccount:default:robot" and "extra" not in status["user"]
    assert "\nserviceaccount_legacy_tokens_total 1\n" in (await robot("GET", "/metrics")).body.decode()
    other = own_key().token({**claims, "extra": 1})
    assert "its Secret does not hold it" in await why_not(robot, other)
    assert "names no account" in await why_not(robot, own_key().token({**claims, "sub": "system:admin"}))
    await robot("DELETE", f"{SECRETS}/robot-token")
    assert "its Secret does not hold it" in await why_not(robot, token)
