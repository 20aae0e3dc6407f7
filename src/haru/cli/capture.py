"""Write all objects that answers depend on to a file, for schedule, explain and whatif.

The output is a List of Kubernetes objects that every `-f` of Haru reads: nodes, pods, claims, slices, groups and the
other inputs of decisions; who makes pods, quotas, and the events of refused ones; no Secrets, no ConfigMaps. With
--hide, names, namespaces and images become numbers, annotations become digests, and commands, environments and the
words of events are omitted; decisions stay the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments, add_manifest_argument
from haru.cli.main import UsageError
from haru.kube.names import counted

if TYPE_CHECKING:
    from haru.api.snapshot import Snapshot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru capture`."""
    add_connection_arguments(parser)
    parser.add_argument("-w", "--write", type=Path, metavar="FILE", help="output file (default: stdout)")
    parser.add_argument(
        "--hide", action="store_true", help="replace names, and omit annotations, commands and environments"
    )
    add_manifest_argument(parser, "manifests instead of a cluster", several=False)


def run(options: argparse.Namespace) -> int:
    """Writes the capture."""
    from haru.cli.sources import snapshot_of

    snapshot = snapshot_of(options, "haru-capture", namespace="default")
    found = snapshot.hidden() if options.hide else snapshot
    if options.write is None:
        json.dump(found.as_dict(), sys.stdout)
        print()
    else:
        _save(found, options.write)
    refused = snapshot.refused
    note = f", without {', '.join(refused)}, which may not be read" if refused else ""
    note += f"; not served: {', '.join(snapshot.not_served)}" if snapshot.not_served else ""
    print(f"{counted(len(snapshot), 'object')} captured{note}", file=sys.stderr)
    return 0


def _save(snapshot: Snapshot, path: Path) -> None:
    try:
        snapshot.write(path)
    except OSError as error:
        raise UsageError(f"--write: {path}: {error.strerror}") from None
