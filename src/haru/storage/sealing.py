"""Encryption at rest: values are sealed on their way to the disk (or to etcd) and opened on their way back.

What is written begins with a prefix that names the provider and the key, `k8s:enc:aesgcm:v1:key1:`, and goes on as
kube-apiserver writes it, so that each reads what the other wrote. The first provider of a resource writes, all of them
read; a value that another than the first one opened is stale, and is written anew with the next update.
Source: k8s.io/apiserver `storage/value/encrypt` (AES-GCM, AES-CBC with PKCS#7, identity), as format.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from haru.storage.interface import StoreError

ENCRYPTED = b"k8s:enc:"
"""What every sealed value begins with; no object and no compressed one does."""
_BLOCK = 16
_NONCE = 12
_TAG = 16


class SealError(StoreError):
    """A value can not be opened; the message names it, and what to do. It never holds key material."""


class Cipher(Protocol):
    """One key of one provider."""

    prefix: bytes
    """`k8s:enc:PROVIDER:v1:KEY:`; empty for plain values."""

    def seal(self, value: bytes, path: bytes) -> bytes:
        """The sealed form, without the prefix. `path` is where the value is kept."""

    def open(self, sealed: bytes, path: bytes) -> bytes:
        """The value. Raises ValueError when the key is another, or the value has been tampered with."""


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


class Sealing:
    """Which resources are sealed, and with what.

    `providers` are by resource as EncryptionConfiguration names them: `secrets`, `jobs.batch`, `*.apps` (all of a
    group), `*.` (all of the core group), `*.*` (all). The closest name wins. `source` is what messages send people to.
    """

    def __init__(self, providers: Mapping[str, Sequence[Cipher]], source: str) -> None:
        self._providers = {name: tuple(ciphers) for name, ciphers in providers.items()}
        self._source = source

    def ciphers(self, resource: str) -> Sequence[Cipher]:
        """Those of a resource (`secrets`, `jobs.batch`), first the one that writes; none: it is kept as it is."""
        _, _, group = resource.partition(".")
        for name in (resource, f"*.{group}", "*.*"):
            found = self._providers.get(name)
            if found is not None:
                return found
        return ()

    def seal(self, resource: str, path: str, value: bytes) -> bytes:
        """The form to keep. `path` is the one in etcd, `/registry/secrets/NAMESPACE/NAME`."""
        ciphers = self.ciphers(resource) if self._providers else ()
        if not ciphers:
            return value
        return ciphers[0].prefix + ciphers[0].seal(value, path.encode())

    def open(self, resource: str, path: str, kept: bytes) -> tuple[bytes, bool]:
        """The value, and whether it is stale: not what `seal` would write now. Raises SealError."""
        is_sealed = kept.startswith(ENCRYPTED)
        if not self._providers and not is_sealed:
            return kept, False
        ciphers = self.ciphers(resource) or (Plain(),)
        for position, cipher in enumerate(ciphers):
            if is_sealed != bool(cipher.prefix) or not kept.startswith(cipher.prefix):
                continue
            try:
                return cipher.open(kept[len(cipher.prefix) :], path.encode()), position > 0
            except ValueError as error:
                provider, key = _named(kept)
                raise SealError(
                    f'{path} can not be decrypted with the {provider} key "{key}" of {self._source}: {error}; give '
                    f"that key the secret with which it was written"
                ) from None
        raise SealError(self._unreadable(resource, path, kept))

    def _unreadable(self, resource: str, path: str, kept: bytes) -> str:
        if not kept.startswith(ENCRYPTED):
            return (
                f"{path} is not encrypted, and {self._source} has no provider identity for {resource}: add "
                "`- identity: {}` after the providers that are there, until everything has been written anew"
            )
        provider, key = _named(kept)
        if not self._source:
            return (
                f'{path} is encrypted with {provider} and the key "{key}": start the server with the '
                "--encryption-provider-config that has it"
            )
        return (
            f'{path} is encrypted with {provider} and the key "{key}", which {self._source} does not have for '
            f"{resource}: add that key there, after the first one if it is to be read with only"
        )


def no_sealing() -> Sealing:
    """For a server without a configuration: nothing is sealed, and what is sealed is told of."""
    return Sealing({}, "")


def _named(kept: bytes) -> tuple[str, str]:
    """Provider and key that a sealed value names."""
    parts = kept[len(ENCRYPTED) :][:512].split(b":", 3)
    texts = [part.decode("utf-8", "replace") for part in parts]
    return texts[0], texts[2] if len(texts) > 3 else "?"
