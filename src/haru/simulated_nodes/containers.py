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

from haru.kube.container_events import CREATED, STARTED, image_is_present
from haru.kube.container_restarts import (
    ALL_RESTARTING,
    REMOVED,
    RESTART_ALL,
    CrashLoop,
    crash_message,
    is_sidecar,
    matching_action,
    may_restart_all,
    removed_state,
    restarts_after,
    was_removed,
)
from haru.kube.meta import Obj, get_condition, name_of, namespace_of, uid_of
from haru.kube.names import format_time, parse_time
from haru.kube.pod_containers import statuses_of
from haru.kube.simulated_containers.container_scripts import (
    RUNS_ON,
    START_ERROR,
    Script,
    ends_for_others,
    termination_message,
)
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.pod_neighbours import has_shared_volume
from haru.kube.simulated_containers.stop_traps import stop_message
from haru.simulated_nodes import pods as podlib
from haru.simulated_nodes import probes
from haru.simulated_nodes.images import ERR_IMAGE_PULL, IMAGE_PULL_BACK_OFF, pull_problem
from haru.simulated_nodes.pod_scripts import CONFIG_ERROR, CRASH_LOOP, script_of_run
from haru.simulated_nodes.stops import Stop, is_slow_to_stop, stop_of, stops_of

_SHOWN_SECONDS: Final = 1.0
"""How long a failed pull is shown before its back-off is."""
_MOST_STEPS: Final = 8
_CONFIG_SECONDS: Final = 5.0
"""After how long a container that lacks an object is tried again."""


class Event(NamedTuple):
    """What a kubelet tells of a container."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    container: str


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
    told: dict[str, float] = field(default_factory=dict)
    """By container, until when of its run failures of probes have been told."""
    told_to_end: dict[str, datetime] = field(default_factory=dict)
    """Since when a container is stopped that is to be another one."""
    restarting: set[str] = field(default_factory=set)
    """Containers that were killed for a probe, and start again with whatever code they have ended."""
    ending: tuple[datetime, Mapping[str, Stop]] | None = None
    """Since when the sidecars of a pod are stopped whose containers have ended, and how those end that take time."""


def advance(
    pod: Obj, scripts: Mapping[str, Script], runs: PodRuns, now: datetime, sources: PodSources = NO_SOURCES
) -> Outcome:
    """Take the containers of a pod as far as they can go now."""
    return _Advance(pod, scripts, runs, now, sources).outcome()


class _Advance:
    """One pass over a pod."""

    def __init__(
        self, pod: Obj, scripts: Mapping[str, Script], runs: PodRuns, now: datetime, sources: PodSources
    ) -> None:
        self._sources = sources
        self._pod, self._scripts, self._runs, self._now = pod, scripts, runs, now
        self._text = format_time(now)
        self._events: list[Event] = []
        self._due: list[float] = []
        spec, status = pod["spec"], pod.get("status") or {}
        self._init: Sequence[Obj] = spec.get("initContainers") or ()
        self._main: Sequence[Obj] = spec.get("containers") or ()
        self._ephemeral: Sequence[Obj] = spec.get("ephemeralContainers") or ()
        reason = "PodInitializing" if self._init else "ContainerCreating"
        known = statuses_of(pod)
        self._statuses = {
            c["name"]: known.get(c["name"]) or self._waiting(c, reason)
            for c in (*self._init, *self._main, *self._ephemeral)
        }
        self._before = status

    def outcome(self) -> Outcome:
        """The status after this pass."""
        if self._phase() not in podlib.TERMINAL:  # otherwise it ends, and no sidecar starts again
            self._advance_all()
        if any(self._asks_for_all(container) for container in (*self._init, *self._main)):
            self._remove_all()
            self._advance_all()
        phase = self._phase()
        if phase in podlib.TERMINAL and not self._end_others():
            phase = "Running"
        main = podlib.by_name(self._statuses[c["name"]] for c in self._main)
        status: Obj = {"phase": phase, "containerStatuses": main}
        if self._init:
            status["initContainerStatuses"] = [self._statuses[c["name"]] for c in self._init]
        if self._ephemeral:
            status["ephemeralContainerStatuses"] = [self._statuses[c["name"]] for c in self._ephemeral]
        changed = any(self._before.get(key) != value for key, value in status.items())
        conditions = self._conditions(phase)
        changed = changed or any(_differs(self._pod, condition) for condition in conditions)
        changed = changed or podlib.newly_observed(self._pod) is not None
        due = min(self._due, default=None)
        return Outcome({**status, "conditions": conditions} if changed else None, self._events, due)

    def _advance_all(self) -> None:
        if self._initialized() or self._has_begun():
            for container in self._main:
                self._advance(container, init=False)
        for container in self._ephemeral:
            self._advance(container, init=False)

    def _asks_for_all(self, container: Obj) -> bool:
        """Whether it has ended so that all containers are to start again (KEP-5532)."""
        ended = self._statuses[container["name"]]["state"].get("terminated")
        return ended is not None and matching_action(container, ended["exitCode"]) == RESTART_ALL

    def _remove_all(self) -> None:
        """All begin anew in their sandbox, without a pause; one that asks at once again does so a second later."""
        self._due.append(_SHOWN_SECONDS)
        for container in (*self._init, *self._main):
            name, waiting = container["name"], self._statuses[container["name"]]["state"].get("waiting")
            if "running" in self._statuses[name]["state"]:
                self._say(name, "Normal", "Killing", "killing")
            self._runs.crashes.forget(name)
            if waiting is None or waiting.get("reason") == CRASH_LOOP:
                self._wait(container, REMOVED["reason"], REMOVED["message"])
                self._statuses[name]["lastState"] = removed_state()

    # -- one container ------------------------------------------------------------------------------------------------

    def _initialized(self) -> bool:
        """Whether the containers of the pod may start: every init container has ended well, every sidecar runs."""
        for container in self._init:
            if is_sidecar(container):
                self._advance(container, init=True)
                status = self._statuses[container["name"]]
                if not status["started"] and ("startupProbe" in container or _exit_code(status) is None):
                    return False
            elif not _succeeded(self._statuses[container["name"]]):
                self._advance(container, init=True)
                if not _succeeded(self._statuses[container["name"]]):
                    return False
        return True

    def _has_begun(self) -> bool:
        """Whether the pod was initialized before: a sidecar that is restarted holds nothing back."""
        began = (self._statuses[c["name"]] for c in self._main)
        return any("waiting" not in one["state"] or _exit_code(one) is not None for one in began)

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
        problem = pull_problem(self._pod, container)
        if problem is None:
            return True
        now, state = self._now.timestamp(), self._statuses[name]["state"].get("waiting", {})
        if problem.reason != ERR_IMAGE_PULL:
            if state.get("reason") != problem.reason:
                self._say(name, "Warning", problem.event, problem.message)
                self._say(name, "Warning", "Failed", f"Error: {problem.reason}")
                self._wait(container, problem.reason, problem.message)
            return False
        failed = self._runs.failed_pulls.get(name, 0.0)
        left, _ = self._runs.pulls.wait(name, failed, now)
        if left > 0:
            self._due.append(left if state.get("reason") == IMAGE_PULL_BACK_OFF else min(left, _SHOWN_SECONDS))
            if state.get("reason") != IMAGE_PULL_BACK_OFF and now - failed >= _SHOWN_SECONDS:
                self._due[-1] = left
                text = f'Back-off pulling image "{image}"'
                self._say(name, "Normal", "BackOff", text)
                self._say(name, "Warning", "Failed", f"Error: {IMAGE_PULL_BACK_OFF}")
                self._wait(container, IMAGE_PULL_BACK_OFF, f"{text}: {ERR_IMAGE_PULL}: {problem.message}")
            return False
        self._runs.pulls.started(name, failed or now, now)
        self._runs.failed_pulls[name] = now
        self._say(name, "Normal", "Pulling", f'Pulling image "{image}"')
        self._say(name, "Warning", "Failed", f'Failed to pull image "{image}": {problem.message}')
        self._say(name, "Warning", "Failed", f"Error: {ERR_IMAGE_PULL}")
        self._wait(container, ERR_IMAGE_PULL, problem.message)
        self._due.append(_SHOWN_SECONDS)
        return False

    def _start(self, container: Obj) -> bool:
        """Start the container; whether it was, as its end may have come."""
        name, image = container["name"], container.get("image") or ""
        before = self._statuses[name]
        again = before.get("state", {}).get("terminated") or (before.get("lastState") or {}).get("terminated")
        script = self._scripts.get(name, RUNS_ON)
        if script.reason == CONFIG_ERROR:
            if (before["state"].get("waiting") or {}).get("reason") != CONFIG_ERROR:
                self._say(name, "Normal", "Pulled", image_is_present(image))
            if (before["state"].get("waiting") or {}).get("message") != script.message:
                self._say(name, "Warning", "Failed", f"Error: {script.message}")
                self._wait(container, CONFIG_ERROR, script.message)
            self._due.append(_CONFIG_SECONDS)
            return False
        self._say(name, "Normal", "Pulled", image_is_present(image))
        self._say(name, "Normal", "Created", CREATED)
        if script.reason == START_ERROR:
            self._say(name, "Warning", "Failed", f"Error: {script.message}")
        else:
            self._say(name, "Normal", "Started", STARTED)
        count = before.get("restartCount", 0) + bool(again)
        started, ready = self._state_at(container, self._health(container), 0.0)
        state = {"running": {"startedAt": self._text}}
        made = podlib.container_status(self._pod, container, state, ready=ready, started=started, restarts=count)
        self._statuses[name] = {**made, "lastState": {"terminated": again} if again else {}}
        self._runs.began[name] = self._now
        self._runs.told_to_end.pop(name, None)
        self._runs.restarting.discard(name)
        self._runs.told[name] = -1.0
        if (again or self._init) and has_shared_volume(self._pod):
            # It finds what its runs before, and those that began earlier, have left there.
            self._scripts = {**self._scripts, name: script_of_run(self._with_statuses(), container, self._sources)}
        return True

    def _run(self, container: Obj) -> bool:
        """Let the container run; whether it has ended."""
        name, status = container["name"], self._statuses[container["name"]]
        script = self._scripts.get(name, RUNS_ON)
        running = status["state"]["running"]
        began = self._runs.began.get(name) or parse_time(running["startedAt"])
        elapsed = (self._now - began).total_seconds()
        if (why := podlib.restart_reason(container, status)) and self._stop(container, why, began):
            return self._pull(container) and self._start(container)
        health = self._health(container)
        self._tell_failures(name, health, elapsed)
        end, killed = script.ends_after, health.killed
        if killed is not None and (end is None or killed[0] < end):
            stop = stop_of(self._pod, container, self._probe_grace(container, killed[1]))
            message = stop_message(self._pod, container)
            script = Script((), killed[0] + stop.after, stop.exit_code, message=message)
            end = script.ends_after
            if end is not None and elapsed >= end:
                self._tell_kill(container, killed[1])
        if end is not None and elapsed >= end:
            self._end(container, script, began)
            return True
        self._due += [at - elapsed for at in (end, health.next_change(elapsed)) if at is not None and at > elapsed]
        started, ready = self._state_at(container, health, elapsed)
        if (status.get("started", False), status["ready"]) != (started, ready):
            self._statuses[name] = {**status, "started": started, "ready": ready}
        return False

    def _stop(self, container: Obj, why: str, began: datetime) -> bool:
        """Stop a container that is to be another one; whether it has come to its end."""
        name = container["name"]
        if name not in self._runs.told_to_end:
            self._say(name, "Normal", "Killing", f"Container {name} {why}")
        told = self._runs.told_to_end.setdefault(name, self._now)
        stop = stop_of(self._pod, container, self._grace())
        if (left := stop.after - (self._now - told).total_seconds()) > 0:
            self._due.append(left)
            return False
        after, message = (told - began).total_seconds() + stop.after, stop_message(self._pod, container)
        self._end(container, Script((), after, stop.exit_code, message=message), began)
        return True

    def _end(self, container: Obj, script: Script, began: datetime) -> None:
        """The container has ended by its script."""
        name, running = container["name"], self._statuses[container["name"]]["state"]["running"]
        told = "1970-01-01T00:00:00Z" if script.reason == START_ERROR else running["startedAt"]
        message = termination_message(container, script, began)
        ending = podlib.Ending(0.0, "", script.exit_code, script.end_reason, message)
        at = format_time(max(began + timedelta(seconds=script.ends_after or 0.0), parse_time(running["startedAt"])))
        state = podlib.terminated(self._pod, name, ending, told, at)
        is_ready = script.exit_code == 0 and ends_for_others(self._pod, container)
        self._statuses[name] = self._with_state(container, state, ready=is_ready)

    # -- probes -------------------------------------------------------------------------------------------------------

    def _state_at(self, container: Obj, health: probes.Health, elapsed: float) -> tuple[bool, bool]:
        """Whether the container counts as started, and as ready; an init container is ready once it has ended."""
        if self._is_ephemeral(container):
            return False, False
        if is_sidecar(container) or any(one is container for one in self._main):
            return health.at(elapsed)
        return True, False

    def _is_ephemeral(self, container: Obj) -> bool:
        return any(one is container for one in self._ephemeral)

    def _health(self, container: Obj) -> probes.Health:
        if not probes.has_effect(self._pod, container, self._sources):
            return probes.WELL
        return probes.health_of(self._pod, container, self._sources)

    def _tell_failures(self, name: str, health: probes.Health, elapsed: float) -> None:
        since = self._runs.told.setdefault(name, elapsed)
        for failure in health.failures:
            if since < failure.at <= elapsed:
                self._say(name, "Warning", "Unhealthy", f"{failure.probe} probe failed: {failure.output}")
        self._runs.told[name] = max(since, elapsed)

    def _tell_kill(self, container: Obj, cause: str) -> None:
        name, text = container["name"], f"failed {cause} probe"
        if cause == probes.POST_START:
            self._say(name, "Warning", "FailedPostStartHook", "PostStartHook failed")
            self._say(name, "Normal", "Killing", "FailedPostStartHook")
        elif is_sidecar(container):
            self._say(name, "Normal", "Killing", f"Init container {name} {text}")
        elif (container.get("restartPolicy") or self._pod["spec"].get("restartPolicy")) != "Never":
            self._runs.restarting.add(name)
            self._say(name, "Normal", "Killing", f"Container {name} {text}, will be restarted")
        else:
            others = any("running" in self._statuses[c["name"]]["state"] for c in self._main if c is not container)
            self._say(name, "Normal", "Killing", f"Container {name} {text}" if others else f"Stopping container {name}")

    def _grace(self) -> float:
        seconds = self._pod["spec"].get("terminationGracePeriodSeconds")
        return 30.0 if seconds is None else float(seconds)

    def _probe_grace(self, container: Obj, probe: str) -> float:
        seconds = (container.get(f"{probe}Probe") or {}).get("terminationGracePeriodSeconds")
        return self._grace() if seconds is None else float(seconds)

    def _restart(self, container: Obj, *, init: bool) -> bool:
        """Restart a container that has ended, if and when it is to be; whether it was."""
        name, status = container["name"], self._statuses[container["name"]]
        ended = status["state"].get("terminated") or status["lastState"]["terminated"]
        if self._asks_for_all(container):
            return False
        is_due = name in self._runs.restarting or restarts_after(self._pod, container, ended["exitCode"], init=init)
        if self._is_ephemeral(container) or not is_due:
            return False
        at = parse_time(ended["finishedAt"]).timestamp()
        if status.get("image", "") != (container.get("image") or ""):
            self._runs.crashes.forget(name)
        left, pause = self._runs.crashes.wait(name, at, self._now.timestamp())
        if left <= 0:
            if not self._pull(container):
                return False
            self._runs.crashes.started(name, at, self._now.timestamp())
            return self._start(container)
        self._due.append(left)
        if "terminated" in status["state"]:
            where = f"{name_of(self._pod)}_{namespace_of(self._pod)}({uid_of(self._pod)})"
            self._say(name, "Warning", "BackOff", f"Back-off restarting failed container {name} in pod {where}")
            self._wait(container, CRASH_LOOP, crash_message(self._pod, name, pause))
        return False

    # -- statuses -----------------------------------------------------------------------------------------------------

    def _with_state(self, container: Obj, state: Obj, *, ready: bool) -> Obj:
        before = self._statuses[container["name"]]
        count = before.get("restartCount", 0)
        made = podlib.container_status(self._pod, container, state, ready=ready, started=False, restarts=count)
        if "terminated" in state:
            state["terminated"]["containerID"] = made["containerID"]
        return {**made, "image": before.get("image", made["image"]), "lastState": before.get("lastState") or {}}

    def _waiting(self, container: Obj, reason: str, message: str = "") -> Obj:
        state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        made = podlib.container_status(self._pod, container, state, ready=False, started=False)
        return {**made, "imageID": "", "containerID": ""} if not made["lastState"] else made

    def _wait(self, container: Obj, reason: str, message: str) -> None:
        before = self._statuses[container["name"]]
        kept: Obj = {key: before[key] for key in ("restartCount", "imageID", "containerID") if key in before}
        ended = before["state"].get("terminated")
        kept["lastState"] = {"terminated": ended} if ended else before.get("lastState") or {}
        self._statuses[container["name"]] = {**self._waiting(container, reason, message), **kept}

    def _end_others(self) -> bool:
        """Sidecars and ephemeral containers end with the pod, each in its time; whether all have."""
        running = {name for name, one in self._statuses.items() if "running" in one["state"]}
        if self._runs.ending is None:
            slow = [one for one in self._init if is_slow_to_stop(self._pod, one)]
            stops = stops_of(self._with_statuses(), self._grace()) if slow else {}
            self._runs.ending = self._now, {one["name"]: stops[one["name"]] for one in slow if one["name"] in stops}
            for container in reversed(self._init):
                if container["name"] in running:
                    self._say(container["name"], "Normal", "Killing", f"Stopping container {container['name']}")
        told, known = self._runs.ending
        for container in (*self._init, *self._ephemeral):
            name = container["name"]
            if name not in running:
                continue
            stop = known.get(name, Stop(0.0, 0))
            if (left := stop.after - (self._now - told).total_seconds()) > 0:
                self._due.append(left)
                continue
            running.discard(name)
            began = self._statuses[name]["state"]["running"]["startedAt"]
            reason = "Error" if stop.exit_code else "Completed"
            ending = podlib.Ending(0.0, "", stop.exit_code, reason, stop_message(self._pod, container))
            at = format_time(max(told + timedelta(seconds=stop.after), parse_time(began)))
            ended = podlib.terminated(self._pod, name, ending, began, at)
            self._statuses[name] = self._with_state(container, ended, ready=False)
        return not running

    def _with_statuses(self) -> Obj:
        """The pod with the statuses that its containers have by now."""
        members = {"initContainerStatuses": self._init, "containerStatuses": self._main}
        now = {name: [self._statuses[one["name"]] for one in these] for name, these in members.items()}
        return {**self._pod, "status": {**(self._pod.get("status") or {}), **now}}

    # -- the pod ------------------------------------------------------------------------------------------------------

    def _phase(self) -> str:
        """As kubelets derive it from the containers."""
        for container in (one for one in self._init if not is_sidecar(one)):
            code = _exit_code(self._statuses[container["name"]])
            if code and not restarts_after(self._pod, container, code, init=True):
                return "Failed"
        main = [(c, self._statuses[c["name"]]) for c in self._main]
        if any("waiting" in status["state"] and not status.get("lastState") for _, status in main):
            return "Pending"
        codes = [_exit_code(status) for _, status in main]
        if None in codes:
            return "Running"
        if any(restarts_after(self._pod, c, code or 0) for (c, _), code in zip(main, codes, strict=True)):
            return "Running"
        if any(container["name"] in self._runs.restarting for container in self._main):
            return "Running"
        return "Failed" if any(codes) else "Succeeded"

    def _conditions(self, phase: str) -> list[Obj]:
        over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
        done = {c["name"]: "started" if is_sidecar(c) else "ready" for c in self._init}
        missing = [name for name, member in done.items() if not self._statuses[name][member]]
        begun = any("waiting" not in self._statuses[c["name"]]["state"] for c in self._main)
        incomplete = f"containers with incomplete status: [{' '.join(missing)}]"
        able = [*(c for c in self._init if is_sidecar(c)), *self._main]
        unready = [c["name"] for c in able if not self._statuses[c["name"]]["ready"]]
        listed = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
        initialized = podlib.condition(
            "Initialized", self._text, "PodCompleted" if phase == "Succeeded" else "", status=True
        )
        if missing and not begun and phase != "Succeeded":
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
        conditions = [begins, initialized, *ready]
        if may_restart_all(self._pod["spec"]):
            conditions.append(podlib.condition(ALL_RESTARTING, self._text, over, status=False))
        return conditions

    def _say(self, name: str, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._events.append(Event(type_, reason, message, name))


def _exit_code(status: Obj) -> int | None:
    """The code of a container that has ended, also of one that waits for its restart."""
    state = status["state"]
    ended = state.get("terminated") or (
        (status.get("lastState") or {}).get("terminated") if "waiting" in state else None
    )
    return None if ended is None or was_removed(ended) else int(ended["exitCode"])


def _succeeded(status: Obj) -> bool:
    return (status["state"].get("terminated") or {}).get("exitCode") == 0


def _differs(pod: Obj, condition: Obj) -> bool:
    present = get_condition(pod, condition["type"]) or {}
    return any(present.get(key) != condition[key] for key in ("status", "reason", "message"))
