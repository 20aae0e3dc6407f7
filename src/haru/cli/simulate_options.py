"""Read the policies, workloads and seeds that the flags of `haru simulate` name."""

from __future__ import annotations

import argparse

from haru.cli.main import UsageError


def chosen_seeds(options: argparse.Namespace) -> list[int]:
    """The seeds that `--seed` or `--seeds` name; raises UsageError."""
    if options.seeds is None:
        return [42 if options.seed is None else options.seed]
    found: list[int] = []
    for part in options.seeds.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise UsageError(f"--seeds: {options.seeds}: write numbers and ranges such as 42-51 or 1,2,5")
        found += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(found))


def chosen(values: list[str] | None, default: tuple[str, ...]) -> list[str]:
    """The names of a repeated flag whose values are lists, each once, in their order."""
    names = [name.strip() for value in values or () for name in value.split(",")]
    return list(dict.fromkeys(name for name in names if name)) or list(default)
