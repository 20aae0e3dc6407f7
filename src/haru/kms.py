"""The messages of `v2.KeyManagementService`, the service that encrypts an API server's data keys with keys of its own.

Both ends are here: requests and answers as bytes and back. Whoever writes a plugin in Python needs nothing else of Haru
but this. Reading is strict about what is no protobuf; what the values may be is the reader's to judge.
Source: KEP-3299, `k8s.io/kms/apis/v2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from haru.proto import decode
from haru.proto import kms_pb2 as rpc

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
    """Write a StatusResponse."""
    return rpc.StatusResponse(version=status.version, healthz=status.healthz, key_id=status.key_id).SerializeToString()


def read_status_answer(data: bytes) -> Status:
    """Read a StatusResponse. Raises `MessageError`."""
    found = decode(rpc.StatusResponse, data)
    return Status(found.version, found.healthz, found.key_id)


def encrypt_request(plaintext: bytes, uid: str) -> bytes:
    """Write an EncryptRequest."""
    return rpc.EncryptRequest(plaintext=plaintext, uid=uid).SerializeToString()


def read_encrypt_request(data: bytes) -> tuple[bytes, str]:
    """Plaintext and id of an EncryptRequest. Raises `MessageError`."""
    found = decode(rpc.EncryptRequest, data)
    return found.plaintext, found.uid


def encrypt_answer(answer: Encrypted) -> bytes:
    """Write an EncryptResponse."""
    made = rpc.EncryptResponse(ciphertext=answer.ciphertext, key_id=answer.key_id, annotations=answer.annotations)
    return made.SerializeToString()


def read_encrypt_answer(data: bytes) -> Encrypted:
    """Read an EncryptResponse. Raises `MessageError`."""
    found = decode(rpc.EncryptResponse, data)
    return Encrypted(found.ciphertext, found.key_id, dict(found.annotations))


def decrypt_request(wanted: Encrypted, uid: str) -> bytes:
    """Write a DecryptRequest."""
    made = rpc.DecryptRequest(
        ciphertext=wanted.ciphertext, uid=uid, key_id=wanted.key_id, annotations=wanted.annotations
    )
    return made.SerializeToString()


def read_decrypt_request(data: bytes) -> tuple[Encrypted, str]:
    """What a DecryptRequest asks for, and its id. Raises `MessageError`."""
    found = decode(rpc.DecryptRequest, data)
    return Encrypted(found.ciphertext, found.key_id, dict(found.annotations)), found.uid


def decrypt_answer(plaintext: bytes) -> bytes:
    """Write a DecryptResponse."""
    return rpc.DecryptResponse(plaintext=plaintext).SerializeToString()


def read_decrypt_answer(data: bytes) -> bytes:
    """The plaintext of a DecryptResponse. Raises `MessageError`."""
    return decode(rpc.DecryptResponse, data).plaintext
