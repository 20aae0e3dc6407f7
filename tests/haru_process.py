"""Haru as its users run it: processes of the real command, spoken to over HTTPS by a small client of the tests' own."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from haru.kube.kinds import Kind, by_kind, lookup
from warm_haru import Warm

Obj = dict[str, Any]
T = TypeVar("T")
# A server that has closed a kept connection.
_CLOSED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)
HARU = (sys.executable, "-m", "haru")

# What makes tests on virtual accelerators what they are: the gates that `haru up` turns on by itself.
ACCELERATOR_GATES = ",".join(
    f"{name}=true"
    for name in (
        "DRADeviceTaintRules",
        "DRAResourcePoolStatus",
        "DRAWorkloadResourceClaims",
        "GangScheduling",
        "GenericWorkload",
        "SchedulerPreEnqueuePodStatus",
        "WorkloadWithJob",
    )
)


def until(what: str, holds: Callable[[], T], seconds: float = 60.0, pause: float = 0.05) -> T:
    """Waits until `holds()` is truthy and returns that."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
    return value


def environment(home: Path, **more: str) -> dict[str, str]:
    """An environment in which nothing of the machine's user is found."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if k in ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    }
    return {**kept, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), **more}


def haru(
    home: Path, *arguments: str, stdin: str = "", seconds: float = 120, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs one command of Haru to its end, warm."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as messages:
        given.write(stdin)
        given.seek(0)
        process = Warm(arguments, environment(home, **env), home, messages, given)
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        with process.stdout:
            output = process.stdout.read()
        status = process.wait(60)
        timer.cancel()
        messages.seek(0)
        return subprocess.CompletedProcess([*HARU, *arguments], status, output, messages.read())


class Refusal(AssertionError):
    """The API refused a request that the test expected to pass; `status` is its answer."""

    def __init__(self, what: str, code: int, status: Obj) -> None:
        super().__init__(f"{what}: {code} {status.get('message', status)}")
        self.code, self.status = code, status


class Api:
    """Plain requests to an API server, by kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._all: list[http.client.HTTPSConnection] = []
        config = yaml.safe_load(kubeconfig.read_text())
        self.url = config["clusters"][0]["cluster"]["server"]
        self.token = config["users"][0]["user"]["token"]
        split = urllib.parse.urlsplit(self.url)
        self._host, self._port = split.hostname or "", split.port or 443
        authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
        self._tls = ssl.create_default_context(cadata=_decoded(authority))
        self._local = threading.local()

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        """One request on a kept connection; the status code and the parsed answer."""
        data = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", **headers}
        if data is not None:
            sent["Content-Type"] = content_type
        for attempt in (0, 1):
            connection = self._connection(renew=bool(attempt) or self._is_old())
            try:
                connection.request(method, path, data, sent)
                answer = connection.getresponse()
                text = answer.read()
                self._local.used = time.monotonic()
            except (OSError, http.client.HTTPException) as error:
                connection.close()  # or it would refuse the next request, too
                if attempt or method != "GET" or not isinstance(error, _CLOSED):
                    raise
                continue
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if is_json and text else text.decode()
        raise AssertionError("unreachable")

    def _is_old(self) -> bool:
        """Whether the server may have closed the kept connection, which it does after 90 s without a request."""
        return time.monotonic() - getattr(self._local, "used", math.inf) > 30

    def _connection(self, renew: bool) -> http.client.HTTPSConnection:
        old: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if old is None or renew:
            if old is not None:
                old.close()
            self._local.connection = old = http.client.HTTPSConnection(
                self._host, self._port, context=self._tls, timeout=60
            )
            self._all.append(old)
        return old

    def __del__(self) -> None:
        for connection in self._all:
            connection.close()

    def close(self) -> None:
        """Closes this thread's connection."""
        if connection := getattr(self._local, "connection", None):
            connection.close()
            del self._local.connection

    # -- by kind -----------------------------------------------------------------------------------------------------

    def get(self, plural: str, name: str, namespace: str = "") -> Obj:
        """An object; a Refusal if there is none."""
        return self._must("GET", path_of(plural, namespace, name))

    def find(self, plural: str, name: str, namespace: str = "") -> Obj | None:
        """An object, or None."""
        code, answer = self.call("GET", path_of(plural, namespace, name))
        if code == 404:
            return None
        return _checked(f"GET {plural}/{name}", code, answer)

    def list(self, plural: str, namespace: str = "", query: str = "") -> list[Obj]:
        """The objects of a kind."""
        items: list[Obj] = self._must("GET", path_of(plural, namespace) + (f"?{query}" if query else ""))["items"]
        return items

    def create(self, obj: Obj, namespace: str = "", query: str = "fieldValidation=Strict") -> Obj:
        """Creates an object."""
        return self._must("POST", path_for(obj, namespace) + f"?{query}", obj)

    def create_all(self, text: str, namespace: str = "") -> list[Obj]:
        """Creates the objects of a YAML text."""
        return [self.create(obj, namespace) for obj in yaml.safe_load_all(text) if obj]

    def update(self, obj: Obj, subresource: str = "") -> Obj:
        """Replaces an object."""
        meta = obj["metadata"]
        path = f"{path_for(obj, meta.get('namespace', ''))}/{meta['name']}"
        return self._must("PUT", f"{path}/{subresource}" if subresource else path, obj)

    def patch(self, plural: str, name: str, patch: Any, namespace: str = "", kind: str = "merge", sub: str = "") -> Obj:
        """Changes an object."""
        content_type = f"application/{kind}-patch+json"
        path = path_of(plural, namespace, name) + (f"/{sub}" if sub else "")
        return self._must("PATCH", path, patch, content_type)

    def delete(self, plural: str, name: str, namespace: str = "", **options: Any) -> None:
        """Deletes an object, which may be gone."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        code, answer = self.call("DELETE", path_of(plural, namespace, name), body)
        if code != 404:
            _checked(f"DELETE {plural}/{name}", code, answer)

    def namespace(self, name: str) -> str:
        """A new namespace."""
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def _must(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Obj:
        code, answer = self.call(method, path, body, content_type)
        return _checked(f"{method} {path}", code, answer)


def _checked(what: str, code: int, answer: Any) -> Obj:
    if code >= 300:
        raise Refusal(what, code, answer if isinstance(answer, dict) else {"message": answer})
    assert isinstance(answer, dict), answer
    return answer


def _decoded(text: str) -> str:
    import base64

    return base64.b64decode(text).decode()


_GROUPS = (
    ("", "v1"),
    ("apps", "v1"),
    ("batch", "v1"),
    ("policy", "v1"),
    ("resource.k8s.io", "v1"),
    ("resource.k8s.io", "v1beta2"),
    ("resource.k8s.io", "v1alpha3"),
    ("scheduling.k8s.io", "v1alpha2"),
    ("scheduling.k8s.io", "v1"),
    ("coordination.k8s.io", "v1"),
)


def _kind(plural: str) -> Kind:
    name, _, group = plural.partition(".")
    for known, version in _GROUPS:
        if (not group or group == known) and (kind := lookup(known, version, name)):
            return kind
    raise LookupError(plural)


def _base(kind: Kind, namespace: str) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" if namespace and kind.namespaced else f"{root}/{kind.plural}"


def path_of(plural: str, namespace: str = "", name: str = "") -> str:
    """The path of a collection or an object."""
    base = _base(_kind(plural), namespace)
    return f"{base}/{name}" if name else base


def path_for(obj: Obj, namespace: str = "") -> str:
    """The collection that an object belongs into."""
    kind = by_kind(obj["apiVersion"], obj["kind"])
    assert kind is not None, f"{obj['apiVersion']} {obj['kind']}"
    return _base(kind, namespace or obj["metadata"].get("namespace") or "default")


class Process:
    """A command of Haru that runs until it is stopped. Its messages are in a file.

    A warm one has its modules imported already (warm_haru): for tests to which it is the stage.
    """

    def __init__(self, home: Path, arguments: Sequence[str], name: str, *, warm: bool = False, **env: str) -> None:
        self.name, self.log = name, home / f"{name}.log"
        self.process: Warm | subprocess.Popen[str]
        with self.log.open("a") as log:
            if warm:
                self.process = Warm(arguments, environment(home, **env), home, log)
                return
            self.process = subprocess.Popen(
                [*HARU, *arguments],
                env=environment(home, **env),
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def line(self, seconds: float = 120) -> str:
        """The first line of its standard output; the process is ended if none comes in time."""
        assert self.process.stdout is not None
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline().strip()
        finally:
            timer.cancel()
        if not line:
            self.stop(signal.SIGKILL)
            raise AssertionError(f"{self.name} did not start:\n{self.log.read_text()}")
        return line

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60) -> int:
        """Sends a signal and waits for the end; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not stop within {seconds} s:\n{self.log.read_text()}") from None
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


class Up(Process):
    """A running `haru up`, ready."""

    def __init__(self, home: Path, *arguments: str, name: str = "up", warm: bool = True, **env: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.kubeconfig = home / "admin.kubeconfig"
        fixed = ("up", "--listen", "127.0.0.1:0", "--write-kubeconfig", str(self.kubeconfig))
        super().__init__(home, [*fixed, *arguments], name, warm=warm, **env)
        self.ready_line = self.line()
        self.api = Api(self.kubeconfig)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60) -> int:
        """Also closes the client's connection."""
        if api := getattr(self, "api", None):
            api.close()
        return super().stop(number, seconds)

    def haru(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command of Haru against this cluster."""
        return haru(self.home, *arguments, stdin=stdin, KUBECONFIG=str(self.kubeconfig))

    def kubectl(self, binary: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command of kubectl against this cluster."""
        return subprocess.run(
            [binary, *arguments],
            env=environment(self.home, KUBECONFIG=str(self.kubeconfig)),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


def free_port() -> int:
    """A port of the loopback that was free a moment ago, and that the kernel gives to nobody who asks for any."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port


def component(
    home: Path, command: str, kubeconfig: Path, *arguments: str, name: str = "", warm: bool = True
) -> tuple[Process, int]:
    """`haru scheduler` or `haru controllers` as a process of its own, and the port of its health endpoint."""
    port = free_port()
    flags = ["--kubeconfig", str(kubeconfig), "--health-port", str(port), *arguments]
    return Process(home, [command, *flags], name or command, warm=warm), port


def health(port: int, path: str) -> tuple[int, str]:
    """An answer of a component's own endpoint; (0, reason) while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError as error:
        return 0, str(error)
    finally:
        connection.close()


# -- what tests ask of objects ----------------------------------------------------------------------------------------


def phase(pod: Obj) -> str:
    """The pod's phase."""
    return str(pod.get("status", {}).get("phase", ""))


def condition(obj: Obj, kind: str) -> Obj:
    """A condition, or an empty one."""
    found = [c for c in obj.get("status", {}).get("conditions") or () if c["type"] == kind]
    return found[0] if found else {}


def devices_of(claim: Obj) -> list[tuple[str, str]]:
    """(pool, device) of a claim's allocation."""
    allocation = claim.get("status", {}).get("allocation") or {}
    return [(r["pool"], r["device"]) for r in allocation.get("devices", {}).get("results") or ()]


def held_devices(claims: Sequence[Obj]) -> Iterator[tuple[str, str]]:
    """The devices of all claims, each as often as it is held."""
    for claim in claims:
        yield from devices_of(claim)
