"""Makes what git ignores and a wheel carries: the modules of gRPC's messages, and what the browser gets of others.

`NAME_pb2.py` and `NAME_pb2.pyi` come from `src/haru/proto/NAME.proto`. The scripts of the dashboard's charts come from
the npm registry, in the versions of `frontend/package-lock.json`; without npm the pages have no charts, and say so.

The build runs it for wheels, sdists and editable installations; `python hatch_build.py` does so in a working tree.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "src"
PROTO = SOURCE / "haru" / "proto"
FRONTEND = Path(__file__).parent / "frontend"
VENDOR = SOURCE / "haru" / "dashboard" / "static" / "vendor"
SCRIPTS = {
    "uplot.js": "uplot/dist/uPlot.iife.min.js",
    "uplot.css": "uplot/dist/uPlot.min.css",
    "uplot.LICENSE": "uplot/LICENSE",
    "idiomorph.js": "idiomorph/dist/idiomorph.min.js",
    "idiomorph.LICENSE": "idiomorph/LICENSE",
}
"""What is served, and the file of a package that it is."""
NPM_SECONDS = 120


def generate() -> None:
    """Write the modules anew; those of definitions that are gone, go. Exits with what protoc says."""
    import grpc_tools
    from grpc_tools import protoc

    definitions = sorted(PROTO.glob("*.proto"))
    well_known = Path(grpc_tools.__path__[0]) / "_proto"
    with tempfile.TemporaryDirectory(dir=PROTO) as made:
        options = [f"-I{SOURCE}", f"-I{well_known}", f"--python_out={made}", f"--pyi_out={made}"]
        if protoc.main(["protoc", *options, *map(str, definitions)]):
            sys.exit("the definitions in src/haru/proto can not be compiled")
        for module in (Path(made) / "haru" / "proto").iterdir():
            module.replace(PROTO / module.name)
    names = {path.stem for path in definitions}
    for module in PROTO.glob("*_pb2.py*"):
        if module.name.partition("_pb2")[0] not in names:
            module.unlink()


def fetch_frontend() -> str:
    """Fetch the scripts of others, unless they are there in these versions; why they are not, or nothing."""
    lock = FRONTEND / "package-lock.json"
    if not lock.is_file():
        return f"{lock} is missing"
    wanted = hashlib.sha256(lock.read_bytes() + repr(SCRIPTS).encode()).hexdigest()
    stamp = VENDOR / "versions.sha256"
    if stamp.is_file() and stamp.read_text().strip() == wanted:
        return ""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(FRONTEND / name, folder)
        try:
            subprocess.run([npm, "ci"], cwd=folder, check=True, capture_output=True, text=True, timeout=NPM_SECONDS)
        except subprocess.CalledProcessError as error:
            return f"npm ci failed: {(error.stderr or '').strip().splitlines()[-1:]}"
        except subprocess.TimeoutExpired:
            return f"npm ci took longer than {NPM_SECONDS} s"
        VENDOR.mkdir(exist_ok=True)
        for name, path in SCRIPTS.items():
            shutil.copyfile(Path(folder) / "node_modules" / path, VENDOR / name)
    stamp.write_text(f"{wanted}\n")
    return ""


def prepare() -> None:
    """Make everything; the pages can do without charts, so their absence is only said."""
    generate()
    if lacking := fetch_frontend():
        print(f"haru: the dashboard is built without charts and in-place updates: {lacking}", file=sys.stderr)


if __name__ == "__main__":
    prepare()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
        """What hatchling calls before it builds."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Generate, fetch, and put into the wheel and the sdist what git ignores."""
            prepare()
            build_data["artifacts"] += ["src/haru/proto/*_pb2.py*", "src/haru/dashboard/static/vendor/*"]
