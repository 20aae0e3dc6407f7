"""The CDI files of a machine, resolved for runtimes without CDI.

Files of a later directory win over those of an earlier one; two files of one directory that define the same device make
that device unusable. A file that cannot be read harms only its own devices. Hooks are refused: whatever they set up
would be missing. Source: the CDI specification, as its Go library reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from haru.drivers.cdi.edits import CdiError, Edits, Spec, read_spec, split_id
from haru.kube import yaml

DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))


class CdiFiles:
    """The specifications in some directories, read anew for each question: drivers write them at any time."""

    def __init__(self, directories: Sequence[Path] = DIRECTORIES) -> None:
        self._directories = tuple(directories)

    def resolve(self, ids: Iterable[str]) -> Edits:
        """What the devices add to a container, in their order. Raises `CdiError`."""
        wanted = [(id_, *split_id(id_)) for id_ in dict.fromkeys(ids)]
        known, complaints = self._read()
        edits, seen = Edits(), set[int]()
        for id_, kind, name in wanted:
            found = known.get((kind, name))
            if found is None:
                hint = f" ({'; '.join(complaints)})" if complaints else ""
                raise CdiError(f'"{id_}": no CDI file in {self._where()} has this device{hint}')
            if isinstance(found, str):
                raise CdiError(f'"{id_}": {found}')
            if id(found) not in seen:
                seen.add(id(found))
                edits += found.edits
            edits += found.devices[name]
        _check(edits, [id_ for id_, _, _ in wanted])
        return edits

    def ids(self) -> list[str]:
        """All devices that could be resolved."""
        known, _ = self._read()
        return sorted(f"{kind}={name}" for (kind, name), found in known.items() if not isinstance(found, str))

    def _where(self) -> str:
        return ", ".join(map(str, self._directories))

    def _read(self) -> tuple[dict[tuple[str, str], Spec | str], list[str]]:
        """(kind, device) -> its specification or what is wrong with it; and complaints about files."""
        known: dict[tuple[str, str], Spec | str] = {}
        complaints: list[str] = []
        for directory in self._directories:
            here: dict[tuple[str, str], Path] = {}
            for path in sorted(p for p in directory.glob("*") if p.suffix in (".json", ".yaml")):
                try:
                    spec = read_spec(yaml.load(path.read_text(encoding="utf-8")), str(path))
                except (OSError, ValueError) as error:
                    complaints.append(str(error))
                    continue
                for name in spec.devices:
                    key = (spec.kind, name)
                    other = here.setdefault(key, path)
                    known[key] = spec if other is path else f"{other} and {path} both define it"
        return known, complaints


def _check(edits: Edits, ids: Sequence[str]) -> None:
    listed = ", ".join(ids)
    if edits.hooks:
        raise CdiError(
            f"{listed}: {edits.hooks} hooks are demanded, which only a runtime with CDI runs: enable CDI there"
        )
    if edits.others:
        raise CdiError(f"{listed}: {', '.join(edits.others)} is demanded, which only a runtime with CDI does")
