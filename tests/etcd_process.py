"""Real etcd processes for tests: one member or several, plain or with TLS, killed and started again as tests need."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from haru_process import free_port


@dataclass(frozen=True)
class ServingFiles:
    """What a member shows and asks for: its certificate and key, and the authority of its clients."""

    cert: Path
    key: Path
    client_ca: Path


class Etcd:
    """One member. `peers` names all members of its cluster: name to URL for the others."""

    def __init__(
        self, binary: str, directory: Path, *, name: str = "one", tls: ServingFiles | None = None, port: int = 0
    ) -> None:
        self._binary, self._directory, self._name, self._tls = binary, directory, name, tls
        self._port, self._peer_port = port or free_port(), free_port()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._port}"
        self.peer = f"http://127.0.0.1:{self._peer_port}"
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._peers = {name: self.peer}

    def join(self, members: Sequence[Etcd]) -> None:
        """These are the members, before the first start."""
        self._peers = {member._name: member.peer for member in members}

    def start(self, *, wait: bool = True) -> None:
        """Start, and wait until it serves."""
        command = [self._binary, "--name", self._name, "--data-dir", str(self._directory / self._name)]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer]
        command += ["--initial-cluster", ",".join(f"{name}={url}" for name, url in self._peers.items())]
        command += ["--logger", "zap", "--log-level", "warn"]
        if self._tls is not None:
            command += ["--cert-file", str(self._tls.cert), "--key-file", str(self._tls.key)]
            command += ["--trusted-ca-file", str(self._tls.client_ca), "--client-cert-auth"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        # Go's runtime takes as many threads as there are processors; the tests share few.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={**environment, "GOMAXPROCS": "1"})
        if wait:
            self.wait()

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until it takes connections."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"etcd ended with {self._process.returncode}: {self.log.read_text()[-2000:]}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.02)
        raise AssertionError(f"etcd does not serve: {self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
