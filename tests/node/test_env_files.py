"""Variables from files in volumes: what a container gets, and that nothing outside of its volume is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from haru.kube.pod_environment.fields import ConfigError
from haru.node.volumes.env_files import file_key
from haru.node.volumes.pod_volumes import PodVolumes

Obj = dict[str, Any]
VOLUME = {"name": "v", "emptyDir": {}}
POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"volumes": [VOLUME]}}


def ref(path: str = "file", **more: Any) -> Obj:
    return {"volumeName": "v", "path": path, "key": "KEY", **more}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    volumes = PodVolumes(tmp_path)
    volumes.make(POD, VOLUME, None)
    place = volumes.volume("u", VOLUME)
    (place / "file").write_text("KEY='value'\n")
    return place


def test_variable_has_the_value_of_its_key(volume: Path, tmp_path: Path) -> None:
    assert file_key(POD, ref(), PodVolumes(tmp_path)) == b"value"
    (volume / "link").symlink_to("file")
    assert file_key(POD, ref("link"), PodVolumes(tmp_path)) == b"value"


def test_missing_key_is_an_error_unless_it_is_optional(volume: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'environment variable key "NONE" not found in file ".*/v/file"'):
        file_key(POD, ref(key="NONE"), PodVolumes(tmp_path))
    assert file_key(POD, ref(key="NONE", optional=True), PodVolumes(tmp_path)) is None


def test_volume_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in ("v", "other"):
        with pytest.raises(ConfigError, match=f'cannot find the volume "{name}" referenced by FileKeyRef'):
            file_key(POD, ref(volumeName=name), PodVolumes(tmp_path))


@pytest.mark.parametrize("path", ["none", "out", "dir", "pipe", "bad", "../../../../secret"])
def test_nothing_but_a_file_of_the_volume_is_read(volume: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("KEY='secret'")
    (volume / "out").symlink_to(tmp_path / "secret")
    (volume / "dir").mkdir()
    (volume / "bad").write_text("nothing")
    os.mkfifo(volume / "pipe")
    with pytest.raises(ConfigError, match=r"^couldn't parse env file$"):
        file_key(POD, ref(path, optional=True), PodVolumes(tmp_path))
