"""A copy of a cluster to try things on: from its API, from a data directory of `haru up`, or from manifests.

It only reads. A data directory is copied first and opened as the copy; one that a running `haru up` holds is asked for
through that instead.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.connection import connect, told_as_usage
from haru.cli.main import UsageError
from haru.cli.reading import list_objects, read_objects
from haru.cli.settling import settled
from haru.engine.inputs import KINDS

if TYPE_CHECKING:
    from haru.client.api import ApiClient

Obj = dict[str, Any]
Fork = tuple[list[Obj], list[str]]
"""The objects, claims that are about to be made for them included, and the kinds that may not be read."""

FORKED_KINDS = (
    *KINDS,
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
)


def fork(options: argparse.Namespace, gates: Mapping[str, bool], user_agent: str) -> Fork:
    """The cluster that the flags name; raises UsageError if it cannot be read."""
    if options.filename and options.data_dir:
        raise UsageError("-f and --data-dir both name the cluster: leave one of them out")
    refused: list[str] = []
    if options.filename:
        objects = list(read_objects(options.filename, options.namespace))
    else:
        objects, refused = asyncio.run(_live(options, user_agent))
    return settled(objects, group_claims=gates["DRAWorkloadResourceClaims"]), refused


async def _live(options: argparse.Namespace, user_agent: str) -> Fork:
    from haru.embedded.lock import holder_of

    directory: Path | None = options.data_dir
    if directory is not None:
        if not (directory / "state.db").is_file():
            raise UsageError(f"--data-dir: {directory}: holds no state.db: name the data directory of a haru up")
        holder = holder_of(directory)
        if holder is None:
            return await _from_directory(directory)
        options.kubeconfig = Path(holder["kubeconfig"])
    async with connect(options, user_agent) as client:
        return await _listed(client)


async def _listed(client: ApiClient) -> Fork:
    with told_as_usage(client):
        return await list_objects(client, FORKED_KINDS)


async def _from_directory(directory: Path) -> Fork:
    """What a `haru up` that does not run has kept: an API server over a copy of its store is asked."""
    from haru.apiserver.config import ServerConfig, UserInfo
    from haru.apiserver.server import ApiServer
    from haru.client.api import ApiClient
    from haru.kube.gates import FeatureGates
    from haru.storage.interface import StoreError
    from haru.storage.sqlite import SqliteStore

    with tempfile.TemporaryDirectory(prefix="haru-fork-") as copy:
        _copy_store(directory, Path(copy))
        store = SqliteStore(Path(copy) / "state.db")
        try:
            await store.start()
        except StoreError as error:
            raise UsageError(f"--data-dir: {directory}: {error}") from error
        users = {"fork": UserInfo("fork", ("system:masters",))}
        gates = FeatureGates.accelerator_defaults()
        server = ApiServer(ServerConfig(store=store, gates=gates, runtime_config={"api/all": True}, tokens=users))
        try:
            await server.start()
            return await _listed(ApiClient.in_process(server, "fork"))
        finally:
            await server.stop()
            await store.stop()


def _copy_store(directory: Path, to: Path) -> None:
    for part in directory.glob("state.db*"):
        shutil.copy2(part, to)
