"""Make a release in dist/: sdist, wheel, image archive, bill of materials, checksums.

Sdist and wheel made twice from one commit are the same: times are those of the commit (SOURCE_DATE_EPOCH). The image is
left out, and said so, where buildah or debootstrap is missing or the user is not root.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
NAMESPACE = uuid.UUID("6f1c1d0e-6a8e-5b6e-9a57-6d1b0d5f2c11")


def main() -> int:
    """Make everything, and print what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--no-image", action="store_true", help="leave the image out")
    options = parser.parse_args()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct").strip())
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    dist: Path = options.dist.resolve()
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    sdist, wheel = build(dist)
    made = [sdist, wheel]
    lacking = missing_for_image()
    if options.no_image or lacking:
        print(f"no image: {lacking or 'left out'}", file=sys.stderr)
    else:
        image = dist / f"{sdist.name.removesuffix('.tar.gz')}-image.tar"
        run("sh", str(ROOT / "tools" / "build_image.sh"), str(wheel), str(image))
        made.append(image)
    bill = dist / f"{sdist.name.removesuffix('.tar.gz')}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(wheel, epoch), indent=2) + "\n")
    made.append(bill)
    (dist / "SHA256SUMS").write_text("".join(f"{digest(file)}  {file.name}\n" for file in made))
    for file in (*made, dist / "SHA256SUMS"):
        print(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
    return 0


def run(*command: str) -> str:
    """The output of a command of the repository."""
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def build(dist: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, by the build tools that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    with tempfile.TemporaryDirectory() as tools:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(*pip, "--target", tools, *project["build-system"]["requires"])
        environment = {**os.environ, "PYTHONPATH": tools}
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--directory", str(dist)],
            cwd=ROOT,
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    return sdist, wheel


def missing_for_image() -> str:
    """Why no image can be built here; empty if it can."""
    lacking = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if lacking:
        return f"{' and '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "debootstrap needs root"


def digest(file: Path) -> str:
    """SHA-256 in hex."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def bill_of_materials(wheel: Path, epoch: int) -> dict[str, Any]:
    """CycloneDX 1.6: Haru and all that it needs, in the versions that are installed here."""
    name, version = wheel.name.split("-")[:2]
    own = component(name, version)
    own |= {"type": "application", "hashes": [{"alg": "SHA-256", "content": digest(wheel)}]}
    direct = list(needed(required_by(wheel)))
    packages = resolved(direct)
    parts = {package: component(package, importlib.metadata.version(package)) for package in sorted(packages)}
    edges = {package: needed(importlib.metadata.requires(package) or ()) for package in parts}
    wanted = [(own, direct), *((parts[package], list(found)) for package, found in edges.items())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, f'{name} {version} {epoch}')}",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(), "component": own},
        "components": [{**part, **licence(package)} for package, part in parts.items()],
        "dependencies": [
            {"ref": part["bom-ref"], "dependsOn": sorted({parts[need]["bom-ref"] for need in found})}
            for part, found in wanted
        ],
    }


def component(package: str, version: str) -> dict[str, Any]:
    """A package as CycloneDX describes it."""
    purl = f"pkg:pypi/{package}@{version}"
    return {"type": "library", "name": package, "version": version, "purl": purl, "bom-ref": purl}


def licence(package: str) -> dict[str, Any]:
    """The licence that a package declares as an SPDX expression."""
    expression = importlib.metadata.metadata(package).get("License-Expression")
    return {"licenses": [{"expression": expression}]} if expression else {}


def required_by(wheel: Path) -> list[str]:
    """The requirements in a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []


def needed(requirements: Iterable[str]) -> Iterator[str]:
    """The packages that are needed here, without extras, by their normalized names."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield re.sub(r"[-_.]+", "-", requirement.name).lower()


def resolved(direct: Iterable[str]) -> set[str]:
    """These packages and all that they need."""
    seen, todo = set[str](), list(direct)
    while todo:
        package = todo.pop()
        if package not in seen:
            seen.add(package)
            todo += needed(importlib.metadata.requires(package) or ())
    return seen


if __name__ == "__main__":
    sys.exit(main())
