"""A real HTTPS server that takes lists of audit events, and the kubeconfig that leads to it."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from haru.apiserver.auth import certificates

Obj = dict[str, Any]
TOKEN = "token-of-the-webhook"


class Receiver:
    """Answers with the next of `statuses`, then with 200. `lists` are the bodies that it took."""

    def __init__(self, directory: Path) -> None:
        self.lists: list[Obj] = []
        self.headers: list[dict[str, str]] = []
        self.sizes: list[int] = []
        self.tries = 0
        self.statuses: list[int] = []
        self.held = threading.Event()
        self.held.set()
        self._directory = directory
        now = datetime.now(UTC)
        self.authority = certificates.new_authority(now)
        self._user = certificates.client_pair(self.authority, "haru", (), now)
        pair = certificates.server_pair(self.authority, ("127.0.0.1",), now)
        for name, data in (("a.crt", self.authority.certificate), ("s.crt", pair.certificate), ("s.key", pair.key)):
            (directory / name).write_bytes(data)
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._directory / "s.crt", self._directory / "s.key")
        tls.load_verify_locations(self._directory / "a.crt")
        tls.verify_mode = ssl.CERT_REQUIRED
        server = self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        server.daemon_threads = True
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.tries += 1
                receiver.held.wait(30)
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                if status == 200:
                    receiver.headers.append({**dict(self.headers), "path": self.path})
                    receiver.sizes.append(len(body))
                    receiver.lists.append(json.loads(body))
                self.send_response(status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def events(self) -> list[Obj]:
        return [item for each in self.lists for item in each["items"]]

    def kubeconfig(self, *, path: str = "/events?from=haru", **user: Any) -> Path:
        """A file with the address, the authority, a certificate and a token."""
        text = lambda data: base64.b64encode(data).decode()  # noqa: E731
        certificate = {
            "client-certificate-data": text(self._user.certificate),
            "client-key-data": text(self._user.key),
            "token": TOKEN,
        }
        cluster = {
            "server": f"https://127.0.0.1:{self.port}{path}",
            "certificate-authority-data": text(self.authority.certificate),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sink", "cluster": cluster}],
            "users": [{"name": "me", "user": user or certificate}],
            "contexts": [{"name": "c", "context": {"cluster": "sink", "user": "me"}}],
            "current-context": "c",
        }
        file = self._directory / "webhook.yaml"
        file.write_text(yaml.safe_dump(config))
        return file


def until(holds: Callable[[], Any], seconds: float = 10.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
    return found


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path)
    made.start()
    yield made
    made.stop()
