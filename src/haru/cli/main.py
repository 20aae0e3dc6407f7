"""Find the subcommand of `haru`, import it and run it.

Exit status: 0 yes, 1 a well-formed no, 2 bad usage or input. Results go to stdout, messages to stderr.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from haru import interrupts, open_files
from haru.errors import HaruError
from haru.version import __version__

COMMANDS = {
    "up": "run a whole cluster in this process",
    "allocate": "show which devices claims would get, or why none",
    "cel": "evaluate a device selector on devices",
    "schedule": "schedule all waiting pods once, without writing anything",
    "whatif": "show what a change would do, before it is made",
    "simulate": "replay a workload in virtual time, and compare policies",
    "lint": "find mistakes in manifests, and fix them",
    "explain": "explain why an object waits, or why it runs where it runs",
    "top": "show who holds which devices, what is idle, and what is free while work waits",
    "capture": "write a cluster to a file, for schedule, explain and whatif",
    "snapshot": "back up or restore the state of haru up",
    "replay": "make logged decisions again, and show those that differ",
    "device": "take a device out of service by a taint, or bring it back",
    "dashboard": "serve the dashboard of a cluster",
    "node": "run the pods that are bound to this machine in its container runtime",
    "proxy": "serve the Services of a cluster on this node, by nftables",
    "fleet": "run simulated nodes on any cluster",
    "stress": "load a cluster, and check what its scheduler promises",
    "apiserver": "run an API server over etcd, alone or as one of several replicas",
    "signer": "sign ServiceAccount tokens for an API server in a separate process",
    "scheduler": "run the scheduler against an API server",
    "install": "install Haru on a cluster, or remove it",
    "controllers": "run the controllers against an API server",
    "driver": "run a DRA driver on this node, or check one",
    "completion": "print a completion script for a shell",
    "version": "print the version",
}


_SERVERS = frozenset({"apiserver", "controllers", "dashboard", "node", "scheduler", "up"})
"""Commands that always serve; where it depends on the flags, the module's `serves` says so."""


class UsageError(HaruError):
    """Report a command line or an input that cannot be used; the text names the cause and the fix."""


_NUMBERS = {"int": "whole number", "float": "number"}
_NUMBER = re.compile("invalid (int|float) value: '(.*)'")


class _Parser(argparse.ArgumentParser):
    """Report an error in one line with a pointer to --help, instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        message = _NUMBER.sub(
            lambda found: f'Invalid value: "{found[2]}": write a {_NUMBERS[found[1]]}',
            message.removeprefix("argument "),
        )
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line; every subcommand's module adds its own flags.

    With `only`, no other subcommand has flags, and its module is not imported.
    """
    parser = _Parser(
        prog="haru",
        allow_abbrev=False,
        description="Kubernetes 1.36's accelerator stack: schedules AI/ML work on devices, and explains why it waits.",
    )
    parser.add_argument("--version", action="version", version=f"haru {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        if only not in (None, name):
            subparsers.add_parser(name, help=text)
            continue
        module = importlib.import_module(f"haru.cli.{name}")
        sub = subparsers.add_parser(
            name, help=text, description=module.__doc__, formatter_class=_Formatter, allow_abbrev=False
        )
        module.add_arguments(sub)
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the paragraphs of a command's description."""


_SURROUNDINGS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""What goes wrong through no fault of a command, anywhere, and names no file: a full disk behind stdout."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    if "_ARGCOMPLETE" in os.environ:
        from haru.cli.completion_words import complete_line

        complete_line(build_parser)
    command = ""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        parser = build_parser(only=next((text for text in given if not text.startswith("-")), ""))
        options, unknown = parser.parse_known_args(arguments)
        command = options.command
        module = importlib.import_module(f"haru.cli.{command}")
        if unknown:
            raise UsageError(_unknown(parser, command, unknown[0]))
        if _serves(module, options):
            open_files.raise_limit()
        else:
            interrupts.raise_again()
        status = int(module.run(options))
        sys.stdout.flush()
    except HaruError as error:
        # The API server says what is wrong with YAML in indented lines, as Kubernetes does.
        print(f"haru {command}: {error}".replace("\n  ", " "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return interrupts.STATUS
    except BrokenPipeError:
        # The reader of our output went away (`haru explain ... | head`): not an error of ours.
        open_files.flush_or_discard()
        return 0
    except OSError as error:
        if error.errno not in _SURROUNDINGS and not error.filename:
            raise
        open_files.flush_or_discard()
        about = f": {error.filename}" if error.filename else ""
        print(f"{f'haru {command}'.rstrip()}{about}: {error.strerror}", file=sys.stderr)
        return 2
    return status


def _serves(module: ModuleType, options: argparse.Namespace) -> bool:
    """Whether the command serves until it is stopped, and listens to signals once it has begun."""
    serves = getattr(module, "serves", None)
    return options.command in _SERVERS or (serves is not None and bool(serves(options)))


def flags_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The long flags of every command."""
    result: dict[str, list[str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                result[name] = [o for a in sub._actions for o in a.option_strings if o.startswith("--")]
    return result


def _unknown(parser: argparse.ArgumentParser, command: str, argument: str) -> str:
    known = flags_of(parser)[command]
    close = difflib.get_close_matches(argument.partition("=")[0], known, 1)
    hint = f"did you mean {close[0]}?" if close else f"see haru {command} --help"
    return f"unknown {'flag' if argument.startswith('-') else 'argument'} {argument}; {hint}"


if __name__ == "__main__":
    sys.exit(main())
