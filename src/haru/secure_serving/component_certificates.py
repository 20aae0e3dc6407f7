"""The authority of client certificates that the cluster publishes, and the certificate of a component that has no file.

Source: `kube-system/extension-apiserver-authentication`, as delegated authentication reads it; headers of front proxies
are taken by extension API servers alone (`request_header.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.secure_serving.certificates import ensure_certificate, self_signed
from haru.secure_serving.listener import Listener, trust_clients_of
from haru.secure_serving.options import ServingOptions
from haru.tls import no_passphrase

NAMESPACE, NAME, KEY = "kube-system", "extension-apiserver-authentication", "client-ca-file"
FIRST_LOOK_SECONDS = 5.0
LOOK_SECONDS = 60.0
CONFIG_MAP = known_kind("v1", "ConfigMap")
NOT_READABLE = f"{NAMESPACE}/{NAME} is not readable"
_log = logging.getLogger(__name__)


class ComponentCertificates:
    """The certificate of a component, and whose client certificates it accepts."""

    def __init__(self, options: ServingOptions, pair: str) -> None:
        self._options, self._pair = options, pair
        self.client_ca = b""
        """In PEM, as looked up; empty: nobody's."""
        self._made: tuple[bytes, bytes] | None = None
        self._files = (options.cert_file, options.key_file)

    def prepare(self) -> None:
        """Make the certificate that was not given. Raises OSError."""
        host, options = socket.gethostname(), self._options
        addresses = [*options.names, *([] if options.address in ("0.0.0.0", "::") else [options.address])]
        now = datetime.now(UTC)
        if options.cert_file is None and options.cert_dir is not None:
            self._files = ensure_certificate(options.cert_dir, self._pair, host, ["127.0.0.1", *addresses], now)
        elif options.cert_file is None:
            self._made = self_signed(host, ["127.0.0.1", *addresses], now)

    @property
    def certificate(self) -> bytes:
        """The serving certificate, in PEM. Raises OSError."""
        if self._made is not None:
            return self._made[0]
        assert self._files[0] is not None
        return self._files[0].read_bytes()

    def marks(self) -> object:
        """A value that changes when the certificates do."""
        files = [file for file in (*self._files, self._options.client_ca_file) if file is not None]
        return self.client_ca, [_mark(file) for file in files]

    def context(self) -> ssl.SSLContext:
        """The context of a server. Raises ValueError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._files
        try:
            if self._made is not None:
                _load(context, *self._made)
            else:
                assert certificate is not None
                context.load_cert_chain(certificate, key, no_passphrase)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"{certificate} and {key}: no certificate with its key can be read: {error}") from error
        if self._options.client_ca_file is not None:
            trust_clients_of(context, self._options.client_ca_file)
        elif self.client_ca:
            context.load_verify_locations(cadata=self.client_ca.decode("ascii"))
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def look_up(self, client: ApiClient) -> None:
        """Read the published authority once. Raises StatusError, OSError, ValueError."""
        found = await client.get(CONFIG_MAP, NAME, NAMESPACE)
        text = str((found.get("data") or {}).get(KEY) or "")
        if text:
            # Only what a context takes replaces what was there.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
        self.client_ca = text.encode("ascii")

    async def follow(self, client: ApiClient) -> None:
        """Read the published authority again and again, until cancelled."""
        told = bool(self.client_ca)
        while True:
            await asyncio.sleep(LOOK_SECONDS if self.client_ca else FIRST_LOOK_SECONDS)
            try:
                await self.look_up(client)
                told = False
            except (StatusError, OSError, ValueError) as error:
                if not told:
                    _log.warning("%s, client certificates are not accepted: %s", NOT_READABLE, error)
                told = True


class CertifiedServer:
    """Serves an application where the options say, with the certificate of a component."""

    def __init__(self, app: Any, options: ServingOptions, certificates: ComponentCertificates) -> None:
        self._certificates = certificates
        self._listener = Listener(app, options.address, options.port, certificates, look_seconds=options.look_seconds)

    @property
    def port(self) -> int:
        """The port that is served, once started."""
        return self._listener.port

    @property
    def certificate(self) -> bytes:
        """The serving certificate, in PEM."""
        return self._certificates.certificate


def _mark(file: Path) -> object:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a pair that is in no file: OpenSSL reads a path, so it gets one of memory where there are such."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + key)
            file.flush()
            context.load_cert_chain(file.name)
        return
    number = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(number, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{number}")
    finally:
        os.close(number)
