"""The bill of materials of a release names every package that an installation brings."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EPOCH = 1_760_000_000


@pytest.fixture
def bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    release = importlib.import_module("release")
    wheel = tmp_path / "haru-0.1.0-py3-none-any.whl"
    metadata = (
        "Name: haru\nRequires-Dist: aiohttp>=3\nRequires-Dist: PyYAML\nRequires-Dist: PyNaCl; extra == 'secretbox'\n"
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("haru-0.1.0.dist-info/METADATA", metadata)
    first: dict[str, Any] = release.bill_of_materials(wheel, EPOCH)
    assert release.bill_of_materials(wheel, EPOCH) == first, "made twice, it is the same"
    sys.modules.pop("release")
    return first


def test_bill_has_direct_and_indirect_packages_without_extras(bill: dict[str, Any]) -> None:
    names = {part["name"] for part in bill["components"]}
    assert {"aiohttp", "pyyaml", "yarl", "multidict"} <= names
    assert "pynacl" not in names
    assert bill["metadata"]["component"]["hashes"][0]["alg"] == "SHA-256"


def test_every_dependency_of_the_bill_is_a_component(bill: dict[str, Any]) -> None:
    known = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {entry["ref"] for entry in bill["dependencies"]} == known
    assert all(set(entry["dependsOn"]) <= known for entry in bill["dependencies"])
    assert all("==" not in ref and "@" in ref for ref in known)
