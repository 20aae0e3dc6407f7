"""Tokens that a signer outside signs, over real sockets: lives, keys that come and go, signers that do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import jwt
import pytest
from api_caller import PODS, pod
from cryptography.hazmat.primitives.asymmetric import ec
from fake_signer import FakeSigner, TestKey, ec_key, rsa_key, socket_of
from signed_api import ACCOUNTS, CONFIGURATION, ISSUER, JWKS, ask, is_good, metric, server, signed_by, token_of

from haru.apiserver.auth.tokens import signer_client
from haru.errors import HaruError
from waiting import until

KINDS: dict[str, Callable[[], TestKey]] = {
    "RS256": lambda: rsa_key("k"),
    "ES256": lambda: ec_key("k"),
    "ES384": lambda: ec_key("k", ec.SECP384R1()),
    "ES512": lambda: ec_key("k", ec.SECP521R1()),
}


@pytest.mark.parametrize("algorithm", KINDS)
async def test_tokens_of_external_signer_verify_with_another_library(tmp_path: Path, algorithm: str) -> None:
    async with signed_by(FakeSigner(socket_of(tmp_path), [KINDS[algorithm]()])) as api:
        token = await token_of(api, audiences=["vault"])
        found = (await api.get(JWKS))["keys"]
        [key] = jwt.PyJWKSet(found).keys
        claims = jwt.decode(token, key, algorithms=[algorithm], audience="vault", issuer=ISSUER)
        assert claims["sub"] == "system:serviceaccount:default:robot"
        assert jwt.get_unverified_header(token) == {"alg": algorithm, "kid": "k", "typ": "JWT"}
        size = {"ES256": 64, "ES384": 96, "ES512": 132, "RS256": 256}[algorithm]
        assert len(token.rpartition(".")[2]) == -(-size * 4 // 3)
        assert await is_good(api, await token_of(api))
        configuration = await api.get(CONFIGURATION)
        assert configuration["id_token_signing_alg_values_supported"] == [algorithm]


async def test_signer_on_abstract_socket_is_used(tmp_path: Path) -> None:
    async with signed_by(FakeSigner(f"@haru-test-{time.time_ns()}", [ec_key("k")])) as api:
        assert await is_good(api, await token_of(api))


async def test_signed_payload_is_the_token_payload(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        token = await token_of(api)
        assert signer.payloads == [token.split(".")[1]]
        assert "=" not in signer.payloads[0]


@pytest.mark.parametrize(
    ("told", "flag", "text"),
    [
        (599, 0, "max_token_expiration_seconds: Invalid value: 599: must be at least 600"),
        (0, 0, "max_token_expiration_seconds: Invalid value: 0: must be at least 600"),
        (3600, 3601, "cannot be set longer than the signer allows, 3600s"),
    ],
)
async def test_incompatible_token_lifetimes_prevent_start(tmp_path: Path, told: int, flag: int, text: str) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")], max_seconds=told)
    await signer.start()
    try:
        with pytest.raises(HaruError, match=text):
            async with server(signer.endpoint, max_seconds=flag):
                pass
    finally:
        await signer.stop()


@pytest.mark.parametrize(("told", "flag", "most"), [(600, 0, 600), (7200, 3600, 3600), (7200, 7200, 7200)])
async def test_maximum_lifetime_is_the_lower_of_signer_and_flag(
    tmp_path: Path, told: int, flag: int, most: int
) -> None:
    async with signed_by(FakeSigner(socket_of(tmp_path), [ec_key("k")], max_seconds=told), max_seconds=flag) as api:
        answer = await ask(api, expirationSeconds=86400)
        assert answer.status == 201 and answer.json["spec"]["expirationSeconds"] == most
        assert answer.headers["warning"] == f'299 - "requested expiration of 86400 seconds shortened to {most} seconds"'
        claims = jwt.decode(answer.json["status"]["token"], options={"verify_signature": False})
        assert claims["exp"] - claims["iat"] == most


async def test_extended_expiration_is_limited_by_signer(tmp_path: Path) -> None:
    async with signed_by(FakeSigner(socket_of(tmp_path), [ec_key("k")], max_seconds=100_000)) as api:
        await api.create(PODS, pod("a", serviceAccountName="robot"))
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "a"}
        token = await token_of(api, expirationSeconds=3607, boundObjectRef=reference)
        claims = jwt.decode(token, options={"verify_signature": False})
        assert claims["exp"] - claims["iat"] == 100_000
        assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607


async def test_server_waits_for_late_signer(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    starting = asyncio.create_task(_start_and_ask(signer.endpoint))
    done, _ = await asyncio.wait([starting], timeout=0.1)
    assert not done, "it waits"
    await signer.start()
    try:
        assert await asyncio.wait_for(starting, 30) == 201
    finally:
        await signer.stop()


async def _start_and_ask(endpoint: str) -> int:
    async with server(endpoint) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        return int((await ask(api)).status)


async def test_server_without_signer_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signer_client, "FETCH_SECONDS", 0.3)
    with pytest.raises(HaruError, match=r"FetchKeys: no answer within 0.3 s; see that it runs"):
        async with server(socket_of(tmp_path)):
            pass


async def test_unreachable_signer_keeps_issued_tokens_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signer_client, "SIGN_SECONDS", 0.3)
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        used, unused = await token_of(api), await token_of(api)
        assert await is_good(api, used)
        await signer.stop()

        async def is_unanswered() -> bool:
            answer = await ask(api)
            return answer.status == 500 and "no answer within 0.3 s" in answer.json["message"]

        await until(is_unanswered, "the end of the connection is noticed: who asks before is told of that")
        assert await metric(api, 'apiserver_externaljwt_sign_request_total{code="DEADLINE_EXCEEDED"}') == 1
        assert await is_good(api, used) and await is_good(api, unused), "keys are remembered"
        monkeypatch.setattr(signer_client, "SIGN_SECONDS", 30)
        await signer.start()
        assert await is_good(api, await token_of(api)), "it is found again"


async def test_slow_signer_does_not_block_other_requests(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        token = await token_of(api)
        signer.held = asyncio.Event()
        asking = asyncio.create_task(ask(api))
        await until(lambda: signer.calls["Sign"] == 2, "the signer is asked")
        assert await is_good(api, token) and not asking.done()
        signer.held.set()
        assert (await asyncio.wait_for(asking, 30)).status == 201


@pytest.mark.parametrize("code", ["INTERNAL", "UNAVAILABLE", "PERMISSION_DENIED"])
async def test_signer_errors_are_reported_and_counted(tmp_path: Path, code: str) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        signer.fails = grpc.StatusCode[code]
        answer = await ask(api)
        assert answer.status == 500 and f"{code}: told to fail" in answer.json["message"]
        assert await metric(api, f'apiserver_externaljwt_sign_request_total{{code="{code}"}}') == 1


async def test_fifty_tokens_with_unknown_key_cause_one_key_fetch(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        claims = jwt.decode(await token_of(api), options={"verify_signature": False})
        new = ec_key("new")
        signer.keys = [new, *signer.keys]
        asked = signer.calls["FetchKeys"]
        good = [new.token({**claims, "jti": str(n)}) for n in range(25)]
        garbage = [ec_key("k").token({**claims, "jti": str(n)}, kid=f"garbage-{n}") for n in range(25)]
        answers = await asyncio.gather(*(is_good(api, token) for token in (*good, *garbage)))
        assert answers == [True] * 25 + [False] * 25
        assert signer.calls["FetchKeys"] == asked + 1


async def test_made_up_key_ids_do_not_flood_the_signer(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        token = await token_of(api)
        claims, forger = jwt.decode(token, options={"verify_signature": False}), ec_key("k")
        fetched, began = signer.calls["FetchKeys"], time.monotonic()
        storm = [forger.token(claims, kid=f"{n:04}") for n in range(600)]
        tasks = [asyncio.create_task(is_good(api, each)) for each in storm]
        # Who has a good token does not notice: here beside six hundred that wait or were refused.
        assert await is_good(api, token)
        assert not any(await asyncio.gather(*tasks))
        assert signer.calls["FetchKeys"] - fetched <= 2 + (time.monotonic() - began)


async def test_removed_key_invalidates_its_tokens(tmp_path: Path) -> None:
    first, second = ec_key("k1"), ec_key("k2")
    signer = FakeSigner(socket_of(tmp_path), [first])
    async with signed_by(signer) as api:
        old = await token_of(api)
        signer.keys = [first, second]
        claims = jwt.decode(old, options={"verify_signature": False})
        assert await is_good(api, second.token(claims)), "fetched because nobody knew it"
        signer.keys = [second, first]
        new = await token_of(api)
        assert jwt.get_unverified_header(new)["kid"] == "k2"
        assert await is_good(api, old) and await is_good(api, new)
        signer.keys = [second]
        assert not await is_good(api, ec_key("k3").token(claims)), "which makes it fetch"
        assert not await is_good(api, old), "though it was remembered as good"
        assert await is_good(api, new)


async def test_replaced_key_with_same_id_invalidates_old_tokens(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")])
    async with signed_by(signer) as api:
        old = await token_of(api)
        assert await is_good(api, old)
        signer.keys = [ec_key("k")]
        assert not await is_good(api, ec_key("x").token(jwt.decode(old, options={"verify_signature": False})))
        assert not await is_good(api, old)
        assert await is_good(api, await token_of(api))


async def test_two_keys_with_one_id_are_both_tried(tmp_path: Path) -> None:
    one, other = ec_key("k"), ec_key("k")
    async with signed_by(FakeSigner(socket_of(tmp_path), [one, other])) as api:
        token = await token_of(api)
        claims = jwt.decode(token, options={"verify_signature": False})
        assert await is_good(api, token) and await is_good(api, other.token(claims))
        assert await is_good(api, other.token(claims, kid=None)), "and all of them for a token that names none"
        assert not await is_good(api, ec_key("k").token(claims, kid=None))


async def test_discovery_documents_follow_signer_keys(tmp_path: Path) -> None:
    signer = FakeSigner(socket_of(tmp_path), [rsa_key("r"), ec_key("e")], hint=100)
    async with signed_by(signer, jwks_uri="https://keys.example/jwks") as api:
        answer = await api("GET", CONFIGURATION)
        assert answer.headers["content-type"] == "application/json" and "etag" not in answer.headers
        assert answer.json == {
            "issuer": ISSUER,
            "jwks_uri": "https://keys.example/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256", "RS256"],
        }
        keys = await api("GET", JWKS)
        assert keys.headers["content-type"] == "application/jwk-set+json"
        public, _, age = keys.headers["cache-control"].partition(", max-age=")
        assert public == "public" and 90 <= int(age) < 100, "what is left of the hint"
        assert [(k["kid"], k["kty"], k["use"], k["alg"]) for k in keys.json["keys"]] == [
            ("r", "RSA", "sig", "RS256"),
            ("e", "EC", "sig", "ES256"),
        ]
        first, second = signer.keys
        claims = jwt.decode(await token_of(api), options={"verify_signature": False})
        signer.keys, signer.data_time = [TestKey("e", second.private, True)], time.time_ns()
        assert not await is_good(api, ec_key("x").token(claims))
        assert (await api.get(JWKS)) == keys.json, "when nothing is left to tell, what was told stays"
        signer.keys = [first]
        assert not await is_good(api, ec_key("y").token(claims))
        assert [k["kid"] for k in (await api.get(JWKS))["keys"]] == ["r"]
        assert (await api.get(CONFIGURATION))["id_token_signing_alg_values_supported"] == ["RS256"]


async def test_external_signer_metrics_are_counted(tmp_path: Path) -> None:
    began = time.time()
    signer = FakeSigner(socket_of(tmp_path), [ec_key("k")], data_time=1_700_000_000_500_000_000)
    async with signed_by(signer) as api:
        await token_of(api)
        assert began - 1 <= await metric(api, "apiserver_externaljwt_fetch_keys_success_timestamp") <= time.time() + 1
        assert await metric(api, "apiserver_externaljwt_fetch_keys_data_timestamp") == 1_700_000_000.5
        assert await metric(api, 'apiserver_externaljwt_fetch_keys_request_total{code="OK"}') == 1
        for method in ("Sign", "FetchKeys", "Metadata"):
            labels = f'code="OK",method="/v1.ExternalJWTSigner/{method}"'
            name = "apiserver_externaljwt_request_duration_seconds"
            assert await metric(api, f"{name}_count{{{labels}}}") == 1
            assert await metric(api, f'{name}_bucket{{{labels},le="60"}}') == 1
