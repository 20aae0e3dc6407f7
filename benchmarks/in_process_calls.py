"""What a call of the API server costs a part of the same process: create, patch of a status, read.

    python -m benchmarks.in_process_calls [--pods 1500]

Processor time of the main thread and of the process (the store's writer is a thread) for each call, in microseconds,
and the least of three rounds. The store is a file on a disk in memory, if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.cluster import kind
from benchmarks.tables import plain
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.client.api import ApiClient
from haru.client.transforms import SharedObjects
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore

POD, ACCOUNT = kind("", "pods"), kind("", "serviceaccounts")
ROUNDS = 3
_IN_MEMORY = next((name for name in ("/dev/shm",) if Path(name).is_dir()), None)


def pod(name: str) -> dict[str, Any]:
    """A bound pod."""
    container = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "work"}}
    return {"metadata": metadata, "spec": {"nodeName": "node-0", "containers": [container]}}


def calls(client: ApiClient, names: list[str]) -> Iterator[tuple[str, list[Awaitable[object]]]]:
    """The calls of one round by what they do."""
    status = {"status": {"phase": "Running", "podIP": "10.0.0.1"}}
    yield "create", [client.create(POD, pod(name)) for name in names]
    yield (
        "status patch",
        [client.patch(POD, name, status, "default", type="strategic", subresource="status") for name in names],
    )
    yield "read", [client.get(POD, name, "default") for name in names]


async def measured(pods: int) -> dict[str, tuple[float, float]]:
    """Microseconds of the main thread and of the process by call."""
    least: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as directory:
        store = SqliteStore(Path(directory) / "store.db")
        await store.start()
        users = AuthenticationOptions(tokens={"admin": UserInfo("admin", ("system:masters",))})
        server = ApiServer(ServerConfig(store, gates=FeatureGates.accelerator_defaults(), authentication=users))
        await server.start()
        client = ApiClient.in_process(server, "admin", shared=SharedObjects())
        await client.create(ACCOUNT, {"metadata": {"name": "default", "namespace": "default"}})
        for number in range(ROUNDS):
            for what, some in calls(client, [f"pod-{number}-{n}" for n in range(pods)]):
                main, process = time.thread_time(), time.process_time()
                for call in some:
                    await call
                spent = ((time.thread_time() - main) / pods * 1e6, (time.process_time() - process) / pods * 1e6)
                least[what] = min(least.get(what, spent), spent)
        await server.stop()
        await store.stop()
    return least


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1_500)
    found = asyncio.run(measured(parser.parse_args().pods))
    rows = [[what, f"{main:,.0f}", f"{process:,.0f}"] for what, (main, process) in found.items()]
    print(plain(("call", "µs of the main thread", "of the process"), rows, frozenset((0,))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
