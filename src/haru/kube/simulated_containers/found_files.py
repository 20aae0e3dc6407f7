"""What a pod has found in volumes that outlive pods: its node writes an annotation, the API server reads it. Pure.

Commands are run by the API server, which does not know what pods before this one have left there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from haru.kube.meta import Obj, annotations_of
from haru.kube.simulated_containers.files import VolumeContents
from haru.kube.simulated_containers.simulation import DOMAIN
from haru.kube.volume_binding import STORAGE_PROVISIONER

FOUND: Final = f"{DOMAIN}/found"
PROVISIONER: Final = f"volumes.{DOMAIN}"
"""Makes the volumes of simulated nodes, all of them empty."""
_MOST_BYTES: Final = 128 * 1024


def found_in(pod: Obj) -> dict[str, VolumeContents]:
    """What the annotation of a pod tells, by the names of volumes; nothing of one that is malformed."""
    try:
        return {
            str(volume): VolumeContents({str(path): str(text) for path, text in texts.items()}, bool(is_whole))
            for volume, (texts, is_whole) in json.loads(annotations_of(pod).get(FOUND) or "{}").items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}


def found_annotation(found: Mapping[str, VolumeContents]) -> str:
    """The annotation; empty where there is nothing to tell, without files where these are too much."""
    files = {volume: (one.texts, one.is_whole) for volume, one in found.items() if one.texts}
    text = json.dumps(files, ensure_ascii=False) if files else ""
    return text if len(text.encode()) <= _MOST_BYTES else json.dumps(dict.fromkeys(files, ({}, False)))


def begins_empty(volume: Mapping[str, Any], claim: Obj | None) -> bool:
    """Whether nothing was in a volume that outlives pods before one of them wrote there: it was made for them."""
    if "hostPath" in volume:
        return str(volume["hostPath"].get("type") or "").endswith("OrCreate")
    return claim is not None and annotations_of(claim).get(STORAGE_PROVISIONER) == PROVISIONER
