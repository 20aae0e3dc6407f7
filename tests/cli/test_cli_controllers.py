"""`haru controllers` against a server that is not Haru's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from haru_process import haru

ASKED: list[tuple[str, str]] = []


class OtherServer(BaseHTTPRequestHandler):
    """What any Kubernetes API server answers; Leases may be made."""

    def do_GET(self) -> None:
        found = self.path.split("?")[0] == "/version"
        version = {"major": "1", "minor": "36", "gitVersion": "v1.36.2"}
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        self._answer(200 if found else 404, version if found else missing)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body["metadata"] |= {"uid": "u", "resourceVersion": "1"}
        self._answer(201, body)

    def _answer(self, code: int, body: object) -> None:
        ASKED.append((self.command, self.path))
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Of the other server."""
    ASKED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        file = tmp_path / "kubeconfig"
        cluster, context = f"{{server: 'http://127.0.0.1:{server.server_address[1]}'}}", "{cluster: c, user: u}"
        file.write_text(
            f"apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {cluster}}}]\n"
            f"contexts: [{{name: x, context: {context}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
        )
        yield file
        server.shutdown()


@pytest.mark.parametrize("election", [(), ("--no-leader-elect",)], ids=["with a lease", "without"])
def test_controllers_without_a_list_refuse_before_they_take_the_lease(
    tmp_path: Path, kubeconfig: Path, election: tuple[str, ...]
) -> None:
    done = haru(tmp_path, "controllers", "--kubeconfig", str(kubeconfig), "--health-port", "0", *election, seconds=30)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("haru controllers: ")]
    assert "is not Haru's" in told and "--controllers LIST" in told
    assert [path for method, path in ASKED if "leases" in path] == []
