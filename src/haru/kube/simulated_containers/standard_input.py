"""What a simulated container reads from its standard input: what its annotation `stdin` says was attached to it. Pure.

The API server takes what clients attach and writes it there, so that kubelets and logs know of it.
Source: `stdin` and `tty` of containers: without both the input is empty.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj
from haru.kube.simulated_containers.pod_neighbours import restarts_of
from haru.kube.simulated_containers.simulation import DOMAIN, STDIN, own_setting, seconds_of
from haru.kube.simulated_containers.text import RESERVED

MOST_INPUT: Final = 128 * 1024
"""How many bytes the annotation may have."""
TOO_MUCH_INPUT: Final = f"simulated containers take no more than {MOST_INPUT // 1024} KiB of input"


class Given(NamedTuple):
    """Input that comes so many seconds after the start; without text it ends."""

    at: float
    text: str | None
    run: int | None = None
    """After how many restarts; None for each run."""


EMPTY: Final = (Given(0.0, None),)


class StandardInput:
    """The input of one run of a program."""

    def __init__(self, given: Iterable[Given] = EMPTY) -> None:
        self._left = deque(given)

    def take(self) -> Given | None:
        """What comes next; None where nobody has given more yet, and the end again and again."""
        if not self._left or self._left[0].text is None:
            return self._left[0] if self._left else None
        return self._left.popleft()

    def put_back(self, rest: Given) -> None:
        """Leave what was not read to the next reader."""
        self._left.appendleft(rest)


def input_of(pod: Obj, container: Mapping[str, Any]) -> Sequence[Given]:
    """What a container is given; nothing of an annotation that is malformed."""
    if not container.get("stdin") and not container.get("tty"):
        return EMPTY
    try:
        given = given_by(own_setting(pod, container["name"], STDIN) or "[]")
    except ValueError:
        return ()
    return _of_run(given, restarts_of(pod, container["name"]))


def _of_run(given: Sequence[Given], run: int | None) -> Sequence[Given]:
    return [one for one in given if one.run in (None, run)]


def given_by(text: str) -> Sequence[Given]:
    """What an annotation gives. Raises ValueError."""
    try:
        return [
            Given(seconds_of(STDIN, str(at)), None if said is None else RESERVED.sub("", str(said)), *map(int, run[:1]))
            for at, said, *run in json.loads(text)
        ]
    except (ValueError, TypeError):
        example = '[[0, "a line\\n"], [5, null]]'
        raise ValueError(f"annotation {STDIN}: write a list of seconds and texts, as {example}") from None


def with_input(pod: Obj, container: str, more: Given) -> Obj:
    """The pod whose container is given more; other runs are over. Raises ValueError if that is too much."""
    before = _of_run(given_by(own_setting(pod, container, STDIN) or "[]"), more.run)
    text = json.dumps([one if one.run is not None else one[:2] for one in (*before, more)], ensure_ascii=False)
    if len(text.encode()) > MOST_INPUT:
        raise ValueError(TOO_MUCH_INPUT)
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), f"{STDIN}.{DOMAIN}/{container}": text}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}
