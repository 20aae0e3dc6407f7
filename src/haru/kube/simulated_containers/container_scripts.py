"""What a simulated container does: what it prints, how long it runs and how it ends. Pure.

Its annotations say so (`simulation.py`); what they leave open, its command says, if it is one that `trivial_shell.py`
understands. Any other container runs until it is stopped, but for init containers, which end.
Source: exit codes, reasons and termination messages as kubelet and containerd report them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from haru.kube.container_restarts import is_sidecar
from haru.kube.meta import Obj
from haru.kube.simulated_containers import simulation
from haru.kube.simulated_containers.container_shell import ContainerShell
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.kubelet_files import TERMINATION_LOG
from haru.kube.simulated_containers.pod_neighbours import restarts_of
from haru.kube.simulated_containers.shell_output import Ran
from haru.kube.simulated_containers.simulation import OOM_EXIT_CODE, course, own_setting, setting
from haru.kube.simulated_containers.standard_input import given_by
from haru.kube.simulated_containers.test_images import image_argv
from haru.kube.simulated_containers.text import as_printed, turned
from haru.kube.simulated_containers.trivial_shell import BUILTINS, OOM_KILLED

START_ERROR: Final = "StartError"
_START_EXIT_CODE: Final = 128
_NOT_FOUND: Final = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: error during container init: exec: "{}": executable file not found in $PATH'
)
_MOST_LINES: Final = 100_000
_MESSAGE_BYTES, _LOG_BYTES, _LOG_LINES = 4096, 2048, 80


@dataclass(frozen=True, slots=True)
class Script:
    """What a container prints, by seconds from its start, and how it ends; without an end it runs on."""

    lines: tuple[tuple[float, str], ...] = ()
    ends_after: float | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    repeats: tuple[tuple[float, float, str], ...] = ()
    """Lines that are printed again and again: when first, after how many seconds again, and the text."""
    ends_line: bool = True
    """Whether a line break follows the last line."""
    understood: bool = True
    """Whether what it does is known, and not only what it does first."""
    awaits_input: bool = False
    """Whether it waits for input that nobody has given."""

    @property
    def end_reason(self) -> str:
        """The reason of the state `terminated`."""
        return self.reason or ("Error" if self.exit_code else "Completed")

    def printed(self, until: float, since: float = -1.0) -> list[tuple[float, str]]:
        """The lines printed after `since`, until then, in order."""
        if self.ends_after is not None:
            until = min(until, self.ends_after)
        lines = [line for line in self.lines if since < line[0] <= until]
        if not self.repeats:
            return lines
        for first, every, text in self.repeats:
            number = max(0, math.floor((since - first) / every) + 1) if since >= first else 0
            last = math.floor((until - first) / every)
            number = max(number, last - _MOST_LINES)
            turns = range(number, last + 1)
            lines += [(first + turn * every, turned(text, turn)) for turn in turns if first + turn * every > since]
        return sorted(lines, key=lambda line: line[0])

    def next_line(self, after: float) -> float | None:
        """When the next line after then is due; None if there is none."""
        due = [at for at, _ in self.lines if at > after][:1]
        for first, every, _ in self.repeats:
            turn = math.floor((after - first) / every) + 1 if after >= first else 0
            at = first + turn * every
            due.append(at if at > after else at + every)
        return min(due, default=None)


RUNS_ON: Final = Script()
ENDS_AT_ONCE: Final = Script(ends_after=0.0)
_UNKNOWN: Final = Script(understood=False)


def script_of(pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES) -> Script | None:
    """What a container does; None if nothing says so.

    Such a container runs on; an init container that others wait for ends at once: what it does is for them.
    Raises ValueError for a malformed annotation, `ConfigError` if the container lacks an object.
    """
    script, came_to = _from_command(pod, container, sources)
    if simulation.is_annotated(pod):
        script = _annotated(pod, container, script)
    if ends_for_others(pod, container):
        if script.ends_after is None and not script.understood and script != _UNKNOWN:
            script = replace(script, ends_after=came_to)
        return None if script == _UNKNOWN else script
    return None if script in (RUNS_ON, _UNKNOWN) else script


def ends_for_others(pod: Obj, container: Mapping[str, Any]) -> bool:
    """Whether it is an init container that has to end before others start."""
    of_init = (pod.get("spec") or {}).get("initContainers") or ()
    return any(one["name"] == container["name"] and not is_sidecar(one) for one in of_init)


def ending_reason(fail: str) -> tuple[str, str, int]:
    """Reason, message and exit code of the text of an annotation `fail`."""
    reason, _, message = fail.partition(":")
    name = reason.strip()
    return name or "Error", message.strip() or fail.strip(), OOM_EXIT_CODE if name == OOM_KILLED else 1


def is_number(fail: str) -> bool:
    """Whether an annotation `fail` is a time in place of a reason."""
    return re.fullmatch(r"[0-9]+(\.[0-9]*)?", fail) is not None


def _annotated(pod: Obj, container: Mapping[str, Any], script: Script) -> Script:
    name = container["name"]
    run, fail = own_setting(pod, name, simulation.RUN_SECONDS), own_setting(pod, name, simulation.FAIL)
    code, signal = own_setting(pod, name, simulation.EXIT_CODE), own_setting(pod, name, simulation.SIGNAL)
    key = f"{{}}.{simulation.DOMAIN}/{name}".format
    if run is not None:
        script = Script(script.lines, simulation.seconds_of(key(simulation.RUN_SECONDS), run), repeats=script.repeats)
    elif fail is not None or code is not None or signal is not None:
        script = replace(script, ends_after=script.ends_after or 0.0, exit_code=0, reason="")
    if fail is not None:
        if is_number(fail):
            script = replace(script, ends_after=float(fail), exit_code=1)
        else:
            reason, message, usual = ending_reason(fail)
            script = replace(script, exit_code=usual, reason=reason, message=message)
    if signal is not None:
        script = replace(script, exit_code=simulation.signal_of(key(simulation.SIGNAL), signal))
    if code is not None:
        script = replace(script, exit_code=simulation.exit_code_of(key(simulation.EXIT_CODE), code, least=0))
    if (log := setting(pod, name, simulation.LOG)) is not None:
        entries = course(log, "\n")
        lines = tuple((entry.at, entry.value) for entry in entries if not entry.every)
        repeats = tuple((entry.at, entry.every, entry.value) for entry in entries if entry.every)
        script = replace(script, lines=lines, repeats=repeats)
    given_by(own_setting(pod, name, simulation.STDIN) or "[]")
    if (said := setting(pod, name, simulation.TERMINATION_MESSAGE)) is not None:
        script = replace(script, message=said)
    return script


def termination_message(container: Mapping[str, Any], script: Script, began: datetime) -> str:
    """What a container that ended by its script leaves behind, as its terminationMessagePolicy wants it."""
    if script.message:
        return as_printed(script.message, began).encode()[:_MESSAGE_BYTES].decode(errors="ignore")
    if container.get("terminationMessagePolicy") != "FallbackToLogsOnError" or not script.exit_code:
        return ""
    lines = script.printed(script.ends_after or 0.0)[-_LOG_LINES:]
    text = "".join(f"{as_printed(line, began)}\n" for _, line in lines)
    return (text if script.ends_line else text[:-1]).encode()[-_LOG_BYTES:].decode(errors="ignore")


def _after_restarts(pod: Obj, container: Mapping[str, Any], sources: PodSources) -> tuple[ContainerShell, Ran]:
    """The present run of a container, which finds what those before it have written into volumes."""
    shell = ContainerShell(pod, container, sources)
    ran = shell.run_container() or Ran()
    written: dict[str, str] = {}
    for _ in range(restarts_of(pod, container["name"])):
        if shell.files.volume_files() == written:
            break
        written = shell.files.volume_files()
        shell = ContainerShell(pod, container, sources)
        shell.files.share(written)
        ran = shell.run_container() or Ran()
    return shell, ran


def _from_command(pod: Obj, container: Mapping[str, Any], sources: PodSources) -> tuple[Script, float]:
    """What the command of a container does, and when it came to what is not understood, if it did."""
    given = image_argv(container)
    if not given:
        return _UNKNOWN, 0.0
    if given[0] in BUILTINS:
        return Script((), 0.0, _START_EXIT_CODE, START_ERROR, _NOT_FOUND.format(given[0])), 0.0
    shell, ran = _after_restarts(pod, container, sources)
    lines = tuple((one.at, one.text) for one in ran.lines if not one.every)
    repeats = tuple((one.at, one.every, one.text) for one in ran.lines if one.every)
    script = Script(
        lines,
        ran.ends_after,
        ran.exit_code,
        repeats=repeats,
        ends_line=ran.ends_line,
        understood=not ran.unknown,
        awaits_input=ran.awaits_input,
    )
    if ran.killed:
        script = replace(script, exit_code=OOM_EXIT_CODE, reason=ran.killed)
    if written := shell.files.get(container.get("terminationMessagePath") or TERMINATION_LOG):
        script = replace(script, message=written)
    return script, ran.stopped_at
