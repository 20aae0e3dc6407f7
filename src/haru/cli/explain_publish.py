"""The component `haru explain --publish`: it annotates the pods of other schedulers with why they wait."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from haru.cli.component import Component, run_component
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.explain_server import PodExplanationPublisher

LEASE = "haru-explain-publisher"
_WITHOUT = ("all", "all_namespaces", "selector", "wide", "filename", "namespace")


def run(options: argparse.Namespace) -> int:
    """Publishes until it is stopped or loses its Lease."""
    if options.object or any(getattr(options, flag) for flag in _WITHOUT) or options.output != "text":
        raise UsageError("--publish explains all pods of other schedulers: name no object, and no form of the answer")
    options.verbose += 1
    running: list[PodExplanationPublisher] = []

    async def work(client: ApiClient) -> None:
        from haru.api.files import gates_beside
        from haru.explain_server import PodExplanationPublisher

        publisher = PodExplanationPublisher(
            client, names=options.publish == "names", gates=lambda known: gates_beside(known.version)
        )
        running[:] = [publisher]
        print("haru explain publishes why pods of other schedulers wait", flush=True)
        await publisher.run()

    component = Component(
        lease=LEASE,
        work=work,
        metrics=lambda: b"",
        ready=lambda: bool(running) and running[0].synced.is_set(),
        serves=False,
        modules=("haru.api.files", "haru.explain_server.pod_publisher"),
    )
    return run_component(options, component)
