"""Bearer tokens: a fixed one, one in a file that is renewed under us, or one that a program gives out.

A program is run as kubectl runs it (`users[].user.exec`): it prints an ExecCredential, whose token and client
certificate are kept until it expires or the server refuses them. On a terminal the program may ask questions there.
Source: client-go credential plugins (client.authentication.k8s.io).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson

from haru.clock import utc_now
from haru.kube.names import parse_time

_REREAD_SECONDS = 60.0
_PROGRAM_SECONDS = 60.0
InteractiveMode = Literal["Never", "IfAvailable", "Always"]
"""Whether a program may ask questions: never, where standard input is a terminal, or it must."""
Certificate = tuple[bytes, bytes]
"""A client certificate with its chain, and its key (both PEM)."""


class CredentialError(OSError):
    """A file or a program did not give out a credential; the message names it and says why."""


def bearer(token: str) -> str:
    """The header that shows a token. Raises CredentialError for one that no header can carry."""
    if not (token.isascii() and token.isprintable()):
        raise CredentialError("the bearer token is not one line of ASCII: see how the kubeconfig or its file has it")
    return f"Bearer {token}"


class TokenSource(Protocol):
    """Where the token comes from."""

    number: int
    """How many tokens there have been, the present one included."""

    async def value(self) -> str:
        """The token to send now; an empty text sends none."""

    def refused(self, number: int) -> bool:
        """The server did not take the token of this number: forget it. Whether another one may be had.

        Of many requests that it was sent with, the first has it renewed; what is refused later is known by its number.
        """


class BearerToken:
    """A fixed token, or a file's, read again after a minute; an unreadable file keeps the last token."""

    def __init__(self, token: str, file: Path | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._token = token
        self._file = file
        self._monotonic = monotonic
        self._read_at: float | None = None
        self.number = 0

    @classmethod
    def of(cls, token: str = "", file: Path | None = None) -> BearerToken | None:
        """A token source, or None where there is no token; the file goes first, as in kubectl."""
        return cls(token, file) if token or file else None

    async def value(self) -> str:
        """The token to send now."""
        now = self._monotonic()
        if self._file is not None and (self._read_at is None or now - self._read_at >= _REREAD_SECONDS):
            try:
                self._token = self._file.read_text(encoding="utf-8").strip() or self._token
            except OSError as error:
                if not self._token:
                    raise CredentialError(f"token file {self._file}: {error.strerror}") from error
            self._read_at = now
            self.number += 1
        return self._token

    def refused(self, number: int) -> bool:
        """Read the file again."""
        if number == self.number:
            self._read_at = None
        return self._file is not None


@dataclass(frozen=True, slots=True)
class Program:
    """A credential program as a kubeconfig names it."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    interactive: InteractiveMode = "IfAvailable"


class ExpiringToken(ABC):
    """A token that somebody gives: it is asked for anew before it expires, and where the server refuses it."""

    early = timedelta(seconds=30)
    """So long before it expires."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._token = ""
        self._is_known = False
        """Whether somebody gave an answer that has not been refused; it may have no token."""
        self._expires: datetime | None = None
        self.number = 0
        self._lock = asyncio.Lock()

    @abstractmethod
    async def ask(self) -> tuple[str, str]:
        """Get a token, and when it expires; an empty text if it does not."""

    async def value(self) -> str:
        """The token to send now."""
        async with self._lock:
            if not self._is_known or (self._expires is not None and self._now() >= self._expires - self.early):
                token, expires = await self.ask()
                self._token, self._expires = token, parse_time(expires) if expires else None
                self._is_known = True
                self.number += 1
            return self._token

    def refused(self, number: int) -> bool:
        """Ask for another one."""
        if number == self.number:
            self._is_known = False
        return True


class ProgramToken(ExpiringToken):
    """The token that a program prints; `present` is told of each other client certificate, None for none any more."""

    def __init__(
        self,
        program: Program,
        now: Callable[[], datetime] = utc_now,
        present: Callable[[Certificate | None], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(now)
        self._program = program
        self._present = present
        self._certificate: Certificate | None = None

    async def ask(self) -> tuple[str, str]:
        """Run the program. Raises CredentialError."""
        status = _status_of(self._program, await self._run())
        certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
        found = (certificate.encode(), key.encode()) if certificate else None
        if found != self._certificate and self._present is not None:
            try:
                await self._present(found)
            except (ssl.SSLError, ValueError) as error:
                raise self._failed(f"its client certificate and key can not be used: {error}") from None
            self._certificate = found
        return status.get("token") or "", status.get("expirationTimestamp") or ""

    def _failed(self, why: str) -> CredentialError:
        return CredentialError(f"credential program {self._program.command}: {why}")

    def _is_interactive(self) -> bool:
        """Whether the program may read what somebody types. Raises CredentialError."""
        mode, is_terminal = self._program.interactive, sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not is_terminal:
            raise self._failed("it asks questions (interactiveMode: Always), and standard input is not a terminal")
        return is_terminal and mode != "Never"

    async def _run(self) -> bytes:
        program, is_interactive = self._program, self._is_interactive()
        spec: dict[str, Any] = {"interactive": is_interactive}
        if program.cluster is not None:
            spec["cluster"] = dict(program.cluster)
        info = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
        env = {**os.environ, **program.env, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
        # Whoever sits there reads what the program says, such as where to log in, at once.
        is_read = sys.stderr is not None and sys.stderr.isatty()
        try:
            process = await asyncio.create_subprocess_exec(
                program.command,
                *program.args,
                env=env,
                stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if is_read else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"\n{program.install_hint}" if program.install_hint else ""
            raise self._failed(f"{error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(None if is_interactive or is_read else _PROGRAM_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            raise self._failed(f"no answer in {_PROGRAM_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            text = (errors or b"").decode("utf-8", "replace").strip()[-500:]
            raise CredentialError(f"credential program {program.command} failed ({process.returncode}): {text}")
        return output


def _status_of(program: Program, output: bytes) -> dict[str, str]:
    """What a program answered: texts by name, with a token, a certificate and its key, or both."""
    where = f"credential program {program.command}"
    try:
        credential = orjson.loads(output)
        status = dict(credential.get("status") or {})
    except (AttributeError, TypeError, ValueError):
        raise CredentialError(f"{where}: it did not print an ExecCredential") from None
    if (given := credential.get("apiVersion")) != program.api_version:
        raise CredentialError(f"{where}: it answered in {given}, the kubeconfig says {program.api_version}")
    has = [isinstance(status.get(n), str) and bool(status[n]) for n in _GIVEN]
    if has[1] != has[2]:
        raise CredentialError(f"{where}: it gave {_GIVEN[1 if has[1] else 2]} without {_GIVEN[2 if has[1] else 1]}")
    if not any(has):
        raise CredentialError(f"{where}: it gave neither a token nor a client certificate and its key")
    return {name: str(value) for name, value in status.items() if value is not None}


_GIVEN = ("token", "clientCertificateData", "clientKeyData")
