"""A server that is killed and comes back, over either store, and clients that write down what they asked and heard."""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from replica_world import Replicas

from etcd_process import Etcd
from haru_process import Api, Up, free_port, path_of
from linearizable import Operation

Obj = dict[str, Any]
LOST = (OSError, http.client.HTTPException, json.JSONDecodeError)
ALONE = ("--profile", "cpu:0", "--controllers", "", "--no-scheduler", "--no-dashboard", "--no-usage-history")


class OnSqlite:
    """`haru up` on a data directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        listen = ("--listen", f"127.0.0.1:{free_port()}")
        self._flags = ("--data-dir", str(home / "data"), *listen, *ALONE)
        self._up = Up(home, *self._flags)

    def api(self, name: str) -> Api:
        """A client, whatever the name."""
        return Api(self.home / "admin.kubeconfig")

    def kill(self) -> None:
        """SIGKILL."""
        self._up.stop(signal.SIGKILL)

    def restart(self) -> None:
        """On the same directory, at the same address."""
        self._up = Up(self.home, *self._flags)

    def stop(self) -> None:
        """As a user ends it."""
        assert self._up.stop() == 0, self._up.log.read_text()[-3000:]


class OnEtcd:
    """`haru apiserver`, and the etcd that it needs; either is killed, or both."""

    def __init__(self, home: Path, etcd_binary: str) -> None:
        self._etcd = Etcd(etcd_binary, home)
        self._etcd.start()
        self._replicas = Replicas(home, self._etcd)
        self._replicas.start("a")
        self._killed: Sequence[str] = ()
        self._kills = cycle((["server"], ["etcd"], ["server", "etcd"], ["etcd", "server"]))

    def api(self, name: str) -> Api:
        """A client, whatever the name."""
        return self._replicas.api("a")

    def kill(self) -> None:
        """SIGKILL."""
        self._killed = next(self._kills)
        for what in self._killed:
            if what == "etcd":
                self._etcd.kill()
            else:
                self._replicas.kill("a")

    def restart(self) -> None:
        """On the same data, at the same addresses."""
        if "etcd" in self._killed:
            self._etcd.start()
        if "server" in self._killed:
            self._replicas.start("a")

    def stop(self) -> None:
        """As a user ends them."""
        self._replicas.stop()
        self._etcd.stop()


def outcome(state: Any, what: tuple[str, str | None, str | None, int]) -> Iterator[str | None]:
    """What a ConfigMap holds after a request, if it can have been answered so: kind, value before, after, code.

    None is no object, and code 0 no answer.
    """
    kind, before, after, code = what
    if kind == "GET":
        if state == after:
            yield state
        return
    possible = {"POST": state is None, "PUT": state is not None and state == before, "DELETE": state is not None}[kind]
    if possible and (code == 0 or code < 300):
        yield after
    elif not possible and (code == 0 or code >= 300):
        yield state


class Client(threading.Thread):
    """Reads, creates, changes and deletes a few ConfigMaps that others use, too, until it is told to end.

    `heard` has its requests by name. A request that got no answer is certain to be over when the server is gone, which
    is when `over` is called.
    """

    def __init__(self, servers: OnSqlite | OnEtcd, names: list[str], number: int, seed: int) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self._api, self._names, self._rng = servers.api("a"), names, random.Random(seed)
        self._tag, self._ended = f"{seed}-{number}", threading.Event()
        self.heard: list[tuple[str, Operation]] = []
        self.revisions: dict[int, tuple[str, str]] = {}
        """What was acknowledged or shown: name and value by revision."""
        self._unanswered: list[tuple[str, float, tuple[Any, ...]]] = []
        self._known: dict[str, tuple[str, str]] = {}
        self.problem = ""
        self.start()

    def run(self) -> None:
        count = 0
        while not self._ended.is_set() and not self.problem:
            count += 1
            name = self._rng.choice(self._names)
            try:
                self._one(name, f"{self._tag}-{count}")
            except LOST:
                self._api.close()
                time.sleep(0.02)
        self._api.close()

    def _one(self, name: str, value: str) -> None:
        kind = self._rng.choice(("GET", "GET", "POST", "PUT", "PUT", "PUT", "DELETE"))
        version, before = self._known.get(name, ("1", ""))
        metadata = {"name": name, **({"resourceVersion": version} if kind == "PUT" else {})}
        body: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}
        path = path_of("configmaps", "default", "" if kind == "POST" else name)
        after = value if kind in ("POST", "PUT") else None
        begun = time.monotonic()
        if kind != "GET":
            self._unanswered.append((name, begun, (kind, before, after, 0)))
        code, answer = self._api.call(kind, path, None if kind in ("GET", "DELETE") else body)
        ended = time.monotonic()
        if code >= 500 or code == 429:
            return
        if kind != "GET":
            self._unanswered.pop()
        elif code == 200:
            after = answer["data"]["value"]
        if code not in (200, 201, 404, 409):
            self.problem = f"{kind} {name}: {code} {answer}"
        if code < 300 and kind != "DELETE":
            revision = int(answer["metadata"]["resourceVersion"])
            self._known[name] = (str(revision), str(after))
            self.revisions[revision] = (name, str(after))
        self.heard.append((name, Operation(begun, ended, (kind, before, after, code))))

    def end(self) -> None:
        """The server is to be killed, or was."""
        self._ended.set()

    def over(self) -> None:
        """Nobody works on what was asked any more."""
        self.join(60)
        assert not self.is_alive(), "a request outlived the server"
        assert not self.problem, self.problem
        now = time.monotonic()
        self.heard += [(name, Operation(begun, now, what, certain=False)) for name, begun, what in self._unanswered]
