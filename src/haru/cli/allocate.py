"""Show which devices ResourceClaims would get, or why they would get none.

The manifests contain ResourceSlices, DeviceClasses and ResourceClaims (and Nodes, where labels matter). Claims with an
allocation keep their devices. The other claims, and one claim of each ResourceClaimTemplate, are allocated together,
as the claims of one pod. Without --node every node is tried, and the first one that fits is shown. Exit status: 0 if
the claims fit, 1 if not, 2 for bad input. With --cases, every line of a file is an allocation problem; the output has
one JSON line per case with its result and the time it took.
"""

from __future__ import annotations

import argparse

from haru.cli.connection import add_answer_arguments, add_manifest_argument
from haru.cli.main import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru allocate`."""
    add_manifest_argument(parser, "manifests")
    parser.add_argument("--node", metavar="NAME", help="allocate on this node only")
    parser.add_argument(
        "-n", "--namespace", default="default", metavar="NAMESPACE", help="namespace of claims that name none"
    )
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="stop the search after this time")
    parser.add_argument(
        "--device-scoring",
        action="store_true",
        help="prefer small devices and fragments, and keep whole cards free, instead of the order of 1.36",
    )
    add_answer_arguments(parser, cases=True)


def run(options: argparse.Namespace) -> int:
    """Prints what would be allocated."""
    if options.cases:
        if options.filename:
            raise UsageError("--cases brings its own objects: leave -f out")
        from haru.cli.allocate_cases import answer_case, settle_heap
        from haru.cli.cases import answer_cases

        settle_heap()
        return answer_cases(options.cases, lambda case: answer_case(case, options.timeout, options.device_scoring))
    if not options.filename:
        raise UsageError("name the manifests with -f FILE, or cases with --cases FILE")
    return _allocate(options)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": give a number of seconds above 0')
    return value


def _allocate(options: argparse.Namespace) -> int:
    from haru.api.snapshot import Snapshot
    from haru.cli.sources import file_gates, show

    gates = file_gates(options.feature_gates).all()
    snapshot = Snapshot.read(*options.filename, namespace=options.namespace, feature_gates=gates)
    answer = snapshot.allocate(node=options.node, timeout=options.timeout, device_scoring=options.device_scoring)
    show(answer, options.output)
    return 0 if answer.fits else 1
