"""The hypothetical changes of a command line, as values, in the order in which they are written."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.whatif import Change

Obj = dict[str, Any]
_SHORT = {"claim": "ResourceClaim", "claims": "ResourceClaim"}


class InOrder(argparse.Action):
    """Keeps flags of several names in one list, `options.changes`, each as its name and its values."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Add what was written to the list."""
        written = list(values) if isinstance(values, list) else [values]
        namespace.changes = [*(getattr(namespace, "changes", None) or []), (str(option), written)]


def add_change_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that say what changes; each may be repeated, and they apply in their order."""

    def flag(name: str, **more: Any) -> None:
        parser.add_argument(name, action=InOrder, dest="changes", default=[], **more)

    flag("--apply", metavar="FILE", help="manifests that are created, or merged into what is there (- is stdin)")
    flag("--delete", metavar="KIND/NAME", help="an object goes with all that it owns, a podgroup with its pods")
    flag("--cordon", metavar="NODE", help="the node takes no more pods")
    flag(
        "--taint",
        nargs=2,
        metavar=("NODE[/DEVICE]", "TAINT"),
        help="a taint KEY[=VALUE]:EFFECT is put on a node, or on one device by a DeviceTaintRule",
    )
    flag("--add-nodes", metavar="PROFILE[:N]", help="so many empty nodes of a profile come (N is 1 by default)")
    flag("--repartition", metavar="NODE=PROFILE", help="the node's cards are cut as the profile has them")


def changes_of(options: argparse.Namespace, objects: Sequence[Obj], gates: Mapping[str, bool]) -> list[Change]:
    """The changes that the flags ask for, given the objects of the cluster; raises UsageError for what makes none."""
    from haru.drivers.simulated.profiles import ProfileError
    from haru.explain.device_names import DeviceNameError
    from haru.explain.tainting import TaintTextError

    if not options.changes:
        raise UsageError("nothing changes: say what, for example --cordon NODE or --apply FILE")
    parse = _Parser(options.namespace, objects, gates)
    found: list[Change] = []
    for flag, values in options.changes:
        try:
            found += parse.changes(flag, values)
        except (DeviceNameError, ProfileError, TaintTextError) as error:
            raise UsageError(f"{flag}: {error}") from error
    return found


class _Parser:
    def __init__(self, namespace: str, objects: Sequence[Obj], gates: Mapping[str, bool]) -> None:
        self._namespace = namespace
        self._objects = list(objects)
        self._gates = gates

    def changes(self, flag: str, values: Sequence[str]) -> Iterator[Change]:
        from haru.whatif import Cordon

        if flag == "--apply":
            yield from self._apply(values[0])
        elif flag == "--delete":
            yield self._delete(values[0])
        elif flag == "--cordon":
            yield Cordon(values[0])
        elif flag == "--taint":
            yield self._taint(values[0], values[1])
        elif flag == "--add-nodes":
            yield from _add_nodes(values[0])
        else:
            yield _repartition(values[0])

    def _apply(self, path: str) -> Iterator[Change]:
        from haru.cli.making import made_by
        from haru.cli.reading import read_manifests
        from haru.cli.settling import settled
        from haru.kube.conversion import convert
        from haru.kube.kinds import known_kind
        from haru.whatif import Apply

        known = {_key(obj) for obj in self._objects}
        patches: dict[tuple[str, str, str], Obj] = {}
        read: list[Obj] = []
        for written, stored in read_manifests([path], self._namespace):
            read.append(stored)
            if _key(stored) in known:
                kind = known_kind(stored["apiVersion"], stored["kind"])
                metadata = {**written["metadata"], "namespace": stored["metadata"].get("namespace")}
                patches[_key(stored)] = convert({**written, "metadata": metadata}, kind)
        made = [more for obj in read if _key(obj) not in known for more in made_by(obj, self._gates)]
        together = settled([*self._objects, *read, *made], group_claims=self._gates["DRAWorkloadResourceClaims"])
        fresh = [obj for obj in together if _key(obj) not in known]
        self._objects += fresh
        by_key = {_key(obj): obj for obj in fresh}
        for obj in read:
            yield Apply(by_key.pop(_key(obj), obj), patches.get(_key(obj)))
        for obj in by_key.values():
            yield Apply(obj, follows=True)

    def _delete(self, text: str) -> Change:
        from haru.cli.forking import FORKED_KINDS
        from haru.kube.kinds import known_kind
        from haru.whatif import Delete

        word, slash, name = text.partition("/")
        kinds = [known_kind(*kind) for kind in FORKED_KINDS]
        for kind in kinds if slash and name else ():
            words = (kind.singular, kind.plural, kind.kind.lower(), *kind.short_names)
            if word.lower() in words or _SHORT.get(word.lower()) == kind.kind:
                return Delete(kind.kind, f"{self._namespace}/{name}" if kind.namespaced else name)
        listed = ", ".join(sorted(kind.kind.lower() for kind in kinds))
        raise UsageError(f'--delete: "{text}": write KIND/NAME; KIND is one of {listed}')

    def _taint(self, where: str, text: str) -> Change:
        from haru.engine.devices.model import Taint
        from haru.explain.device_names import find_device
        from haru.explain.tainting import parse_taint
        from haru.whatif import TaintDevice, TaintNode

        if "/" in where:
            slices = [obj for obj in self._objects if obj["kind"] == "ResourceSlice"]
            nodes = [obj for obj in self._objects if obj["kind"] == "Node"]
            return TaintDevice(find_device(where, slices, nodes), parse_taint(text))
        described, _, effect = text.rpartition(":")
        if effect == "PreferNoSchedule":  # nodes have it, devices do not
            parsed = parse_taint(f"{described}:NoSchedule")
            return TaintNode(where, Taint(parsed.key, parsed.value, effect))
        if effect == "None":
            raise UsageError(f'--taint: "{text}": a node taint has the effect NoSchedule, PreferNoSchedule, NoExecute')
        return TaintNode(where, parse_taint(text))


def _add_nodes(text: str) -> Iterator[Change]:
    from haru.drivers.simulated.profiles import load_profile
    from haru.embedded.options import OptionError, parse_profiles
    from haru.whatif import AddNodes

    try:
        counts = parse_profiles(text, "--add-nodes")
    except OptionError as error:
        raise UsageError(str(error)) from error
    for entry in counts:
        yield AddNodes(load_profile(entry.profile), entry.count)


def _repartition(text: str) -> Change:
    from haru.drivers.simulated.profiles import load_profile
    from haru.whatif import Repartition

    node, equals, profile = text.partition("=")
    if not node or not equals or not profile:
        raise UsageError(f'--repartition: "{text}": write NODE=PROFILE, for example dgx-h100-0=dgx-h100-mig-balanced')
    return Repartition(node, load_profile(profile))


def _key(obj: Obj) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
