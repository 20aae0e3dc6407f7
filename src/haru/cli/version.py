"""Print the version of Haru and of the Kubernetes API that it serves."""

from __future__ import annotations

import argparse
import json

from haru.version import __version__

KUBERNETES_VERSION = "v1.36"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru version`."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")


def run(options: argparse.Namespace) -> int:
    """Prints the version."""
    if options.output == "json":
        facts = {"apiVersion": "haru.dev/v1alpha1", "kind": "Version"}
        print(json.dumps({**facts, "version": __version__, "kubernetes": KUBERNETES_VERSION}))
    else:
        print(f"haru {__version__} (Kubernetes {KUBERNETES_VERSION})")
    return 0
