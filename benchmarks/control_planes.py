"""API servers and schedulers as processes: Haru's of any tree, or kube-apiserver on etcd and kube-scheduler.

A server is named by its program: `haru` (of this environment), the path of another environment's `haru`, or the path
of a kube-apiserver, which gets an etcd of its own (`etcd` on PATH). It runs no controllers, unless they are asked for,
and no scheduler. A scheduler is `NAME=COMMAND` or a command; `{kubeconfig}` in it is the kubeconfig of the server. A
command that is a program alone, `haru` or `kube-scheduler`, gets the flags of a comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from benchmarks.cluster import compile_package
from benchmarks.processes import started
from haru.kube import yaml

READY_SECONDS = 120
GANG_GATES = "GenericWorkload=true,GangScheduling=true"
QPS = 5_000
_RUNTIME = "api/all=false,api/ga=true,scheduling.k8s.io/v1alpha2=true"


@dataclass(frozen=True)
class Server:
    """An API server that serves: how it is reached, and the processes that belong to it."""

    name: str
    kubeconfig: Path
    processes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Scheduler:
    """A scheduler that can be started: its name in tables, and its command."""

    name: str
    command: str

    @staticmethod
    def parse(text: str) -> Scheduler:
        """`NAME=COMMAND`, or a command alone, whose program gives the name."""
        name, equals, command = text.partition("=")
        if not equals or "/" in name or " " in name:
            name, command = Path(text.split()[0]).name, text
        return Scheduler(name, command)

    def arguments(self, kubeconfig: Path) -> list[str]:
        """The command for this cluster."""
        words = shlex.split(self.command)
        words = _comparable(words[0]) if len(words) == 1 else [*haru_program(words[0]), *words[1:]]
        return [word.replace("{kubeconfig}", str(kubeconfig)) for word in words]

    @contextlib.contextmanager
    def running(self, kubeconfig: Path, log: Path) -> Iterator[StartedScheduler]:
        """The scheduler, until the block is left."""
        with started(self.arguments(kubeconfig), log) as process:
            yield StartedScheduler(self.name, process, log)


@dataclass(frozen=True)
class StartedScheduler:
    """A scheduler that runs."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    async def ended(self) -> NoReturn:
        """Wait until it has ended by itself, and raise RuntimeError with its last lines."""
        while self.process.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        raise RuntimeError(f"{self.name} ended with status {self.process.returncode}:\n{_tail(self.log)}")


def _comparable(program: str) -> list[str]:
    """The flags that make schedulers comparable: no election, gangs on, no brake on requests."""
    common = ["--kubeconfig={kubeconfig}", "--leader-elect=false", f"--feature-gates={GANG_GATES}"]
    if Path(program).name == "kube-scheduler":
        return [program, *common, f"--kube-api-qps={QPS}", f"--kube-api-burst={QPS}", "--secure-port=0"]
    return [*haru_program(program), "scheduler", *common, "--scheduler-name=default-scheduler", "--health-port=0"]


def haru_program(program: str) -> list[str]:
    """The words that start Haru: of this environment, or a program of another one."""
    return [sys.executable, "-m", "haru"] if program == "haru" else [program]


@contextlib.contextmanager
def serving(program: str, flags: Sequence[str] = (), controllers: str = "") -> Iterator[Server]:
    """A new API server of this program, until the block is left."""
    with tempfile.TemporaryDirectory(prefix="haru-bench-") as directory:
        make = _kube_apiserver if Path(program).name == "kube-apiserver" else _haru_up
        with make(program, Path(directory), flags, controllers) as server:
            yield server


@contextlib.contextmanager
def _haru_up(program: str, directory: Path, flags: Sequence[str], controllers: str) -> Iterator[Server]:
    compile_package()
    kubeconfig, log = directory / "kubeconfig", directory / "log"
    command = [
        *haru_program(program),
        "up",
        "--listen=127.0.0.1:0",
        "--profile=cpu:0",
        "--no-dashboard",
        "--no-usage-history",
    ]
    command += ["--no-scheduler", f"--controllers={controllers}", f"--data-dir={directory / 'data'}"]
    with started([*command, f"--write-kubeconfig={kubeconfig}", *flags], log) as process:
        _until(lambda: kubeconfig.exists() and b"ready" in log.read_bytes(), process, log)
        yield Server("haru up", kubeconfig, {"apiserver": process.pid})


@contextlib.contextmanager
def _kube_apiserver(program: str, directory: Path, flags: Sequence[str], controllers: str) -> Iterator[Server]:
    if controllers:
        raise ValueError("kube-apiserver has no controllers: start kube-controller-manager and use --kubeconfig")
    token, key = secrets.token_hex(16), directory / "account.key"
    (directory / "tokens.csv").write_text(f'{token},benchmark,1,"system:masters"\n')
    make_key(key)
    log, port = directory / "log", free_port()
    kubeconfig = write_kubeconfig(directory / "kubeconfig", f"https://127.0.0.1:{port}", token)
    command = [program, f"--secure-port={port}", f"--cert-dir={directory / 'certificates'}"]
    command += [f"--token-auth-file={directory / 'tokens.csv'}", "--authorization-mode=RBAC"]
    command += [f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"]
    command += ["--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/24"]
    command += [f"--runtime-config={_RUNTIME}", f"--feature-gates={GANG_GATES}"]
    with started_etcd(directory) as (etcd, url), started([*command, f"--etcd-servers={url}", *flags], log) as process:
        until_serving(f"https://127.0.0.1:{port}", token, process, log)
        yield Server("kube-apiserver", kubeconfig, {"apiserver": process.pid, "etcd": etcd})


@contextlib.contextmanager
def started_etcd(directory: Path) -> Iterator[tuple[int, str]]:
    """An etcd of one member with its data in this folder: its process and URL."""
    program = shutil.which("etcd")
    if program is None:
        raise FileNotFoundError("an etcd is needed: no program of that name is on PATH")
    url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [program, f"--data-dir={directory / 'etcd'}", f"--listen-client-urls={url}"]
    command += [f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
    with started(
        [*command, f"--initial-cluster=default={peer}", "--log-level=warn"], directory / "etcd.log"
    ) as process:
        yield process.pid, url


def make_key(path: Path) -> None:
    """Write a new key that signs ServiceAccount tokens."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    form, encoding = serialization.PrivateFormat.TraditionalOpenSSL, serialization.Encoding.PEM
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


def write_kubeconfig(path: Path, server: str, token: str) -> Path:
    """Write a kubeconfig that trusts the server as it is, for a user with a token."""
    cluster = {"server": server, "insecure-skip-tls-verify": True}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "benchmark", "cluster": cluster}],
        "users": [{"name": "benchmark", "user": {"token": token}}],
        "contexts": [{"name": "benchmark", "context": {"cluster": "benchmark", "user": "benchmark"}}],
        "current-context": "benchmark",
    }
    path.write_text(yaml.dump(document))
    return path


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(url: str, token: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def until_serving(address: str, token: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers that it is ready. RuntimeError with the last lines of its log if it does not."""
    _until(lambda: _answers(f"{address}/readyz", token), process, log)


def _until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server did not become ready:\n{_tail(log)}")
        time.sleep(0.05)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])
