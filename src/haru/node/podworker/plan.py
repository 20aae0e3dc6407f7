"""What a pod needs next: a sandbox, containers to start, containers to kill. Pure.

The order of things is the kubelet's: a sandbox; ordinary init containers one after the other, each to its success;
sidecars among them, each until it has started (its startup probe, if it has one); then the containers together. What
has failed is started again by its restart policy after the pause of its crash loop. Ephemeral containers start as soon
as there is a sandbox, once. Source: the sync of a pod, as documented with pod lifecycle, sidecars (KEP-753) and
ephemeral containers (KEP-277).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from haru.kube.container_restarts import CrashLoop, crash_message, is_sidecar
from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of
from haru.node.podworker.all_restarts import to_remove
from haru.node.podworker.observed import CREATED, EXITED, RUNNING, UNKNOWN, SeenContainer, SeenPod
from haru.node.podworker.restarts import should_restart
from haru.proto import cri_pb2 as cri


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """The last results of a running container's probes; None: no result yet, or no such probe."""

    startup: bool | None = None
    liveness: bool | None = None
    readiness: bool | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """A running container that is to end."""

    id: str
    name: str
    message: str
    probe: str = ""
    """Whose failure ends it: liveness or startup; it may bring a grace period of its own."""
    again: bool = False
    """Whether it starts again, however it ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, in this order: the pod is ended, or containers are; a sandbox is made; containers start."""

    end_pod: bool = False
    """First end all containers and the sandbox that are there: the pod is over, or its sandbox is of no use."""
    is_over: bool = False
    """Nothing of the pod is going to run again."""
    make_sandbox: bool = False
    attempt: int = 0
    """Of the sandbox that is to be made."""
    again: tuple[str, ...] = ()
    """Ids of containers that run in a sandbox of no use: they start again, however they end."""
    kills: tuple[Kill, ...] = ()
    starts: tuple[str, ...] = ()
    """Names of containers to start, in order."""
    crashing: Mapping[str, str] = field(default_factory=dict)
    """Containers that wait for the end of a pause, each with what is told of it."""
    removes: tuple[SeenContainer, ...] = ()
    """All containers are restarted: these are ended and removed first, and nothing else is done."""
    wake_after: float | None = None
    """Seconds until the first pause ends."""


def container_hash(container: Mapping[str, Any]) -> str:
    """Hash the fields of a container whose change restarts it."""
    text = f"{container['name']}\0{container.get('image', '')}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def crash_key(container: Mapping[str, Any]) -> str:
    """Under which a container's pauses are counted: another image begins anew."""
    return f"{container['name']}_{container_hash(container)}"


def container_specs(pod: Obj) -> list[Obj]:
    """All containers of a pod: init containers, containers, ephemeral containers."""
    return list(containers_of(pod["spec"]))


def uses_host_network(pod: Obj) -> bool:
    """The pod has no network of its own."""
    return bool(pod["spec"].get("hostNetwork"))


class Pauses(NamedTuple):
    """The pauses of a pod's crashing containers, and the time: seconds since the epoch."""

    loop: CrashLoop
    now: float


class _Planner:
    def __init__(
        self, pod: Obj, seen: SeenPod, probed: Mapping[str, ProbeResults], pauses: Pauses, replaced: Set[str]
    ) -> None:
        self.pod, self.seen, self.probed, self.replaced = pod, seen, probed, replaced
        self.loop, self.now = pauses
        self.kills: list[Kill] = []
        self.starts: list[str] = []
        self.crashing: dict[str, str] = {}
        self.wake: float | None = None

    def start(self, container: Mapping[str, Any], last: SeenContainer | None) -> None:
        """Start a container, or have it wait."""
        if last is not None and last.state == EXITED:
            wait, pause = self.loop.wait(crash_key(container), last.finished_at / 1e9, self.now)
            if wait > 0:
                self.crashing[container["name"]] = crash_message(self.pod, container["name"], pause)
                self.wake = wait if self.wake is None else min(self.wake, wait)
                return
        self.starts.append(container["name"])

    def failed_probe(self, seen: SeenContainer) -> str:
        """The failed probe for which a running container is killed."""
        said = self.probed.get(seen.id, ProbeResults())
        return "startup" if said.startup is False else "liveness" if said.liveness is False else ""

    def kill(self, seen: SeenContainer, probe: str, *, again: bool) -> None:
        why = f"failed {probe} probe" if probe else "definition changed"
        tail = ", will be restarted" if again else ""
        self.kills.append(Kill(seen.id, seen.name, f"Container {seen.name} {why}{tail}", probe, again))

    def kill_duplicates(self) -> None:
        """End whatever runs beside a newer container of its name."""
        for container in container_specs(self.pod):
            name = container["name"]
            running = [one for one in self.seen.history(name) if one.state == RUNNING]
            self.kills += [Kill(one.id, name, f"Container {name} runs twice") for one in running[1:]]

    def ephemeral(self) -> None:
        """Start ephemeral containers, once each, whether or not the init containers are through."""
        listed = self.pod["spec"].get("ephemeralContainers") or ()
        self.starts += [one["name"] for one in listed if self.seen.newest(one["name"]) is None]

    def init(self, sandbox: str) -> bool | None:
        """Bring init containers on; whether all are through, None if one has failed for good."""
        through = _is_initialized(self.pod, self.seen, sandbox)
        for container in self.pod["spec"].get("initContainers") or ():
            last = self.seen.newest(container["name"])
            if last is not None and last.sandbox != sandbox and last.state == EXITED and not is_sidecar(container):
                last = None
            if is_sidecar(container):
                done = self.sidecar(container, last)
            elif through:
                continue
            elif last is None or last.state in (CREATED, UNKNOWN):
                self.starts.append(container["name"])
                done = False
            elif last.state == RUNNING:
                done = False
            elif last.exit_code == 0:
                continue
            elif should_restart(self.pod, container, last, init=True):
                self.start(container, last)
                done = False
            else:
                return None
            if not done and not through:
                return False
        return True

    def sidecar(self, container: Mapping[str, Any], last: SeenContainer | None) -> bool:
        """Keep a sidecar running; whether what comes after it may start."""
        if last is None or last.state != RUNNING:
            self.start(container, last)
            return False
        if probe := self.failed_probe(last):
            text = f"Init container {last.name} failed {probe} probe"
            self.kills.append(Kill(last.id, last.name, text, probe, again=True))
            return False
        said = self.probed.get(last.id, ProbeResults())
        return not container.get("startupProbe") or said.startup is True

    def containers(self) -> bool:
        """Keep the containers running; whether there is anything left of the pod's work."""
        kept = False
        for container in self.pod["spec"]["containers"]:
            last = self.seen.newest(container["name"])
            if last is None or last.state != RUNNING:
                if should_restart(self.pod, container, last) or (last is not None and last.id in self.replaced):
                    kept = True
                    self.start(container, last)
                continue
            changed = bool(last.hash) and last.hash != container_hash(container)
            probe = "" if changed else self.failed_probe(last)
            again = True
            if changed or probe:
                policy = container.get("restartPolicy") or self.pod["spec"].get("restartPolicy") or "Always"
                again = changed or policy != "Never"
                self.kill(last, probe, again=again)
            # A pod whose last container is killed for good ends as a whole.
            kept = kept or again
        return kept


def decide(
    pod: Obj, seen: SeenPod, probed: Mapping[str, ProbeResults], pauses: Pauses, replaced: Set[str] = frozenset()
) -> Plan:
    """What a pod that is not being deleted needs now.

    `probed` is by container id; `replaced` are ids of containers that were killed to be started again.
    """
    usable, attempt = _sandbox(pod, seen)
    planner = _Planner(pod, seen, probed, pauses, replaced)
    if not usable:
        return _without_sandbox(pod, seen, planner, attempt)
    if removes := to_remove(pod, seen):
        return Plan(removes=removes)
    sandbox = seen.sandboxes[0].id
    planner.kill_duplicates()
    planner.ephemeral()
    through = planner.init(sandbox)
    if through is None:
        return Plan(end_pod=True, is_over=True)
    work = planner.containers() if through else True
    if not work:
        return Plan(end_pod=True, is_over=True)
    return Plan(
        kills=tuple(planner.kills),
        starts=tuple(planner.starts),
        crashing=planner.crashing,
        wake_after=planner.wake,
    )


def _without_sandbox(pod: Obj, seen: SeenPod, planner: _Planner, attempt: int) -> Plan:
    """A sandbox is to be made, unless the work is done."""
    newest = [(container, seen.newest(container["name"])) for container in pod["spec"]["containers"]]
    todo = [last for container, last in newest if _may_run_again(pod, container, last, planner.replaced)]
    # What has ended already is not waited for.
    left = seen.runs or any(sandbox.ready for sandbox in seen.sandboxes)
    if not todo or _init_failed(pod, seen):
        return Plan(end_pod=left, is_over=True)
    again = tuple(last.id for last in todo if last is not None and last.runs)
    return Plan(end_pod=left, make_sandbox=True, attempt=attempt, again=again)


def _may_run_again(pod: Obj, container: Mapping[str, Any], last: SeenContainer | None, replaced: Set[str]) -> bool:
    """Also what ran when its sandbox went has to be started again, by its policy, as if it had failed."""
    if last is not None and last.state != EXITED:
        return (container.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always") != "Never"
    return should_restart(pod, container, last) or (last is not None and last.id in replaced)


def _init_failed(pod: Obj, seen: SeenPod) -> bool:
    for container in pod["spec"].get("initContainers") or ():
        last = seen.newest(container["name"])
        if last is None or last.state != EXITED or last.exit_code == 0 or is_sidecar(container):
            continue
        if not should_restart(pod, container, last, init=True):
            return True
    return False


def _sandbox(pod: Obj, seen: SeenPod) -> tuple[bool, int]:
    """Whether the newest sandbox can be used; which attempt another one would be."""
    newest = seen.sandbox
    if newest is None:
        return False, 0
    several = sum(1 for sandbox in seen.sandboxes if sandbox.ready) > 1
    wrong_network = (newest.network == cri.NODE) != uses_host_network(pod)
    no_address = not uses_host_network(pod) and not newest.ips
    return newest.ready and not (several or wrong_network or no_address), newest.attempt + 1


def _is_initialized(pod: Obj, seen: SeenPod, sandbox: str) -> bool:
    """A container of the pod was made in this sandbox: all init containers were through then."""
    names = {container["name"] for container in pod["spec"]["containers"]}
    return any(one.name in names and one.sandbox == sandbox for one in seen.containers)
