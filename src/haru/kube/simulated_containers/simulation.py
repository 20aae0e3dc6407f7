"""The annotations `simulated.haru.dev/…`: what a simulated pod, or one container of it, is to do. Pure.

`simulated.haru.dev/KEY` is about all containers of a pod, `KEY.simulated.haru.dev/CONTAINER` about one. Values that
change while a container runs are courses: entries separated by `;` or line breaks, each from `@SECONDS` after the
container's start on, the first one from its start.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from haru.kube import yaml
from haru.kube.meta import Obj, annotations_of

DOMAIN: Final = "simulated.haru.dev"
RUN_SECONDS: Final = "run-seconds"
FAIL: Final = "fail"
EXIT_CODE: Final = "exit-code"
SIGNAL: Final = "signal"
LOG: Final = "log"
TERMINATION_MESSAGE: Final = "termination-message"
STOP_SECONDS: Final = "stop-seconds"
EXEC: Final = "exec"
USAGE: Final = "usage"
STDIN: Final = "stdin"
OOM_EXIT_CODE: Final = 137
_MAX_EXIT_CODE: Final = 255
_SIGNALLED: Final = 128
_AT: Final = re.compile(r"@(every\s+)?(\d+(?:\.\d*)?)\s+(.*)", re.DOTALL)


class Entry(NamedTuple):
    """One entry of a course: from when on, and again after how many seconds, if it is repeated."""

    at: float
    value: str
    every: float = 0.0


class Answer(NamedTuple):
    """What a command prints that is run in a container, and its exit code."""

    stdout: str
    stderr: str = ""
    exit_code: int = 0


def is_annotated(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has annotations of simulated nodes at all."""
    annotations = (pod.get("metadata") or {}).get("annotations")
    return annotations is not None and any(DOMAIN in name for name in annotations)


def own_setting(pod: Obj, container: str, key: str) -> str | None:
    """What is said of one container alone."""
    return annotations_of(pod).get(f"{key}.{DOMAIN}/{container}")


def setting(pod: Obj, container: str, key: str) -> str | None:
    """What is said of a container, or else of all containers of its pod."""
    own = own_setting(pod, container, key)
    return own if own is not None else annotations_of(pod).get(f"{DOMAIN}/{key}")


def seconds_of(annotation: str, text: str) -> float:
    """A number of seconds; ValueError for anything else."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f'annotation {annotation}: "{text}" is no number of seconds, write for example "30"')
    return seconds


def exit_code_of(annotation: str, text: str, *, least: int = 1) -> int:
    """An exit code; ValueError for anything else."""
    code = int(text) if text.isascii() and text.isdigit() else -1
    if not least <= code <= _MAX_EXIT_CODE:
        raise ValueError(
            f'annotation {annotation}: "{text}" is no exit code, write a number from {least} to {_MAX_EXIT_CODE}'
        )
    return code


def signal_of(annotation: str, text: str) -> int:
    """The exit code of a container that a signal ends, given as `SIGTERM` or `15`; ValueError for anything else."""
    name = text.upper()
    known = {one.name.removeprefix("SIG"): one.value for one in signal.Signals}
    number = known.get(name.removeprefix("SIG"), 0) or (int(name) if name.isascii() and name.isdigit() else 0)
    if not 1 <= number < signal.NSIG:
        raise ValueError(f'annotation {annotation}: "{text}" is no signal, write for example "SIGKILL"')
    return _SIGNALLED + number


@lru_cache(maxsize=4096)
def course(text: str, separators: str = ";\n") -> tuple[Entry, ...]:
    """The entries of a course, in the order of their times."""
    entries = []
    for part in re.split(f"[{separators}]", text):
        if not part.strip():
            continue
        found = _AT.fullmatch(part.strip())
        if found is None:
            entries.append(Entry(0.0, part.strip() if ";" in separators else part))
        elif found[1]:
            every = float(found[2])
            entries.append(Entry(every, found[3], max(every, 0.001)))
        else:
            entries.append(Entry(float(found[2]), found[3]))
    return tuple(sorted(entries, key=lambda entry: entry.at))


def value_at(entries: tuple[Entry, ...], seconds: float) -> str:
    """What a course says so many seconds after the start; empty before its first entry."""
    said = ""
    for entry in entries:
        if entry.at > seconds:
            break
        said = entry.value
    return said


def exec_answers(pod: Obj, container: str) -> dict[str, Answer]:
    """What listed commands answer, by their words joined by blanks. Raises ValueError."""
    text = setting(pod, container, EXEC)
    return _answers(text) if text else {}


@lru_cache(maxsize=256)
def _answers(text: str) -> dict[str, Answer]:
    try:
        listed = yaml.load(text)
    except ValueError as error:
        raise ValueError(f"annotation {EXEC}: {error}") from None
    if not isinstance(listed, dict):
        raise ValueError(f'annotation {EXEC}: write a map from commands to what they print, as "nvidia-smi -L: GPU 0"')
    return dict(_each_answer(listed))


def _each_answer(listed: Mapping[Any, Any]) -> Iterator[tuple[str, Answer]]:
    for command, said in listed.items():
        if isinstance(said, dict):
            code = said.get("exitCode", 0)
            if not isinstance(code, int) or not 0 <= code <= _MAX_EXIT_CODE:
                raise ValueError(f"annotation {EXEC}: {command}: exitCode: must be a number from 0 to {_MAX_EXIT_CODE}")
            yield str(command), Answer(str(said.get("stdout") or ""), str(said.get("stderr") or ""), code)
        else:
            yield str(command), Answer("" if said is None else str(said))
