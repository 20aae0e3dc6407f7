"""How every command finds its cluster: as kubectl does, with the running `haru up` of this user in between.

Order: `--kubeconfig`; the environment variable KUBECONFIG; the running `haru up`; `~/.kube/config`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.client.api import ApiClient


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags `--kubeconfig` and `--context`."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="kubeconfig of the cluster")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig to use")


def find_kubeconfig(flag: Path | None) -> list[Path]:
    """The kubeconfig files to read, in kubectl's order; raises UsageError if there is none."""
    if flag is not None:
        if not flag.is_file():
            raise UsageError(f"--kubeconfig: {flag}: no such file")
        return [flag]
    if listed := os.environ.get("KUBECONFIG"):
        return [Path(p) for p in listed.split(os.pathsep) if p]
    from haru.embedded.lock import holder_of
    from haru.embedded.options import default_data_dir

    running = holder_of(default_data_dir())
    if running and running.get("kubeconfig"):
        return [Path(running["kubeconfig"])]
    home = Path("~/.kube/config").expanduser()
    if home.is_file():
        return [home]
    raise UsageError("no cluster found: start one with `haru up`, or name one with --kubeconfig FILE")


@contextmanager
def told_as_usage(client: ApiClient) -> Iterator[None]:
    """What a server refuses, and that it cannot be reached, become UsageErrors."""
    from haru.kube.errors import StatusError

    try:
        yield
    except StatusError as error:
        raise UsageError(error.message) from error
    except OSError as error:
        raise UsageError(f"{client.server} cannot be reached: {error}") from error


def connect(options: argparse.Namespace, user_agent: str) -> ApiClient:
    """A client for the cluster that the flags name; raises UsageError if it cannot be made."""
    from haru.client.api import ApiClient

    paths = find_kubeconfig(options.kubeconfig)
    try:
        return ApiClient.from_kubeconfig(paths, options.context, user_agent=user_agent)
    except (OSError, ValueError, LookupError) as error:
        raise UsageError(f"{os.pathsep.join(map(str, paths))}: {error}") from error
