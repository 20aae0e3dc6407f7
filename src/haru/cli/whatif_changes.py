"""Parse the hypothetical changes of a command line as values, in the order of their flags."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.api.changes import AskedChange

_FLAGS = {
    "--apply": "Apply",
    "--delete": "Delete",
    "--cordon": "Cordon",
    "--taint": "Taint",
    "--add-nodes": "AddNodes",
    "--repartition": "Repartition",
}


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

    flag("--apply", metavar="FILE", help="create these manifests, or merge them into existing objects (- is stdin)")
    flag("--delete", metavar="KIND/NAME", help="delete an object and all that it owns, a podgroup with its pods")
    flag("--cordon", metavar="NODE", help="make the node unschedulable")
    flag(
        "--taint",
        nargs=2,
        metavar=("NODE[/DEVICE]", "TAINT"),
        help="put the taint KEY[=VALUE]:EFFECT on a node, or on one device by a DeviceTaintRule",
    )
    flag("--add-nodes", metavar="PROFILE[:N]", help="add N empty nodes of a profile (default 1)")
    flag("--repartition", metavar="NODE=PROFILE", help="partition the node's cards as in the profile")


def asked_changes(options: argparse.Namespace) -> list[AskedChange]:
    """The changes that the flags ask for; raises UsageError for what makes none."""
    if not options.changes:
        raise UsageError("nothing changes: say what, for example --cordon NODE or --apply FILE")
    return [change for flag, values in options.changes for change in _asked(flag, values)]


@contextmanager
def told_by_flag() -> Iterator[None]:
    """Report an error in a change under the name of its flag."""
    from haru.api.changes import Apply
    from haru.errors import ChangeInputError

    try:
        yield
    except ChangeInputError as error:
        change = error.change
        flag = next(flag for flag, name in _FLAGS.items() if name == type(change).__name__)
        # A file is named already, with the line.
        raise UsageError(error.problem if isinstance(change, Apply) else f"{flag}: {error.problem}") from error


def _asked(flag: str, values: Sequence[str]) -> Iterator[AskedChange]:
    from haru.api import changes

    if flag == "--add-nodes":
        yield from _add_nodes(values[0])
    elif flag == "--repartition":
        yield _repartition(values[0])
    else:
        yield getattr(changes, _FLAGS[flag])(*values)


def _add_nodes(text: str) -> Iterator[AskedChange]:
    from haru.api.changes import AddNodes
    from haru.embedded.options import OptionError, parse_profiles

    try:
        counts = parse_profiles(text, "--add-nodes")
    except OptionError as error:
        raise UsageError(str(error)) from error
    for entry in counts:
        yield AddNodes(entry.profile, entry.count)


def _repartition(text: str) -> AskedChange:
    from haru.api.changes import Repartition

    node, equals, profile = text.partition("=")
    if not node or not equals or not profile:
        raise UsageError(f'--repartition: "{text}": write NODE=PROFILE, for example dgx-h100-0=dgx-h100-mig-balanced')
    return Repartition(node, profile)
