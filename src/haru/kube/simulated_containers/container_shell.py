"""The commands of a simulated container, with its own variables, files and user. Pure.

To those of `trivial_shell.py` come `env`, `id`, `hostname` and others that tell what the container was given, `seq`,
the programs that work on files (`file_programs.py`), and those of Kubernetes' test images (`test_images.py`).
Source: busybox, as behaviour.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj
from haru.kube.pod_environment.env_file import value_in
from haru.kube.pod_environment.environment import environment, expand
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.quantity import parse_quantity
from haru.kube.simulated_containers.cluster_network import NETWORK_PROGRAMS
from haru.kube.simulated_containers.file_listing import asked_listing, long_listing
from haru.kube.simulated_containers.file_programs import run_on_files
from haru.kube.simulated_containers.files import NO_SOURCES, ContainerFiles, PodSources, user_of
from haru.kube.simulated_containers.kubelet_files import CGROUP_MOUNT, hostname_of
from haru.kube.simulated_containers.network_programs import run_on_network
from haru.kube.simulated_containers.pod_neighbours import (
    began_at,
    has_shared_volume,
    neighbours_before,
    neighbours_beside,
    restarts_of,
)
from haru.kube.simulated_containers.shell_output import Change, Ran
from haru.kube.simulated_containers.standard_input import StandardInput, input_of
from haru.kube.simulated_containers.test_images import AGNHOST, image_argv, image_files, run_agnhost
from haru.kube.simulated_containers.text import sequence, shifted
from haru.kube.simulated_containers.trivial_shell import TrivialShell

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_CHANGES: Final = 100
_MOST_RUNS: Final = 20
"""Of an init container that was restarted, each of which finds what those before it have left."""
_EARLIER: Final = 0.001
_DEPTH: Final = 2
_PODS: Final = "/var/lib/kubelet/pods"


class _Before(NamedTuple):
    """What init containers have written into volumes, and whether all that they do is known."""

    files: Mapping[str, str]
    is_whole: bool


def variables_of(
    pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES, before: _Before | None = None
) -> dict[str, str]:
    """The environment of a container, after what init containers did before. Raises `ConfigError`."""
    known = {"spec": {}, **pod}
    given = [("HOSTNAME", hostname_of(known)), *sources.services]

    def file_key(ref: Mapping[str, Any]) -> bytes | None:
        return _file_key(pod, ref, before or _written_before(pod, container, sources))

    objects = replace(sources.objects, file_key=file_key)
    values = environment(known, container, objects, sources.facts(known), given)
    return {"PATH": PATH, **{name: value.decode(errors="replace") for name, value in values.items()}}


def _file_key(pod: Obj, ref: Mapping[str, Any], before: _Before) -> bytes | None:
    """The value of a `fileKeyRef` (KEP-3721); None for an optional one, or where nobody knows. Raises `ConfigError`."""
    path = posixpath.normpath(ref["path"]).lstrip("/")
    text = before.files.get(f"{ref['volumeName']}:{path}")
    if text is None and not before.is_whole:
        return None
    try:
        value = value_in(text or "", ref["key"])
    except ValueError:
        text = None
    if text is None:
        raise ConfigError("couldn't parse env file")
    if value or ref.get("optional"):
        return value.encode() if value else None
    place = f"{_PODS}/{pod['metadata'].get('uid')}/volumes/kubernetes.io~empty-dir/{ref['volumeName']}/{path}"
    raise ConfigError(f'environment variable key "{ref["key"]}" not found in file "{place}"')


def run_beside(
    pod: Obj,
    container: Mapping[str, Any],
    argv: Sequence[str],
    sources: PodSources = NO_SOURCES,
    elapsed: float = math.inf,
    *,
    has_clock: bool = False,
) -> Ran:
    """What a hook or a probe does in a container that has run so long, and the files that it changes, by name.

    Unknown if its environment can not be made.
    """
    try:
        files = files_after(pod, container, sources, elapsed)
        shell = ContainerShell(pod, container, replace(sources, network=None), files)
        shell.has_clock = has_clock
        ran = shell.run(argv)
        return replace(ran, changes=[files.by_name(one) for one in ran.changes])
    except ConfigError:
        return Ran(unknown=argv[0])


def files_after(
    pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES, elapsed: float = math.inf
) -> ContainerFiles:
    """The files that a container sees once it has run so long: its own, and those of others in volumes they share.

    Raises `ConfigError`.
    """
    own = ContainerShell(pod, container, sources, until=elapsed)
    ran = own.run_container() or Ran()
    files = own.files
    files.history.follow(map(files.by_name, ran.changes))
    files.begins = elapsed if math.isfinite(elapsed) else 0.0
    files.history.now = lambda: elapsed
    return files


def _executed(pod: Obj, container: Mapping[str, Any], sources: PodSources) -> Iterator[Change]:
    """What commands have changed that were run in this container, or in volumes that it shares, by its own time."""
    name, began = container["name"], began_at(pod, container["name"]) if sources.executed else None
    if began is None:
        return
    for one in sources.executed:
        is_own = (one.container, one.restarts) == (name, restarts_of(pod, name))
        later = (one.began - began).total_seconds()
        for change in one.changes:
            if is_own or not change.path.startswith("/"):
                text = None if change.text is None else shifted(change.text, later)
                yield replace(change, at=later + change.at, text=text)


def change_times(pod: Obj, container: Mapping[str, Any], sources: PodSources = NO_SOURCES) -> list[float]:
    """When the files that a container sees may change, in seconds from its start; the start among them."""
    times = {0.0}
    with contextlib.suppress(ConfigError):
        ran = ContainerShell(pod, container, sources).run_container() or Ran()
        others = [*_changes_beside(pod, container, sources), *_executed(pod, container, sources)]
        others += _hook_changes(pod, container, sources)
        times.update(one.at for one in (*ran.changes, *others))
    return sorted(time for time in times if time >= 0)[:_MOST_CHANGES]


def _written_before(pod: Obj, container: Mapping[str, Any], sources: PodSources) -> _Before:
    """What init containers have written into volumes, one after the other, before this container begins."""
    written, is_whole = dict[str, str](), True
    for one, begins, _ in neighbours_before(pod, container) if has_shared_volume(pod) else ():
        left: dict[str, str] = {}
        try:
            variables = variables_of(pod, one, sources, _Before(written, is_whole))
            for _ in range(1 + min(restarts_of(pod, one["name"]), _MOST_RUNS)):
                files = ContainerFiles(pod, one, sources, variables)
                files.share({**{name: shifted(text, -begins) for name, text in written.items()}, **left})
                ran = ContainerShell(pod, one, sources, files).run_container()
                left = files.volume_files()
        except ConfigError:
            continue
        is_whole = is_whole and ran is not None and not ran.unknown
        written |= {name: shifted(text, begins) for name, text in files.volume_files().items()}
    return _Before(written, is_whole)


def _changes_beside(
    pod: Obj, container: Mapping[str, Any], sources: PodSources, depth: int = _DEPTH
) -> Iterator[Change]:
    """What the containers beside this one do in volumes, in seconds from its start.

    They see what others do as far as this depth: two that wait for each other's files, turn by turn, get on so far.
    """
    for one, begins, lasts in neighbours_beside(pod, container) if depth and has_shared_volume(pod) else ():
        try:
            shell = ContainerShell(pod, one, sources, depth=depth - 1)
            ran = shell.run_container() or Ran()
            hook = [*_hook_changes(pod, one, sources)]
        except ConfigError:
            continue
        if restarts_of(pod, one["name"]):
            # What it wrote before its restart is still there; it is taken to have done the same.
            for path, left in shell.files.volume_files().items():
                yield Change(min(begins, 0.0) - _EARLIER, path, shifted(left, begins))
        until = math.inf if lasts is None else begins + lasts
        for named in (*hook, *map(shell.files.by_name, ran.changes)):
            if not named.path.startswith("/") and begins + named.at <= until:
                text = None if named.text is None else shifted(named.text, begins)
                yield replace(named, at=begins + named.at, text=text, until=until)


def _first_hook(container: Mapping[str, Any]) -> Sequence[str]:
    """The command of the hook `postStart`; empty if there is none."""
    hook = (container.get("lifecycle") or {}).get("postStart") or {}
    return (hook.get("exec") or {}).get("command") or ()


def _hook_changes(pod: Obj, container: Mapping[str, Any], sources: PodSources) -> list[Change]:
    """What the hook `postStart` changes, at once and once it has waited, by the names of files."""
    command = _first_hook(container)
    if not command:
        return []
    shell = ContainerShell(pod, {**container, "lifecycle": {}}, replace(sources, network=None), depth=0)
    return [shell.files.by_name(change) for change in shell.run(command).changes]


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
        *,
        depth: int = _DEPTH,
    ) -> None:
        """`depth`: how many containers may see what the next one does in files that they share."""
        seen = files
        if seen is None:
            before = _written_before(pod, container, sources)
            variables = variables_of(pod, container, sources, before)
            beside = partial(_changes_beside, pod, container, sources, depth)
            seen = ContainerFiles(pod, container, sources, variables, beside)
            seen.share({**before.files, **image_files(container)})
        super().__init__({**seen.variables, "HOME": "/root"}, memory_limit(container), seen, until)
        self.files = seen
        self._begins = seen.history.now()
        if files is None:
            seen.history.follow(_hook_changes(pod, container, sources))
            seen.history.follow(_executed(pod, container, sources))
        seen.history.now = lambda: self._begins + self.at
        self.pod, self.container = pod, container
        self.seed = f"{pod['metadata'].get('uid')}/{container['name']}/{restarts_of(pod, container['name'])}"
        self.network = sources.network
        self.began = self.network.began_of(container["name"]) if self.network is not None else 0.0

    def run_container(self) -> Ran | None:
        """What the container's own command does; None if it has none that is known."""
        given = image_argv(self.container)
        self.stdin = StandardInput(input_of(self.pod, self.container))
        self.has_clock = True
        return self.run([expand(str(word), self.variables) for word in given]) if given else None

    def matching(self, pattern: str) -> Sequence[str] | None:
        """The files whose paths match a pattern in their last part; None where it is not known what is there."""
        folder, _, last = pattern.rpartition("/")
        names = None if "*" in folder or "?" in folder else self.files.listed(folder or "/")
        if names is None:
            return None
        return [f"{folder}/{name}" for name in sorted(fnmatch.filter(names, last)) if not name.startswith(".")]

    def sees_others(self) -> bool:
        """Whether it has read a file that another container of the pod changes."""
        return self.files.history.has_read_others

    def next_change(self) -> float | None:
        """When a file changes that was read since the last call, in seconds from the start of the program."""
        following = self.files.history.next_change()
        return None if following is None else following - self._begins

    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""
        name, rest = words[0], list(words[1:])
        shown = self.told(name, rest)
        if shown is not None:
            for line in shown:
                self.say(line)
            return 0 if shown or name == "seq" else 1
        asked = asked_listing(rest) if name == "ls" and self.has_clock else None
        if asked is not None and all(self.files.stat(one) or self.files.link_of(one) for one in asked.paths):
            listed = long_listing(self.files, asked)
            for line in listed or ():
                self.say(line)
            return 0 if listed is not None else super().command(words)
        if (code := run_on_files(self, self.files, name, rest)) is not None:
            return code
        if name.startswith(AGNHOST) and (code := run_agnhost(self, self.files, rest)) is not None:
            return code
        if self.network is not None and (code := run_on_network(self, self.network, name, rest)) is not None:
            return code
        if name == "timeout" and len(rest) > 2 and rest[1].rpartition("/")[2] in NETWORK_PROGRAMS:
            return self.command(rest[1:])
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
        if name == "mount" and rest == ["-t", "cgroup2"]:
            return [CGROUP_MOUNT]
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


def _named(number: int) -> str:
    return "0(root)" if number == 0 else str(number)
