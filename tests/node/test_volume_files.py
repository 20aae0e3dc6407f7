"""The files of volumes: what is in them, and that they change all at once."""

from __future__ import annotations

import base64
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts
from haru.kube.pod_environment.volume_files import File, Files, files_of, in_memory, references
from haru.node.volumes.atomic import DATA, write_files
from haru.node.volumes.pod_volumes import MountInputs, PodVolumes
from haru.proto import cri_pb2 as cri

Obj = dict[str, Any]
OBJECTS: dict[str, Obj] = {
    "words": {"data": {"one": "1", "two": "2"}, "binaryData": {"raw": base64.b64encode(b"\xff").decode()}},
    "hidden": {"data": {"key": base64.b64encode(b"secret").decode()}},
}
SOURCES = ReferencedObjects(OBJECTS.get, OBJECTS.get)
PLACE = DownwardFacts(("192.0.2.1",), ("10.0.0.1",), {"cpu": "4", "memory": "8Gi"})
POD: Obj = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"b": "2", "a": '1"'}},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1500m"}}}], "nodeName": "here"},
}


def made(volume: Obj, pod: Obj = POD) -> Files | None:
    return files_of(
        pod, {"name": "v", **volume}, SOURCES, PLACE, lambda request: f"token for {request.get('audience')}"
    )


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        ({"configMap": {"name": "words"}}, {"one": File(b"1"), "two": File(b"2"), "raw": File(b"\xff")}),
        (
            {"configMap": {"name": "words", "defaultMode": 0o600, "items": [{"key": "one", "path": "a/b"}]}},
            {"a/b": File(b"1", 0o600)},
        ),
        (
            {"configMap": {"name": "words", "items": [{"key": "one", "path": "x", "mode": 0o400}]}},
            {"x": File(b"1", 0o400)},
        ),
        ({"secret": {"secretName": "hidden"}}, {"key": File(b"secret")}),
        ({"configMap": {"name": "nobody", "optional": True}}, {}),
        (
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"labels": File(b'a="1\\""\nb="2"')},
        ),
        (
            {
                "downwardAPI": {
                    "items": [
                        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
                        {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory"}},
                    ]
                }
            },
            {"cpu": File(b"2"), "memory": File(b"8589934592")},
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "words", "items": [{"key": "one", "path": "one"}]}},
                        {"secret": {"name": "hidden"}},
                        {"serviceAccountToken": {"path": "token", "audience": "vault"}},
                    ]
                }
            },
            {"one": File(b"1"), "key": File(b"secret"), "token": File(b"token for vault")},
        ),
        ({"projected": {"sources": [{}, {"secret": {"name": "hidden"}}]}}, {"key": File(b"secret")}),
        ({"emptyDir": {}}, None),
        ({"hostPath": {"path": "/tmp"}}, None),
    ],
)
def test_volume_source_gives_files(volume: Obj, files: Files | None) -> None:
    assert made(volume) == files


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "nobody"}}, 'configmap "nobody" not found'),
        ({"secret": {"secretName": "nobody"}}, 'secret "nobody" not found'),
        (
            {"configMap": {"name": "words", "items": [{"key": "x", "path": "x"}]}},
            "^configmap references non-existent config key: x$",
        ),
        (
            {"secret": {"secretName": "hidden", "items": [{"key": "x", "path": "x"}]}},
            "^references non-existent secret key: x$",
        ),
        ({"projected": {"sources": [{"clusterTrustBundle": {}}]}}, "clusterTrustBundle is not supported on this node"),
        (
            {"projected": {"sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}]}},
            r'^\[configmap "a" not found, secret "b" not found\]$',
        ),
        ({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.x"}}]}}, "unsupported fieldPath"),
    ],
)
def test_missing_volume_source_is_reported(volume: Obj, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(volume)


@pytest.mark.parametrize(
    ("context", "users", "owner", "mode"),
    [
        ({"runAsUser": 1000}, [{}], 1000, 0o600),
        ({"runAsUser": 1000, "fsGroup": 5}, [{}], 1000, 0o600),
        ({"fsGroup": 5}, [{}], None, 0o600),
        ({}, [{"runAsUser": 7}, {"runAsUser": 8}], None, 0o444),
        ({}, [{"runAsUser": 7}, {}], None, 0o444),
    ],
)
def test_token_file_is_owned_by_the_single_run_as_user(
    context: Obj, users: list[Obj], owner: int | None, mode: int
) -> None:
    containers = [{"name": "main", "securityContext": user} for user in users]
    pod = {**POD, "spec": {"securityContext": context, "containers": containers}}
    files = made({"projected": {"defaultMode": 0o444, "sources": [{"serviceAccountToken": {"path": "token"}}]}}, pod)
    assert files is not None
    assert (files["token"].owner, files["token"].mode) == (owner, mode)


@pytest.mark.parametrize(
    ("volume", "memory"),
    [
        ({"secret": {}}, True),
        ({"projected": {"sources": [{"configMap": {}}]}}, True),
        ({"downwardAPI": {}}, True),
        ({"emptyDir": {"medium": "Memory"}}, True),
        ({"emptyDir": {}}, False),
        ({"configMap": {}}, False),
    ],
)
def test_volumes_that_are_in_memory(volume: Obj, memory: bool) -> None:
    assert in_memory(volume) == memory


def test_references_of_pod_are_collected() -> None:
    pod = {
        "metadata": {},
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "envFrom": [{"configMapRef": {"name": "c1"}}, {"secretRef": {"name": "s1"}}],
                    "env": [
                        {"name": "x", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}},
                        {"name": "y", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                    ],
                }
            ],
            "volumes": [
                {"name": "v", "configMap": {"name": "c3"}},
                {"name": "w", "secret": {"secretName": "s3"}},
                {"name": "z", "projected": {"sources": [{"secret": {"name": "s4"}}, {"configMap": {"name": "c4"}}]}},
            ],
            "imagePullSecrets": [{"name": "s5"}],
        },
    }
    assert references(pod) == ({"c1", "c2", "c3", "c4"}, {"s1", "s2", "s3", "s4", "s5"})


# -- on disk ----------------------------------------------------------------------------------------------------------


def content(directory: Path) -> dict[str, bytes]:
    """What a program sees that walks the names beside `..data`."""
    found: dict[str, bytes] = {}
    for path in directory.iterdir():
        if path.name.startswith(".."):
            continue
        files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        found |= {str(one.relative_to(directory)): one.read_bytes() for one in files}
    return found


def test_volume_files_are_symlinks_into_data_directory(tmp_path: Path) -> None:
    assert write_files(tmp_path, {"a": File(b"1"), "d/e": File(b"2", 0o600)})
    assert content(tmp_path) == {"a": b"1", "d/e": b"2"}
    assert (tmp_path / "a").readlink() == Path(DATA) / "a"
    assert (tmp_path / "d").readlink() == Path(DATA) / "d"
    assert (tmp_path / "d/e").stat().st_mode & 0o777 == 0o600


def test_unchanged_volume_is_not_rewritten(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": File(b"1")})
    before = (tmp_path / DATA).readlink()
    assert not write_files(tmp_path, {"a": File(b"1")})
    assert (tmp_path / DATA).readlink() == before


def test_partly_written_volume_is_completed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": File(b"1")})
    (tmp_path / "..2020_01_01_00_00_00.1").mkdir()
    (tmp_path / "..data_tmp").symlink_to("..2020_01_01_00_00_00.1")
    (tmp_path / "a").unlink()
    assert not write_files(tmp_path, {"a": File(b"1")})
    assert content(tmp_path) == {"a": b"1"}
    assert write_files(tmp_path, {"a": File(b"2")})
    assert {path.name for path in tmp_path.iterdir()} == {DATA, (tmp_path / DATA).readlink().name, "a"}


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "..data", ""])
def test_paths_outside_the_volume_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="no path within a volume"):
        write_files(tmp_path, {path: File(b"")})


PATHS = st.sampled_from(["a", "b", "c/d", "c/e", "f/g/h"])


@settings(max_examples=30)
@given(states=st.lists(st.dictionaries(PATHS, st.binary(max_size=3)), min_size=1, max_size=5))
def test_any_sequence_of_states_is_written_correctly(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, bytes]]
) -> None:
    directory = tmp_path_factory.mktemp("v")
    for state in states:
        write_files(directory, {path: File(data) for path, data in state.items()})
        assert content(directory) == state


def test_reader_sees_consistent_files_during_update(tmp_path: Path) -> None:
    """Two files that always agree, read through `..data` while they change."""
    write_files(tmp_path, {"a": File(b"0"), "b": File(b"0")})
    done, torn = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            try:
                directory = os.open(tmp_path / DATA, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # the link was followed to a state that has just gone
            try:
                found = []
                for name in ("a", "b"):
                    opened = os.open(name, os.O_RDONLY, dir_fd=directory)
                    found.append(os.read(opened, 100))
                    os.close(opened)
                if found[0] != found[1]:
                    torn.append(found)
            except FileNotFoundError:
                pass  # the state that was opened has gone meanwhile: the reader opens the next one
            finally:
                os.close(directory)
            time.sleep(0)  # let the writer write

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        text = str(number).encode()
        write_files(tmp_path, {"a": File(text), "b": File(text)})
    done.set()
    reader.join()
    assert torn == []


# -- places -----------------------------------------------------------------------------------------------------------


def pod_with(*volumes: Obj) -> Obj:
    return {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], "volumes": list(volumes)}}


def test_volume_directories_and_mounts(tmp_path: Path) -> None:
    places = PodVolumes(tmp_path)
    volume = {"name": "v", "configMap": {"name": "words"}}
    pod = pod_with(volume)
    assert places.make(pod, volume, {"a": File(b"1")})
    mount = places.mount(pod, "main", {"name": "v", "mountPath": "/v"}, MountInputs())
    assert Path(mount.host_path) == tmp_path / "pods/u/volumes/kubernetes.io~configmap/v"
    assert (mount.container_path, mount.readonly) == ("/v", True)  # as every volume that is made of objects
    assert places.known() == ["u"]
    places.remove("u")
    assert places.known() == []


def test_image_volume_is_mounted_by_the_runtime(tmp_path: Path) -> None:
    places = PodVolumes(tmp_path)
    volume = {"name": "v", "image": {"reference": "registry.test/models:1"}}
    pod = pod_with(volume)
    assert not places.make(pod, volume, None)
    image = cri.ImageSpec(image="sha256:1", user_specified_image="registry.test/models:1")
    inputs = MountInputs(images={"v": image})
    mount = places.mount(pod, "main", {"name": "v", "mountPath": "/v", "subPath": "a/b"}, inputs)
    assert mount == cri.Mount(container_path="/v", readonly=True, image=image, image_sub_path="a/b")
    assert places.known() == []


def test_pod_directory_remains_until_it_is_empty(tmp_path: Path) -> None:
    places = PodVolumes(tmp_path)
    volume = {"name": "v", "emptyDir": {}}
    pod = pod_with(volume)
    pod["metadata"]["namespace"] = "default"
    assert places.noted("u") is None
    places.note(pod)
    places.make(pod, volume, None)
    places.note({**pod, "status": {"qosClass": "Guaranteed"}})  # the class does not change
    # A write that was cut off by a crash.
    (tmp_path / "pods/u/.userns.new").touch()
    known = {"namespace": "default", "name": "p", "uid": "u"}
    assert PodVolumes(tmp_path).noted("u") == {"metadata": known, "spec": {}, "status": {"qosClass": "BestEffort"}}
    for _ in range(2):
        places.empty("u")
        assert [path.name for path in (tmp_path / "pods/u").iterdir()] == ["pod.json"]
    for _ in range(2):
        places.remove("u")
        assert places.known() == []


def test_sub_path_is_confined_to_the_volume(tmp_path: Path) -> None:
    places = PodVolumes(tmp_path)
    volume = {"name": "v", "emptyDir": {}}
    pod = pod_with(volume)
    places.make(pod, volume, None)
    given = MountInputs({"NAME": "y", "EMPTY": ""})
    mount = places.mount(pod, "main", {"name": "v", "mountPath": "/v", "subPathExpr": "x/$(NAME)"}, given)
    assert mount.host_path.endswith("/kubernetes.io~empty-dir/v/x/y")
    assert [stat.S_IMODE(Path(mount.host_path, up).stat().st_mode) for up in (".", "..")] == [0o777, 0o777]
    (places.volume("u", volume) / "out").symlink_to("/etc")
    (places.volume("u", volume) / "file").touch()
    for path, message in (
        ("file/x", 'failed to prepare subPath for volumeMount "v" of container "main"'),
        ("../..", "unable to provision SubPath `../..`: must not contain '..'"),
        ("/etc", "error SubPath `/etc` must not be an absolute path"),
        ("out", 'failed to prepare subPath for volumeMount "v" of container "main"'),
        ("$(NONE)/$(EMPTY)", "missing value for EMPTY, NONE"),
    ):
        with pytest.raises(ConfigError) as raised:
            places.mount(pod, "main", {"name": "v", "mountPath": "/v", "subPathExpr": path}, given)
        assert str(raised.value) == message


def test_empty_dir_is_world_writable_and_kept(tmp_path: Path) -> None:
    places = PodVolumes(tmp_path)
    volume = {"name": "v", "emptyDir": {}}
    places.make(pod_with(volume), volume, None)
    place = places.volume("u", volume)
    assert place.stat().st_mode & 0o777 == 0o777
    (place / "kept").touch()
    places.make(pod_with(volume), volume, None)
    assert (place / "kept").exists()


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("Directory", "nobody", "nobody is not a directory"),
        ("Directory", "file", "file is not a directory"),
        ("DirectoryOrCreate", "file", "file is not a directory"),
        ("File", "directory", "directory is not a file"),
        ("FileOrCreate", "directory", "directory is not a file"),
        ("Socket", "file", "file is not a socket file"),
        ("CharDevice", "file", "file is not a character device"),
        ("BlockDevice", "file", "file is not a block device"),
    ],
)
def test_host_path_of_wrong_type_is_refused(tmp_path: Path, kind: str, name: str, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    volume = {"name": "v", "hostPath": {"path": str(tmp_path / name), "type": kind}}
    with pytest.raises(ConfigError, match=f"^hostPath type check failed: {tmp_path}/{message}$"):
        PodVolumes(tmp_path).make(pod_with(volume), volume, None)


def test_host_path_is_created_on_demand(tmp_path: Path) -> None:
    for kind, name in (("DirectoryOrCreate", "d/e"), ("FileOrCreate", "f")):
        volume = {"name": "v", "hostPath": {"path": str(tmp_path / name), "type": kind}}
        PodVolumes(tmp_path).make(pod_with(volume), volume, None)
    assert (tmp_path / "d/e").is_dir()
    assert (tmp_path / "f").is_file()


@pytest.mark.parametrize(
    ("kind", "call", "why"), [("FileOrCreate", "open", "d/f"), ("DirectoryOrCreate", "mkdir", "f/d")]
)
def test_host_path_that_can_not_be_created_is_told_as_a_kubelet_does(
    tmp_path: Path, kind: str, call: str, why: str
) -> None:
    (tmp_path / "f").touch()
    path = tmp_path / why
    volume = {"name": "v", "hostPath": {"path": str(path), "type": kind}}
    with pytest.raises(ConfigError, match=f"^{call} {path}: (no such file or|not a) directory$"):
        PodVolumes(tmp_path).make(pod_with(volume), volume, None)


def test_unsupported_volume_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='volume "v": persistentVolumeClaim is not supported on this node'):
        PodVolumes(tmp_path).volume("u", {"name": "v", "persistentVolumeClaim": {}})
