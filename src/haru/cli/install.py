"""Install Haru on a cluster, or remove it: checks the cluster first, then applies the manifests of `deploy/`.

The checks ask for the server's version, what it serves, your rights, and other schedulers. An error stops the command
before it writes anything. --dry-run prints the manifests and the checks, and writes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.duration_flags import duration
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.client.api import ApiClient

_MODES = ("second-scheduler", "default-scheduler", "dashboard", "explain-api", "explain-publish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru install`."""
    add_connection_arguments(parser)
    parser.add_argument(
        "--mode",
        choices=_MODES,
        help="second-scheduler: beside kube-scheduler, for pods with schedulerName haru (default); default-scheduler: "
        "in place of kube-scheduler; dashboard: the page for a cluster's people; explain-api: the resident answer for "
        "tenants; explain-publish: annotates pods of other schedulers with why they wait",
    )
    parser.add_argument("--image", type=_image, metavar="NAME[:TAG]", help="image to run (default haru:VERSION)")
    parser.add_argument(
        "--dry-run", action="store_true", help="check the cluster, print the manifests as YAML, write nothing"
    )
    parser.add_argument(
        "--remove", action="store_true", help="delete what was installed, of all modes unless --mode names one"
    )
    parser.add_argument(
        "--wait",
        type=duration,
        metavar="DURATION",
        default="0s",
        help="how long to wait until pods are available, or everything is deleted (default 0s)",
    )


def _image(text: str) -> str:
    """The name of an image, for argparse."""
    from haru.kube.image_names import ImageNameError, parse_image_name

    try:
        parse_image_name(text)
    except ImageNameError:
        remedy = "write NAME or NAME:TAG, such as registry.example.com/haru:0.1.0"
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": {remedy}') from None
    return text


def run(options: argparse.Namespace) -> int:
    """Checks, then applies or deletes; 1 where an error stands against it, or the wait was in vain."""
    from haru.install.manifests import manifests_of

    modes = [options.mode or "second-scheduler"] if options.mode or not options.remove else list(_MODES)
    try:
        objects = _union([manifests_of(mode, options.image) for mode in modes])
        others = [] if options.remove else _union([manifests_of(mode) for mode in _rivals(modes[0])])
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    return asyncio.run(_run(options, modes[0], objects, others, options.wait))


def _rivals(mode: str) -> list[str]:
    """The modes of which nothing may stay when this one is installed."""
    from haru.install.manifests import SCHEDULERS

    return [other for other in SCHEDULERS if mode in SCHEDULERS and other != mode]


def _union(lists: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    from haru.install.manifests import identity

    return list({identity(obj): obj for objects in lists for obj in objects}.values())


async def _run(
    options: argparse.Namespace,
    mode: str,
    objects: list[dict[str, Any]],
    others: list[dict[str, Any]],
    seconds: float,
) -> int:
    from haru.install.checks import check
    from haru.kube.yaml import dump_all

    async with connect(options, "haru-install") as client:
        with told_as_usage(client):
            findings = await check(client, mode, objects, datetime.now(UTC), remove=options.remove)
            for finding in findings:
                print(finding, file=sys.stderr)
            failed = any(finding.level == "error" for finding in findings)
            if options.dry_run:
                sys.stdout.write(dump_all(objects))
                return int(failed)
            if failed:
                return 1
            return await _write(client, options.remove, objects, others, seconds)


async def _write(
    client: ApiClient, removing: bool, objects: list[dict[str, Any]], others: list[dict[str, Any]], seconds: float
) -> int:
    from haru.install.apply import apply, remove, wait_available, wait_gone
    from haru.install.checks import left_over

    if removing:
        await remove(client, objects, print)
        late = await wait_gone(client, objects, seconds) if seconds else []
        told = "still there"
    else:
        await apply(client, objects, print)
        await remove(client, left_over(others, objects), print)
        late = await wait_available(client, objects, seconds) if seconds else []
        told = "not available"
    for text in late:
        print(
            f"error: {text} is {told} after {seconds:g} s: see kubectl describe {text.split(' ')[0]}", file=sys.stderr
        )
    return int(bool(late))
