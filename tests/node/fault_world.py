"""A node whose agent, driver and runtime die at any moment, under pods that come, end by themselves, and go.

Every container of a pod takes a lock on a file of the host before its work and notes its start there: two that run at
once, or a start that nobody counts, are seen however short they are.
"""

from __future__ import annotations

import random
import select
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cards import GPU, Cards
from machine import NODE, Machine, container, is_ready, status_of

from haru_process import Process, Refusal, until

Obj = dict[str, Any]
PARTS = ("agent", "driver", "runtime")
GUARD = {"name": "guard", "mountPath": "/guard"}
STEADY = ("stays", "beside", "stores", "users", "holds", "shares")
"""Kinds of pods whose processes go on until they are deleted."""
SHARED = "shared"
FLOCK = "/guard/loader --library-path /guard /guard/flock"


class FaultyMachine(Machine):
    """A machine behind whose runtime's socket is one that says it has users for pods; see runtime_with_users."""

    def __init__(self, home: Path) -> None:
        self._between: subprocess.Popen[bytes] | None = None
        super().__init__(home)

    @property
    def endpoint(self) -> str:
        """Where the agent finds the runtime."""
        socket = self.home / "between.sock"
        if self._between is None:
            script = Path(__file__).with_name("runtime_with_users.py")
            command = [sys.executable, str(script), str(socket), self.runtime.endpoint.removeprefix("unix://")]
            with (self.home / "between.log").open("ab") as log:
                self._between = subprocess.Popen(command, stderr=log, stdout=log)
            until("the socket between", socket.exists)
        return f"unix://{socket}"

    def stop(self) -> None:
        """Ends everything."""
        super().stop()
        if self._between is not None:
            self._between.kill()
            self._between.wait()


@dataclass
class Living:
    """A pod that the workload has made and not deleted."""

    name: str
    kind: str
    uid: str
    noted: tuple[str, int, int] | None = None
    """Of a steady one that was ready: id and process of its container, and its restarts."""


class World:
    """The workload, the deaths, and what is known of both."""

    def __init__(self, machine: Machine, rng: random.Random, most_pods: int, most_made: int) -> None:
        self.machine, self.rng, self.most_pods, self.most_made = machine, rng, most_pods, most_made
        self.cards = Cards(machine)
        self.cards.start()
        self.living: dict[str, Living] = {}
        self.made: Counter[str] = Counter()
        self.deleted: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self._down: dict[str, float] = {}
        self._deck: list[str] = []
        self._first = (machine.agent, self.cards.process)
        """Whose line was read when they were started."""
        self.guard = machine.home / "guard"
        self.guard.mkdir(exist_ok=True)
        bring_flock(self.guard)
        self._objects()

    def _objects(self) -> None:
        api, meta = self.machine.api, {"namespace": "default"}
        request = {"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 1}}
        devices = {"devices": {"requests": [request]}}
        kind = {"apiVersion": "resource.k8s.io/v1"}
        one = {**kind, "kind": "ResourceClaimTemplate", "metadata": {**meta, "name": "one"}}
        api.create({**one, "spec": {"spec": devices}})
        api.create({**kind, "kind": "ResourceClaim", "metadata": {**meta, "name": SHARED}, "spec": devices})
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "hidden"}}
        api.create({**secret, "stringData": {"key": "secret"}})

    # -- parts that die ------------------------------------------------------------------------------------------------

    def kill(self, part: str) -> None:
        """Ends a part without a word; one that is down stays down."""
        if part in self._down:
            return
        if part == "runtime":
            self.machine.runtime.kill()
        elif part == "agent":
            self.machine.kill()
        else:
            self.cards.stop(9)
        self.kills[part] += 1
        self._down[part] = time.monotonic() + self.rng.uniform(0.0, 2.0)

    def raise_up(self, everything: bool = False) -> None:
        """Starts parts again whose time has come, or all; also those that have given up, as a supervisor does."""
        for part, when in list(self._down.items()):
            if everything or when <= time.monotonic():
                del self._down[part]
                self._start(part)
        for part, process in (("agent", self.machine.agent), ("driver", self.cards.process)):
            if part not in self._down and process is not None and process.process.poll() is not None:
                process.stop()
                self._start(part)

    def is_up(self) -> bool:
        """Everybody runs and has said that it is ready."""
        return not self._down and self._is_ready(self.machine.agent) and self._is_ready(self.cards.process)

    def _is_ready(self, one: Process | None) -> bool:
        if one is None or one.process.poll() is not None or one.process.stdout is None:
            return False
        return one in self._first or bool(select.select([one.process.stdout], [], [], 0)[0])

    def _start(self, part: str) -> None:
        if part == "runtime":
            self.machine.runtime.resume()
        elif part == "agent":
            self.machine.launch()
        else:
            self.cards.launch()

    # -- pods ----------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens to the pods."""
        choice = self.rng.random()
        room = len(self.living) < self.most_pods and self.made.total() < self.most_made
        if choice < 0.55 and room:
            kind = self._next_kind()
            name = f"{kind}-{self.made.total()}"
            spec = KINDS[kind](self)
            made = self.machine.create(name, spec.pop("containers"), **spec)
            self.living[name] = Living(name, kind, made["metadata"]["uid"])
            self.made[kind] += 1
        elif choice < 0.85 and len(self.living) > self.most_pods // 2 and self.made.total() < self.most_made:
            name = self.rng.choice(sorted(self.living))
            self.delete(name, force=self.rng.random() < 0.25)
        else:
            self.note()

    def _next_kind(self) -> str:
        """Every kind once in a random order, then again."""
        if not self._deck:
            self._deck = self.rng.sample(list(KINDS), len(KINDS))
        return self._deck.pop()

    def delete(self, name: str, force: bool = False) -> None:
        """Deletes a pod: politely, or out of the API at once."""
        del self.living[name]
        self.machine.api.delete("pods", name, "default", **({"gracePeriodSeconds": 0} if force else {}))
        self.deleted["by force" if force else "politely"] += 1

    def note(self) -> None:
        """What runs and is to go on running, as it is now."""
        if "runtime" in self._down:
            return
        # In this order: what begins in between has a process, but nobody has said so yet.
        pods = self.machine.api.list("pods", "default")
        tasks = self.machine.runtime.tasks()
        for pod in pods:
            living = self.living.get(pod["metadata"]["name"])
            if living is None or living.kind not in STEADY or living.noted is not None or not is_ready(pod):
                continue
            status = status_of(pod)
            id_ = status["containerID"].removeprefix("containerd://")
            # Without a process it has gone since the status was written, which is looked into at the end.
            living.noted = id_, tasks.get(id_, 0), status["restartCount"]

    def starts(self, uid: str, name: str = "main") -> int:
        """How often the script of a container was started."""
        file = self.guard / f"{uid}-{name}.starts"
        return len(file.read_text()) if file.exists() else 0

    def end(self) -> None:
        """All pods go, and what they used."""
        for name in list(self.living):
            self.delete(name)
        for one in self.machine.api.list("pods", "default"):
            self.machine.api.delete("pods", one["metadata"]["name"], "default")
        until("no pod is left", lambda: not self.machine.api.list("pods", "default"), 120)


def bring_flock(directory: Path) -> None:
    """The machine's flock, with what it is linked with: the image's busybox has none."""
    binary = shutil.which("flock")
    assert binary is not None, "flock: not installed (the package util-linux)"
    shutil.copy(binary, directory / "flock")
    for line in subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout.splitlines():
        for path in (Path(word) for word in line.split() if word.startswith("/")):
            shutil.copy(path, directory / ("loader" if path.name.startswith("ld-") else path.name))


def guarded(name: str, script: str, **more: Any) -> Obj:
    """A container that runs a script, alone."""
    lock = f"exec 9>>/guard/$UID_-{name}.lock; {FLOCK} -n 9 || echo $UID_ {name} >>/guard/twice; "
    env = [{"name": "UID_", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    started = f"echo -n x >>/guard/$UID_-{name}.starts; "
    mounts = [GUARD, *more.pop("volumeMounts", ())]
    return container(name, lock + started + script, env=env, volumeMounts=mounts, **more)


def _spec(world: World, main: Obj, *volumes: Obj, **more: Any) -> Obj:
    guard = {"name": "guard", "hostPath": {"path": str(world.guard)}}
    return {"containers": [main], "volumes": [guard, *volumes], **more}


def _sleeps(world: World) -> str:
    return f"sleep {world.rng.uniform(0.1, 4):.1f}; "


def _claims(name: str) -> Obj:
    source = {"resourceClaimName": name} if name == SHARED else {"resourceClaimTemplateName": name}
    return {"nodeName": None, "resourceClaims": [{"name": "cards", **source}]}


_USES = {"resources": {"claims": [{"name": "cards"}]}}
# The device's file and its metadata have to be there at every start.
_SEES = "cat /dev/haru/* /var/run/kubernetes.io/dra-device-attributes/*/*/*/*.json >/dev/null || exit 9; "


def _beside(world: World) -> Obj:
    init = [
        guarded("first", "true"),
        guarded("side", "exec sleep 100000", restartPolicy="Always"),
    ]
    return _spec(world, guarded("main", "exec sleep 100000"), initContainers=init)


def _stores(world: World) -> Obj:
    sources: list[Obj] = [
        {"secret": {"name": "hidden"}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
    ]
    volumes: list[Obj] = [
        {"name": "secret", "secret": {"secretName": "hidden"}},
        {"name": "all", "projected": {"sources": sources}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    script = "test -s /secret/key -a -s /all/token && touch /memory/x || exit 9; exec sleep 100000"
    return _spec(world, guarded("main", script, volumeMounts=mounts), *volumes)


def _again(world: World) -> Obj:
    volume = {"name": "scratch", "emptyDir": {}}
    script = f"test -e /scratch/once && exit 0; touch /scratch/once; {_sleeps(world)} exit 3"
    main = guarded("main", script, volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
    return _spec(world, main, volume, restartPolicy="OnFailure")


KINDS: dict[str, Callable[[World], Obj]] = {
    "stays": lambda world: _spec(world, guarded("main", "exec sleep 100000")),
    "beside": _beside,
    "stores": _stores,
    "users": lambda world: _spec(world, guarded("main", "exec sleep 100000"), hostUsers=False),
    "holds": lambda world: _spec(world, guarded("main", _SEES + "exec sleep 100000", **_USES), **_claims("one")),
    "shares": lambda world: _spec(world, guarded("main", _SEES + "exec sleep 100000", **_USES), **_claims(SHARED)),
    "ends": lambda world: _spec(world, guarded("main", _sleeps(world) + "exit 0"), restartPolicy="Never"),
    "fails": lambda world: _spec(world, guarded("main", _sleeps(world) + "exit 5"), restartPolicy="Never"),
    "again": _again,
    "crashes": lambda world: _spec(world, guarded("main", _sleeps(world) + "exit 1")),
    "briefly": lambda world: _spec(
        world, guarded("main", _SEES + _sleeps(world), **_USES), restartPolicy="Never", **_claims("one")
    ),
}


def as_expected(living: Living, pod: Obj) -> bool:
    """Whether a pod has come to what its kind is for."""
    status = status_of(pod)
    phase = pod["status"].get("phase")
    if living.kind in STEADY:
        return is_ready(pod)
    if living.kind == "crashes":
        return phase == "Running" and int(status.get("restartCount", 0)) >= 1
    ended = (status.get("state") or {}).get("terminated") or {}
    if pod["spec"]["restartPolicy"] == "Never" and was_broken_off(status):
        return phase == "Failed"
    if living.kind == "fails":
        return phase == "Failed" and ended.get("exitCode") == 5
    return phase == "Succeeded" and (living.kind != "again" or int(status["restartCount"]) >= 1)


def was_broken_off(status: Obj) -> bool:
    """Whether a start was given up when who asked for it died: containerd takes that for the container's end.

    So it does of one whose process it does not find again at its own start: it says 255 of an end that it missed.
    """
    ended = (status.get("state") or {}).get("terminated") or {}
    if (ended.get("reason"), ended.get("exitCode")) == ("Unknown", 255):
        return True
    return ended.get("reason") == "StartError" and "context canceled" in ended.get("message", "")


def settle(world: World) -> None:
    """Everything is up, and every pod that lives comes to what it is for."""
    world.raise_up(everything=True)
    last: list[str] = []

    def settled() -> bool:
        nonlocal last
        world.raise_up()
        node = world.machine.api.get("nodes", NODE)
        ready = {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"]
        pods = {pod["metadata"]["name"]: pod for pod in world.machine.api.list("pods", "default")}
        last = [f"node Ready={ready}"] if ready != "True" else []
        last += [f"{name} should be gone" for name in pods.keys() - world.living.keys()]
        for name, living in world.living.items():
            if name not in pods:
                last.append(f"{name} is lost")
            elif not as_expected(living, pods[name]):
                last.append(f"{name}: {pods[name]['status']}")
        return not last

    try:
        until("the pods settle", settled, 180, 0.5)
    except AssertionError as error:
        try:
            events = [f"{e['involvedObject']['name']}: {e['message']}" for e in world.machine.api.list("events")]
        except Refusal as refusal:
            events = [str(refusal)]
        told = "\n".join([*last, *events[-40:]])
        raise AssertionError(f"{error}\n{told}\n{_log(world)}") from None


def _log(world: World) -> str:
    return world.machine.agent.log.read_text()[-4000:] if world.machine.agent is not None else ""
