"""Read the ServiceAccount token options of `haru up` and `haru apiserver` from flags and files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from haru.apiserver.auth import DEFAULT_ISSUER, TokenOptions
from haru.embedded.errors import OptionError
from haru.embedded.flag_files import read_file
from haru.jose import encode
from haru.kube.meta import Obj

if TYPE_CHECKING:
    from haru.apiserver.auth import LocalKeys


@dataclass(frozen=True, slots=True)
class AccountTokenFiles:
    """Hold the options of ServiceAccount tokens; unlike `TokenOptions`, keys are paths of files."""

    endpoint: str = ""
    signing_key: Path | None = None
    key_files: tuple[Path, ...] = ()
    issuers: tuple[str, ...] = (DEFAULT_ISSUER,)
    audiences: tuple[str, ...] = ()
    jwks_uri: str = ""
    max_seconds: int = 0
    extend: bool = True
    lookup: bool = True

    def read(self, own_key: bytes = b"") -> tuple[bytes, TokenOptions]:
        """Return the signing key (empty with an external signer) and the other options. Raises OptionError.

        `own_key` signs if the flags name no other key.
        """
        from haru.apiserver.auth import KeyFileError, load_signing_key, load_verification_keys

        signing = own_key if not self.endpoint else b""
        if self.signing_key is not None:
            signing = read_file(self.signing_key, "--service-account-signing-key-file")
        pems = tuple(read_file(path, "--service-account-key-file") for path in self.key_files)
        options = TokenOptions(
            self.endpoint, pems, self.issuers, self.audiences, self.jwks_uri, self.max_seconds, self.extend, self.lookup
        )
        options.check(signing)
        try:
            where = f"--service-account-signing-key-file: {self.signing_key}"
            if self.signing_key is not None:
                load_signing_key(signing)
            for path, pem in zip(self.key_files, pems, strict=True):
                where = f"--service-account-key-file: {path}"
                load_verification_keys(pem)
        except KeyFileError as error:
            raise OptionError(f"{where}: {error}") from None
        return signing, options

    def for_secrets(self, own_key: Path) -> Callable[[Obj], Awaitable[str]] | None:
        """Return what signs the tokens of Secrets, with the same key; None with an external signer."""
        return None if self.endpoint else SecretTokens(self.signing_key or own_key).sign


@dataclass(frozen=True, slots=True)
class SecretTokens:
    """Sign the tokens of Secrets with the key in a file."""

    key: Path

    async def sign(self, claims: Obj) -> str:
        """Return a token. Raises OSError, KeyFileError."""
        return await self.keys().sign(encode(orjson.dumps(claims)))

    def keys(self) -> LocalKeys:
        """Read the key, which is slow to load: few need it. Raises OSError, KeyFileError."""
        from haru.apiserver.auth import LocalKeys, load_signing_key

        return LocalKeys(load_signing_key(self.key.read_bytes()))
