"""Pack one static binary into an OCI image, as a tar that `ctr images import` and `podman load` read.

    python pack_image.py NAME:TAG BINARY FILE.tar

The image holds nothing else; the binary is its entry point.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path

_OCI = "application/vnd.oci.image"


def image(name: str, binary: Path) -> bytes:
    """The tar of an OCI image layout: one layer with the binary."""
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layer = blob("layer.v1.tar", _tar({binary.name: binary.read_bytes()}, mode=0o755))
    machine = os.uname().machine
    platform = {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine), "os": "linux"}
    started = {"Entrypoint": [f"/{binary.name}"], "WorkingDir": "/"}
    config = {**platform, "config": started, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    manifest = {"schemaVersion": 2, "config": blob("config.v1+json", _json(config)), "layers": [layer]}
    known = blob("manifest.v1+json", _json(manifest))
    known |= {"annotations": {"io.containerd.image.name": name}, "platform": platform}
    index = {"schemaVersion": 2, "manifests": [known]}
    return _tar({"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs})


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    Path(sys.argv[3]).write_bytes(image(sys.argv[1], Path(sys.argv[2])))
