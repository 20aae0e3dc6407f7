"""Metadata of devices as files in the containers that use them (KEP-5304, alpha in 1.36).

One file for each request of a claim and driver, mounted through a CDI device of its own: neither the kubelet nor the
API takes part. A container reads `/var/run/kubernetes.io/dra-device-attributes/…/<driver>-metadata.json`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson

from haru.drivers.cdi.edits import Edits, Mount, Spec
from haru.drivers.library.claims import ClaimToPrepare, ReadyDevice
from haru.files import write_whole
from haru.kube.meta import Obj

GROUP: Final = "metadata.resource.k8s.io"
VERSIONS: Final = ("v1alpha1",)
"""Those that are written, the newest first."""
CONTAINER_DIRECTORY: Final = "/var/run/kubernetes.io/dra-device-attributes"


class MetadataFiles:
    """The metadata files of a driver's claims: in `data` on the host, with CDI files in `cdi`.

    Raises ValueError if none of the `versions` that the driver wants can be written.
    """

    def __init__(self, driver: str, data: Path, cdi: Path, versions: Sequence[str]) -> None:
        self._driver = driver
        self._data = data / "dra-device-metadata"
        self._cdi = cdi
        self._versions = [version for version in VERSIONS if version in versions]
        if not self._versions:
            wanted = ", ".join(versions) or "none"
            raise ValueError(f"metadata versions: {wanted}: name one of {', '.join(VERSIONS)}")

    def write(self, claim: ClaimToPrepare, devices: Sequence[ReadyDevice]) -> dict[str, str]:
        """Write the files of a claim; base request -> the CDI id that brings its file into a container. OSError."""
        by_request: dict[str, list[ReadyDevice]] = {}
        for device in devices:
            by_request.setdefault(device.allocated.base_request, []).append(device)
        return {request: self._write(claim, request, some) for request, some in by_request.items()}

    def _write(self, claim: ClaimToPrepare, request: str, devices: Sequence[ReadyDevice]) -> str:
        path = self._directory(claim.namespace, claim.name) / request / "metadata.json"
        known = _content(path)
        content = self._content(claim, devices)
        generation = int((known or {}).get("metadata", {}).get("generation", 0))
        same_claim = (known or {}).get("metadata", {}).get("uid") == claim.uid
        if known is None or not same_claim or known.get("requests") != content["requests"]:
            content["metadata"]["generation"] = generation + 1 if same_claim else 1
            written = [{"apiVersion": f"{GROUP}/{version}", **content} for version in self._versions]
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            write_whole(path, b"".join(orjson.dumps(one) + b"\n" for one in written), 0o644, parents=True)
        name = f"{claim.uid}_{request}"
        kind = "resourceclaimtemplates" if claim.pod_claim_name else "resourceclaims"
        called = claim.pod_claim_name or claim.name
        inside = f"{CONTAINER_DIRECTORY}/{kind}/{called}/{request}/{self._driver}-metadata.json"
        spec = Spec(f"{self._driver}/metadata", {name: Edits(mounts=(Mount(str(path), inside, ("ro", "bind")),))})
        write_whole(self._cdi_file(claim.uid, request), orjson.dumps(spec.as_file()), 0o644, parents=True)
        return f"{spec.kind}={name}"

    def _content(self, claim: ClaimToPrepare, devices: Sequence[ReadyDevice]) -> Obj:
        requests: dict[str, list[Obj]] = {}
        for device in devices:
            where = device.allocated
            told: Obj = {"driver": self._driver, "pool": where.pool, "name": where.device}
            told["attributes"] = dict(device.attributes)
            told["networkData"] = dict(device.network_data)
            requests.setdefault(where.request, []).append({key: value for key, value in told.items() if value})
        content: Obj = {
            "kind": "DeviceMetadata",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": 1},
        }
        if claim.pod_claim_name:
            content["podClaimName"] = claim.pod_claim_name
        content["requests"] = [{"name": name, "devices": listed} for name, listed in requests.items()]
        return content

    def update(self, namespace: str, name: str, request: str, device: str, network_data: Obj) -> None:
        """Add what became known of a device after its claim was prepared. ValueError for what is not there."""
        path = self._directory(namespace, name) / request / "metadata.json"
        content = _content(path)
        if content is None:
            raise ValueError(f"claim {namespace}/{name}: request {request}: has no metadata file here")
        listed = [one for told in content["requests"] for one in told["devices"] if one["name"] == device]
        if not listed:
            raise ValueError(f"claim {namespace}/{name}: request {request}: has no device {device}")
        for one in listed:
            one["networkData"] = network_data
        content["metadata"]["generation"] += 1
        # Mounted files are followed by their inode: the content changes in place.
        written = [{**content, "apiVersion": f"{GROUP}/{version}"} for version in self._versions]
        path.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in written))

    def remove(self, namespace: str, name: str, uid: str) -> None:
        """Remove the files of a claim; missing ones are no error."""
        shutil.rmtree(self._directory(namespace, name), ignore_errors=True)
        for path in self._cdi.glob(f"{self._driver}_metadata_{uid}_*.json"):
            path.unlink(missing_ok=True)

    def _directory(self, namespace: str, name: str) -> Path:
        return self._data / f"{namespace}_{name}"

    def _cdi_file(self, uid: str, request: str) -> Path:
        return self._cdi / f"{self._driver}_metadata_{uid}_{request}.json"


def _content(path: Path) -> Obj | None:
    """The first object of a metadata file, None if there is none that can be read."""
    try:
        found, _ = json.JSONDecoder().raw_decode(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
