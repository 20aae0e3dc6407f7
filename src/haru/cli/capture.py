"""Write down a cluster as it is: all that scheduling decisions depend on, for schedule, explain and whatif elsewhere.

The answer is a List of Kubernetes objects that every `-f` of Haru takes: nodes, pods, claims, slices, groups and what
else decisions read; no Secrets, no ConfigMaps. With --hide names, namespaces and images become numbers, annotations
digests, and commands and environments are left out; decisions about it are the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.main import UsageError

Obj = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru capture`."""
    add_connection_arguments(parser)
    parser.add_argument("-w", "--write", type=Path, metavar="FILE", help="where to (default: standard output)")
    parser.add_argument("--hide", action="store_true", help="without names, annotations and what containers run")
    parser.add_argument(
        "-f", "--filename", action="append", metavar="FILE", help="manifests in place of a cluster (- is stdin)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the capture."""
    from haru.cli.hiding import hidden
    from haru.cli.reading import read_objects

    refused: list[str] = []
    if options.filename:
        objects = list(read_objects(options.filename, "default"))
    else:
        objects, refused = asyncio.run(_from_api(options))
    found = {"apiVersion": "v1", "kind": "List", "items": hidden(objects) if options.hide else objects}
    if options.write is None:
        json.dump(found, sys.stdout)
        print()
    else:
        _save(options.write, json.dumps(found) + "\n")
    note = f", without {', '.join(refused)}, which may not be read" if refused else ""
    print(f"{len(objects)} objects captured{note}", file=sys.stderr)
    return 0


def _save(path: Path, text: str) -> None:
    from haru.apiserver.certificates import write_private

    try:
        write_private(path, text)
    except OSError as error:
        raise UsageError(f"--write: {path}: {error.strerror}") from None


async def _from_api(options: argparse.Namespace) -> tuple[list[Obj], list[str]]:
    from haru.cli.reading import list_objects

    async with connect(options, "haru-capture") as client:
        with told_as_usage(client):
            return await list_objects(client)
