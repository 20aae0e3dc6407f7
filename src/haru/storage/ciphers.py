"""The ciphers of encryption at rest: what one key of one provider does with a value.

Each writes as kube-apiserver does, so that each reads what the other wrote.
Source: k8s.io/apiserver `storage/value/encrypt` (AES-GCM, AES-CBC with PKCS#7, secretbox, identity), as format.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from haru.storage.interface import StoreError

if TYPE_CHECKING:
    from haru.storage.kms.metrics import KmsMetrics

_BLOCK = 16
_NONCE = 12
_TAG = 16
_BOX_NONCE = 24


class SealError(StoreError):
    """A value can not be opened; the message names it, and what to do. It never holds key material."""


class KeysAway(SealError):
    """Who has the keys does not answer now, and may answer later."""


class Cipher(Protocol):
    """One key of one provider."""

    prefix: bytes
    """`k8s:enc:PROVIDER:v1:KEY:`; empty for plain values."""

    def seal(self, value: bytes, path: bytes) -> bytes:
        """The sealed form, without the prefix. `path` is where the value is kept."""

    def open(self, sealed: bytes, path: bytes) -> bytes:
        """The value. Raises ValueError when the key is another, or the value has been tampered with."""


class OutsideCipher(abc.ABC):
    """A cipher with keys that somebody else has, who is asked for them on the loop, before they are used."""

    name: str
    prefix: bytes
    seconds: float
    """How long a question to him may take."""
    metrics: KmsMetrics
    changed: Callable[[], None] | None
    """Called when values are to be written with another key from now on."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Ask whether he is there; he may come later."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Ask no more."""

    @abc.abstractmethod
    async def check(self) -> str:
        """What is wrong with him; empty: nothing."""

    @abc.abstractmethod
    def ready(self) -> None:
        """Raise SealError where nothing may be sealed now."""

    @abc.abstractmethod
    async def prepare(self, sealed: Iterable[bytes], patience: float) -> None:
        """Get what is needed to open values; KeysAway when he has not answered within so many seconds."""

    @abc.abstractmethod
    def seal(self, value: bytes, path: bytes) -> bytes:
        """The sealed form, without the prefix; for all threads."""

    @abc.abstractmethod
    def open(self, sealed: bytes, path: bytes) -> bytes:
        """The value, after `prepare`. Raises ValueError."""

    @abc.abstractmethod
    def is_stale(self, sealed: bytes) -> bool:
        """Whether a value is not as it would be sealed now."""


class Plain:
    """The provider `identity`: values as they are."""

    prefix = b""

    def seal(self, value: bytes, path: bytes) -> bytes:
        """Nothing is done."""
        return value

    def open(self, sealed: bytes, path: bytes) -> bytes:
        """Nothing is done."""
        return sealed


class AesGcm:
    """The provider `aesgcm`: a random nonce of 12 bytes, then ciphertext and tag; the path is authenticated with it."""

    def __init__(self, name: str, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.prefix = f"k8s:enc:aesgcm:v1:{name}:".encode()
        self._aead = AESGCM(key)

    def seal(self, value: bytes, path: bytes) -> bytes:
        """Encrypt under a fresh nonce."""
        nonce = os.urandom(_NONCE)
        return nonce + self._aead.encrypt(nonce, value, path)

    def open(self, sealed: bytes, path: bytes) -> bytes:
        """Decrypt; ValueError if key, value or path are others."""
        from cryptography.exceptions import InvalidTag

        if len(sealed) < _NONCE + _TAG:
            raise ValueError("it is cut short")
        try:
            return self._aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], path)
        except InvalidTag:
            raise ValueError("the key does not fit, or the value was tampered with or moved") from None


class AesCbc:
    """The provider `aescbc`: a vector of 16 bytes, then ciphertext padded by PKCS#7. Nothing is authenticated."""

    def __init__(self, name: str, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        self.prefix = f"k8s:enc:aescbc:v1:{name}:".encode()
        self._algorithm = AES(key)

    def seal(self, value: bytes, path: bytes) -> bytes:
        """Encrypt under a fresh vector."""
        from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
        from cryptography.hazmat.primitives.ciphers.modes import CBC

        vector = os.urandom(_BLOCK)
        padding = _BLOCK - len(value) % _BLOCK
        encryptor = BlockCipher(self._algorithm, CBC(vector)).encryptor()
        return vector + encryptor.update(value + bytes([padding]) * padding) + encryptor.finalize()

    def open(self, sealed: bytes, path: bytes) -> bytes:
        """Decrypt; ValueError if what comes out was not padded, as with another key."""
        from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
        from cryptography.hazmat.primitives.ciphers.modes import CBC

        if len(sealed) < 2 * _BLOCK or len(sealed) % _BLOCK:
            raise ValueError("it is cut short")
        decryptor = BlockCipher(self._algorithm, CBC(sealed[:_BLOCK])).decryptor()
        padded = decryptor.update(sealed[_BLOCK:]) + decryptor.finalize()
        padding = padded[-1]
        if not 1 <= padding <= _BLOCK or padded[-padding:] != bytes([padding]) * padding:
            raise ValueError("the key does not fit, or the value was tampered with")
        return padded[:-padding]


class Secretbox:
    """The provider `secretbox` (XSalsa20 and Poly1305): a random nonce of 24 bytes, then the box. Needs PyNaCl."""

    def __init__(self, name: str, key: bytes) -> None:
        from nacl import bindings

        self.prefix = f"k8s:enc:secretbox:v1:{name}:".encode()
        self._key = key
        self._seal, self._open = bindings.crypto_secretbox, bindings.crypto_secretbox_open

    def seal(self, value: bytes, path: bytes) -> bytes:
        """Encrypt under a fresh nonce."""
        nonce = os.urandom(_BOX_NONCE)
        return nonce + bytes(self._seal(value, nonce, self._key))

    def open(self, sealed: bytes, path: bytes) -> bytes:
        """Decrypt; ValueError if key or value are others."""
        from nacl.exceptions import CryptoError

        if len(sealed) < _BOX_NONCE + _TAG:
            raise ValueError("it is cut short")
        try:
            return bytes(self._open(sealed[_BOX_NONCE:], sealed[:_BOX_NONCE], self._key))
        except CryptoError:
            raise ValueError("the key does not fit, or the value was tampered with") from None
