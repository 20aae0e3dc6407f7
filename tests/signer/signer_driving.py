"""`haru signer` as a process, and calls of its service."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from haru import externaljwt as messages
from haru.jose import PublicKey, algorithm_of, encode, split
from haru_process import Process

Obj = dict[str, Any]
ISSUER = "https://issuer.example"


class Signer(Process):
    """A running `haru signer serve`, ready."""

    def __init__(self, home: Path, socket: str, *arguments: str, name: str = "signer", **env: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.socket = socket
        super().__init__(home, ["signer", "serve", "--socket", socket, *arguments], name, **env)
        assert self.line() == f"haru signer is ready at {socket}"


async def _call(socket: str, method: str, request: bytes) -> bytes:
    target = f"unix-abstract:{socket[1:]}" if socket.startswith("@") else f"unix:{socket}"
    async with grpc.aio.insecure_channel(target, options=[("grpc.default_authority", "localhost")]) as channel:
        answer: bytes = await channel.unary_unary(method)(request, timeout=30, wait_for_ready=True)
        return answer


def call(socket: str, method: str, request: bytes = b"") -> bytes:
    """One call of a signer's service."""
    return asyncio.run(_call(socket, method, request))


def keys(socket: str) -> messages.Keys:
    """What FetchKeys answers."""
    return messages.read_keys_answer(call(socket, messages.FETCH_KEYS))


def public(key: messages.Key) -> PublicKey:
    """A key as one that checks tokens."""
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    loaded = load_der_public_key(key.der)
    return PublicKey(key.key_id, algorithm_of(loaded), key.der, loaded, key.excluded)


def claims(**more: Any) -> Obj:
    """What a signer puts its name to."""
    now = int(time.time())
    made = {"iss": ISSUER, "sub": "system:serviceaccount:default:robot", "aud": ["x"], "iat": now, "exp": now + 600}
    return {name: value for name, value in {**made, **more}.items() if value is not None}


def payload(said: Obj) -> str:
    """Claims as they are sent."""
    return encode(json.dumps(said).encode())


def signed(socket: str, said: Obj) -> str:
    """A token of these claims."""
    sent = payload(said)
    header, signature = messages.read_sign_answer(call(socket, messages.SIGN, messages.sign_request(sent)))
    token = f"{header}.{sent}.{signature}"
    split(token)
    return token
