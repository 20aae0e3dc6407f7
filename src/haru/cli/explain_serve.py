"""The resident answer, `explain.haru.dev/v1alpha1`: served by `haru explain serve`, asked by `haru explain`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from haru.cli.connection import connect
from haru.cli.main import UsageError
from haru.cli.serving_flags import check_certificate_files
from haru.event_loop import cancelled
from haru.garbage import postpone_collection, resume_collection
from haru.stop import stop_event

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.explain.object_names import SubjectKind
    from haru.explain.results import Explanation
    from haru.explain_server import Limits
    from haru.secure_serving.options import ServingOptions

T = TypeVar("T")
_MODULES = ("haru.explain_server.server", "uvicorn.protocols.http.httptools_impl")


def resident_answer(options: argparse.Namespace, kind: SubjectKind, name: str) -> Explanation | None:
    """What the cluster's resident answer says of an object; None where the cluster has to be read."""
    from haru.api import explain_client

    return _asked(
        options,
        lambda client: explain_client.resident_answer(
            client, kind, name, options.namespace or client.namespace, remedies=options.remedies
        ),
    )


def resident_text(options: argparse.Namespace, about: str, output: str, command: str) -> bytes | None:
    """What it says, in an output form, to who asks by a command; None where the cluster has to be read."""
    from haru.api import explain_client

    return _asked(
        options,
        lambda client: explain_client.resident_text(
            client,
            about,
            "" if options.all_namespaces else options.namespace or client.namespace,
            output,
            selector=options.selector,
            remedies=options.remedies,
            command=command,
        ),
    )


def _asked(
    options: argparse.Namespace, ask: Callable[[ApiClient], Coroutine[Any, Any, tuple[T | None, str]]]
) -> T | None:
    """An answer of the resident server; `-v` says on stderr where it is from, or why the cluster is read."""

    async def asked() -> tuple[T | None, str]:
        async with connect(options, "haru-explain") as client:
            return await ask(client)

    told, source = asyncio.run(asked())
    if options.verbose:
        print(f"answered by {source}" if told is not None else f"the cluster is read: {source}", file=sys.stderr)
    return told


def run(options: argparse.Namespace) -> int:
    """Serves until it is stopped."""
    # What only the server needs is imported by it: the question of a person starts the sooner.
    from haru.cli.component import preload
    from haru.cli.logs import configure_logging

    configure_logging(options.verbose + 1, options.log_format)
    serving, service, limits = _options(options)
    preload(_MODULES)
    postpone_collection()
    return asyncio.run(_serve(options, serving, service, limits))


def _options(options: argparse.Namespace) -> tuple[ServingOptions, tuple[str, str, int], Limits]:
    """What the flags say, checked. Raises UsageError."""
    from haru.explain_server import Limits
    from haru.secure_serving.options import ServingOptions

    namespace, slash, rest = options.service.partition("/")
    name, colon, port = rest.partition(":")
    if not (namespace and slash and name) or (colon and not port.isdigit()):
        raise UsageError(f'--service: Invalid value: "{options.service}": write NAMESPACE/NAME or NAMESPACE/NAME:PORT')
    check_certificate_files(options)
    serving = ServingOptions(
        address=options.bind_address,
        port=options.secure_port,
        cert_file=options.tls_cert_file,
        key_file=options.tls_private_key_file,
        cert_dir=options.cert_dir,
        names=(f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"),
    )
    limits = Limits(waiting=options.max_waiting, waiting_per_user=max(1, options.max_waiting // 4))
    return serving, (namespace, name, int(port or 443)), limits


async def _serve(
    options: argparse.Namespace, serving: ServingOptions, service: tuple[str, str, int], limits: Limits
) -> int:
    from haru.api.files import gates_beside
    from haru.explain_server import ExplainServer
    from haru.loop_lag import measured_loop

    stop = stop_event()
    async with measured_loop(), connect(options, "haru-explain-server") as client:
        server = ExplainServer(
            client,
            serving,
            limits,
            service=service if options.register else None,
            gates=lambda known: gates_beside(known.version),
        )
        try:
            await server.start()
        except (OSError, ValueError) as error:
            raise UsageError(f"the port is not served: {error}") from error
        try:
            print(f"haru explain serves explain.haru.dev on port {server.port}", flush=True)
            await _first_of(server.synced.wait(), stop.wait())
            resume_collection()
            await stop.wait()
        finally:
            await server.stop()
    return 0


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them returns; for ten minutes at most."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, timeout=600, return_when=asyncio.FIRST_COMPLETED)
    await cancelled(*tasks)
