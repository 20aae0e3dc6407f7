"""Say why an object waits, why it runs where it runs, or why it never will.

KIND is pod, podgroup, job or claim. The answer names what is asked, what blocks it (per group of equal nodes and per
device) and what would help; every remedy was tried on a copy of the cluster. Any object in any state has an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.engine.cluster import Cluster

Obj = dict[str, Any]

_ALIASES = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "podgroup": "podgroup",
    "podgroups": "podgroup",
    "job": "job",
    "jobs": "job",
    "claim": "resourceclaim",
    "claims": "resourceclaim",
    "resourceclaim": "resourceclaim",
    "resourceclaims": "resourceclaim",
}
_KINDS = "pod, podgroup, job, claim"
_NOT_YET = frozenset({"node", "nodes", "no", "device", "devices"})
_API = {
    "pod": ("v1", "Pod"),
    "podgroup": ("scheduling.k8s.io/v1alpha2", "PodGroup"),
    "job": ("batch/v1", "Job"),
    "resourceclaim": ("resource.k8s.io/v1", "ResourceClaim"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru explain`."""
    add_connection_arguments(parser)
    parser.add_argument("object", metavar="KIND/NAME", help="what to explain, for example job/training")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="namespace of the object")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="form of the answer")
    parser.add_argument(
        "-f", "--filename", action="append", metavar="FILE", help="manifests in place of a cluster (- is stdin)"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    from haru.explain import explain, to_json, to_text

    kind, name = _parse(options.object)
    cluster, obj, refused = _gather(options, kind, name)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    explanation = explain(cluster.snapshot(), kind, obj, now=now)  # type: ignore[arg-type]
    if options.output == "json":
        print(json.dumps(to_json(explanation), indent=2))
    elif options.output == "yaml":
        from haru.kube.yaml import dump

        print(dump(to_json(explanation)), end="")
    else:
        print(to_text(explanation).rstrip())
        if refused:
            print(f"(not allowed to read {', '.join(refused)}: the answer is without them)")
    return 0


def _parse(text: str) -> tuple[str, str]:
    word, slash, name = text.partition("/")
    kind = _ALIASES.get(word.lower().split(".")[0])
    if not slash or not name:
        raise UsageError(f'"{text}": write KIND/NAME, for example job/training')
    if word.lower() in _NOT_YET:
        raise UsageError(f'"{word}": nodes and devices cannot be explained yet; KIND is one of {_KINDS}')
    if kind is None:
        raise UsageError(f'"{word}": cannot be explained; KIND is one of {_KINDS}')
    return kind, name


def _gather(options: argparse.Namespace, kind: str, name: str) -> tuple[Cluster, Obj, list[str]]:
    from haru.cli.reading import read_files

    if options.filename:
        namespace = options.namespace or "default"
        cluster = read_files(options.filename, namespace)
        return cluster, _find(cluster, kind, namespace, name), []
    return asyncio.run(_from_api(options, kind, name))


def _find(cluster: Cluster, kind: str, namespace: str, name: str) -> Obj:
    snapshot, path = cluster.snapshot(), f"{namespace}/{name}"
    if kind == "pod":
        info = snapshot.pods.get(path)
        found = info.obj if info is not None else None
    elif kind == "resourceclaim":
        found = snapshot.claims.get(path)
    elif kind == "podgroup":
        found = snapshot.pod_groups.get(path)
    else:
        found = snapshot.objects("Job").get(path)
    if found is None:
        raise UsageError(f'{kind} "{name}" is not in the files, in namespace {namespace}')
    return found


async def _from_api(options: argparse.Namespace, kind: str, name: str) -> tuple[Cluster, Obj, list[str]]:
    from haru.cli.reading import read_cluster
    from haru.kube.kinds import by_kind

    api_version, kind_name = _API[kind]
    served = by_kind(api_version, kind_name)
    assert served is not None
    async with connect(options, "haru-explain") as client:
        namespace = options.namespace or client.namespace
        with told_as_usage(client):
            obj = await client.get(served, name, namespace)
            cluster, refused = await read_cluster(client)
    return cluster, {"apiVersion": api_version, "kind": kind_name, **obj}, refused
