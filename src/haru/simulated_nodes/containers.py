"""Start, end and restart the containers of a simulated pod, each by its script, as a kubelet does.

Pure but for `PodRuns`, what a kubelet remembers of a pod: pauses between restarts and pulls, and exact starts. After a
restart of the fleet they begin anew, as they do for a kubelet; what runs goes on.
Sources: kubelet `kuberuntime_manager` (order of init containers, back-off), `image_manager` (pulls), `getPhase`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from haru.kube.container_restarts import CrashLoop, crash_message, is_sidecar, restarts_after
from haru.kube.container_scripts import RUNS_ON, START_ERROR, Script, script_of
from haru.kube.meta import Obj, annotations_of, get_condition, name_of, namespace_of, uid_of
from haru.kube.names import format_time, parse_time
from haru.simulated_nodes import pods as podlib

FAIL_IMAGE_PULL: Final = "simulated.haru.dev/fail-image-pull"
CRASH_LOOP: Final = "CrashLoopBackOff"
_ERR_IMAGE_PULL: Final = "ErrImagePull"
_IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
_UNKNOWN_HOST: Final = ".invalid"
"""No registry has a name under this domain (RFC 2606)."""
_SHOWN_SECONDS: Final = 1.0
"""How long a failed pull is shown before its back-off is."""
_MOST_STEPS: Final = 8

Event = tuple[Literal["Normal", "Warning"], str, str]
"""Type, reason and message."""


class Outcome(NamedTuple):
    """What follows for a pod now: the status to write (None: as it is), events, seconds until something is due."""

    status: Obj | None
    events: Sequence[Event]
    due: float | None


@dataclass(slots=True)
class PodRuns:
    """What is remembered of one pod: by container, when it began, and pauses of restarts and of pulls."""

    began: dict[str, datetime] = field(default_factory=dict)
    crashes: CrashLoop = field(default_factory=CrashLoop)
    pulls: CrashLoop = field(default_factory=CrashLoop)
    failed_pulls: dict[str, float] = field(default_factory=dict)


def scripts_of(pod: Obj) -> Mapping[str, Script] | None:
    """The scripts of a pod's containers by name; None if all run on, or end once as its annotations say.

    Raises ValueError for a malformed annotation.
    """
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or ()
    ending = podlib.ending_of(pod)
    if ending is not None:
        if ending.phase == "Succeeded" or spec.get("restartPolicy", "Always") == "Never":
            return {} if _pull_fails(pod) else None
        failure = Script((), ending.after_seconds, ending.exit_code, ending.reason, ending.message)
        return {container["name"]: failure for container in containers}
    every = [*(spec.get("initContainers") or ()), *containers]
    scripts = {one["name"]: script for one in every if (script := script_of(pod, one)) is not None}
    return scripts if scripts or _pull_fails(pod) else None


def pull_problem(pod: Obj, image: str) -> str:
    """Why an image cannot be pulled; empty if it can."""
    host = image.partition("/")[0].partition(":")[0]
    if host.endswith(_UNKNOWN_HOST) and "/" in image:
        manifest = f"https://{image.partition('/')[0]}/v2/{image.partition('/')[2].partition(':')[0]}/manifests/latest"
        cause = f'failed to do request: Head "{manifest}": dial tcp: lookup {host}: no such host'
    else:
        cause = annotations_of(pod).get(FAIL_IMAGE_PULL) or ""
        if cause == "true":
            cause = f"{image}: not found"
    prefix = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
    return prefix + cause if cause and cause != "false" else ""


def _pull_fails(pod: Obj) -> bool:
    """Whether some image of a pod that has not begun cannot be pulled."""
    spec = pod.get("spec") or {}
    every = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    if FAIL_IMAGE_PULL not in annotations_of(pod) and not any(_UNKNOWN_HOST in (c.get("image") or "") for c in every):
        return False
    return any(pull_problem(pod, container.get("image") or "") for container in every)


def advance(pod: Obj, scripts: Mapping[str, Script], runs: PodRuns, now: datetime) -> Outcome:
    """Take the containers of a pod as far as they can go now."""
    return _Advance(pod, scripts, runs, now).outcome()


class _Advance:
    """One pass over a pod."""

    def __init__(self, pod: Obj, scripts: Mapping[str, Script], runs: PodRuns, now: datetime) -> None:
        self._pod, self._scripts, self._runs, self._now = pod, scripts, runs, now
        self._text = format_time(now)
        self._events: list[Event] = []
        self._due: list[float] = []
        spec, status = pod["spec"], pod.get("status") or {}
        self._init: Sequence[Obj] = spec.get("initContainers") or ()
        self._main: Sequence[Obj] = spec.get("containers") or ()
        reason = "PodInitializing" if self._init else "ContainerCreating"
        known = podlib.statuses(pod)
        self._statuses = {
            c["name"]: known.get(c["name"]) or self._waiting(c, reason) for c in (*self._init, *self._main)
        }
        self._before = status

    def outcome(self) -> Outcome:
        """The status after this pass."""
        if self._initialized():
            for container in self._main:
                self._advance(container, init=False)
        phase = self._phase()
        if phase in podlib.TERMINAL:
            self._end_sidecars()
        status: Obj = {"phase": phase, "containerStatuses": [self._statuses[c["name"]] for c in self._main]}
        if self._init:
            status["initContainerStatuses"] = [self._statuses[c["name"]] for c in self._init]
        changed = any(self._before.get(key) != value for key, value in status.items())
        conditions = self._conditions(phase)
        changed = changed or any(_differs(self._pod, condition) for condition in conditions)
        due = min(self._due, default=None)
        return Outcome({**status, "conditions": conditions} if changed else None, self._events, due)

    # -- one container ------------------------------------------------------------------------------------------------

    def _initialized(self) -> bool:
        """Whether the containers of the pod may start: every init container has ended well, every sidecar runs."""
        for container in self._init:
            if is_sidecar(container):
                self._advance(container, init=True)
                if "running" not in self._statuses[container["name"]]["state"]:
                    return False
            elif not _succeeded(self._statuses[container["name"]]):
                self._advance(container, init=True)
                if not _succeeded(self._statuses[container["name"]]):
                    return False
        return True

    def _advance(self, container: Obj, *, init: bool) -> None:
        for _ in range(_MOST_STEPS):
            state = self._statuses[container["name"]]["state"]
            if "running" in state:
                goes_on = self._run(container)
            elif "terminated" in state or state.get("waiting", {}).get("reason") == CRASH_LOOP:
                goes_on = self._restart(container, init=init)
            else:
                goes_on = self._pull(container) and self._start(container)
            if not goes_on:
                return
        self._due.append(_SHOWN_SECONDS)

    def _pull(self, container: Obj) -> bool:
        """Pull the image; whether it is there."""
        name, image = container["name"], container.get("image") or ""
        problem = pull_problem(self._pod, image)
        if not problem:
            return True
        now, state = self._now.timestamp(), self._statuses[name]["state"].get("waiting", {})
        failed = self._runs.failed_pulls.get(name, 0.0)
        left, _ = self._runs.pulls.wait(name, failed, now)
        if left > 0:
            self._due.append(left if state.get("reason") == _IMAGE_PULL_BACK_OFF else min(left, _SHOWN_SECONDS))
            if state.get("reason") != _IMAGE_PULL_BACK_OFF and now - failed >= _SHOWN_SECONDS:
                self._due[-1] = left
                text = f'Back-off pulling image "{image}"'
                self._say("Normal", "BackOff", text)
                self._say("Warning", "Failed", f"Error: {_IMAGE_PULL_BACK_OFF}")
                self._wait(container, _IMAGE_PULL_BACK_OFF, f"{text}: {_ERR_IMAGE_PULL}: {problem}")
            return False
        self._runs.pulls.started(name, failed or now, now)
        self._runs.failed_pulls[name] = now
        self._say("Normal", "Pulling", f'Pulling image "{image}"')
        self._say("Warning", "Failed", f'Failed to pull image "{image}": {problem}')
        self._say("Warning", "Failed", f"Error: {_ERR_IMAGE_PULL}")
        self._wait(container, _ERR_IMAGE_PULL, problem)
        self._due.append(_SHOWN_SECONDS)
        return False

    def _start(self, container: Obj) -> bool:
        """Start the container; True, as its end may have come."""
        name, image = container["name"], container.get("image") or ""
        before = self._statuses[name]
        again = before.get("state", {}).get("terminated") or (before.get("lastState") or {}).get("terminated")
        script = self._scripts.get(name, RUNS_ON)
        self._say("Normal", "Pulled", f'Container image "{image}" already present on machine')
        if script.reason == START_ERROR:
            self._say("Warning", "Failed", f"Error: {script.message}")
        else:
            self._say("Normal", "Created", f"Created container: {name}")
            self._say("Normal", "Started", f"Started container {name}")
        status = self._with_state(container, {"running": {"startedAt": self._text}}, ready=True)
        status["lastState"] = {"terminated": again} if again else {}
        status["restartCount"] = before.get("restartCount", 0) + bool(again)
        self._statuses[name] = status
        self._runs.began[name] = self._now
        return True

    def _run(self, container: Obj) -> bool:
        """Let the container run; whether it has ended."""
        name = container["name"]
        script = self._scripts.get(name, RUNS_ON)
        if script.ends_after is None:
            return False
        running = self._statuses[name]["state"]["running"]
        end = (self._runs.began.get(name) or parse_time(running["startedAt"])) + timedelta(seconds=script.ends_after)
        if end > self._now:
            self._due.append((end - self._now).total_seconds())
            return False
        began = "1970-01-01T00:00:00Z" if script.reason == START_ERROR else running["startedAt"]
        ending = podlib.Ending(0.0, "", script.exit_code, script.end_reason, script.message)
        state = podlib.terminated(
            self._pod, name, ending, began, format_time(max(end, parse_time(running["startedAt"])))
        )
        self._statuses[name] = self._with_state(container, state, ready=self._is_done_init(container, script))
        return True

    def _restart(self, container: Obj, *, init: bool) -> bool:
        """Restart a container that has ended, if and when it is to be; whether it was."""
        name, status = container["name"], self._statuses[container["name"]]
        ended = status["state"].get("terminated") or status["lastState"]["terminated"]
        if not restarts_after(self._pod, container, ended["exitCode"], init=init):
            return False
        at = parse_time(ended["finishedAt"]).timestamp()
        left, pause = self._runs.crashes.wait(name, at, self._now.timestamp())
        if left <= 0:
            self._runs.crashes.started(name, at, self._now.timestamp())
            return self._start(container)
        self._due.append(left)
        if "terminated" in status["state"]:
            where = f"{name_of(self._pod)}_{namespace_of(self._pod)}({uid_of(self._pod)})"
            self._say("Warning", "BackOff", f"Back-off restarting failed container {name} in pod {where}")
            self._wait(container, CRASH_LOOP, crash_message(self._pod, name, pause))
            self._statuses[name]["lastState"] = {"terminated": ended}
        return False

    # -- statuses -----------------------------------------------------------------------------------------------------

    def _with_state(self, container: Obj, state: Obj, *, ready: bool) -> Obj:
        before = self._statuses[container["name"]]
        started = "running" in state
        made = podlib.container_status(self._pod, container, state, ready=ready, started=started)
        return {**made, "lastState": before.get("lastState") or {}, "restartCount": before.get("restartCount", 0)}

    def _waiting(self, container: Obj, reason: str, message: str = "") -> Obj:
        state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        made = podlib.container_status(self._pod, container, state, ready=False, started=False)
        return {**made, "imageID": "", "containerID": ""} if not made["lastState"] else made

    def _wait(self, container: Obj, reason: str, message: str) -> None:
        before = self._statuses[container["name"]]
        kept: Obj = {
            key: before[key] for key in ("lastState", "restartCount", "imageID", "containerID") if key in before
        }
        self._statuses[container["name"]] = {**self._waiting(container, reason, message), **kept}

    def _is_done_init(self, container: Obj, script: Script) -> bool:
        """Whether a container that has ended counts as ready: an init container that did its work."""
        return script.exit_code == 0 and any(one is container for one in self._init) and not is_sidecar(container)

    def _end_sidecars(self) -> None:
        for container in self._init:
            state = self._statuses[container["name"]]["state"]
            if is_sidecar(container) and "running" in state:
                ending = podlib.Ending(0.0, "Succeeded", 0, "Completed")
                began = state["running"]["startedAt"]
                ended = podlib.terminated(self._pod, container["name"], ending, began, self._text)
                self._statuses[container["name"]] = self._with_state(container, ended, ready=False)

    # -- the pod ------------------------------------------------------------------------------------------------------

    def _phase(self) -> str:
        """As kubelets derive it from the containers."""
        never = self._pod["spec"].get("restartPolicy", "Always") == "Never"
        ordinary = [self._statuses[c["name"]] for c in self._init if not is_sidecar(c)]
        if never and any(_exit_code(status) not in (None, 0) for status in ordinary):
            return "Failed"
        main = [(c, self._statuses[c["name"]]) for c in self._main]
        if any("waiting" in status["state"] and not status.get("lastState") for _, status in main):
            return "Pending"
        codes = [_exit_code(status) for _, status in main]
        if None in codes:
            return "Running"
        if any(restarts_after(self._pod, c, code or 0) for (c, _), code in zip(main, codes, strict=True)):
            return "Running"
        return "Failed" if any(codes) else "Succeeded"

    def _conditions(self, phase: str) -> list[Obj]:
        over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
        missing = [c["name"] for c in self._init if not self._statuses[c["name"]]["ready"] and not is_sidecar(c)]
        missing += [c["name"] for c in self._init if is_sidecar(c) and not self._statuses[c["name"]]["started"]]
        begun = any("waiting" not in self._statuses[c["name"]]["state"] for c in self._main)
        incomplete = f"containers with incomplete status: [{' '.join(missing)}]"
        unready = [c["name"] for c in self._main if not self._statuses[c["name"]]["ready"]]
        listed = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
        initialized = podlib.condition(
            "Initialized", self._text, "PodCompleted" if phase == "Succeeded" else "", status=True
        )
        if missing and not begun and not over:
            initialized = podlib.condition(
                "Initialized", self._text, "ContainersNotInitialized", incomplete, status=False
            )
        if over:
            ready = [podlib.condition(t, self._text, over, status=False) for t in ("Ready", "ContainersReady")]
        elif unready:
            ready = [podlib.condition(t, self._text, *listed, status=False) for t in ("Ready", "ContainersReady")]
        else:
            ready = [
                podlib.ready_condition(self._pod, self._text),
                podlib.condition("ContainersReady", self._text, status=True),
            ]
        begins = podlib.condition("PodReadyToStartContainers", self._text, status=not over)
        return [begins, initialized, *ready]

    def _say(self, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._events.append((type_, reason, message))


def _exit_code(status: Obj) -> int | None:
    """The code of a container that has ended, also of one that waits for its restart."""
    state = status["state"]
    ended = state.get("terminated") or (
        (status.get("lastState") or {}).get("terminated") if "waiting" in state else None
    )
    return None if ended is None else int(ended["exitCode"])


def _succeeded(status: Obj) -> bool:
    return (status["state"].get("terminated") or {}).get("exitCode") == 0


def _differs(pod: Obj, condition: Obj) -> bool:
    present = get_condition(pod, condition["type"]) or {}
    return any(present.get(key) != condition[key] for key in ("status", "reason", "message"))
