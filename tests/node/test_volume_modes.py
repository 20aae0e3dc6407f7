"""Modes, owners and mounts of volumes: what a program in a container may do with them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts
from haru.kube.pod_environment.volume_files import File
from haru.node.podworker.container_start import ContainerStarter, VolumesError
from haru.node.volumes import pod_volumes
from haru.node.volumes.pod_volumes import MountInputs, PodVolumes, nested_mounts

Obj = dict[str, Any]
Changes = dict[str, list[tuple[int, int]]]
MIB = 1 << 20


def pod_with(*volumes: Obj, limit: str | None = None, group: int | None = None, mounts: tuple[Obj, ...] = ()) -> Obj:
    resources = {"limits": {"memory": limit}} if limit else {}
    containers = [{"name": "main", "resources": resources, "volumeMounts": list(mounts)}]
    context = {} if group is None else {"fsGroup": group}
    spec = {"containers": containers, "volumes": list(volumes), "securityContext": context}
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec}


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    """Owner and group that each file was given, by its name: only root may give files away."""
    found: Changes = {}

    def chown(path: Path, owner: int, group: int, **_: Any) -> None:
        found.setdefault(Path(path).name, []).append((owner, group))

    monkeypatch.setattr(os, "chown", chown)
    return found


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that mount, which are not run."""
    commands: list[list[str]] = []
    monkeypatch.setattr(pod_volumes, "_run", commands.append)
    monkeypatch.setattr("platform.release", lambda: "6.4.1-amd64")
    return commands


def modes(directory: Path) -> dict[str, str]:
    """Modes by path, in octal; that of the directory of files under `data`."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        name = str(path.relative_to(directory))
        if name.startswith("..2"):
            name = "data" + name.partition("/")[1] + name.partition("/")[2]
        if not path.is_symlink():
            found[name] = f"{stat.S_IMODE(path.stat().st_mode):o}"
    return found


def test_config_map_volume_is_open_and_its_files_have_their_modes(tmp_path: Path, changes: Changes) -> None:
    places, volume = PodVolumes(tmp_path), {"name": "v", "configMap": {}}
    places.make(pod_with(volume), volume, {"a/b": File(b"1", 0o400), "token": File(b"t", 0o600, 1000)})
    assert modes(places.volume("u", volume)) == {
        ".": "777", "data": "755", "data/a": "755", "data/a/b": "400", "data/token": "600",
    }  # fmt: skip
    assert changes == {"token": [(1000, -1), (1000, -1)]}  # the file and its link


def test_fs_group_may_read_files_of_objects_and_directories_pass_it_on(tmp_path: Path, changes: Changes) -> None:
    places, volume = PodVolumes(tmp_path), {"name": "v", "configMap": {}}
    pod, files = pod_with(volume, group=7), {"a/b": File(b"1", 0o111), "token": File(b"t", 0o600, 1000)}
    assert places.make(pod, volume, files)
    assert modes(places.volume("u", volume)) == {
        ".": "2777", "data": "2755", "data/a": "2755", "data/a/b": "551", "data/token": "640",
    }  # fmt: skip
    assert {path for path, changed in changes.items() if (-1, 7) in changed} >= {"v", "a", "b", "token"}
    assert not places.make(pod, volume, files)  # modes that the group has widened are no change


def test_mode_that_a_container_gives_an_empty_dir_stays(tmp_path: Path, changes: Changes) -> None:
    places, volume = PodVolumes(tmp_path), {"name": "v", "emptyDir": {}}
    pod = pod_with(volume, group=7)
    assert places.make(pod, volume, None)
    place = places.volume("u", volume)
    assert stat.S_IMODE(place.stat().st_mode) == 0o2777
    assert list(changes.values()) == [[(-1, 7)]]
    place.chmod(0o700)
    assert not places.make(pod, volume, None)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("volume", "limit", "group", "options"),
    [
        ({"emptyDir": {"medium": "Memory"}}, None, None, "size=104857600,mode=1777,noswap"),
        ({"emptyDir": {"medium": "Memory"}}, "32Mi", 7, "size=33554432,mode=3777,gid=7,noswap"),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "3Mi"}}, "32Mi", None, "size=3145728,mode=1777,noswap"),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}, "32Mi", None, "size=33554432,mode=1777,noswap"),
        ({"secret": {}}, None, None, "size=104857600,mode=1777,noswap"),
    ],
)
def test_volume_in_memory_is_no_larger_than_the_memory_of_its_pod(
    tmp_path: Path, mounted: list[list[str]], volume: Obj, limit: str | None, group: int | None, options: str
) -> None:
    places, volume = PodVolumes(tmp_path, 100 * MIB), {"name": "v", **volume}
    places.make(pod_with(volume, limit=limit, group=group), volume, None)
    assert mounted == [["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(places.volume("u", volume))]]


@pytest.mark.parametrize(
    ("medium", "requests", "outcome"),
    [
        ("HugePages", ["hugepages-2Mi", "cpu"], "pagesize=2Mi"),
        ("HugePages-1Gi", ["hugepages-2Mi", "hugepages-1Gi"], "pagesize=1Gi"),
        ("HugePages", ["hugepages-2Mi", "hugepages-1Gi"],
         "medium: HugePages can't be used if container requests multiple huge page sizes"),
        ("HugePages", ["cpu"],
         "medium HugePages: hugePages storage requested, but there is no resource request for huge pages"),
        ("HugePages-1Gi", ["hugepages-2Mi"],
         "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages"),
    ],
)  # fmt: skip
def test_volume_of_huge_pages_has_the_size_that_containers_request(
    tmp_path: Path, mounted: list[list[str]], medium: str, requests: list[str], outcome: str
) -> None:
    places, volume = PodVolumes(tmp_path), {"name": "v", "emptyDir": {"medium": medium}}
    pod = pod_with(volume)
    pod["spec"]["containers"][0]["resources"] = {"requests": dict.fromkeys(requests, "2Mi")}
    if outcome.startswith("pagesize"):
        places.make(pod, volume, None)
        assert mounted == [["mount", "-t", "hugetlbfs", "-o", outcome, "nodev", str(places.volume("u", volume))]]
    else:
        with pytest.raises(ConfigError) as raised:
            places.make(pod, volume, None)
        assert str(raised.value) == outcome


@pytest.mark.parametrize(("release", "has"), [("6.1.0-18-amd64", False), ("6.4.0", True), ("10.0", True), ("x", False)])
def test_kernel_that_keeps_volumes_out_of_swap(release: str, has: bool) -> None:
    assert pod_volumes._has_noswap(release) == has


@pytest.mark.parametrize(
    ("source", "read_only"),
    [
        ("configMap", True), ("secret", True), ("downwardAPI", True), ("projected", True),
        ("emptyDir", False),
    ],
)  # fmt: skip
def test_no_container_may_write_what_is_made_of_objects(tmp_path: Path, source: str, read_only: bool) -> None:
    volume = {"name": "v", source: {}}
    mount = PodVolumes(tmp_path).mount(pod_with(volume), "main", {"name": "v", "mountPath": "/v"}, MountInputs())
    assert mount.readonly == read_only


@pytest.mark.parametrize(
    ("wanted", "has", "recursive"),
    [(None, True, False), ("Disabled", True, False), ("IfPossible", False, False), ("IfPossible", True, True),
     ("Enabled", True, True), ("Enabled", False, None)],
)  # fmt: skip
def test_recursive_read_only_mount_needs_a_runtime_that_has_it(
    tmp_path: Path, wanted: str | None, has: bool, recursive: bool | None
) -> None:
    places, volume = PodVolumes(tmp_path), {"name": "v", "emptyDir": {}}
    mount = {"name": "v", "mountPath": "/v", "readOnly": True, "recursiveReadOnly": wanted}
    if recursive is None:
        with pytest.raises(ConfigError) as raised:
            places.mount(pod_with(volume), "main", mount, MountInputs(recursive_read_only=has))
        assert str(raised.value) == (
            'failed to resolve recursive read-only mode: volume "v" requested recursive read-only mode, '
            "but it is not supported by the runtime"
        )
    else:
        made = places.mount(pod_with(volume), "main", mount, MountInputs(recursive_read_only=has))
        assert made.recursive_read_only == recursive


def test_volume_of_objects_has_places_for_what_is_mounted_in_it(tmp_path: Path) -> None:
    paths = {"v": "/v", "e": "/v/in/side", "f": "/v/in/side/deep", "g": "/v2", "h": "/v/key"}
    volume = {"name": "v", "configMap": {}}
    pod = pod_with(volume, mounts=tuple({"name": name, "mountPath": path} for name, path in paths.items()))
    assert nested_mounts(pod, "v") == ["in/side", "key"]
    places = PodVolumes(tmp_path)
    for _ in range(2):
        places.make(pod, volume, {"key": File(b"1"), "other": File(b"2")})
        place = places.volume("u", volume)
        assert sorted(path.name for path in place.iterdir() if not path.name.startswith("..")) == ["in", "key", "other"]
        assert (place / "in/side").is_dir()


async def test_each_volume_that_is_not_set_up_is_told_and_the_others_are_there(tmp_path: Path) -> None:
    volumes = [
        {"name": "a", "configMap": {"name": "gone"}},
        {"name": "b", "nfs": {}},
        {"name": "c", "emptyDir": {}},
        {"name": "not-mounted", "configMap": {"name": "gone"}},
    ]
    mounts = tuple({"name": name, "mountPath": f"/{name}"} for name in "abc")
    pod = {**pod_with(*volumes, mounts=mounts), "metadata": {"name": "p", "namespace": "n", "uid": "u"}}

    async def tokens(pod: Obj) -> Any:
        return lambda request: ""

    places, objects = PodVolumes(tmp_path), SimpleNamespace(tokens=tokens)
    context: Any = SimpleNamespace(objects=objects, volumes=places, runtime=None, recorder=None)
    with pytest.raises(VolumesError) as raised:
        await ContainerStarter(context).volumes(pod, ReferencedObjects(lambda _: None, lambda _: None), DownwardFacts())
    assert raised.value.problems == [
        'MountVolume.SetUp failed for volume "a" : configmap "gone" not found',
        'MountVolume.SetUp failed for volume "b" : volume "b": nfs is not supported on this node',
    ]
    assert places.volume("u", volumes[2]).is_dir()
