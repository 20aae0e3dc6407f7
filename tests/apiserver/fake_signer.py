"""A signer that does what a test tells it to, over a real socket; and the keys that it has."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from haru import externaljwt as messages
from haru.jose import algorithm_of, encode, sign

Obj = dict[str, Any]


@dataclass
class TestKey:
    """A key pair with an id."""

    __test__ = False

    key_id: str
    private: Any
    excluded: bool = False

    @property
    def algorithm(self) -> str:
        return algorithm_of(self.private.public_key())

    def public(self) -> messages.Key:
        der = self.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return messages.Key(self.key_id, der, self.excluded)

    def header(self, **more: Any) -> str:
        members = {"alg": self.algorithm, "kid": self.key_id, "typ": "JWT", **more}
        return encode(json.dumps({k: v for k, v in members.items() if v is not None}).encode())

    def token(self, claims: Obj, **more: Any) -> str:
        """A token of these claims, whoever asks for it."""
        signed = f"{self.header(**more)}.{encode(json.dumps(claims).encode())}"
        return f"{signed}.{encode(sign(self.private, self.algorithm, signed.encode()))}"


def ec_key(key_id: str, curve: ec.EllipticCurve | None = None, *, excluded: bool = False) -> TestKey:
    return TestKey(key_id, ec.generate_private_key(curve or ec.SECP256R1()), excluded)


def rsa_key(key_id: str) -> TestKey:
    return TestKey(key_id, rsa.generate_private_key(65537, 2048))


@dataclass
class FakeSigner:
    """Signs with the first key. Each answer can be replaced; calls are counted by the method's name."""

    endpoint: str
    keys: list[TestKey]
    hint: int = 3600
    max_seconds: int = 86400
    data_time: int | None = field(default_factory=time.time_ns)
    header: Callable[[TestKey], str] | None = None
    """In place of the true header."""
    signature: Callable[[TestKey, bytes], bytes] | None = None
    answer_keys: Callable[[], bytes] | None = None
    fails: grpc.StatusCode | None = None
    held: asyncio.Event | None = None
    """While it is there and not set, nothing is answered."""
    calls: dict[str, int] = field(default_factory=lambda: {"Sign": 0, "FetchKeys": 0, "Metadata": 0})
    payloads: list[str] = field(default_factory=list)
    _server: grpc.aio.Server | None = None

    async def start(self) -> FakeSigner:
        self._server = grpc.aio.server()
        calls = {"Sign": self._sign, "FetchKeys": self._fetch, "Metadata": self._metadata}
        methods = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
        handler = grpc.method_handlers_generic_handler(messages.SERVICE, methods)
        self._server.add_generic_rpc_handlers((handler,))
        name = self.endpoint
        self._server.add_insecure_port(f"unix-abstract:{name[1:]}" if name.startswith("@") else f"unix:{name}")
        await self._server.start()
        return self

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)

    async def _begin(self, method: str, context: Any) -> None:
        self.calls[method] += 1
        if self.held is not None:
            await self.held.wait()
        if self.fails is not None:
            await context.abort(self.fails, "told to fail")

    async def _sign(self, request: bytes, context: Any) -> bytes:
        await self._begin("Sign", context)
        key, payload = self.keys[0], messages.read_sign_request(request)
        self.payloads.append(payload)
        header = self.header(key) if self.header is not None else key.header()
        signed = f"{header}.{payload}".encode()
        raw = sign(key.private, key.algorithm, signed) if self.signature is None else self.signature(key, signed)
        return messages.sign_answer(header, encode(raw))

    async def _fetch(self, request: bytes, context: Any) -> bytes:
        await self._begin("FetchKeys", context)
        if self.answer_keys is not None:
            return self.answer_keys()
        return messages.keys_answer(messages.Keys([key.public() for key in self.keys], self.data_time, self.hint))

    async def _metadata(self, request: bytes, context: Any) -> bytes:
        await self._begin("Metadata", context)
        return messages.metadata_answer(self.max_seconds)


def socket_of(directory: Path) -> str:
    """A path for a socket in a test's own directory, which must not be too long."""
    path = str(directory / "s")
    assert len(path) < 100, path
    return path
