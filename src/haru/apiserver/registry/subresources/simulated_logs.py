"""The log of a simulated container: what its script prints, read off its spec, annotations and status. Pure.

Simulated kubelets serve no logs, and need to keep none: a script and the start of a container say every line.
Source of the messages: kubelet `kubelet_pods.go`, `validateContainerLogStatus`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from haru.kube.errors import StatusError, bad_request_error
from haru.kube.meta import Obj, is_being_deleted, name_of
from haru.kube.names import parse_time
from haru.kube.pod_containers import containers_of, statuses_of
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.simulated_containers.container_scripts import RUNS_ON, Script, script_of
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.stopped_runs import stopped_script
from haru.kube.simulated_containers.text import as_printed

_NOT_PULLED = {"ImagePullBackOff": "image can't be pulled", "ErrImagePull": "trying and failing to pull image"}
_STREAM = {"Stderr"}
_REST_OF_SECOND = timedelta(microseconds=999_999)
Line = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """One run of a container, from one start to its end (None: it runs), and what its script prints."""

    restarts: int
    began: datetime
    ended: datetime | None
    script: Script

    def printed(self, now: datetime, since: datetime | None = None, most: int | None = None) -> Sequence[Line]:
        """The lines until now, only those after `since` if that is given, and only the last ones."""
        until = now if self.ended is None else min(now, self.ended)
        after = -1.0 if since is None else (since - self.began).total_seconds()
        lines = self.script.printed((until - self.began).total_seconds(), after)
        lines = lines if most is None else lines[max(0, len(lines) - most) :]
        return [(self.began + timedelta(seconds=at), as_printed(text, self.began)) for at, text in lines]

    def ends_line(self, now: datetime) -> bool:
        """Whether a line break follows the last line until now; what is not ended is told with its end."""
        ends_after, until = self.script.ends_after, now if self.ended is None else min(now, self.ended)
        is_over = ends_after is not None and (until - self.began).total_seconds() >= ends_after
        return self.script.ends_line or not is_over

    def seconds_to_next(self, now: datetime) -> float | None:
        """How long it is until the next line; None if there is none."""
        passed = (now - self.began).total_seconds()
        due = self.script.next_line(passed)
        return None if due is None else due - passed


class LogText:
    """Lines as PodLogOptions want them; `option` reads these by name. Raises StatusError for a malformed one."""

    def __init__(self, option: Callable[[str], str], now: datetime) -> None:
        self._since, self.tail = _since(option, now), _whole(option, "tailLines")
        self._stamped, self._left = option("timestamps") in ("true", "1"), _whole(option, "limitBytes")
        self._hidden = option("stream") in _STREAM

    @property
    def is_full(self) -> bool:
        """Whether no more bytes are wanted."""
        return self._left == 0

    def first(self, lines: Sequence[Line]) -> bytes:
        """What is shown of the lines that are there."""
        shown = [line for line in lines if self._since is None or line[0] >= self._since]
        return self.more(shown if self.tail is None else shown[len(shown) - min(self.tail, len(shown)) :])

    def more(self, lines: Iterable[Line]) -> bytes:
        """What is shown of further lines."""
        if self._hidden:
            return b""
        text = "".join(f"{_stamp(at)} {line}\n" if self._stamped else f"{line}\n" for at, line in lines).encode()
        if self._left is not None:
            text = text[: self._left].decode(errors="ignore").encode()
            self._left -= len(text)
        return text


def simulated_log(
    pod: Obj, container: str, option: Callable[[str], str], now: datetime, sources: PodSources = NO_SOURCES
) -> bytes:
    """The lines as `kubectl logs` gets them without `-f`. Raises StatusError."""
    run = container_run(pod, container, sources, previous=option("previous") in ("true", "1"))
    text = LogText(option, now)
    if run is None:
        return b""
    shown = text.first(run.printed(now, most=text.tail))
    return shown if run.ends_line(now) or text.is_full else shown.removesuffix(b"\n")


def container_run(
    pod: Obj,
    container: str,
    sources: PodSources = NO_SOURCES,
    *,
    previous: bool = False,
    seen: datetime | None = None,
) -> ContainerRun | None:
    """The last run of a container, or the one before it; None where nothing is known of one. Raises StatusError.

    `seen` is when the caller has seen that the pod goes.
    """
    spec = next((one for one in containers_of(pod.get("spec") or {}) if one["name"] == container), None)
    status = statuses_of(pod).get(container)
    if spec is None or status is None:
        return None
    began, ended, code = _times(pod, status, previous=previous)
    if sources.network is not None:
        sources = replace(sources, network=replace(sources.network, began={container: began}))
    try:
        script = script_of(pod, spec, sources) or RUNS_ON
        if not previous or not is_being_deleted(pod):
            end = None if ended is None else (ended - _REST_OF_SECOND, code)
            script = stopped_script(pod, spec, script, began, end, sources, seen)
    except (ValueError, ConfigError) as error:
        raise bad_request_error(f"pod {name_of(pod)}: {error}") from error
    return ContainerRun(int(status.get("restartCount") or 0), began, ended, script)


def end_of_run(pod: Obj | None, container: str, restarts: int, now: datetime) -> datetime | None:
    """When the run after so many restarts ended; None if it goes on. Of a pod that is gone: now."""
    status = statuses_of(pod or {}).get(container)
    if status is None:
        return now
    state, count = status.get("state") or {}, int(status.get("restartCount") or 0)
    if count == restarts and "running" in state:
        return None
    ended = (state.get("terminated") if count == restarts else None) or (status.get("lastState") or {}).get(
        "terminated"
    )
    return _ended(ended)[1] if ended and count <= restarts + 1 else now


def _times(pod: Obj, status: Obj, *, previous: bool) -> tuple[datetime, datetime | None, int]:
    """When the container began that is asked for, when it ended, and with which code."""
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    where = f'container "{status["name"]}" in pod "{name_of(pod)}"'
    if previous:
        if last is None:
            raise bad_request_error(f"previous terminated {where} not found")
        return _ended(last)
    if "running" in state:
        return parse_time(state["running"]["startedAt"]), None, 0
    ended = state.get("terminated") or last
    if ended is None:
        reason = (state.get("waiting") or {}).get("reason") or ""
        why = _NOT_PULLED.get(reason, reason)
        raise bad_request_error(f"{where} is waiting to start: {why}" if why else f"{where} is waiting to start")
    return _ended(ended)


def _ended(terminated: Obj) -> tuple[datetime, datetime, int]:
    """When a run began and ended: at the end of the second that its status tells, so that no line is missing."""
    ended = parse_time(terminated["finishedAt"]) + _REST_OF_SECOND
    return parse_time(terminated["startedAt"]), ended, int(terminated.get("exitCode") or 0)


def _since(option: Callable[[str], str], now: datetime) -> datetime | None:
    if option("sinceTime"):
        try:
            return parse_time(option("sinceTime"))
        except ValueError as error:
            raise bad_request_error(f"sinceTime: {error}") from error
    seconds = _whole(option, "sinceSeconds")
    return None if seconds is None else now - timedelta(seconds=seconds)


def _whole(option: Callable[[str], str], name: str) -> int | None:
    text = option(name)
    if text and not (text.isascii() and text.isdigit()):
        raise StatusError(422, "Invalid", f"{name}: Invalid value: {text!r}: must be a whole number")
    return int(text) if text else None


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}000Z"
