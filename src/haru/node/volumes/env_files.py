"""Files in volumes from which containers get variables."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haru.kube.meta import Obj
from haru.kube.pod_environment.env_file import value_in
from haru.kube.pod_environment.fields import ConfigError
from haru.node.volumes.pod_volumes import PodVolumes

_MOST_BYTES = 1 << 20
_NO_MORE = "couldn't parse env file"
"""No more of it is told: whoever reads this may not see what is in the file."""


def file_key(pod: Obj, ref: Mapping[str, Any], volumes: PodVolumes) -> bytes | None:
    """The value of a `fileKeyRef`; None for an optional one that is not there. Raises `ConfigError`."""
    listed = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    volume = listed.get(ref["volumeName"])
    place = volumes.volume(pod["metadata"]["uid"], volume) if volume is not None else None
    if place is None or not place.is_dir():
        raise ConfigError(f'cannot find the volume "{ref["volumeName"]}" referenced by FileKeyRef')
    try:
        value = value_in(_text(place, ref["path"]), ref["key"])
    except (OSError, ValueError) as error:
        raise ConfigError(_NO_MORE) from error
    if value:
        return value.encode()
    if ref.get("optional"):
        return None
    file = place / ref["path"]
    raise ConfigError(f'environment variable key "{ref["key"]}" not found in file "{file}"')


def _text(volume: Path, path: str) -> str:
    """A file below a volume. Raises OSError, ValueError."""
    # Opened first, looked at then: a container that still runs may change where a link leads.
    descriptor = os.open(volume / path.lstrip("/"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        opened = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not opened.is_relative_to(volume.resolve()) or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is no file in the volume")
        found = os.read(descriptor, _MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(found) > _MOST_BYTES:
        raise ValueError(f"{path} is larger than {_MOST_BYTES} bytes")
    return found.decode(errors="replace")
