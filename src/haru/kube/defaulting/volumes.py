"""Defaults of volume sources (core/v1), the same in pods, PersistentVolumes and attachments of inline volumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.kube.defaulting.filling import fill, fill_unset
from haru.kube.meta import Obj

_FILE_MODE = 0o644
_UNSET: Mapping[str, Mapping[str, Any]] = {
    "secret": {"defaultMode": _FILE_MODE},
    "configMap": {"defaultMode": _FILE_MODE},
    "downwardAPI": {"defaultMode": _FILE_MODE},
    "projected": {"defaultMode": _FILE_MODE},
    "hostPath": {"type": ""},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
}
_EMPTY: Mapping[str, Mapping[str, str]] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
"""Those of which an empty text is none."""


def fill_volume_source(name: str, source: Any) -> None:
    """Fill in one source; what is nested in it is not looked at."""
    if isinstance(source, dict):
        fill_unset(source, **_UNSET.get(name, {}))
        fill(source, **_EMPTY.get(name, {}))


def fill_volume_sources(spec: Obj) -> None:
    """Fill in what the spec of a PersistentVolume says of where it is."""
    for name in (*_UNSET, *_EMPTY):
        fill_volume_source(name, spec.get(name))
