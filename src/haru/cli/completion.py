"""Print a completion script for a shell: `source <(haru completion bash)`.

The script asks `haru` for each word: commands, flags, their values, kinds, profiles, contexts, and the names of
namespaces, nodes and objects in the cluster. It is silent where it cannot tell, and ends after a second
(HARU_COMPLETION_SECONDS) whatever the cluster does.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell")


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["haru"], shell=options.shell), end="")
    return 0
