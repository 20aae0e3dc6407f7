"""The commands of a simulated container, with its own variables, files and user. Pure.

To those of `trivial_shell.py` come `env`, `id`, `hostname` and others that tell what the container was given, `test`,
`touch`, `rm`, `mkdir`, `cp`, `seq`, and the programs of Kubernetes' test images (`test_images.py`).
Source: busybox, as behaviour.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from haru.kube.container_restarts import is_sidecar
from haru.kube.meta import Obj
from haru.kube.pod_environment.environment import environment, expand
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.quantity import parse_quantity
from haru.kube.simulated_files import NO_SOURCES, ContainerFiles, PodSources, user_of
from haru.kube.simulated_text import sequence
from haru.kube.test_images import AGNHOST, image_argv, run_agnhost
from haru.kube.trivial_shell import Ran, TrivialShell

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FOREIGN: Final = frozenset({"fileKeyRef"})
"""Sources of variables that nothing is known of here."""
_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt,
    "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip
_MOST_CHANGES: Final = 100
_TESTS: Final = ("-f", "-e", "-d", "-s", "-r", "-z", "-n")


def variables_of(pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES) -> dict[str, str]:
    """The environment of a container. Raises `ConfigError`."""
    known = {"spec": {}, **pod}
    given = [("HOSTNAME", known["spec"].get("hostname") or pod["metadata"]["name"]), *sources.services]
    told = [one for one in container.get("env") or () if not _FOREIGN.intersection(one.get("valueFrom") or ())]
    values = environment(known, {**container, "env": told}, sources.objects, sources.facts(known), given)
    return {"PATH": PATH, **{name: value.decode(errors="replace") for name, value in values.items()}}


def run_beside(
    pod: Obj,
    container: Mapping[str, Any],
    argv: Sequence[str],
    sources: PodSources = NO_SOURCES,
    elapsed: float = math.inf,
) -> Ran:
    """What a hook or a probe does in a container that has run so long; unknown if its environment can not be made."""
    try:
        files = files_after(pod, container, sources, elapsed)
        return ContainerShell(pod, container, sources, files).run(argv)
    except ConfigError:
        return Ran(unknown=argv[0])


def files_after(
    pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES, elapsed: float = math.inf
) -> ContainerFiles:
    """The files that a container sees once it has run so long: its own, and those of others in volumes they share.

    Raises `ConfigError`.
    """
    own = ContainerShell(pod, container, sources, until=elapsed)
    own.run_container()
    own.files.share(written_into_volumes(pod, _containers_beside(pod, container), sources, elapsed))
    return own.files


def change_times(pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES) -> list[float]:
    """When the files that a container sees may change, in seconds from its start; the start among them."""
    writers = [container, *(_containers_beside(pod, container) if _has_shared_volume(pod) else ())]
    times = {0.0}
    for one in writers:
        with contextlib.suppress(ConfigError):
            ran = ContainerShell(pod, one, sources).run_container()
            times.update(ran.changes if ran is not None else ())
    return sorted(times)[:_MOST_CHANGES]


def written_into_volumes(
    pod: Obj, containers: Iterable[Mapping[str, Any]], sources: PodSources, until: float = math.inf
) -> dict[str, str]:
    """What these containers of a pod write into volumes that they share, one after the other."""
    written: dict[str, str] = {}
    if not _has_shared_volume(pod):
        return written
    for one in containers:
        try:
            files = ContainerFiles(pod, one, sources, variables_of(pod, one, sources))
            files.share(written)
            ContainerShell(pod, one, sources, files, until).run_container()
        except ConfigError:
            continue
        written |= files.volume_files()
    return written


def _has_shared_volume(pod: Obj) -> bool:
    return any("emptyDir" in volume for volume in (pod.get("spec") or {}).get("volumes") or ())


def _containers_beside(pod: Obj, container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The containers that run while this one does: none beside an init container that ends before they start."""
    spec = pod.get("spec") or {}
    if any(one["name"] == container["name"] and not is_sidecar(one) for one in spec.get("initContainers") or ()):
        return []
    return [one for one in spec.get("containers") or () if one["name"] != container["name"]]


def _init_containers_before(pod: Obj, container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in (pod.get("spec") or {}).get("initContainers") or ():
        if one["name"] == container["name"]:
            return
        yield one


def memory_limit(container: Mapping[str, Any]) -> float:
    """The memory limit of a container in bytes."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    try:
        return parse_quantity(limit).nano / 1e9 if limit is not None else math.inf
    except ValueError:
        return math.inf


class ContainerShell(TrivialShell):
    """Run commands in a container. `ConfigError` if its environment can not be made."""

    files: ContainerFiles

    def __init__(
        self,
        pod: Obj,
        container: Mapping[str, Any],
        sources: PodSources = NO_SOURCES,
        files: ContainerFiles | None = None,
        until: float = math.inf,
    ) -> None:
        variables = {**variables_of(pod, container, sources), "HOME": "/root"}
        seen = files
        if seen is None:
            seen = ContainerFiles(pod, container, sources, variables)
            seen.share(written_into_volumes(pod, _init_containers_before(pod, container), sources))
        super().__init__(variables, memory_limit(container), seen, until)
        self.files = seen
        self.pod, self.container = pod, container

    def run_container(self) -> Ran | None:
        """What the container's own command does; None if it has none that is known."""
        given = image_argv(self.container)
        self.has_clock = True
        return self.run([expand(str(word), self.variables) for word in given]) if given else None

    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""
        name, rest = words[0], list(words[1:])
        shown = self.told(name, rest)
        if shown is not None:
            for line in shown:
                self.say(line)
            return 0 if shown or name == "seq" else 1
        if name in ("touch", "rm", "mkdir"):
            return self._change(name, [word for word in rest if not word.startswith("-")])
        if name == "cp" and len(rest) == 2 and (code := self._copy(*rest)) is not None:
            return code
        if name in ("test", "[", "[["):
            code = self._test([word for word in rest if word not in ("]", "]]")])
            if code is not None:
                return code
        if name == "cat" and (missing := next((one for one in rest if self.files.is_missing(one)), "")):
            self.say(f"cat: can't open '{missing}': No such file or directory", is_error=True)
            return 1
        if name.startswith(AGNHOST) and (code := run_agnhost(self, self.files, rest)) is not None:
            return code
        return super().command(words)

    def told(self, name: str, rest: Sequence[str]) -> list[str] | None:
        """What a program prints that tells what the container was given; None for another program."""
        if name == "printenv" and rest:
            return [self.variables[one] for one in rest if one in self.variables]
        if name == "seq":
            return sequence(rest)
        if name == "id" and len(rest) == 1 and rest[0] in ("-u", "-g"):
            return [str(user_of(self.pod, self.container)[rest[0] == "-g"])]
        if name == "sysctl" and rest:
            said = (self.pod.get("spec") or {}).get("securityContext") or {}
            values = {one["name"]: one["value"] for one in said.get("sysctls") or ()}
            return [f"{one} = {values[one]}" for one in rest] if all(one in values for one in rest) else None
        if rest:
            return None
        if name in ("env", "printenv"):
            return [f"{key}={value}" for key, value in self.variables.items()]
        user, group = user_of(self.pod, self.container)
        return {
            "hostname": [self.variables["HOSTNAME"]],
            "pwd": [self.container.get("workingDir") or "/"],
            "whoami": ["root"] if user == 0 else None,
            "id": [f"uid={_named(user)} gid={_named(group)} groups={_named(group)}"],
        }.get(name)

    def _change(self, name: str, paths: Sequence[str]) -> int:
        code = 0
        for path in paths:
            try:
                if name == "rm":
                    self.change(path, None)
                elif name == "touch":
                    self.change(path, self.files.get(path, ""))
                elif self.files.stat(path) is None:
                    self.change(f"{path}/.", "")
            except OSError as error:
                self.say(f"{name}: {path}: {error.strerror}", is_error=True)
                code = 1
        return code

    def _copy(self, source: str, target: str) -> int | None:
        """The code of `cp`; None for files that nothing is known of."""
        if source not in self.files:
            if self.files.stat(source) is not None or not self.files.is_missing(source):
                return None
            self.say(f"cp: can't stat '{source}': No such file or directory", is_error=True)
            return 1
        found = self.files.stat(target)
        if found is not None and found.is_directory:
            target = f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
        elif not target.startswith("/") or target.endswith("/"):
            return None
        try:
            self.change(target, self.files[source])
        except OSError as error:
            self.say(f"cp: can't create '{target}': {error.strerror}", is_error=True)
            return 1
        return 0

    def _test(self, words: Sequence[str]) -> int | None:
        """The code of `test`; None for one that nothing is known of."""
        if len(words) == 3 and words[1] in ("=", "==", "!="):
            return int((words[0] == words[2]) == (words[1] == "!="))
        if len(words) == 3 and words[1] in _COMPARISONS and words[0].isdigit() and words[2].isdigit():
            return int(not _COMPARISONS[words[1]](int(words[0]), int(words[2])))
        if len(words) != 2 or words[0] not in _TESTS:
            return None
        option, path = words
        if option in ("-z", "-n"):
            return int(bool(path) == (option == "-z"))
        found = self.files.stat(path)
        if found is None:
            return 1 if self.files.is_missing(path) else None
        if option == "-s":
            return int(not found.is_directory and not self.files.get(path))
        return int({"-f": not found.is_directory, "-d": found.is_directory}.get(option, True) is False)


def _named(number: int) -> str:
    return "0(root)" if number == 0 else str(number)
