"""What a command answers that is run in a simulated container (`kubectl exec`). Pure.

First what the annotation `exec` lists, then the commands of `container_shell.py`, on the files that the container has
written by then. Anything else fails with code 127 and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.simulated_containers.container_shell import ContainerShell, files_after
from haru.kube.simulated_containers.files import NO_SOURCES, ContainerFiles, PodSources
from haru.kube.simulated_containers.shell_output import Ran
from haru.kube.simulated_containers.simulation import DOMAIN, EXEC, Answer, exec_answers
from haru.kube.simulated_containers.standard_input import EMPTY, Given, StandardInput

NOT_FOUND: Final = 127


def run_in_container(
    pod: Obj,
    container: Mapping[str, Any],
    argv: Sequence[str],
    sources: PodSources = NO_SOURCES,
    elapsed: float = math.inf,
    given: Sequence[Given] = EMPTY,
) -> Ran:
    """What a command prints in a container that has run so long, how it ends, and the files that it changes, by name.

    Raises ValueError for a malformed annotation, `ConfigError` if an object of its environment is gone.
    """
    files = files_after(pod, container, sources, elapsed)
    if sources.network is not None:  # it begins now
        sources = replace(sources, network=replace(sources.network, began={}))
    shell = _CommandShell(pod, container, sources, files)
    shell.stdin = StandardInput(given)
    ran = shell.answer(argv)
    return replace(ran, changes=[files.by_name(one) for one in ran.changes])


class _CommandShell(ContainerShell):
    """A shell in a container, whose programs may be listed with their answers."""

    def __init__(self, pod: Obj, container: Mapping[str, Any], sources: PodSources, files: ContainerFiles) -> None:
        super().__init__(pod, container, sources, files)
        self._answers = exec_answers(pod, container["name"])
        self.has_clock = True

    def answer(self, argv: Sequence[str]) -> Ran:
        """Run a command as it was given."""
        listed = self._answers.get(" ".join(argv))
        if listed is None:
            return self.run(argv)
        self._print(listed)
        return Ran(self.lines, 0.0, listed.exit_code)

    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""
        listed = self._answers.get(" ".join(words))
        if listed is None:
            return super().command(words)
        self._print(listed)
        return listed.exit_code

    def other(self, words: Sequence[str]) -> int:
        """A program that is not there."""
        if words[0] == "cat" and (missing := next((path for path in words[1:] if path not in self.files), "")):
            self.say(f"cat: can't open '{missing}': No such file or directory", is_error=True)
            return 1
        hint = f"list its answer in the annotation {EXEC}.{DOMAIN}/{self.container['name']}"
        self.say(f"{words[0]}: this container is simulated and runs no programs: {hint}", is_error=True)
        return NOT_FOUND

    def _print(self, answer: Answer) -> None:
        for line in answer.stdout.splitlines():
            self.say(line)
        for line in answer.stderr.splitlines():
            self.say(line, is_error=True)
