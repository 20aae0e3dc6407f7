"""Finds the cluster that a question is about.

As kubectl finds it, with the running `haru up` of this user in between: the kubeconfig that is named; the environment
variable KUBECONFIG; the running `haru up`; `~/.kube/config`; in a pod, its ServiceAccount. Little is imported for that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

from haru.client.api import ApiClient
from haru.client.credentials import CredentialError
from haru.client.impersonation import Impersonation
from haru.client.kubeconfig import KubeconfigError, in_cluster, load_kubeconfig
from haru.embedded.data_directory import default_data_dir
from haru.embedded.errors import OptionError
from haru.embedded.lock import holder_of
from haru.errors import ClusterError
from haru.kube.errors import StatusError


def find_kubeconfig(named: Path | None, where: str = "kubeconfig") -> list[Path]:
    """The kubeconfig files to read, in kubectl's order; ClusterError if there is none."""
    if named is not None:
        if not named.exists():
            raise ClusterError(f"{where}: {named}: no such file")
        return [named]
    if listed := os.environ.get("KUBECONFIG"):
        return [Path(p) for p in listed.split(os.pathsep) if p]
    with suppress(OptionError, RuntimeError):  # a user without a home has neither
        running = holder_of(default_data_dir())
        if running and running.get("kubeconfig"):
            return [Path(running["kubeconfig"])]
        home = Path("~/.kube/config").expanduser()
        if home.is_file():
            return [home]
    raise ClusterError("no cluster found: start one with `haru up`, or name one with --kubeconfig FILE")


def connect(
    kubeconfig: Path | None,
    context: str | None,
    user_agent: str,
    where: str = "kubeconfig",
    *,
    multiplexed: bool = False,
    acting_as: Impersonation | None = None,
) -> ApiClient:
    """A client for a cluster, for bursts of writes if it is `multiplexed`; raises ClusterError if it cannot be made.

    What `acting_as` says goes before what the kubeconfig says of whom to act as.
    """
    pod, paths = None, list[Path]()
    try:
        paths = find_kubeconfig(kubeconfig, where)
    except ClusterError:
        pod = in_cluster() if kubeconfig is None else None
        if pod is None:
            raise
    acting_as = acting_as or Impersonation()
    try:
        config = pod or load_kubeconfig(paths, context)
        identity = acting_as.over(config.impersonated or Impersonation())
        if identity and not identity.user:
            raise KubeconfigError("--as-uid and --as-group need --as: the user to act as")
        config = replace(config, impersonated=identity or None)
        return ApiClient.from_config(config, user_agent=user_agent, multiplexed=multiplexed)
    except KubeconfigError as error:
        raise ClusterError(f"{_flag(where)}{error}") from error
    except (OSError, ValueError, LookupError) as error:
        raise ClusterError(f"{_flag(where)}{os.pathsep.join(map(str, paths))}: {error}") from error


def _flag(where: str) -> str:
    """What a message about a kubeconfig begins with: the flag that names it, where that is not the usual one."""
    return f"{where}: " if where.startswith("--") and where != "--kubeconfig" else ""


def usage_file(kubeconfig: Path | None, context: str | None, where: str = "kubeconfig") -> Path:
    """Where the `haru up` that a kubeconfig leads to keeps its history of device usage; ClusterError if it is none."""
    paths = find_kubeconfig(kubeconfig, where)
    try:
        directory = load_kubeconfig(paths, context).data_dir
    except KubeconfigError as error:
        raise ClusterError(str(error)) from error
    if directory is None:
        raise ClusterError(
            f"{os.pathsep.join(map(str, paths))}: this is no haru up of this machine: name its history with --history, "
            "for example the DIR of haru scheduler --usage-history"
        )
    return directory / "usage.db"


@contextmanager
def told_as_cluster_error(client: ApiClient) -> Iterator[None]:
    """Raise ClusterError where a server refuses a request or cannot be reached."""
    try:
        yield
    except StatusError as error:
        if error.code == HTTPStatus.UNAUTHORIZED:
            what = "Unauthorized: the server does not accept the credentials of the kubeconfig; have they expired?"
            raise ClusterError(f"{client.server}: {what}") from error
        raise ClusterError(error.message) from error
    except CredentialError as error:
        raise ClusterError(str(error)) from error
    except OSError as error:
        raise ClusterError(f"{client.server} cannot be reached: {error}") from error
