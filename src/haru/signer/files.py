"""Keys in a directory: `keys.json` says which there are, each private key is a PEM file; all for their owner only.

Another process may add a key while a signer runs: the list is replaced as a whole, and read again when it has changed.
Files that others could read are refused. Nothing of a private key is ever part of a message.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from haru.errors import InputError
from haru.externaljwt import ALGORITHMS, Key
from haru.files import write_whole
from haru.jose import JoseError, algorithm_of, encode, sign
from haru.signer.schedule import Pace, Record, published, signing, with_new

LIST = "keys.json"
_CURVES = {"ES256": "SECP256R1", "ES384": "SECP384R1", "ES512": "SECP521R1"}
_RSA_BITS = 3072


class KeyStoreError(InputError):
    """Keys that are not there or cannot be used; the text names the file and the remedy, and no key."""


class FileKeys:
    """The keys of one directory, as a `Holder`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[int, int, int] | None = None
        self._records: Sequence[Record] = ()
        self._private: dict[str, Any] = {}
        self._public: dict[str, bytes] = {}
        self._changed = 0
        self.pace = Pace()

    # --- what a signer asks

    def keys(self, now: float) -> list[Key]:
        """The public keys to tell of. Raises `KeyStoreError`."""
        self.read()
        return [Key(r.key_id, self._der(r), r.excluded) for r in published(self._records, now)]

    def data_nanoseconds(self) -> int:
        """When the list was written."""
        return self._changed

    async def sign(self, payload: str, now: float) -> tuple[str, str]:
        """Header and signature of a payload. Raises `KeyStoreError`."""
        self.read()
        record = signing(self._records, now)
        if record is None:
            raise KeyStoreError(f"{self._directory}: no key that signs: haru signer rotate --key-dir {self._directory}")
        members = {"alg": record.algorithm, "kid": record.key_id, "typ": "JWT"}
        header = encode(json.dumps(members, separators=(",", ":")).encode())
        signature = sign(self._load(record), record.algorithm, f"{header}.{payload}".encode())
        return header, encode(signature)

    # --- what people ask

    def records(self) -> Sequence[Record]:
        """All keys, the oldest first. Raises `KeyStoreError`."""
        self.read()
        return self._records

    def set_pace(self, pace: Pace) -> None:
        """Write down how soon API servers fetch and how long tokens are good: those who add a key go by it."""
        with self._locked():
            self.read(missing_is_empty=True)
            if pace != self.pace or not (self._directory / LIST).exists():
                self.pace = pace
                self._write(self._records)

    def add(self, algorithm: str, now: int) -> Record:
        """Make a key that replaces the one that signs, once API servers know it. Raises `KeyStoreError`."""
        with self._locked():
            self.read(missing_is_empty=True)
            key = _new_key(algorithm)
            key_id = f"{time.strftime('%Y%m%d', time.gmtime(now))}-{os.urandom(6).hex()}"
            write_whole(self._path(key_id), _pem(key))
            self._write(with_new(self._records, key_id, algorithm, now, self.pace))
            return self._records[-1]

    def remove_over(self, now: float) -> list[str]:
        """Remove the keys that are over, files and all; which. Raises `KeyStoreError`."""
        self.read()
        if len(published(self._records, now)) == len(self._records):
            return []
        with self._locked():
            self.read()
            kept = published(self._records, now)
            over = [record.key_id for record in self._records if record not in kept]
            self._write(kept)
            for key_id in over:
                self._path(key_id).unlink(missing_ok=True)
            return over

    def add_public(self, key_id: str, pem: bytes, now: int) -> Record:
        """Take in a public key that only checks: of tokens that somebody else signs. Raises `KeyStoreError`."""
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            algorithm = algorithm_of(load_pem_public_key(pem))
        except (ValueError, TypeError) as error:
            why = str(error) if isinstance(error, JoseError) else "is no public key in PEM"
            raise KeyStoreError(f"the key {key_id} {why}") from None
        with self._locked():
            self.read(missing_is_empty=True)
            if any(record.key_id == key_id for record in self._records) or not _is_file_name(key_id):
                raise KeyStoreError(f'"{key_id}": Invalid value: name the key as no other one, in letters and digits')
            write_whole(self._path(key_id), pem)
            self._write([*self._records, Record(key_id, algorithm, now, None, True)])
            return self._records[-1]

    # --- inside

    def read(self, *, missing_is_empty: bool = False) -> None:
        """Take the list in, if it has changed. Raises `KeyStoreError`."""
        path = self._directory / LIST
        try:
            found = path.stat()
        except FileNotFoundError:
            if missing_is_empty:
                return
            raise KeyStoreError(f"{path}: there are no keys yet: make one with haru signer serve --generate") from None
        except OSError as error:
            raise KeyStoreError(f"{path}: {error.strerror}") from None
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return
        try:
            self._records, self.pace = _parse(self._read_private(path))
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, KeyStoreError):
                raise
            raise KeyStoreError(f"{path}: not a list of keys that this version has written") from None
        known = {record.key_id for record in self._records}
        self._private = {key_id: key for key_id, key in self._private.items() if key_id in known}
        self._public = {key_id: key for key_id, key in self._public.items() if key_id in known}
        self._seen, self._changed = seen, found.st_mtime_ns

    def _write(self, records: Sequence[Record]) -> None:
        text = json.dumps({"pace": asdict(self.pace), "keys": [asdict(record) for record in records]}, indent=1)
        write_whole(self._directory / LIST, text)
        self.read()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the directory, which is made if it is not there."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            mode = stat.S_IMODE(self._directory.stat().st_mode)
            if mode & 0o022:
                remedy = f"chmod 700 {self._directory}"
                raise KeyStoreError(f"{self._directory}: others may write there (mode {mode:04o}): {remedy}")
            descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise KeyStoreError(f"{self._directory}: {error.strerror}; name one that can be written") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _path(self, key_id: str) -> Path:
        return self._directory / f"{key_id}.pem"

    def _read_private(self, path: Path) -> bytes:
        """A file's bytes, if nobody but its owner may read it."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise KeyStoreError(f"{path}: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & 0o077:
                raise KeyStoreError(f"{path}: others may read it (mode {mode:04o}): chmod 600 {path}")
            return file.read()

    def _load(self, record: Record) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = self._private.get(record.key_id)
        if key is None:
            path = self._path(record.key_id)
            try:
                key = load_pem_private_key(self._read_private(path), None)
                good = algorithm_of(key.public_key()) == record.algorithm
            except KeyStoreError:
                raise
            except (ValueError, TypeError, AttributeError):
                good = False
            if not good:
                raise KeyStoreError(f"{path}: not the private key for {record.algorithm} that {LIST} says it is")
            self._private[record.key_id] = key
        return key

    def _der(self, record: Record) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

        der = self._public.get(record.key_id)
        if der is None:
            if record.excluded:
                public: Any = load_pem_public_key(self._read_private(self._path(record.key_id)))
            else:
                public = self._load(record).public_key()
            der = self._public[record.key_id] = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return der


def _parse(text: bytes) -> tuple[list[Record], Pace]:
    data = json.loads(text)
    records = [Record(**each) for each in data["keys"]]
    if any(record.algorithm not in ALGORITHMS or not _is_file_name(record.key_id) for record in records):
        raise ValueError
    return records, Pace(**data["pace"])


def _is_file_name(key_id: str) -> bool:
    return key_id.replace("-", "").replace("_", "").isalnum() and key_id.isascii() and len(key_id) <= 200


def _new_key(algorithm: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if algorithm == "RS256":
        return rsa.generate_private_key(65537, _RSA_BITS)
    return ec.generate_private_key(getattr(ec, _CURVES[algorithm])())


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem
