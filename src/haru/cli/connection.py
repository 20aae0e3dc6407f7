"""Find the cluster of a command as kubectl does, or the running `haru up` of this user.

Order: `--kubeconfig`; the environment variable KUBECONFIG; the running `haru up`; `~/.kube/config`; in a pod, the API
server of its cluster as its ServiceAccount.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haru.client.api import ApiClient


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags by which kubectl finds a cluster, too: `--kubeconfig`, `--context`, and those of whom to act as."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="kubeconfig of the cluster")
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context")
    parser.add_argument("--as", dest="as_user", metavar="USER", help="act as this user")
    parser.add_argument("--as-uid", metavar="UID", help="act as a user with this UID")
    parser.add_argument(
        "--as-group", action="append", metavar="GROUP", help="act as a member of this group; may be given again"
    )


def connection_words(options: argparse.Namespace) -> list[str]:
    """The flags of `add_connection_arguments` that were given, as they can be given again."""
    pairs = (("--context", options.context), ("--kubeconfig", options.kubeconfig))
    acting = (("--as", options.as_user), ("--as-uid", options.as_uid))
    groups = (("--as-group", group) for group in options.as_group or ())
    return [word for flag, value in (*pairs, *acting, *groups) if value for word in (flag, str(value))]


def add_manifest_argument(parser: argparse.ArgumentParser, told: str, *, several: bool = True) -> None:
    """The flag `-f`, which may be given again; with `several` it takes more than one file at a time.

    A command with words of its own takes one, so that these words are not read as files.
    """
    how: dict[str, Any] = {"action": "extend", "nargs": "+"} if several else {"action": "append"}
    parser.add_argument("-f", "--filename", metavar="FILE", help=f"{told} (- is stdin)", **how)


def words_behind_files(files: list[str]) -> list[str]:
    """Take from the values of `-f FILE…` the words that follow the last file, KIND/NAME and no path; return them."""
    words: list[str] = []
    while len(files) > 1 and _is_word(files[-1]):
        words.insert(0, files.pop())
    return words


def _is_word(value: str) -> bool:
    return not value.endswith((".yaml", ".yml", ".json")) and value != "-" and not Path(value).exists()


def add_answer_arguments(parser: argparse.ArgumentParser, *, cases: bool = False) -> None:
    """The flags of commands that answer from manifests: `-o`, `--feature-gates` and, with `cases`, `--cases`."""
    if cases:
        parser.add_argument(
            "--cases", metavar="FILE", help="test cases, one JSON object per line, plain or .gz (- is stdin)"
        )
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="output format")
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,…", help="feature gates that differ from the defaults of haru up"
    )


def told_as_usage(client: ApiClient) -> AbstractContextManager[None]:
    """What a server refuses, and that it cannot be reached, become ClusterErrors."""
    from haru.api.connection import told_as_cluster_error

    return told_as_cluster_error(client)


def connect(options: argparse.Namespace, user_agent: str, *, multiplexed: bool = False) -> ApiClient:
    """A client for the cluster that the flags name, for bursts of writes if it is `multiplexed`.

    Raises ClusterError if it cannot be made.
    """
    from haru.api import connection
    from haru.client.impersonation import Impersonation

    acting_as = Impersonation(options.as_user or "", options.as_uid or "", tuple(options.as_group or ()))
    where = "--kubeconfig"
    return connection.connect(
        options.kubeconfig, options.context, user_agent, where, multiplexed=multiplexed, acting_as=acting_as
    )


def connect_to(kubeconfig: Path, user_agent: str, flag: str) -> ApiClient:
    """A client for the cluster of one file, which `flag` names; raises ClusterError if it cannot be made."""
    from haru.api import connection

    return connection.connect(kubeconfig, None, user_agent, flag)
