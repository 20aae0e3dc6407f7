"""Explain why an object waits, why it runs where it runs, or why it can never run; or everything that waits.

KIND is pod, podgroup, job, replicaset, statefulset or claim, or one that describes a gang of another project: jobset,
trainjob, leaderworkerset, raycluster, pytorchjob and its siblings, mpijob. Five lines say the verdict, what is missing,
who holds it, the best remedy with its command, and where to read more; --wide prints all of it: the requests, what
blocks them (per group of equal nodes and per device) and every remedy; each was tried on a copy of the cluster. The
command explains any object in any state.

node/NAME shows the allocations on a node, its free devices, and why waiting work does not use them. device/NODE/DEVICE
(also POOL/DEVICE, DRIVER/POOL/DEVICE) shows the same for one device: its holder, taints, counters, and the partitions
that block it.

--all prints one table of everything that waits in the namespace, -A in all namespaces; equal work is explained once.
The first row is the one whose first remedy lets most of the waiting pods start. deployment, daemonset, cronjob,
workload (of Kubernetes or Kueue), deviceclass and namespace give the same table of what waits with or for them, and so
does any other kind that controls pods, by the name that tables have for it: workflow/train.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from haru.cli.connection import (
    add_connection_arguments,
    add_manifest_argument,
    connect,
    connection_words,
    told_as_usage,
    words_behind_files,
)
from haru.cli.explain_flags import add_publish_arguments, add_serve_arguments
from haru.cli.main import UsageError
from haru.errors import InputError, NotFoundError
from haru.garbage import postpone_collection
from haru.kube.meta import Obj

if TYPE_CHECKING:
    from haru.api.snapshot import Snapshot
    from haru.client.api import ApiClient
    from haru.explain import PendingList
    from haru.explain.object_names import SubjectKind
    from haru.explain.results import DeviceStory, Explanation, NodeStory
    from haru.kube.kinds import Kind

_OUTPUTS = ("text", "wide", "json", "yaml", "html")
_OF_PODS = ("job", "replicaset", "statefulset")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru explain`."""
    add_connection_arguments(parser)
    parser.add_argument(
        "object", metavar="KIND/NAME", nargs="*", help="object to explain, for example job/training or node/n1"
    )
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="namespace of the object, or of what waits")
    parser.add_argument("--all", action="store_true", help="everything that waits in the namespace, as a table")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="everything that waits, as a table")
    parser.add_argument("-l", "--selector", default="", metavar="LABELS", help="of what waits, pods with these labels")
    parser.add_argument("--wide", action="store_true", help="the whole answer instead of five lines; all columns")
    parser.add_argument(
        "--no-remedies",
        dest="remedies",
        action="store_false",
        help="omit the remedies, which take most of the time",
    )
    parser.add_argument("-o", "--output", choices=_OUTPUTS, default="text", help="output format; wide is as --wide")
    add_manifest_argument(parser, "manifests instead of a cluster")
    add_serve_arguments(parser)
    add_publish_arguments(parser)


def serves(options: argparse.Namespace) -> bool:
    """Whether it runs until it is stopped."""
    return bool(options.object == ["serve"] or options.publish)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation, or the table."""
    if serves(options):
        return _serve(options)
    # What is read lives until the end: looking for garbage among it doubles the time of an answer.
    postpone_collection()
    from haru.cli.progress import working
    from haru.explain.object_names import parse_listed, parse_place, parse_subject

    about = _about(options)
    options.wide = options.wide or options.output == "wide"
    is_list = not about or parse_listed(about) is not None
    is_subject = not is_list and parse_place(about) is None
    if options.selector and not is_list:
        raise UsageError(f"{about} and --selector: leave one of them out")
    if is_subject:
        parse_subject(about)  # a mistake is told before a cluster is asked
    if not is_subject or (options.output == "text" and not options.wide):
        if _resident_text(options, about):
            return 0
    elif (told := _resident_answer(options, about)) is not None:
        _show(told, options, _command(options, about), ())
        return 0
    if is_list:
        return _list(options, about)
    snapshot, what = _read(options, about)
    with working("explaining"):
        answer = snapshot.explain(what, remedies=options.remedies)
    _show(answer, options, _command(options, about), snapshot.left_out())
    _show_groups(options, snapshot, about)
    return 0


def _serve(options: argparse.Namespace) -> int:
    from haru.cli import explain_publish, explain_serve

    return explain_publish.run(options) if options.publish else explain_serve.run(options)


def _about(options: argparse.Namespace) -> str:
    """KIND/NAME; empty for everything that waits. Raises UsageError."""
    words: Sequence[str] = options.object or words_behind_files(options.filename or [])
    is_table = options.all or options.all_namespaces or bool(options.selector)
    if not words and not is_table:
        raise UsageError("write KIND/NAME, for example job/training; or --all for everything that waits, -A anywhere")
    if len(words) == 2 and not any("/" in word for word in words):
        words = ["/".join(words)]
    if len(words) > 1:
        raise UsageError(f'"{" ".join(words)}": write one KIND/NAME, for example job/training, or --all')
    if words and (options.all or options.all_namespaces):
        raise UsageError(f"{words[0]} and --all (-A): leave one of them out")
    return words[0] if words else ""


def _command(options: argparse.Namespace, about: str) -> str:
    """The command that asks the same, without the form of its output."""
    place = ["-n", options.namespace] if options.namespace else []
    return shlex.join(["haru", "explain", about, *place, *_source(options)])


def _source(options: argparse.Namespace) -> list[str]:
    """The flags that say which cluster or which manifests are asked about."""
    return [*connection_words(options), *(word for name in options.filename or () for word in ("-f", name))]


def _show(
    answer: Explanation | NodeStory | DeviceStory, options: argparse.Namespace, command: str, left_out: Sequence[str]
) -> None:
    from haru.cli.sources import show
    from haru.cli.terminal import print_blocks, print_lines

    if options.output == "html":
        _print_page(f"haru explain {answer.as_dict()['subject']['name']}", answer.html())
    elif options.output in ("json", "yaml"):
        show(answer, options.output)
    else:
        if options.wide:
            print_blocks(answer.blocks(), str(answer))
        else:
            print_lines(answer.short(command))
        for note in left_out:
            print_lines(f"({note})")


def _print_page(title: str, body: str) -> None:
    from haru.markup import Html, page

    print(page(title, Html(body)))


def _show_groups(options: argparse.Namespace, snapshot: Snapshot, about: str) -> None:
    """A table besides, where the pods of a workload wait for different reasons."""
    from haru.explain.object_names import parse_place, parse_subject

    if options.output not in ("text", "wide") or parse_place(about) is not None:
        return
    if parse_subject(about)[0] in _OF_PODS:
        found = snapshot.explain_pending(about, remedies=options.remedies)
        if len(found.rows) > 1:
            _print_list(found, options, found.total)


def _list(options: argparse.Namespace, about: str) -> int:
    """Everything that waits, or what waits with one object."""
    from haru.cli.progress import working
    from haru.cli.sources import show

    snapshot = _read_all(options, about)
    if "Pod" in snapshot.refused and _is_of_others(about):
        hint = "haru explain --all tells of it, too, where explain.haru.dev answers tenants"
        raise InputError(f"what waits with {about} cannot be told: not allowed to read Pod objects; {hint}")
    with working("explaining") as tell:
        found = snapshot.explain_pending(
            about,
            all_namespaces=options.all_namespaces,
            selector=options.selector,
            remedies=options.remedies,
            progress=lambda done, of: tell(f"explaining {done + 1} of {of}"),
        )
    if options.output == "html":
        _print_page(found.total, found.html())
    elif options.output in ("json", "yaml"):
        show(found, options.output)
    else:
        _print_list(found, options, found.below(wide=options.wide, source=shlex.join(_source(options))))
        for note in snapshot.left_out():
            print(f"({note})")
    return 0


def _is_of_others(about: str) -> bool:
    """Whether it is of a kind that only its pods make known: nobody but who may read these is answered."""
    from haru.explain.object_names import LISTED, parse_listed

    listed = parse_listed(about) if about else None
    return listed is not None and listed[0] not in LISTED


def _print_list(found: PendingList, options: argparse.Namespace, below: str) -> None:
    from haru.cli.terminal import print_lines, print_table
    from haru.explain import aligned

    if found.rows:
        head, rows = found.table(wide=options.wide)
        print_table(head, rows, aligned((head, rows)))
    print_lines(below)


def _is_found_in_snapshot(about: str) -> bool:
    """Whether it is a node, a device or the gang of another project, which is not read by itself."""
    from haru.explain.object_names import parse_place, parse_subject
    from haru.gangs import is_foreign_group

    return parse_place(about) is not None or is_foreign_group(parse_subject(about)[1])


def _resident_answer(options: argparse.Namespace, about: str) -> Explanation | None:
    if options.filename:
        return None
    from haru.cli import explain_serve
    from haru.cli.progress import working
    from haru.explain.object_names import parse_subject

    with working("asking explain.haru.dev"):
        return explain_serve.resident_answer(options, *parse_subject(about))


def _resident_text(options: argparse.Namespace, about: str) -> bool:
    """Print what the resident answer says, as it says it; whether it says anything."""
    if options.filename:
        return False
    from haru.cli import explain_serve
    from haru.cli.progress import working
    from haru.cli.terminal import print_lines

    output = "wide" if options.wide else "json" if options.output == "yaml" else options.output
    with working("asking explain.haru.dev"):
        body = explain_serve.resident_text(options, about, output, _command(options, about))
    if body is None:
        return False
    if output == "json":
        _print_object(body, options.output)
    else:
        print_lines(body.decode().rstrip("\n"))
    return True


def _print_object(body: bytes, output: str) -> None:
    """Print an object of explain.haru.dev as the one of haru.dev that it is."""
    import json

    told = {**json.loads(body), "apiVersion": "haru.dev/v1alpha1"}
    for obj in (told, *told.get("items", ())):
        obj.pop("metadata", None)
    if output == "yaml":
        from haru.kube.yaml import dump

        print(dump(told), end="")
    else:
        print(json.dumps(told, indent=2))


def _read_all(options: argparse.Namespace, about: str) -> Snapshot:
    """The cluster, or the manifests, with what a list may be about."""
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
    from haru.explain.object_names import LISTED, parse_listed

    kinds = [*WATCHED_KINDS, *HELD_BACK_BY]
    listed = parse_listed(about) if about else None
    served = LISTED.get(listed[0]) if listed is not None else None
    if served is not None and served not in kinds:
        kinds.append(served)
    return _snapshot(options, kinds)


def _read(options: argparse.Namespace, about: str) -> tuple[Snapshot, Obj | str]:
    """The cluster, or the manifests, and the object: by name where it is found in them."""
    from haru.cli.progress import working
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
    from haru.explain.object_names import parse_subject

    if options.filename or _is_found_in_snapshot(about):
        return _snapshot(options, (*WATCHED_KINDS, *HELD_BACK_BY)), about
    import asyncio

    with working("reading the cluster"):
        return asyncio.run(_from_api(options, *parse_subject(about)))


def _snapshot(options: argparse.Namespace, kinds: Sequence[tuple[str, str]]) -> Snapshot:
    from haru.cli.sources import snapshot_of

    return snapshot_of(options, "haru-explain", kinds, options.namespace, signs=True)


async def _from_api(options: argparse.Namespace, kind: SubjectKind, name: str) -> tuple[Snapshot, Obj | str]:
    """The object is read by itself: a missing one is told at once, and one may be read where no list may.

    A PodGroup that Kubernetes does not have may be one of the coscheduling plugin.
    """
    from haru.api.cluster_reader import fetch, know_server, with_signs
    from haru.api.snapshot import Snapshot
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
    from haru.explain.subjects import served_kind

    served = served_kind(kind)
    async with connect(options, "haru-explain") as client:
        with told_as_usage(client):
            await know_server(client)
        namespace = options.namespace or client.namespace
        with told_as_usage(client):
            obj = await _found(client, served, name, namespace)
        fetched = await fetch(client, (*WATCHED_KINDS, *HELD_BACK_BY), namespace)
        snapshot = Snapshot.of_fetched(await with_signs(client, fetched, namespace), namespace, "")
    if obj is None:
        return snapshot, f"{kind}/{name}"
    return snapshot, {"apiVersion": served.api_version, "kind": served.kind, **obj}


async def _found(client: ApiClient, kind: Kind, name: str, namespace: str) -> Obj | None:
    from haru.kube.errors import StatusError

    try:
        return await client.get(kind, name, namespace)
    except StatusError as error:
        if error.code == 404 and kind.kind == "PodGroup":
            return None
        if error.code == 404:
            place = f" in namespace {namespace}" if kind.namespaced else ""
            raise NotFoundError(f"{error.message}{place}{await _hint(client, kind, namespace, name)}") from error
        raise


async def _hint(client: ApiClient, kind: Kind, namespace: str, name: str) -> str:
    """In which other namespaces there is one, or which name is close, as far as they may be listed."""
    from haru.explain.pending_choice import elsewhere, meant

    same = await _listed(client, kind, "", field_selector=f"metadata.name={name}")
    hint = elsewhere(obj["metadata"]["namespace"] for obj in same)
    return hint or meant(name, (obj["metadata"]["name"] for obj in await _listed(client, kind, namespace)))


async def _listed(client: ApiClient, kind: Kind, namespace: str, field_selector: str = "") -> Sequence[Obj]:
    from haru.kube.errors import StatusError

    try:
        found: Sequence[Obj] = (await client.list(kind, namespace, field_selector=field_selector))["items"]
    except StatusError:
        return ()
    return found
