"""Bearer tokens: a fixed one, one in a file that is renewed under us, or one that a program gives out.

A program is run as kubectl runs it (`users[].user.exec`): it prints an ExecCredential, whose token is kept until it
expires or the server refuses it.
Source: client-go credential plugins (client.authentication.k8s.io).
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import orjson

from haru.clock import utc_now
from haru.kube.names import parse_time

_REREAD_SECONDS = 60.0
_PROGRAM_SECONDS = 60.0


class TokenSource(Protocol):
    """Where the token comes from."""

    async def value(self) -> str:
        """The token to send now; an empty text sends none."""

    def refused(self) -> bool:
        """The server did not take the token: forget it. Whether another one may be had."""


class BearerToken:
    """A fixed token, or a file's, read again after a minute; an unreadable file keeps the last token."""

    def __init__(self, token: str, file: Path | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._token = token
        self._file = file
        self._monotonic = monotonic
        self._read_at: float | None = None

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
            except OSError:
                if not self._token:
                    raise
            self._read_at = now
        return self._token

    def refused(self) -> bool:
        """Read the file again."""
        again = self._file is not None and self._read_at is not None
        self._read_at = None
        return again


class CredentialError(OSError):
    """A program did not give out a token; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """A credential program as a kubeconfig names it."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None


class ExpiringToken(ABC):
    """A token that somebody gives: it is asked for anew before it expires, and where the server refuses it."""

    early = timedelta(seconds=30)
    """So long before it expires."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._token = ""
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    @abstractmethod
    async def ask(self) -> tuple[str, str]:
        """Get a token, and when it expires; an empty text if it does not."""

    async def value(self) -> str:
        """The token to send now."""
        async with self._lock:
            if not self._token or (self._expires is not None and self._now() >= self._expires - self.early):
                token, expires = await self.ask()
                self._token, self._expires = token, parse_time(expires) if expires else None
            return self._token

    def refused(self) -> bool:
        """Ask for another one."""
        again, self._token = bool(self._token), ""
        return again


class ProgramToken(ExpiringToken):
    """The token that a program prints."""

    def __init__(self, program: Program, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(now)
        self._program = program

    async def ask(self) -> tuple[str, str]:
        """Run the program. Raises CredentialError."""
        status = _status_of(self._program, await self._run())
        return status["token"], status.get("expirationTimestamp") or ""

    async def _run(self) -> bytes:
        program = self._program
        spec: dict[str, Any] = {"interactive": False}
        if program.cluster is not None:
            spec["cluster"] = dict(program.cluster)
        info = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
        env = {**os.environ, **program.env, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                program.command,
                *program.args,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"\n{program.install_hint}" if program.install_hint else ""
            raise CredentialError(f"credential program {program.command}: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(_PROGRAM_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            raise CredentialError(
                f"credential program {program.command}: no answer in {_PROGRAM_SECONDS:g} s"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            text = errors.decode("utf-8", "replace").strip()[-500:]
            raise CredentialError(f"credential program {program.command} failed ({process.returncode}): {text}")
        return output


def _status_of(program: Program, output: bytes) -> dict[str, Any]:
    try:
        credential = orjson.loads(output)
        status: dict[str, Any] = credential["status"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise CredentialError(f"credential program {program.command}: it did not print an ExecCredential") from None
    if credential.get("apiVersion") != program.api_version:
        given = credential.get("apiVersion")
        raise CredentialError(
            f"credential program {program.command}: it answered in {given}, the kubeconfig says {program.api_version}"
        )
    if not status.get("token"):
        raise CredentialError(f"credential program {program.command}: no token (client certificates are not supported)")
    return status
