"""The messages of `v2.KeyManagementService`, the service that encrypts an API server's data keys with keys of its own.

Both ends are here: requests and answers as bytes and back. Whoever writes a plugin in Python needs nothing else of Haru
but this. Reading is strict about what is no protobuf; what the values may be is the reader's to judge.
Source: KEP-3299, `k8s.io/kms/apis/v2`, of which names and numbers of fields are facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from haru.protobuf import WireError, chunk, fields

SERVICE = "v2.KeyManagementService"
STATUS = f"/{SERVICE}/Status"
ENCRYPT = f"/{SERVICE}/Encrypt"
DECRYPT = f"/{SERVICE}/Decrypt"
VERSIONS = ("v2", "v2beta1")
"""What a plugin may say that it speaks."""
HEALTHY = "ok"


@dataclass(frozen=True, slots=True)
class Status:
    """The answer to Status: the version of the API, `ok` or what is wrong, and the id of the key that encrypts now."""

    version: str
    healthz: str
    key_id: str


@dataclass(frozen=True, slots=True)
class Encrypted:
    """The answer to Encrypt, and with its annotations all that Decrypt is asked with."""

    ciphertext: bytes
    key_id: str
    annotations: Mapping[str, bytes] = field(default_factory=dict)


def status_answer(status: Status) -> bytes:
    """StatusResponse."""
    return chunk(1, status.version.encode()) + chunk(2, status.healthz.encode()) + chunk(3, status.key_id.encode())


def read_status_answer(data: bytes) -> Status:
    """A StatusResponse. Raises `WireError`."""
    found = _chunks(data)
    return Status(text_of(found, 1), text_of(found, 2), text_of(found, 3))


def encrypt_request(plaintext: bytes, uid: str) -> bytes:
    """EncryptRequest."""
    return chunk(1, plaintext) + chunk(2, uid.encode())


def read_encrypt_request(data: bytes) -> tuple[bytes, str]:
    """Plaintext and id of an EncryptRequest. Raises `WireError`."""
    found = _chunks(data)
    return found.get(1, b""), text_of(found, 2)


def encrypt_answer(answer: Encrypted) -> bytes:
    """EncryptResponse."""
    return chunk(1, answer.ciphertext) + chunk(2, answer.key_id.encode()) + annotations_field(3, answer.annotations)


def read_encrypt_answer(data: bytes) -> Encrypted:
    """An EncryptResponse. Raises `WireError`."""
    found = _chunks(data)
    return Encrypted(found.get(1, b""), text_of(found, 2), read_annotations(data, 3))


def decrypt_request(wanted: Encrypted, uid: str) -> bytes:
    """DecryptRequest."""
    key_id, annotations = wanted.key_id.encode(), annotations_field(4, wanted.annotations)
    return chunk(1, wanted.ciphertext) + chunk(2, uid.encode()) + chunk(3, key_id) + annotations


def read_decrypt_request(data: bytes) -> tuple[Encrypted, str]:
    """What a DecryptRequest asks for, and its id. Raises `WireError`."""
    found = _chunks(data)
    return Encrypted(found.get(1, b""), text_of(found, 3), read_annotations(data, 4)), text_of(found, 2)


def decrypt_answer(plaintext: bytes) -> bytes:
    """DecryptResponse."""
    return chunk(1, plaintext)


def read_decrypt_answer(data: bytes) -> bytes:
    """The plaintext of a DecryptResponse. Raises `WireError`."""
    return _chunks(data).get(1, b"")


def annotations_field(number: int, annotations: Mapping[str, bytes]) -> bytes:
    """A map of texts to bytes as the field with a number; in the order of the texts."""
    entries = (chunk(1, name.encode()) + chunk(2, value) for name, value in sorted(annotations.items()))
    return b"".join(chunk(number, entry, always=True) for entry in entries)


def read_annotations(data: bytes, wanted: int) -> dict[str, bytes]:
    """The map that a message has in a field. Raises `WireError`."""
    found: dict[str, bytes] = {}
    for number, value in fields(data):
        if number == wanted and isinstance(value, bytes):
            entry = _chunks(value)
            found[text_of(entry, 1)] = entry.get(2, b"")
    return found


def text_of(found: Mapping[int, bytes], number: int) -> str:
    """The text in a field; empty without it. Raises `WireError`."""
    try:
        return found.get(number, b"").decode()
    except UnicodeDecodeError:
        raise WireError(f"field {number} is no text in UTF-8") from None


def _chunks(data: bytes) -> dict[int, bytes]:
    """The last value of each field with bytes."""
    return {number: value for number, value in fields(data) if isinstance(value, bytes)}
