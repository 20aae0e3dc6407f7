"""Keys in a hardware module, or in whatever else speaks PKCS#11: they sign in there and never leave it.

Needs the optional dependency python-pkcs11 (`pip install haru[pkcs11]`). Each key is a pair with one label. The first
label signs, all of them are published: to change keys, name the new one second, wait, and name it first.
Source: PKCS#11 2.40; SEC 1 for points; RFC 7518 for signatures.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haru.externaljwt import Key
from haru.jose import JoseError, algorithm_of, encode
from haru.signer.files import KeyStoreError

_HASHES = {"ES256": hashlib.sha256, "ES384": hashlib.sha384, "ES512": hashlib.sha512}


@dataclass(frozen=True, slots=True)
class Module:
    """Where keys are: the library, the token's label, and the file that the PIN is in."""

    library: Path
    token: str
    pin_file: Path
    labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Pair:
    label: str
    algorithm: str
    der: bytes
    private: Any


class HsmKeys:
    """The keys of one token, as a `Holder`. Raises `KeyStoreError` if they are not there."""

    def __init__(self, module: Module) -> None:
        try:
            import pkcs11
        except ImportError:
            raise KeyStoreError("--pkcs11-module: needs python-pkcs11: pip install 'haru[pkcs11]'") from None
        pin = _pin(module.pin_file)
        where = f"--pkcs11-module: {module.library}: token {module.token}"
        try:
            token = pkcs11.lib(str(module.library)).get_token(token_label=module.token)
            self._session = token.open(user_pin=pin)
            self._pairs = [_pair(self._session, label) for label in module.labels]
        except (pkcs11.PKCS11Error, RuntimeError, OSError) as error:
            raise KeyStoreError(f"{where}: {type(error).__name__} {error}".rstrip()) from None
        self._read = time.time_ns()
        self._alone = asyncio.Lock()

    def keys(self, now: float) -> list[Key]:
        """The public keys."""
        return [Key(pair.label, pair.der) for pair in self._pairs]

    def data_nanoseconds(self) -> int:
        """When they were read out of the module."""
        return self._read

    async def sign(self, payload: str, now: float) -> tuple[str, str]:
        """Header and signature of a payload, by the first key. Raises `KeyStoreError`."""
        import pkcs11

        pair = self._pairs[0]
        members = {"alg": pair.algorithm, "kid": pair.label, "typ": "JWT"}
        header = encode(json.dumps(members, separators=(",", ":")).encode())
        # A session does one thing at a time, and may take its time over it.
        async with self._alone:
            try:
                signature = await asyncio.to_thread(_sign, pair, f"{header}.{payload}".encode())
            except pkcs11.PKCS11Error as error:
                raise KeyStoreError(f"the key {pair.label} does not sign: {type(error).__name__}") from None
        return header, encode(signature)

    def close(self) -> None:
        """Leave the token."""
        self._session.close()


def _pin(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise KeyStoreError(f"--pkcs11-pin-file: {path}: others may read it: chmod 600 {path}")
        return path.read_text().strip()
    except OSError as error:
        raise KeyStoreError(f"--pkcs11-pin-file: {path}: {error.strerror}") from None


def _pair(session: Any, label: str) -> _Pair:
    from pkcs11 import NoSuchKey, ObjectClass

    try:
        private = session.get_key(object_class=ObjectClass.PRIVATE_KEY, label=label)
        public = session.get_key(object_class=ObjectClass.PUBLIC_KEY, label=label)
    except NoSuchKey:
        raise KeyStoreError(f'--pkcs11-key: Invalid value: "{label}": no pair of keys has this label') from None
    try:
        key = _public(public)
        return _Pair(label, algorithm_of(key), _der(key), private)
    except JoseError as error:
        raise KeyStoreError(f'--pkcs11-key: Invalid value: "{label}": {error}') from None


def _public(public: Any) -> Any:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    from cryptography.hazmat.primitives.serialization import load_der_public_key
    from pkcs11 import Attribute, KeyType
    from pkcs11.util.ec import encode_ec_public_key

    if public.key_type == KeyType.RSA:
        modulus, exponent = public[Attribute.MODULUS], public[Attribute.PUBLIC_EXPONENT]
        return RSAPublicNumbers(int.from_bytes(exponent, "big"), int.from_bytes(modulus, "big")).public_key()
    if public.key_type == KeyType.EC:
        return load_der_public_key(encode_ec_public_key(public))
    raise JoseError("is neither an RSA key nor one on P-256, P-384 or P-521")


def _der(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return der


def _sign(pair: _Pair, data: bytes) -> bytes:
    from pkcs11 import Mechanism

    if pair.algorithm == "RS256":
        signature: bytes = pair.private.sign(data, mechanism=Mechanism.SHA256_RSA_PKCS)
        return signature
    # CKM_ECDSA takes a digest and answers with both numbers one after the other, as tokens have them.
    raw: bytes = pair.private.sign(_HASHES[pair.algorithm](data).digest(), mechanism=Mechanism.ECDSA)
    return raw
