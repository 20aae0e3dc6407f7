"""Entry point of `haru`: finds the subcommand, imports it, runs it.

Exit status: 0 yes, 1 a well-formed no, 2 bad usage or input. Results go to stdout, messages to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from haru import __version__

COMMANDS = {
    "up": "run a whole cluster in this process",
    "explain": "say why an object waits, or why it runs where it runs",
    "scheduler": "run the scheduler against an API server",
    "controllers": "run the controllers against an API server",
    "completion": "print a shell's completion script",
    "version": "print the version",
}


class UsageError(Exception):
    """The command line or an input cannot be used; the text says what and how to mend it."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; every subcommand's module adds its own flags."""
    parser = argparse.ArgumentParser(
        prog="haru",
        description="Kubernetes 1.36's accelerator stack: schedules AI/ML work onto devices, and says why it waits.",
    )
    parser.add_argument("--version", action="version", version=f"haru {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        module = importlib.import_module(f"haru.cli.{name}")
        sub = subparsers.add_parser(name, help=text, description=module.__doc__, formatter_class=_Formatter)
        module.add_arguments(sub)
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the paragraphs of a command's description."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = build_parser().parse_args(arguments)
    module = importlib.import_module(f"haru.cli.{options.command}")
    try:
        status = int(module.run(options))
        sys.stdout.flush()
    except UsageError as error:
        print(f"haru {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`haru explain ... | head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
