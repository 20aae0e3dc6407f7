"""Two API servers on one etcd as processes, a client that turns to whichever answers, and a watch that is resumed."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from etcd_process import Etcd
from haru.apiserver.auth import certificates
from haru.files import write_whole
from haru_process import Api, Process, Refusal, free_port, path_of

Obj = dict[str, Any]
TOKEN = "the-token-of-the-administrator"
GIVE_UP_SECONDS = 120.0
LOST = (OSError, http.client.HTTPException, json.JSONDecodeError)


class Replicas:
    """Servers `a` and `b` at addresses that stay, over one etcd."""

    def __init__(self, home: Path, etcd: Etcd, prefix: str = "/registry") -> None:
        self.home, self.etcd, self.prefix = home, etcd, prefix
        now = datetime.now(UTC)
        authority = certificates.new_authority(now)
        pair = certificates.server_pair(authority, (), now)
        contents = {"tls.crt": pair.certificate, "tls.key": pair.key, "sa.key": certificates.new_key()}
        contents["tokens.csv"] = f'{TOKEN},admin,1,"system:masters"\nuser-token,jane,2,devs\n'.encode()
        for name, content in contents.items():
            write_whole(home / name, content)
        self._ports = {name: free_port() for name in "ab"}
        self.kubeconfigs = {name: home / f"{name}.kubeconfig" for name in "ab"}
        for name, port in self._ports.items():
            config = certificates.kubeconfig(f"https://127.0.0.1:{port}", authority.certificate, TOKEN)
            write_whole(self.kubeconfigs[name], config)
        self.processes: dict[str, Process] = {}

    def start(self, name: str, *more: str, wait: bool = True) -> None:
        """Start a server (again) with these flags more, and wait until it serves."""
        flags = ["--etcd-servers", self.etcd.url, "--etcd-prefix", self.prefix, "--bind-address", "127.0.0.1"]
        flags += ["--secure-port", str(self._ports[name]), "--tls-cert-file", "tls.crt"]
        flags += ["--tls-private-key-file", "tls.key", "--token-auth-file", "tokens.csv"]
        flags += ["--service-account-signing-key-file", "sa.key", "--etcd-compaction-interval", "20s"]
        self.processes[name] = Process(self.home, ["apiserver", *flags, *more], f"apiserver-{name}")
        if wait:
            line = self.processes[name].line(GIVE_UP_SECONDS)
            assert line.startswith("haru apiserver is ready after "), line

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes.pop(name).stop(signal.SIGKILL)

    def stop(self) -> None:
        """End all, in order."""
        for name in list(self.processes):
            assert self.processes.pop(name).stop() == 0, (self.home / f"apiserver-{name}.log").read_text()[-3000:]

    def api(self, name: str) -> Api:
        """A client of one server."""
        return Api(self.kubeconfigs[name])


class Persistent:
    """A client that tries again, at the other server, until there is an answer: as client-go behind a load balancer."""

    def __init__(self, replicas: Replicas, first: str) -> None:
        order = [first, "b" if first == "a" else "a"]
        self._apis = [replicas.api(name) for name in order]
        self._at = 0
        self.retries = 0

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Obj, bool]:
        """Code, answer, and whether an attempt before may have been carried out."""
        deadline, lost = time.monotonic() + GIVE_UP_SECONDS, False
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        while True:
            try:
                code, answer = self._apis[self._at].call(method, path, body, kind)
                if code < 500:
                    return code, answer, lost
                problem: object = answer
            except LOST as error:
                problem = error
                self._apis[self._at].close()  # a connection that broke off in the middle of a request is of no use
            assert time.monotonic() < deadline, f"{method} {path}: {problem}"
            lost, self._at, self.retries = True, 1 - self._at, self.retries + 1
            time.sleep(0.05)

    def make(self, method: str, path: str, body: Any, done: Callable[[Obj], bool], at: str) -> Obj:
        """A change that is made once, whatever happens to answers: the object at `at` says whether it was."""
        code, answer, lost = self.call(method, path, body)
        if code < 300:
            return answer
        if lost and code in (404, 409):
            _, found, _ = self.call("GET", at)
            if done(found):
                return found
        raise Refusal(f"{method} {path}", code, answer)

    def close(self) -> None:
        for api in self._apis:
            api.close()


class Servers(Protocol):
    """One or several servers that are killed and come back."""

    def api(self, name: str) -> Api:
        """A client of one of them."""
        ...


class Resumed(threading.Thread):
    """A watch of a kind from one revision on, resumed where it was at whichever server answers. Keeps all it saw."""

    def __init__(self, servers: Servers, first: str, since: int, plural: str = "pods") -> None:
        super().__init__(name=f"watch at {first}", daemon=True)
        self._replicas, self._at, self._ended = servers, first, threading.Event()
        self._since, self._plural = since, plural
        self.seen: list[tuple[int, str, str]] = []
        """(revision, type, name), bookmarks left out."""
        self.data: dict[int, Obj] = {}
        """What a ConfigMap had, by revision."""
        self.problem = ""
        self.resumed = 0
        self.start()

    @property
    def revision(self) -> int:
        """Everything up to here has been seen."""
        return self._since

    def run(self) -> None:
        while not self._ended.is_set() and not self.problem:
            try:
                self._follow(self._replicas.api(self._at))
            except (*LOST, AttributeError, ValueError):
                pass
            self.resumed += 1
            self._at = "b" if self._at == "a" else "a"
            time.sleep(0.05)

    def _follow(self, api: Api) -> None:
        connection = http.client.HTTPSConnection(api._host, api._port, context=api._tls, timeout=5)
        try:
            query = f"?watch=true&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion={self._since}"
            headers = {"Authorization": f"Bearer {api.token}", "Accept": "application/json"}
            connection.request("GET", path_of(self._plural) + query, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return
            while not self._ended.is_set() and (line := answer.readline()):
                self._take(json.loads(line))
        finally:
            connection.close()

    def _take(self, event: Obj) -> None:
        if event["type"] == "ERROR":
            self.problem = str(event["object"])
            return
        metadata = event["object"]["metadata"]
        revision = int(metadata["resourceVersion"])
        if event["type"] != "BOOKMARK":
            if revision <= self._since:
                self.problem = f"{event['type']} {metadata['name']} at {revision} after {self._since}"
            self.seen.append((revision, event["type"], metadata["name"]))
            self.data[revision] = event["object"].get("data") or {}
        self._since = max(self._since, revision)

    def finish(self, revision: int) -> None:
        """Wait until it has come as far as `revision`, and end it."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self._since < revision and not self.problem and time.monotonic() < deadline:
            time.sleep(0.05)
        self._ended.set()
        self.join(60)
        assert not self.problem, self.problem
        assert self._since >= revision, f"the watch is at {self._since}, {revision} was acknowledged"
