"""Generates the modules of the messages (`NAME_pb2.py`, `NAME_pb2.pyi`) from `src/haru/proto/NAME.proto`.

The build runs it for wheels and editable installations; `python hatch_build.py` does the same in a working tree.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "src"
PROTO = SOURCE / "haru" / "proto"


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


if __name__ == "__main__":
    generate()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class GenerateMessages(BuildHookInterface):  # type: ignore[type-arg]
        """What hatchling calls before it builds."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Generate, and put into the wheel what git ignores."""
            generate()
            build_data["artifacts"].append("src/haru/proto/*_pb2.py*")
