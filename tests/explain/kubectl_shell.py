"""A shell that knows kubectl as far as the commands of remedies need it, on any API: they are carried out as printed.

What is accepted is what `kubectl` 1.32 to 1.36 accepts; whatever else a command says is an error here.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind

Obj = dict[str, Any]
_VERSIONS = {
    "Pod": "v1", "Node": "v1", "PersistentVolumeClaim": "v1", "PersistentVolume": "v1", "ResourceQuota": "v1",
    "Job": "batch/v1", "ReplicaSet": "apps/v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1",
    "ResourceClaim": "resource.k8s.io/v1", "ResourceClaimTemplate": "resource.k8s.io/v1",
    "DeviceTaintRule": "resource.k8s.io/v1beta2", "PodGroup": "scheduling.k8s.io/v1alpha2",
    "DeviceClass": "resource.k8s.io/v1", "PodDisruptionBudget": "policy/v1",
}  # fmt: skip
_BY_NAME = {kind.lower(): kind for kind in _VERSIONS}
_PATIENCE_SECONDS = 300


class Shell:
    """Runs command lines; `namespace` is that of objects for which none is named."""

    def __init__(self, api: ApiClient, namespace: str = "default") -> None:
        self.api = api
        self.namespace = namespace
        self.files: dict[str, str] = {}
        self._asked: dict[str, str] = {}

    async def run(self, line: str) -> None:
        """Run one command line; the first step that fails is an error."""
        asked: dict[str, str] = {}
        words = shlex.shlex(_without_substitutions(line, asked), posix=True, punctuation_chars=True)
        words.whitespace_split = True
        self._asked |= asked
        await self._program(list(words), {})

    async def _program(self, words: Sequence[str], names: dict[str, str]) -> None:
        rest = list(words)
        while rest:
            if rest[0] == "for":
                end = rest.index("done")
                name, values = rest[1], rest[3 : rest.index(";")]
                for value in values:
                    await self._program(rest[rest.index("do") + 1 : end], {**names, f"${name}": value})
                rest = rest[end + 1 :]
            else:
                stop = next((n for n, word in enumerate(rest) if word in ("&&", ";")), len(rest))
                await self._pipeline(rest[:stop], names)
                rest = rest[stop:]
            rest = rest[1:] if rest and rest[0] in ("&&", ";") else rest

    async def _pipeline(self, words: Sequence[str], names: dict[str, str]) -> None:
        passed, part = "", list(words)
        target = ""
        if ">" in part:
            target, part = part[part.index(">") + 1], part[: part.index(">")]
        while part:
            stop = part.index("|") if "|" in part else len(part)
            argv = [self._expanded(each, names) for word in part[:stop] for each in await self._substituted(word)]
            passed = await self._command(argv, passed)
            part = part[stop + 1 :]
        if target:
            self.files[target] = passed

    async def _substituted(self, word: str) -> list[str]:
        """The words that a command in `$(...)` prints, when its turn comes."""
        if word not in self._asked:
            return [word]
        inner = shlex.split(self._asked[word])
        return (await self._command(inner, "")).split()

    @staticmethod
    def _expanded(word: str, names: dict[str, str]) -> str:
        for name, value in names.items():
            word = word.replace(name, value)
        return word

    async def _command(self, argv: list[str], given: str) -> str:
        if argv[:2] == ["printf", "%s"]:
            return argv[2]
        assert argv[0] == "kubectl", argv
        return await self._kubectl(argv[1], *_parsed(argv[2:]), given)

    async def _kubectl(self, verb: str, args: list[str], flags: dict[str, str], given: str) -> str:
        given = self.files.get(flags.get("f", "-"), given)
        space = flags.get("n", self.namespace)
        if verb == "uncordon":
            nodes = args or await self._selected(known_kind("v1", "Node"), "", flags)
            return await self._patched(known_kind("v1", "Node"), nodes, space, {"spec": {"unschedulable": None}})
        if verb in ("create", "replace"):
            assert verb == "create" or "force" in flags, flags
            for obj in _objects(given):
                await self._made(obj, replaced=verb == "replace")
            return ""
        if "f" in flags:
            assert verb == "delete", verb
            for obj in _objects(given):
                await self._deleted(_kind(obj["kind"]), obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
            return ""
        kind, names, rest = _addressed(args)
        if "l" in flags:
            assert not names and verb != "patch", args
            names = await self._selected(kind, space, flags)
        if verb == "taint":
            return await self._tainted(names, rest)
        if verb == "wait":
            return await self._waited(kind, names, space, flags)
        if verb == "delete":
            for name in names:
                await self._deleted(kind, name, space)
            return ""
        if verb in ("label", "annotate"):
            key = f"{verb}s".replace("annotates", "annotations")
            return await self._patched(kind, names, space, {"metadata": {key: _pairs(rest)}})
        if verb == "scale":
            return await self._patched(kind, names, space, {"spec": {"replicas": int(flags["replicas"])}})
        assert verb in ("get", "patch"), verb
        if verb == "get" and flags["o"].startswith("jsonpath="):
            names = names or [each["metadata"]["name"] for each in (await self.api.list(kind, space))["items"]]
            listed = {"items": [await self.api.get(kind, name, space) for name in names]}
            return " ".join(map(str, jsonpath(listed, flags["o"].removeprefix("jsonpath="))))
        if verb == "get" and flags["o"] == "name":
            return "\n".join(f"{kind.kind.lower()}/{name}" for name in names)
        found = [await self.api.get(kind, name, space if kind.namespaced else "") for name in names]
        if verb == "patch":
            body = json.loads(flags["p"])
            if flags.get("dry-run") != "client":
                assert flags["type"] == "merge", flags
                return await self._patched(kind, names, space, body)
            found = [json_patched(obj, body) if flags["type"] == "json" else merged(obj, body) for obj in found]
        assert flags["o"] == "json", flags
        typed = [{**obj, "apiVersion": kind.api_version, "kind": kind.kind} for obj in found]
        return "\n".join(json.dumps(obj) for obj in typed)

    async def _selected(self, kind: Kind, space: str, flags: dict[str, str]) -> list[str]:
        labels = dict(each.split("=") for each in flags["l"].split(","))
        phase = flags.get("field-selector", "").removeprefix("status.phase=")
        every = (await self.api.list(kind, space if kind.namespaced else ""))["items"]
        found = [each for each in every if not phase or each["status"]["phase"] == phase]
        assert found, f"No resources found in {space} namespace"
        return [e["metadata"]["name"] for e in found if labels.items() <= (e["metadata"].get("labels") or {}).items()]

    async def _patched(self, kind: Kind, names: Sequence[str], space: str, body: Obj) -> str:
        for name in names:
            await self.api.patch(kind, name, body, space if kind.namespaced else "")
        return ""

    async def _tainted(self, names: Sequence[str], taints: Sequence[str]) -> str:
        kind = known_kind("v1", "Node")
        gone = [tuple(taint.removesuffix("-").split(":")) for taint in taints]
        assert all(taint.endswith("-") for taint in taints), taints
        for name in names:
            there = (await self.api.get(kind, name))["spec"].get("taints") or []
            kept = [taint for taint in there if (taint["key"], taint["effect"]) not in gone]
            assert len(kept) == len(there) - len(gone), f"taint not found on {name}"
            await self.api.patch(kind, name, {"spec": {"taints": kept}})
        return ""

    async def _waited(self, kind: Kind, names: Sequence[str], space: str, flags: dict[str, str]) -> str:
        wanted = flags["for"].removeprefix("condition=")
        for name in names:
            for _ in range(_PATIENCE_SECONDS):
                obj = await self.api.get(kind, name, space)
                conditions = (obj.get("status") or {}).get("conditions") or ()
                if any(c["type"] == wanted and c["status"] == "True" for c in conditions):
                    break
                await asyncio.sleep(1)
            else:
                raise AssertionError(f"timed out waiting for the condition {wanted} on {name}")
        return ""

    async def _made(self, obj: Obj, *, replaced: bool) -> None:
        kind = known_kind(obj["apiVersion"], obj["kind"])
        space = obj["metadata"].get("namespace") or self.namespace if kind.namespaced else ""
        if replaced:
            await self._deleted(kind, obj["metadata"]["name"], space, missing=True)
        meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
        await self.api.create(kind, {**obj, "metadata": meta}, space)

    async def _deleted(self, kind: Kind, name: str, space: str, *, missing: bool = False) -> None:
        """As kubectl does it: the command ends when the object is gone."""
        space = space or self.namespace if kind.namespaced else ""
        try:
            uid = (await self.api.get(kind, name, space))["metadata"]["uid"]
            await self.api.delete(kind, name, space)
        except StatusError as error:
            if error.code == 404 and missing:
                return
            raise
        for _ in range(10 * _PATIENCE_SECONDS):
            try:
                there = await self.api.get(kind, name, space)
            except StatusError:
                return
            if there["metadata"]["uid"] != uid:
                return  # another one, which its controller has made
            await asyncio.sleep(0.1)
        raise AssertionError(f"{kind.kind} {name} is still there {_PATIENCE_SECONDS} s after it was deleted")


def _without_substitutions(line: str, asked: dict[str, str]) -> str:
    """The line with a word of its own in place of each `$(...)`, and what is to be asked for it."""
    while (start := line.find("$(")) >= 0:
        end, quoted = start + 2, False
        while line[end] != ")" or quoted:
            quoted ^= line[end] == "'"
            end += 1
        word = f"substitution-{len(asked)}"
        asked[word] = line[start + 2 : end]
        line = line[:start] + word + line[end + 1 :]
    return line


_STEP = re.compile(r"\.(\w+)(?:\[(\*|\?\(@\.([\w.]+)==\"([^\"]*)\"\))\])?")


def jsonpath(value: Any, template: str) -> list[Any]:
    """What a template of fields, `[*]` and `[?(@.field=="text")]` finds; a field that is not there finds nothing."""
    assert template[0] == "{" and template[-1] == "}" and not _STEP.sub("", template[1:-1]), template
    found = [value]
    for name, elements, field, wanted in _STEP.findall(template[1:-1]):
        found = [each[name] for each in found if name in each]
        if elements:
            found = [item for each in found for item in each]
        if field:
            found = [item for item in found if jsonpath(item, f"{{.{field}}}") == [wanted]]
    return found


def _parsed(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    args, flags, rest = [], {}, list(argv)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags[name] = value
        elif word in ("-n", "-o", "-p", "-f", "-l"):
            flags[word[1:]] = rest.pop(0)
        else:
            args.append(word)
    return args, flags


def _addressed(args: Sequence[str]) -> tuple[Kind, list[str], list[str]]:
    names = [arg for arg in args[1:] if "=" not in arg and not arg.endswith("-")]
    if "/" in args[0]:
        assert all(arg.partition("/")[0] == args[0].partition("/")[0] for arg in args), args
        return _kind(args[0].partition("/")[0]), [arg.partition("/")[2] for arg in args], []
    return _kind(args[0]), names, [arg for arg in args[1:] if arg not in names]


def _kind(name: str) -> Kind:
    word = name.partition(".")[0].lower()
    found = _BY_NAME.get(word) or _BY_NAME[word.removesuffix("s")]
    return known_kind(_VERSIONS[found], found)


def _pairs(words: Sequence[str]) -> dict[str, str | None]:
    return {word.removesuffix("-").partition("=")[0]: word.partition("=")[2] if "=" in word else None for word in words}


def _objects(text: str) -> list[Obj]:
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        obj, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(obj)
    return found


def merged(obj: Any, patch: Any) -> Any:
    """A merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def json_patched(obj: Any, operations: Sequence[Obj]) -> Any:
    """A JSON Patch applied (RFC 6902), as far as add, remove and replace go."""
    result = {"": deepcopy(obj)}
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")]
        place: Any = result
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            number = len(place) if last == "-" else int(last)
            place[number : number + (operation["op"] != "add")] = (
                [] if operation["op"] == "remove" else [operation["value"]]
            )
        elif operation["op"] == "remove":
            del place[last]
        else:
            assert operation["op"] == "add" or last in place, operation
            place[last] = operation["value"]
    return result[""]
