"""What the probes of a simulated container answer, and what follows from it, as a function of its time. Pure.

An annotation says what a probe answers, as a course of `ok` and `fail`; otherwise a probe that runs a trivial command
answers by its exit code, on the files that the container has written by then, a server of files by whether there is
the one that is asked for, and any other succeeds. Nothing runs between two changes: the turning points are computed.
Source: kubelet `prober` (thresholds in a row; readiness and liveness after the startup probe), as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj
from haru.kube.simulated_containers.container_shell import change_times, run_beside
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.shell_output import Ran
from haru.kube.simulated_containers.simulation import DOMAIN, Entry, course, is_annotated, setting
from haru.kube.simulated_containers.test_images import probe_failure, served_path

_FIELDS: Final = {"Startup": "startupProbe", "Readiness": "readinessProbe", "Liveness": "livenessProbe"}
POST_START: Final = "postStart"
_ALWAYS: Final = (Entry(0.0, "ok"),)
_PRINTED: Final = "fail:\0"
"""Before what a failing command has printed, which may be nothing."""
_NOT_FOUND: Final = "HTTP probe failed with statuscode: 404"


class Turn(NamedTuple):
    """From when on a probe counts as having succeeded or failed."""

    at: float
    success: bool


class Failure(NamedTuple):
    """An attempt that failed and is told: which probe, and its output."""

    at: float
    probe: str
    output: str


@dataclass(frozen=True, slots=True)
class Health:
    """What the probes make of one run of a container; times in seconds from its start."""

    started: float | None = 0.0
    """When it counts as started; None if it never does."""
    readiness: tuple[Turn, ...] = ()
    killed: tuple[float, str] | None = None
    """When it is killed, and for which probe or hook."""
    failures: tuple[Failure, ...] = ()

    def at(self, seconds: float) -> tuple[bool, bool]:
        """Whether the container counts as started, and as ready, after so many seconds."""
        if self.started is None or seconds < self.started:
            return False, False
        ready = [turn.success for turn in self.readiness if turn.at <= seconds]
        return True, ready[-1] if ready else False

    def next_change(self, seconds: float) -> float | None:
        """When the next change after then is due; None if there is none."""
        times = [turn.at for turn in self.readiness] + [failure.at for failure in self.failures]
        if self.started is not None:
            times.append(self.started)
        if self.killed is not None:
            times.append(self.killed[0])
        return min((at for at in times if at > seconds), default=None)


WELL: Final = Health(readiness=(Turn(0.0, True),))
"""A container whose probes, if it has any, succeed at once."""


def has_effect(pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES) -> bool:
    """Whether the probes of a container, or its first hook, make a difference."""
    hooks = container.get("lifecycle") or {}
    if POST_START not in hooks and not any(field in container for field in _FIELDS.values()):
        return False
    return health_of(pod, container, sources) != WELL


def health_of(pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES) -> Health:
    """What the probes make of a container. Raises ValueError for a malformed annotation."""
    hook = _post_start(pod, container, sources)
    if not hook.success or hook.at == math.inf:
        return Health(None, killed=None if hook.success else (hook.at, POST_START))
    started: float | None = hook.at
    killed: tuple[float, str] | None = None
    failures: list[Failure] = []
    if startup := container.get("startupProbe"):
        answers = _answers(pod, container, "Startup", sources)
        turns = _turns(startup, answers, hook.at)
        first = turns[0] if turns else None
        started = first.at if first is not None and first.success else None
        if first is not None and not first.success:
            killed = first.at, "startup"
        failures += _failures(startup, answers, "Startup", hook.at, first.at if first else math.inf)
    readiness: Sequence[Turn] = (Turn(started or 0.0, True),)
    if started is not None and (probe := container.get("readinessProbe")):
        answers = _answers(pod, container, "Readiness", sources)
        readiness = _turns(probe, answers, started)
        failures += _failures(probe, answers, "Readiness", started, math.inf)
    if started is not None and (probe := container.get("livenessProbe")):
        answers = _answers(pod, container, "Liveness", sources)
        dead = next((turn.at for turn in _turns(probe, answers, started) if not turn.success), None)
        if dead is not None:
            killed = dead, "liveness"
        failures += _failures(probe, answers, "Liveness", started, dead if dead is not None else math.inf)
    return Health(started, tuple(readiness), killed, tuple(sorted(failures)))


def _post_start(pod: Obj, container: Mapping[str, Any], sources: PodSources) -> Turn:
    """When the hook `postStart` has ended, and whether well; one that is not understood takes no time."""
    hook = (container.get("lifecycle") or {}).get("postStart") or {}
    if "sleep" in hook:
        return Turn(float(hook["sleep"].get("seconds") or 0), True)
    command = (hook.get("exec") or {}).get("command")
    before = {**container, "lifecycle": {}}  # the files as the hook finds them
    ran = run_beside(pod, before, command, sources, 0.0) if command else None
    if ran is None or ran.unknown:
        return Turn(0.0, True)
    return Turn(math.inf, True) if ran.ends_after is None else Turn(ran.ends_after, ran.exit_code == 0)


def _answers(pod: Obj, container: Mapping[str, Any], name: str, sources: PodSources) -> Sequence[Entry]:
    key = f"{name.lower()}-probe"
    said = setting(pod, container["name"], key) if is_annotated(pod) else None
    if said is not None:
        entries = course(said)
        if not entries or any(entry.every or entry.value.split(":")[0] not in ("ok", "fail") for entry in entries):
            raise ValueError(f'annotation {key} of {DOMAIN}: "{said}": write ok or fail, for example "fail; @30 ok"')
        return entries
    probe = container[_FIELDS[name]]
    command, told = (probe.get("exec") or {}).get("command"), ""
    failing = None if command else probe_failure(container, probe)
    if failing is None and (path := served_path(container, probe)):
        command, told = ["test", "-e", path], _NOT_FOUND
    if command:
        times = change_times(pod, container, sources)
        return tuple(_exec_answer(pod, container, command, sources, at, told) for at in times)
    if failing is None:
        return _ALWAYS
    return (*(_ALWAYS if failing[0] else ()), Entry(failing[0], f"fail: {failing[1]}"))


def _exec_answer(
    pod: Obj, container: Mapping[str, Any], command: Sequence[str], sources: PodSources, at: float, told: str
) -> Entry:
    """What a command answers from then on, on the files that the container has written by then.

    Its failure is told by its output, unless there are other words for it.
    """
    ran = run_beside(pod, container, command, sources, at)
    fails = ran.ends_after is not None and ran.exit_code
    return Entry(at, f"{_PRINTED}{told or _output(ran)}" if fails else "ok")


def _output(ran: Ran) -> str:
    text = "".join(f"{line.text}\n" for line in ran.lines)
    return text if ran.ends_line else text[:-1]


def _period(probe: Mapping[str, Any]) -> float:
    return float(probe.get("periodSeconds") or 10)


def _stretches(probe: Mapping[str, Any], answers: Sequence[Entry], begin: float) -> Iterator[tuple[float, int, str]]:
    """The attempts in a row with one answer: the time of the first, how many there are (-1: no end), the answer."""
    first, period = max(begin, float(probe.get("initialDelaySeconds") or 0)), _period(probe)
    for number, entry in enumerate(answers):
        end = answers[number + 1].at if number + 1 < len(answers) else math.inf
        low = max(0, math.ceil((entry.at - first) / period)) if number else 0
        high = -1 if end == math.inf else math.ceil((end - first) / period)
        if high < 0 or high > low:
            yield first + low * period, high - low if high >= 0 else -1, entry.value


def _turns(probe: Mapping[str, Any], answers: Sequence[Entry], begin: float) -> list[Turn]:
    """When enough attempts in a row have succeeded, or failed, to change what the probe says."""
    turns: list[Turn] = []
    row, before = 0, None
    for at, count, answer in _stretches(probe, answers, begin):
        success = answer == "ok"
        row = row if success == before else 0
        before = success
        needed = int((probe.get("successThreshold") or 1) if success else (probe.get("failureThreshold") or 3))
        missing = max(1, needed - row)
        if (count < 0 or count >= missing) and (not turns or turns[-1].success != success):
            turns.append(Turn(at + (missing - 1) * _period(probe), success))
        row += max(count, 0)
    return turns


def _failures(
    probe: Mapping[str, Any], answers: Sequence[Entry], name: str, begin: float, end: float
) -> Iterator[Failure]:
    """The first failing attempt of each row, and the one that turns what the probe says."""
    turned = {turn.at for turn in _turns(probe, answers, begin) if not turn.success}
    for at, count, answer in _stretches(probe, answers, begin):
        if answer == "ok":
            continue
        output = answer.partition(":")[2].strip() or "simulated failure"
        if answer.startswith(_PRINTED):
            output = answer.removeprefix(_PRINTED)
        last = at + (count - 1) * _period(probe) if count >= 0 else math.inf
        for moment in sorted({at, *(turn for turn in turned if at <= turn <= last)}):
            if moment <= end:
                yield Failure(moment, name, output)
