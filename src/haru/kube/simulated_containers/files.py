"""The files that a simulated container sees: those of its volumes, those that kubelets write, and its own. Pure.

Files of ConfigMaps, Secrets, the downward API and projections are what these objects say now; an emptyDir has what the
container has written there. Nothing is known of what an image holds.
Source: kubelet volumes (modes, fsGroup, subPath), as behaviour.
"""

from __future__ import annotations

import errno
import math
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj
from haru.kube.pod_environment.environment import ReferencedObjects, expand
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts
from haru.kube.pod_environment.volume_files import OBJECT_SOURCES, Files, Token, files_of, in_memory, is_made_of_objects
from haru.kube.simulated_containers.cluster_network import PodNetwork
from haru.kube.simulated_containers.executed import Executed
from haru.kube.simulated_containers.file_history import FILE_MODE, LINK, FileHistory
from haru.kube.simulated_containers.kubelet_files import TERMINATION_LOG, kubelet_files, node_files
from haru.kube.simulated_containers.shell_output import Change
from haru.kube.simulated_containers.text import RESERVED, shifted

MADE_DIRECTORY: Final = ".\2"
"""The file that stands for a directory in which there may be none: nobody else's has this name."""
_MOST_LINKS: Final = 40
"""Which a path may lead through."""
_ALWAYS_THERE: Final = ("/", "/tmp", "/etc", "/dev", "/var", "/root", "/home")
_DIRECTORY_MODE, _OPEN_MODE = 0o755, 0o777
_ACCOUNT_VOLUME: Final = "kube-api-access-"
"""What admission gives every pod, of objects that are in every namespace."""
_SET_GID: Final = 0o2000
_STICKY: Final = 0o1000
"""Of a file system in memory, and of /tmp."""
_REFERENCE: Final = re.compile(r"\$\(([^()]*)\)")


_NO_OBJECTS: Final = ReferencedObjects(lambda _: None, lambda _: None)


class VolumeContents(NamedTuple):
    """Files that are in a volume when a pod begins, by their paths, and whether there are no others."""

    texts: Mapping[str, str]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class PodSources:
    """What a pod's containers are told beyond its spec: objects, addresses and sizes, variables of Services."""

    objects: ReferencedObjects = _NO_OBJECTS
    allocatable: Mapping[str, str] = field(default_factory=dict)
    services: tuple[tuple[str, str], ...] = ()
    token: Token | None = None
    network: PodNetwork | None = None
    """What the containers reach; None where nothing is known of it."""
    executed: tuple[Executed, ...] = ()
    found: Mapping[str, VolumeContents] = field(default_factory=dict)
    """What is in volumes that outlive their pods, by the names of these."""
    memory: int = 0
    """What the node has, in bytes; 0 where nobody knows."""

    def facts(self, pod: Obj) -> DownwardFacts:
        """What the downward API tells of where a pod is."""
        status = pod.get("status") or {}
        addresses = [
            [one["ip"] for one in status.get(f"{name}s") or ()] or [one for one in (status.get(name),) if one]
            for name in ("hostIP", "podIP")
        ]
        return DownwardFacts(addresses[0], addresses[1], self.allocatable)


NO_SOURCES: Final = PodSources()


class Stat(NamedTuple):
    """What is known of a file or directory."""

    mode: int
    uid: int = 0
    gid: int = 0
    is_directory: bool = False


class _Mount(NamedTuple):
    path: str
    volume: Mapping[str, Any]
    below: str
    read_only: bool


class ContainerFiles(MutableMapping[str, str]):
    """Files by absolute path. Writing raises OSError where the container may not write.

    `beside` tells, once it is asked for, what others change in shared volumes while the container runs.
    """

    def __init__(
        self,
        pod: Obj,
        container: Mapping[str, Any],
        sources: PodSources,
        variables: Mapping[str, str],
        beside: Callable[[], Iterable[Change]] = tuple,
    ) -> None:
        self.history = FileHistory(beside)
        self.variables = variables
        self.begins = 0.0
        """How many seconds after the start of the container that program began which reads and writes."""
        self._pod, self._container, self._sources = {"spec": {}, **pod}, container, sources
        self._mounts = sorted(_mounts(pod, container, variables), key=lambda mount: len(mount.path), reverse=True)
        self._loaded: dict[str, Files] = {}
        self.user, self.group = user_of(pod, container)
        for volume, one in sources.found.items():
            self.share({f"{volume}:{path}": text for path, text in one.texts.items()})
        self._fs_group = (self._pod["spec"].get("securityContext") or {}).get("fsGroup")

    @cached_property
    def _given(self) -> Mapping[str, str]:
        """The files that kubelets write into every container, and those of its control group."""
        return kubelet_files(self._pod, self._container, self._sources.memory)

    # -- files --------------------------------------------------------------------------------------------------------

    def __getitem__(self, path: str) -> str:
        text = self._read(path)
        if text is None:
            raise KeyError(path)
        return shifted(text, -self.begins)

    def __setitem__(self, path: str, text: str) -> None:
        self.write(path, text)

    def __delitem__(self, path: str) -> None:
        mount, key = self._place(path, follows=False)
        self._may_write(mount, path)
        if self._own_link(key) is None and self._read(path) is None:
            raise KeyError(path)
        self.history.write(key, None)

    def __iter__(self) -> Iterator[str]:
        return self.history.names()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def write(self, path: str, text: str, mode: int = FILE_MODE) -> None:
        """Write a file. Raises OSError."""
        mount, key = self._place(path)
        self._may_write(mount, path)
        self.history.write(key, shifted(text, self.begins), mode)

    def stat(self, path: str) -> Stat | None:
        """Mode and owner of a file or directory; None if there is none."""
        mount, key = self._place(path)
        own = self.history.get(key)
        group = self._fs_group if mount is not None and self._fs_group is not None else self.group
        if own is not None and own.text is not None:
            return Stat(own.mode, self.user, group)
        if mount is not None and is_made_of_objects(mount.volume):
            found = self._files(mount).get(self._relative(mount, path))
            if found is not None:
                shared = found.mode if self._fs_group is None else found.mode | 0o440
                return Stat(shared, found.owner or 0, self._fs_group or 0)
        if mount is not None and "hostPath" in mount.volume and self._read(path) is not None:
            return Stat(FILE_MODE)
        if self._is_directory(mount, path):
            if mount is None:
                return Stat(_DIRECTORY_MODE, 0, 0, is_directory=True)
            is_volume = self._relative(mount, path) == "."
            mode = _OPEN_MODE if is_volume or not is_made_of_objects(mount.volume) else _DIRECTORY_MODE
            mode |= _SET_GID if self._fs_group is not None else 0
            mode |= _STICKY if self._is_sticky(mount, path) else 0
            return Stat(mode, 0, self._fs_group or 0, is_directory=True)
        return Stat(FILE_MODE) if posixpath.normpath(path) in self._given else None

    def _is_sticky(self, mount: _Mount, path: str) -> bool:
        """Whether it is the top of a volume in memory, or what of it is mounted, or a node's /tmp."""
        place = self._relative(mount, path)
        on_node = (mount.volume.get("hostPath") or {}).get("path")
        is_tmp = on_node is not None and posixpath.normpath(posixpath.join(on_node, place)) == "/tmp"
        return is_tmp or (in_memory(mount.volume) and place in (".", posixpath.normpath(mount.below)))

    def link_of(self, path: str) -> str:
        """Where a symbolic link leads: of a container, or of a kubelet for an object; empty for any other file."""
        mount, key = self._place(path, follows=False)
        if (own := self._own_link(key)) is not None:
            return own
        if mount is None or mount.below not in ("", ".") or not is_made_of_objects(mount.volume):
            return ""
        name = self._relative(mount, path)
        return f"..data/{name}" if name != "." and "/" not in name else ""

    def changed_at(self, path: str) -> float:
        """When a file was written, in seconds from the start of the program; that of the container for older ones."""
        own = self.history.get(self.key(path, follows=False))
        return own.at - self.begins if own is not None and math.isfinite(own.at) else -self.begins

    def is_missing(self, path: str) -> bool:
        """Whether it is certain that there is no such file."""
        mount, key = self._place(path)
        known = mount is not None and self._is_whole(mount.volume)
        return self._read(path) is None and (known or self.history.get(key) is not None or path.startswith("/tmp/"))

    def _is_whole(self, volume: Mapping[str, Any]) -> bool:
        """Whether all files of a volume are known."""
        found = self._sources.found.get(volume["name"])
        is_new = is_made_of_objects(volume) or "emptyDir" in volume or "ephemeral" in volume
        return is_new or (found is not None and found.is_whole)

    def file_system(self, path: str) -> str:
        """The type of the file system that a path is on."""
        mount, _ = self._place(path)
        if mount is None:
            return "overlay"
        return "tmpfs" if in_memory(mount.volume) else "ext4"

    def volume_files(self) -> dict[str, str]:
        """The written files of volumes that the containers of a pod share, by volume and path."""
        return {key: text for key, text in self.history.own() if not key.startswith("/")}

    def share(self, files: Mapping[str, str]) -> None:
        """Have what other containers of the pod have written into shared volumes."""
        for key, text in files.items():
            self.history.found(key, text)

    def key(self, path: str, *, follows: bool = True) -> str:
        """The name of a file: the same in all containers that see it in a volume, whatever its path."""
        return self._place(path, follows=follows)[1]

    def by_name(self, change: Change) -> Change:
        """A change by the name of its file: of a link itself where that is made or removed."""
        is_own = change.text is None or change.text.startswith(LINK)
        return replace(change, path=self.key(change.path, follows=not is_own))

    def listed(self, path: str) -> list[str] | None:
        """The names in a directory; None if it is not known what is there."""
        mount, key = self._place(path)
        found = self.stat(path)
        if found is None or not found.is_directory:
            return None
        if mount is None and not path.startswith("/tmp"):
            return None
        within = "" if key.endswith(":.") else key.partition(":")[2] if mount else key
        return sorted({name for one in self._names(mount) if (name := _first_below(within, one))})

    def below(self, path: str) -> list[str]:
        """The paths of all files below a directory."""
        mount, key = self._place(path)
        within = "" if key.endswith(":.") else f"{key.partition(':')[2] if mount else key}/"
        return [
            f"{path.rstrip('/')}/{name.removeprefix(within)}" for name in self._names(mount) if name.startswith(within)
        ]

    # -- where a path leads -------------------------------------------------------------------------------------------

    def _read(self, path: str) -> str | None:
        mount, key = self._place(path)
        own = self.history.get(key)
        if own is not None:
            return own.text
        if mount is not None and is_made_of_objects(mount.volume):
            found = self._files(mount).get(self._relative(mount, path))
            return None if found is None else RESERVED.sub("", found.data.decode(errors="replace"))
        if mount is not None and "hostPath" in mount.volume:
            on_node = posixpath.normpath(posixpath.join(mount.volume["hostPath"]["path"], self._relative(mount, path)))
            return node_files(self._pod).get(on_node)
        return self._given.get(posixpath.normpath(path)) if mount is None else None

    def _place(self, path: str, *, follows: bool = True) -> tuple[_Mount | None, str]:
        """The mount that a path is in, and the name of the file: the same for one file at two paths."""
        mount, key = self._direct_place(path)
        left = _MOST_LINKS if follows and self.history.has_links else 0
        while left and (target := self._own_link(key)) is not None:
            path, left = posixpath.join(posixpath.dirname(path), target), left - 1
            mount, key = self._direct_place(path) if left else (mount, f"{key}/{LINK}")
        return mount, key

    def _direct_place(self, path: str) -> tuple[_Mount | None, str]:
        path = posixpath.normpath(path)
        for mount in self._mounts:
            if path == mount.path or path.startswith(f"{mount.path.rstrip('/')}/"):
                return mount, f"{mount.volume['name']}:{self._relative(mount, path)}"
        return None, path

    def _own_link(self, key: str) -> str | None:
        """Where a link leads that a container has made; None for any other file."""
        own = self.history.get(key) if self.history.has_links else None
        text = None if own is None else own.text
        return text.removeprefix(LINK) if text is not None and text.startswith(LINK) else None

    def _relative(self, mount: _Mount, path: str) -> str:
        below = posixpath.relpath(posixpath.normpath(path), mount.path)
        return posixpath.normpath(posixpath.join(mount.below, below))

    def _files(self, mount: _Mount) -> Files:
        name = mount.volume["name"]
        if name not in self._loaded:
            sources = self._sources
            # Objects may have gone since the container started.
            volume = _known(mount.volume, optional=True, with_tokens=sources.token is not None)
            token = sources.token or (lambda _: "")
            found = files_of(self._pod, volume, sources.objects, sources.facts(self._pod), token)
            self._loaded[name] = {posixpath.normpath(path): file for path, file in (found or {}).items()}
        return self._loaded[name]

    def _is_directory(self, mount: _Mount | None, path: str) -> bool:
        path = posixpath.normpath(path)
        if path in _ALWAYS_THERE or any(one.path == path for one in self._mounts):
            return True
        if any(one.path.startswith(f"{path}/") for one in self._mounts):
            return True
        within = f"{path if mount is None else self._relative(mount, path)}/"
        return any(name.startswith(within) for name in self._names(mount))

    def _names(self, mount: _Mount | None) -> list[str]:
        """The files of a volume, and its directories that are mounted; outside of all, what was written."""
        if mount is None:
            return [name for name in self.history.names() if name.startswith("/")]
        volume = mount.volume["name"]
        names = [name.partition(":")[2] for name in self.history.names() if name.startswith(f"{volume}:")]
        names += [f"{one.below}/." for one in self._mounts if one.volume["name"] == volume and one.below]
        return [*names, *(self._files(mount) if is_made_of_objects(mount.volume) else ())]

    def _may_write(self, mount: _Mount | None, path: str) -> None:
        if path in (self._container.get("terminationMessagePath") or TERMINATION_LOG, "/dev/null"):
            return
        if mount is not None:
            closed = mount.read_only or is_made_of_objects(mount.volume) or "image" in mount.volume
        else:
            closed = bool((self._container.get("securityContext") or {}).get("readOnlyRootFilesystem"))
        if closed:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def _first_below(directory: str, name: str) -> str:
    """What of a name is directly in a directory; nothing for another one, and for hidden names."""
    inside = not directory or name.startswith(f"{directory}/")
    first = name[len(directory) :].lstrip("/").partition("/")[0] if inside else ""
    return "" if first.startswith(".") else first


def user_of(pod: Obj, container: Mapping[str, Any]) -> tuple[int, int]:
    """User and group that a container runs as, if its image says nothing."""
    own = container.get("securityContext") or {}
    whole = (pod.get("spec") or {}).get("securityContext") or {}
    user, group = (own.get(name, whole.get(name)) for name in ("runAsUser", "runAsGroup"))
    return user or 0, group or 0


def sub_path(mount: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """The path within its volume that is mounted. Raises `ConfigError`."""
    text = mount.get("subPathExpr")
    below = expand(text, variables) if text else mount.get("subPath") or ""
    if missing := sorted({name for name in _REFERENCE.findall(text or "") if not variables.get(name)}):
        raise ConfigError(f"missing value for {', '.join(missing)}")
    if below.startswith("/"):
        raise ConfigError(f"error SubPath `{below}` must not be an absolute path")
    if ".." in below.split("/"):
        raise ConfigError(f"unable to provision SubPath `{below}`: must not contain '..'")
    return below


def _mounts(pod: Obj, container: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[_Mount]:
    volumes = {volume["name"]: volume for volume in (pod.get("spec") or {}).get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        if volume := volumes.get(mount["name"]):
            path = posixpath.normpath(posixpath.join("/", mount["mountPath"]))
            yield _Mount(path, volume, sub_path(mount, variables), bool(mount.get("readOnly")))


def volume_problem(pod: Obj, sources: PodSources) -> str:
    """Why a volume of a pod can not be made, in a kubelet's words; empty if all can."""
    for volume in pod["spec"].get("volumes") or ():
        if volume["name"].startswith(_ACCOUNT_VOLUME) or not is_made_of_objects(volume):
            continue
        try:
            files_of(pod, _known(volume, optional=False), sources.objects, sources.facts(pod), lambda _: "")
        except ConfigError as error:
            return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
    return ""


def _known(volume: Mapping[str, Any], *, optional: bool, with_tokens: bool = False) -> Mapping[str, Any]:
    """A volume with the sources that are known here; optional ones may be missing in part."""
    more = {"optional": True} if optional else {}
    if "projected" not in volume:
        return {**volume, **{kind: {**volume[kind], **more} for kind in ("configMap", "secret") if kind in volume}}
    sources = [
        {kind: {**(said or {}), **more} if kind in ("configMap", "secret") else said}
        for source in volume["projected"].get("sources") or ()
        for kind, said in source.items()
        if kind in (*OBJECT_SOURCES, *(("serviceAccountToken",) if with_tokens else ()))
    ]
    return {**volume, "projected": {**volume["projected"], "sources": sources}}
