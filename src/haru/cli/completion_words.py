"""Find what may stand at the end of a command line, by the parser of its command and by the cluster."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import shlex
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.main import COMMANDS, actions_of, subcommands_of

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.kube.kinds import Kind

SECONDS = float(os.environ.get("HARU_COMPLETION_SECONDS") or 1)
"""After so long the command ends with what it has printed: nothing."""
_EXPLAINED = (
    *("pod", "podgroup", "job", "replicaset", "statefulset", "claim", "node", "device", "deployment", "daemonset"),
    *("cronjob", "workload", "deviceclass", "namespace", "jobset", "trainjob", "leaderworkerset", "raycluster"),
    *("pytorchjob", "mpijob"),
)
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_NAMESPACES, _NODES, _OBJECTS = "NAMESPACE", "NODE", "KIND/NAME"


@dataclass(slots=True)
class _Line:
    """A command line: the words before the last, and the last, which may be empty."""

    command: str
    words: list[str]
    last: str
    values: dict[str, str] = field(default_factory=dict)
    """The values of flags that say which cluster and namespace are meant."""


def print_words(text: str, shell: str) -> None:
    """Print the words that complete a line, one a line; nothing after a second."""
    # A cluster that does not answer must not keep the shell, nor a resolver that cannot be cancelled.
    timer = threading.Timer(SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    with contextlib.suppress(Exception):
        found = complete(text)
        if shell == "bash":
            found = _after_breaks(text, found)
        sys.stdout.write("".join(f"{word}\n" for word in found))
    timer.cancel()


def _after_breaks(text: str, found: Sequence[str]) -> list[str]:
    """The words as bash wants them: it completes what follows the last `:` or `=` of a word."""
    last = _split(text)[-1]
    cut = max(last.rfind(":"), last.rfind("=")) + 1
    return [word[cut:] for word in found]


def complete(text: str) -> list[str]:
    """The words that may stand at the end of a command line that begins with `haru`."""
    words = _split(text)
    if len(words) <= 2:
        return _matching(COMMANDS, words[-1])
    command = words[1]
    if command not in COMMANDS:
        return []
    parser = _parser_of(command)
    line = _Line(command, words[2:-1], words[-1])
    line.values = {
        name: value
        for flag, value in zip(line.words, line.words[1:], strict=False)
        if (name := {"-n": "--namespace"}.get(flag, flag)) in ("--namespace", "--kubeconfig", "--context")
    }
    return _completed(parser, line)


def _split(text: str) -> list[str]:
    """The words of an unfinished line; the last is empty after a space."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return [*words, ""] if not words or text[-1:].isspace() else words


def _parser_of(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"haru {command}", allow_abbrev=False)
    importlib.import_module(f"haru.cli.{command}").add_arguments(parser)
    return parser


def _completed(parser: argparse.ArgumentParser, line: _Line) -> list[str]:
    """Flags, a flag's value, or an argument."""
    actions = actions_of(parser)
    for subcommands in filter(None, map(subcommands_of, actions)):
        chosen = next((word for word in line.words if word in subcommands), None)
        if chosen is None:
            return _matching(subcommands, line.last)
        rest = line.words[line.words.index(chosen) + 1 :]
        return _completed(subcommands[chosen], _Line(line.command, rest, line.last, line.values))
    flags = {option: action for action in actions for option in action.option_strings}
    name, equals, value = line.last.partition("=")
    if equals and name in flags:
        return [f"{name}={word}" for word in _values(flags[name], value, line)]
    before = flags.get(line.words[-1]) if line.words else None
    if before is not None and before.nargs != 0:
        return _values(before, line.last, line)
    if line.last.startswith("-"):
        return _matching((flag for flag in flags if flag.startswith("--")), line.last)
    positional = next((action for action in actions if not action.option_strings), None)
    return _values(positional, line.last, line) if positional is not None else _matching(flags, line.last)


def _values(action: argparse.Action, typed: str, line: _Line) -> list[str]:
    """What a flag or an argument may be, by its choices or by what its help calls it."""
    if action.choices is not None:
        return _matching(map(str, action.choices), typed)
    if action.dest == "context":
        return _matching(_contexts(line), typed)
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else str(action.metavar)
    if metavar.startswith("PROFILE") or action.dest == "profile" or "PROFILE" in metavar:
        return _profiles(metavar, typed, line)
    if metavar == _NAMESPACES:
        return _matching(_names(line, "namespace"), typed)
    if metavar.startswith(_NODES):
        node, slash, device = typed.partition("/")
        if slash:
            return [f"{node}/{name}" for name in _matching(_devices(line, node), device)]
        return _matching(_names(line, "node"), typed)
    return _objects(typed, line) if metavar.endswith(_OBJECTS) or metavar == "[KIND/]NAME" else []


def _profiles(metavar: str, typed: str, line: _Line) -> list[str]:
    """Profiles in a list of `PROFILE:COUNT`, or after `NODE=`."""
    from haru.drivers.simulated.profiles import profile_names

    if metavar.startswith(_NODES) and "=" not in typed:
        return [f"{name}=" for name in _matching(_names(line, "node"), typed)]
    cut = max(typed.rfind(","), typed.rfind("=")) + 1
    if ":" in typed[cut:]:
        return []
    return [typed[:cut] + name for name in _matching(profile_names(), typed[cut:])]


def _objects(typed: str, line: _Line) -> list[str]:
    """`KIND/` first, then the names of that kind; or names alone after a word that is a kind."""
    kind, slash, name = typed.partition("/")
    before = line.words[-1] if line.words else ""
    if not slash and line.command == "explain" and before in _EXPLAINED:
        return _matching(_names(line, before), typed)
    if not slash:
        return [f"{word}/" for word in _matching(_EXPLAINED, typed)]
    if kind == "device":
        node, inner, device = name.partition("/")
        if inner:
            return [f"{kind}/{node}/{found}" for found in _matching(_devices(line, node), device)]
        return [f"{kind}/{found}/" for found in _matching(_names(line, "node"), name)]
    return [f"{kind}/{found}" for found in _matching(_names(line, kind), name)]


def _matching(words: Iterable[str], typed: str) -> list[str]:
    return sorted({word for word in words if word.startswith(typed)})


# -- what the cluster knows --------------------------------------------------------------------------------------------


def _contexts(line: _Line) -> list[str]:
    from haru.api.cluster_reader import find_kubeconfig
    from haru.kube.yaml import load

    found: list[str] = []
    for path in find_kubeconfig(_file(line)):
        found += [str(entry["name"]) for entry in load(path.read_text()).get("contexts") or ()]
    return found


def _file(line: _Line) -> Path | None:
    named = line.values.get("--kubeconfig")
    return Path(named).expanduser() if named else None


def _names(line: _Line, word: str) -> list[str]:
    """The names of the objects of a kind, in the namespace that the line says."""
    from haru.client.api import path_of

    kinds = _kinds(word)

    async def ask(client: ApiClient) -> list[str]:
        for kind in kinds:
            namespace = (line.values.get("--namespace") or client.namespace) if kind.namespaced else ""
            items = await _items(client, path_of(kind, namespace))
            if items is not None:
                return [str(item["metadata"]["name"]) for item in items]
        return []

    return _asked(line, ask) if kinds else []


def _kinds(word: str) -> list[Kind]:
    """The kind that a word names, in the versions in which it may be served."""
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
    from haru.explain.pending_choice import LISTED
    from haru.gangs import KINDS
    from haru.kube.kinds import known_kind

    word = {"claim": "resourceclaim"}.get(word, word)
    foreign = {"trainjob": "jobset", "lws": "leaderworkerset"}.get(word, word)
    known = [known_kind(*kind) for kind in (*WATCHED_KINDS, *HELD_BACK_BY, *LISTED.values())]
    found = [k for k in known if word in (k.singular, k.plural, k.kind.lower(), *k.short_names)][:1]
    return found + [kind.as_kind(v) for kind in KINDS for v in kind.versions if kind.kind.lower() == foreign]


def _devices(line: _Line, node: str) -> list[str]:
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


def _asked(line: _Line, ask: Callable[[ApiClient], Awaitable[list[str]]]) -> list[str]:
    from haru.api.cluster_reader import connect

    async def answer() -> list[str]:
        async with connect(_file(line), line.values.get("--context"), "haru-completion") as client:
            return await ask(client)

    return asyncio.run(answer())
