"""What is kept of a value: EncryptedObject, with the seed or key that the service encrypted; and what they decrypt.

Source: `k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2` and `encrypt/aes` (extended nonce), as format.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from haru.kms import Encrypted
from haru.proto import MessageError, decode
from haru.proto import kms_pb2 as rpc

DATA_KEY, SEED = rpc.AES_GCM_KEY, rpc.HKDF_SHA256_XNONCE_AES_GCM_SEED
"""What the service encrypted: the key itself (older servers), or a seed of keys."""
SEED_BYTES = INFO_BYTES = KEY_BYTES = 32
KEY_ID_BYTES = 1024
SOURCE_BYTES = 1024
ANNOTATIONS_BYTES = 32 * 1024
_NONCE = 12
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})+\.?")


@dataclass(frozen=True, slots=True)
class EncryptedObject:
    """A value as it is kept, without the prefix."""

    data: bytes
    key_id: str
    source: bytes
    """The seed, or the key, as the service encrypted it."""
    annotations: Mapping[str, bytes] = field(default_factory=dict)
    kind: rpc.EncryptedDEKSourceType = SEED

    @property
    def encrypted(self) -> Encrypted:
        """What the service is asked to decrypt."""
        return Encrypted(self.source, self.key_id, self.annotations)

    @property
    def source_id(self) -> bytes:
        """A digest of what the service is asked with: equal ones have the same seed."""
        return hashlib.sha256(replace(self, data=b"").to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """The message, written in one way only."""
        made = rpc.EncryptedObject(
            encryptedData=self.data,
            keyID=self.key_id,
            encryptedDEKSource=self.source,
            annotations=self.annotations,
            encryptedDEKSourceType=self.kind,
        )
        return made.SerializeToString(deterministic=True)


def read_object(data: bytes) -> EncryptedObject:
    """A message as an object. Raises ValueError for one that can not be used."""
    try:
        found = decode(rpc.EncryptedObject, data)
    except MessageError as error:
        raise ValueError(f"it is no EncryptedObject: {error}") from None
    made = EncryptedObject(
        found.encryptedData,
        found.keyID,
        found.encryptedDEKSource,
        dict(found.annotations),
        found.encryptedDEKSourceType,
    )
    if not made.data:
        raise ValueError("encrypted data is empty")
    if made.kind not in (DATA_KEY, SEED):
        raise ValueError(f"unknown encryptedDEKSourceType: {made.kind}")
    if why := problem_of(made.encrypted):
        raise ValueError(why)
    return made


def problem_of(encrypted: Encrypted) -> str:
    """What is wrong with an answer to Encrypt, or with what is kept of one; empty: nothing."""
    if not encrypted.ciphertext:
        return "failed to validate encrypted DEK source: encrypted DEK source is empty"
    if len(encrypted.ciphertext) > SOURCE_BYTES:
        size = f"encrypted DEK source is {len(encrypted.ciphertext)} bytes"
        return f"failed to validate encrypted DEK source: {size}, which exceeds the max size of {SOURCE_BYTES}"
    if why := key_id_problem(encrypted.key_id)[1]:
        return f"failed to validate key id: {why}"
    total = 0
    for name, value in encrypted.annotations.items():
        total += len(name.encode()) + len(value)
        if len(name) > 253 or not _DOMAIN.fullmatch(name):
            why = f'annotations: Invalid value: "{name[:253]}": must be a fully qualified domain name'
            return f"failed to validate annotations: {why}"
    if total > ANNOTATIONS_BYTES:
        size = f"total size of annotations is {total}"
        return f"failed to validate annotations: {size}, which exceeds the max size of {ANNOTATIONS_BYTES}"
    return ""


def key_id_problem(key_id: str) -> tuple[str, str]:
    """A word for counters and a text for people, of what is wrong with the id of a key; both empty: nothing."""
    size = len(key_id.encode())
    if not size:
        return "empty", "keyID is empty"
    if size > KEY_ID_BYTES:
        return "too_long", f"keyID is {size} bytes, which exceeds the max size of {KEY_ID_BYTES}"
    return "", ""


def digest_of(text: str) -> str:
    """How an id of a key is told: as its digest."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" if text else ""


class Seed:
    """A seed: each value is encrypted with a key of its own, derived from it by HKDF with 32 random bytes."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) < SEED_BYTES:
            raise ValueError(f"invalid seed length {len(seed)} used for key generation")
        self._seed = seed

    def seal(self, value: bytes, path: bytes) -> bytes:
        """The random bytes, a nonce, ciphertext and tag; the path is authenticated with them."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        info, nonce = os.urandom(INFO_BYTES), os.urandom(_NONCE)
        return info + nonce + AESGCM(self._key(info)).encrypt(nonce, value, path)

    def open(self, data: bytes, path: bytes) -> bytes:
        """Decrypt. Raises ValueError."""
        if len(data) < INFO_BYTES:
            raise ValueError("the stored data was shorter than the required size")
        return _decrypted(self._key(data[:INFO_BYTES]), data[INFO_BYTES:], path)

    def _key(self, info: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

        return HKDFExpand(SHA256(), KEY_BYTES, info).derive(self._seed)


class DataKey:
    """A key that encrypted values itself, as servers did before 1.29; nothing is written with it."""

    def __init__(self, key: bytes) -> None:
        if len(key) not in (16, 24, 32):
            raise ValueError(f"crypto/aes: invalid key size {len(key)}")
        self._key = key

    def open(self, data: bytes, path: bytes) -> bytes:
        """Decrypt. Raises ValueError."""
        return _decrypted(self._key, data, path)


def unlocked(kind: int, plaintext: bytes) -> Seed | DataKey:
    """What the service decrypted. Raises ValueError."""
    return Seed(plaintext) if kind == SEED else DataKey(plaintext)


def _decrypted(key: bytes, data: bytes, path: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(data) < _NONCE:
        raise ValueError("the stored data was shorter than the required size")
    try:
        return AESGCM(key).decrypt(data[:_NONCE], data[_NONCE:], path)
    except InvalidTag:
        raise ValueError("the value was tampered with or moved, or its data key is another") from None
