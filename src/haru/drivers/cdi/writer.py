"""CDI files of a driver: one for each claim, written whole, found again by its name, removed with the claim.

A runtime may have kept what it once read under an id: ids carry the claim's UID, so that none ever means two things.
Source: the CDI specification; KEP-4381.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from haru.drivers.cdi.edits import Edits, Spec
from haru.files import write_whole


class ClaimFiles:
    """The files `<driver>-claim_<uid>.json` of kind `<driver>/claim` in a directory."""

    def __init__(self, driver: str, directory: Path) -> None:
        self.kind = f"{driver}/claim"
        self._directory = directory
        self._prefix = f"{driver}-claim_"

    def write(self, claim_uid: str, devices: Mapping[str, Edits]) -> dict[str, str]:
        """Write the devices of a claim; name -> id of each. OSError if that cannot be done."""
        named = {name: f"{claim_uid}-{name}" for name in devices}
        spec = Spec(self.kind, {named[name]: edits for name, edits in devices.items()})
        data = orjson.dumps(spec.as_file(), option=orjson.OPT_INDENT_2)
        path = self._path(claim_uid)
        if not path.exists() or path.read_bytes() != data:
            write_whole(path, data, 0o644, parents=True)
        return {name: f"{self.kind}={full}" for name, full in named.items()}

    def has(self, claim_uid: str) -> bool:
        """Whether the file of a claim is there."""
        return self._path(claim_uid).exists()

    def remove(self, claim_uid: str) -> None:
        """Remove a claim's file; a missing one is no error."""
        self._path(claim_uid).unlink(missing_ok=True)

    def claims(self) -> list[str]:
        """The UIDs of the claims that have a file."""
        found = self._directory.glob(f"{self._prefix}*.json")
        return sorted(path.stem.removeprefix(self._prefix) for path in found)

    def _path(self, claim_uid: str) -> Path:
        return self._directory / f"{self._prefix}{claim_uid}.json"
