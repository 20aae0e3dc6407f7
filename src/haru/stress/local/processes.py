"""The processes of a local cluster: etcd, `haru apiserver`, `haru controllers`, `haru fleet`, two `haru scheduler`."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import aiohttp

from haru.apiserver.auth import kubeconfig, new_authority, new_key, server_pair
from haru.client.http import tls_context
from haru.files import write_whole
from haru.stress.local.launch import ending_with_this_process

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 10.0
GATES: Final = (
    "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true,DRADeviceTaints=true,"
    "DRAPartitionableDevices=true,DRAConsumableCapacity=true"
)
_SCHEDULER_CONFIG: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, leaseDuration: 8s, renewDeadline: 6s, retryPeriod: 500ms}
profiles:
- schedulerName: %s
"""


class LocalClusterError(ValueError):
    """A local cluster that does not start; the text names the cause."""


class Processes:
    """Processes in one directory, which end with this one; each writes its messages into a file there."""

    def __init__(self, home: Path, scheduler_name: str) -> None:
        self.home = home
        self._scheduler_name = scheduler_name
        self._token = secrets.token_urlsafe(24)
        self._etcd = _program("etcd")
        self._api_port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"https://127.0.0.1:{self._api_port}"
        self._authority = b""

    @property
    def tls(self) -> ssl.SSLContext:
        """TLS of a client of the API server."""
        return tls_context(self._authority)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, straight to the API server."""
        return self.home / "admin.kubeconfig"

    def prepare(self) -> None:
        """Write keys, certificates and kubeconfigs."""
        now = datetime.now(UTC)
        authority = new_authority(now)
        pair = server_pair(authority, (), now)
        self._authority = authority.certificate
        files = {"tls.crt": pair.certificate, "tls.key": pair.key, "sa.key": new_key()}
        files["tokens.csv"] = f'{self._token},admin,1,"system:masters"\n'.encode()
        files["scheduler.yaml"] = (_SCHEDULER_CONFIG % self._scheduler_name).encode()
        files["admin.kubeconfig"] = self.kubeconfig_for(self.url)
        for name, content in files.items():
            write_whole(self.home / name, content)

    def kubeconfig_for(self, url: str) -> bytes:
        """The text of a kubeconfig that leads to this URL."""
        return kubeconfig(url, self._authority, self._token).encode()

    async def start_servers(self) -> None:
        """Start etcd and the API server, and wait until it is ready."""
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._commands["etcd"] = [
            *(self._etcd, "--name", "one", "--data-dir", str(self.home / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", "--log-level", "warn"),
        ]
        self._commands["apiserver"] = [
            *(*_haru(), "apiserver", "--etcd-servers", client, "--bind-address", "127.0.0.1"),
            *("--secure-port", str(self._api_port), "--tls-cert-file", "tls.crt", "--tls-private-key-file", "tls.key"),
            *("--token-auth-file", "tokens.csv", "--service-account-signing-key-file", "sa.key"),
            *("--feature-gates", GATES, "--runtime-config", "api/all=true"),
        ]
        self.start("etcd")
        await self._listening(self._etcd_port, "etcd")
        self.start("apiserver")
        await self.wait_ready()

    def start_component(self, name: str, arguments: Sequence[str]) -> None:
        """Start a command of Haru as a process of this name."""
        self._commands[name] = [*_haru(), *arguments]
        self.start(name)

    def start(self, name: str) -> None:
        """Start a process, again too; in the main thread, whose end it does not outlive."""
        with (self.home / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                ending_with_this_process(self._commands[name]),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "GOMAXPROCS": "1"},
                start_new_session=True,
            )

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process that runs."""
        process = self._running.get(name)
        if process is not None and process.poll() is None:
            process.send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(name, signal.SIGKILL)
        if name in self._running:
            self._running.pop(name).wait(_STOP_SECONDS)

    def name_of_pid(self, pid: int) -> str:
        """The process with this number; empty if none of these has it."""
        return next((name for name, process in self._running.items() if process.pid == pid), "")

    def restart_ended(self, names: Sequence[str]) -> list[str]:
        """Start again what has ended of these, as systemd or a kubelet would; which."""
        ended = [name for name in names if name in self._running and self._running[name].poll() is not None]
        for name in ended:
            self.start(name)
        return ended

    def start_missing(self) -> None:
        """Start what was killed and what has ended."""
        for name in self._commands:
            process = self._running.get(name)
            if process is None or process.poll() is not None:
                self.start(name)

    def stop(self) -> None:
        """End all, the servers last."""
        for name in reversed(list(self._running)):
            self.signal(name, signal.SIGCONT)
            self.signal(name, signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_SECONDS)
        self._running.clear()

    async def wait_ready(self) -> None:
        """Wait until the API server says that it is ready; raises LocalClusterError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        async with aiohttp.ClientSession() as session:
            while loop.time() < deadline:
                self._check("apiserver")
                try:
                    async with asyncio.timeout(5), session.get(f"{self.url}/readyz", ssl=self.tls) as answer:
                        if answer.status == 200:
                            return
                except (aiohttp.ClientError, OSError):
                    pass
                await asyncio.sleep(0.1)
        raise LocalClusterError(f"the API server is not ready: see {self.home / 'apiserver.log'}")

    async def wait_line(self, name: str, word: str) -> None:
        """Wait until a process has written a word; raises LocalClusterError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        while loop.time() < deadline:
            if word in (self.home / f"{name}.log").read_text(errors="replace"):
                return
            self._check(name)
            await asyncio.sleep(0.1)
        raise LocalClusterError(f"{name} does not start: see {self.home / f'{name}.log'}")

    async def _listening(self, port: int, name: str) -> None:
        for _ in range(int(_START_SECONDS / 0.1)):
            self._check(name)
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return
        raise LocalClusterError(f"{name} does not listen: see {self.home / f'{name}.log'}")

    def _check(self, name: str) -> None:
        process = self._running.get(name)
        if process is not None and process.poll() is not None:
            text = (self.home / f"{name}.log").read_text(errors="replace")[-2000:]
            raise LocalClusterError(f"{name} ended with {process.returncode}: {text}")


def _haru() -> list[str]:
    return [sys.executable, "-m", "haru"]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LocalClusterError(f"--local: the program {name} is not to be found in PATH: install it")
    return found


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
