"""Complete a command line for a shell: argcomplete knows the parser, this module the cluster and the profiles."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from argcomplete.completers import BaseCompleter
from argcomplete.finders import CompletionFinder

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.kube.kinds import Kind

SECONDS = float(os.environ.get("HARU_COMPLETION_SECONDS") or 1)
"""After so long the process ends with what it has printed: nothing."""
_EXPLAINED = (
    *("pod", "podgroup", "job", "replicaset", "statefulset", "claim", "node", "device", "deployment", "daemonset"),
    *("cronjob", "workload", "deviceclass", "namespace", "jobset", "trainjob", "leaderworkerset", "raycluster"),
    *("pytorchjob", "mpijob"),
)
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_NAMESPACES, _NODES, _OBJECTS = "NAMESPACE", "NODE", "KIND/NAME"


def complete_line(
    parser_of: Callable[[str], argparse.ArgumentParser],
    output: TextIO | None = None,
    end: Callable[[int], Any] = os._exit,
) -> None:
    """Answer the shell that set COMP_LINE and `end` the process, after a second at the latest.

    `parser_of` gives the parser for a command; the answer goes to argcomplete's pipe unless `output` is given.
    """
    # A cluster that does not answer must not keep the shell, nor a resolver that cannot be cancelled.
    timer = threading.Timer(SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    words = os.environ["COMP_LINE"].split()
    parser = parser_of(words[1] if len(words) > 1 else "")
    finder = CompletionFinder()
    finder(parser, always_complete_options=False, exit_method=end, output_stream=output, default_completer=_Words())
    timer.cancel()


class _Words(BaseCompleter):
    """The completer of every argument without choices; it says nothing where it fails."""

    def __call__(
        self, *, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
    ) -> Iterable[str]:
        with contextlib.suppress(Exception):
            return _values(action, prefix, parsed_args)
        return ()


def _values(action: argparse.Action, typed: str, line: argparse.Namespace) -> list[str]:
    """What a flag or an argument may be, by what its help calls it."""
    if action.dest == "context":
        return _contexts(line)
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else str(action.metavar)
    if metavar.startswith("PROFILE") or action.dest == "profile" or "PROFILE" in metavar:
        return _profiles(metavar, typed, line)
    if metavar == _NAMESPACES:
        return _names(line, "namespace")
    if metavar.startswith(_NODES):
        node, slash, _ = typed.partition("/")
        return [f"{node}/{name}" for name in _devices(line, node)] if slash else _names(line, "node")
    return _objects(typed, line) if metavar.endswith(_OBJECTS) or metavar == "[KIND/]NAME" else []


def _profiles(metavar: str, typed: str, line: argparse.Namespace) -> list[str]:
    """Profiles in a list of `PROFILE:COUNT`, or after `NODE=`."""
    from haru.drivers.simulated.profiles import profile_names

    if metavar.startswith(_NODES) and "=" not in typed:
        return [f"{name}=" for name in _names(line, "node")]
    cut = max(typed.rfind(","), typed.rfind("=")) + 1
    if ":" in typed[cut:]:
        return []
    return [typed[:cut] + name for name in profile_names()]


def _objects(typed: str, line: argparse.Namespace) -> list[str]:
    """`KIND/` first, then the names of that kind; or names alone after a word that is a kind."""
    kind, slash, name = typed.partition("/")
    before = getattr(line, "object", None)
    if not slash and isinstance(before, list) and before and before[0] in _EXPLAINED:
        return _names(line, before[0])
    if not slash:
        return [f"{word}/" for word in _EXPLAINED]
    if kind == "device":
        node, inner, _ = name.partition("/")
        found = [f"{node}/{device}" for device in _devices(line, node)] if inner else _names(line, "node", "/")
        return [f"{kind}/{name}" for name in found]
    return [f"{kind}/{found}" for found in _names(line, kind)]


# -- what the cluster knows --------------------------------------------------------------------------------------------


def _contexts(line: argparse.Namespace) -> list[str]:
    from haru.api.connection import find_kubeconfig
    from haru.kube.yaml import load

    found: list[str] = []
    for path in find_kubeconfig(_file(line)):
        found += [str(entry["name"]) for entry in load(path.read_text()).get("contexts") or ()]
    return found


def _file(line: argparse.Namespace) -> Path | None:
    named = getattr(line, "kubeconfig", None)
    return Path(named).expanduser() if named else None


def _names(line: argparse.Namespace, word: str, after: str = "") -> list[str]:
    """The names of the objects of a kind, in the namespace that the line says, each with `after` behind it."""
    from haru.client.api import path_of

    kinds = _kinds(word)

    async def ask(client: ApiClient) -> list[str]:
        for kind in kinds:
            namespace = (getattr(line, "namespace", None) or client.namespace) if kind.namespaced else ""
            items = await _items(client, path_of(kind, namespace))
            if items is not None:
                return [f"{item['metadata']['name']}{after}" for item in items]
        return []

    return _asked(line, ask) if kinds else []


def _kinds(word: str) -> list[Kind]:
    """The kind that a word names, in the versions in which it may be served."""
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
    from haru.explain.object_names import LISTED
    from haru.gangs import KINDS
    from haru.kube.kinds import known_kind

    word = {"claim": "resourceclaim"}.get(word, word)
    foreign = {"trainjob": "jobset", "lws": "leaderworkerset"}.get(word, word)
    known = [known_kind(*kind) for kind in (*WATCHED_KINDS, *HELD_BACK_BY, *LISTED.values())]
    found = [k for k in known if word in (k.singular, k.plural, k.kind.lower(), *k.short_names)][:1]
    return found + [kind.as_kind(v) for kind in KINDS for v in kind.versions if kind.kind.lower() == foreign]


def _devices(line: argparse.Namespace, node: str) -> list[str]:
    """The devices that a node publishes."""

    async def ask(client: ApiClient) -> list[str]:
        for version in ("v1", "v1beta2", "v1beta1"):
            path = f"/apis/resource.k8s.io/{version}/resourceslices"
            items = await _items(client, path, f"spec.nodeName={node}", whole=True)
            if items is not None:
                return [str(device["name"]) for item in items for device in item["spec"].get("devices") or ()]
        return []

    return _asked(line, ask)


async def _items(client: ApiClient, path: str, fields: str = "", *, whole: bool = False) -> list[Any] | None:
    """The first 500 objects of a list, their metadata only unless `whole`; None where it is not served or refused."""
    headers = {} if whole else {"accept": _METADATA}
    query = [("limit", "500"), *([("fieldSelector", fields)] if fields else [])]
    status, _, body = await client.raw("GET", path, query=query, headers=headers, timeout=SECONDS)
    return json.loads(body)["items"] if status == 200 else None


def _asked(line: argparse.Namespace, ask: Callable[[ApiClient], Awaitable[list[str]]]) -> list[str]:
    from haru.api.connection import connect

    async def answer() -> list[str]:
        async with connect(_file(line), getattr(line, "context", None), "haru-completion") as client:
            return await ask(client)

    return asyncio.run(answer())
