"""A server that real kubectl can talk to: discovery and OpenAPI as built here; it records what is written to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from haru.kube import discovery, openapi
from haru.kube.kinds import all_kinds, group_versions

KUBECTL = shutil.which("kubectl")


def answer(path: str, accept: str) -> tuple[str, Any] | None:
    """(content type, document) of a read, or None where there is nothing."""
    segments = path.strip("/").split("/")
    if path in ("/api", "/apis") and "apidiscovery.k8s.io;v=v2;" in accept.replace("g=", "").replace(" ", "") + ";":
        document = discovery.aggregated(group_versions(), all_kinds(), root="/api" if path == "/api" else "/apis")
        return discovery.AGGREGATED_CONTENT_TYPE, document
    if path == "/api":
        return "application/json", discovery.api_versions("localhost")
    if path == "/apis":
        return "application/json", discovery.api_group_list(group_versions())
    if path == "/version":
        return "application/json", {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
    if path == "/openapi/v3":
        index = openapi.openapi_v3_index(group_versions(), lambda g, v: openapi.openapi_hash(g, v, all_kinds()))
        return "application/json", index
    if segments[:2] == ["openapi", "v3"]:
        group, version = ("", segments[3]) if segments[2] == "api" else (segments[3], segments[4])
        return "application/json", openapi.openapi_v3_document(group, version, all_kinds())
    if len(segments) == 2 and segments[0] == "api":
        return "application/json", discovery.api_resource_list("", segments[1], all_kinds())
    if len(segments) == 3 and segments[0] == "apis":
        return "application/json", discovery.api_resource_list(segments[1], segments[2], all_kinds())
    return None


class Recorder:
    """The bodies that were posted, in order, with their content types."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, str, bytes]] = []
        self.url = ""

    def kubectl(self, home: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl against this server."""
        assert KUBECTL is not None
        return subprocess.run(
            [KUBECTL, "--server", self.url, *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
            env={"HOME": str(home), "KUBECONFIG": "/dev/null", "PATH": "/usr/bin:/bin"},
        )


@contextmanager
def recorder() -> Iterator[Recorder]:
    """Serve on a free port of the loopback until the block ends."""
    record = Recorder()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def send(self, code: int, content_type: str, document: Any) -> None:
            data = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            found = answer(urlsplit(self.path).path, self.headers.get("Accept", ""))
            if found is None:
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
                self.send(404, "application/json", {**status, "message": "not found"})
            else:
                self.send(200, *found)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            record.bodies.append((self.path, self.headers.get("Content-Type", ""), body))
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}
            self.send(422, "application/json", {**status, "message": "recorded"})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    record.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield record
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
