"""Read the snapshot for a command from files, a data directory, or a running cluster."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from haru.cli.connection import connect
from haru.cli.main import UsageError
from haru.kube.meta import Obj

if TYPE_CHECKING:
    from haru.api.cluster_reader import Fetched
    from haru.api.snapshot import Snapshot
    from haru.kube.gates import FeatureGates


class Answer(Protocol):
    """What a snapshot answers."""

    def as_dict(self) -> Obj:
        """The documented JSON."""
        ...


def file_gates(text: str) -> FeatureGates:
    """The gates under which manifests are read: those of `haru up`, but for what `--feature-gates` says."""
    from haru.api.files import gates_of

    return gates_of(text, "--feature-gates")


def snapshot_of(
    options: argparse.Namespace,
    user_agent: str,
    kinds: Sequence[tuple[str, str]] = (),
    namespace: str | None = None,
    *,
    signs: bool = False,
) -> Snapshot:
    """The objects of these kinds (without any: all that answers depend on), or all of the files that `-f` names; of
    namespace `default` what names none.

    `signs`: a cluster is also asked for the events and Leases by which waiting work is explained.
    """
    from haru.api.snapshot import Snapshot
    from haru.cli.progress import working

    gates = getattr(options, "feature_gates", "")
    file_gates(gates)
    if options.filename:
        for flag in ("data_dir", "kubeconfig", "context", "as_user", "as_uid", "as_group"):
            if getattr(options, flag, None):
                name = flag.replace("_", "-").removesuffix("-user")
                raise UsageError(f"-f and --{name} both name the cluster: leave one of them out")
        with working("reading the manifests"):
            return Snapshot.read(*options.filename, namespace=namespace or "default", feature_gates=gates)
    import asyncio

    with working("reading the cluster"):
        return Snapshot.of_fetched(asyncio.run(_fetched(options, user_agent, kinds, signs=signs)), namespace, gates)


async def _fetched(
    options: argparse.Namespace, user_agent: str, kinds: Sequence[tuple[str, str]], *, signs: bool
) -> Fetched:
    from haru.api.cluster_reader import fetch, fetch_all, fetch_kept, with_signs

    directory: Path | None = getattr(options, "data_dir", None)
    if directory is not None:
        return await fetch_kept(directory, user_agent, "--data-dir")
    async with connect(options, user_agent) as client:
        if not kinds:
            return await fetch_all(client)
        found = await fetch(client, kinds)
        if not signs:
            return found
        return await with_signs(client, found, "" if options.all_namespaces else options.namespace or found.namespace)


def show(answer: Answer, output: str, left_out: Sequence[str] = (), text: Callable[[], str] | None = None) -> None:
    """Print an answer in the form that `-o` names; the text says what it was made without (`Snapshot.left_out`)."""
    if output == "json":
        print(json.dumps(answer.as_dict(), indent=2))
    elif output == "yaml":
        from haru.kube.yaml import dump

        print(dump(answer.as_dict()), end="")
    else:
        print(text() if text is not None else answer)
        for note in left_out:
            print(f"({note})")
