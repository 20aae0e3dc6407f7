"""Write docs/reference/cli.md from the parsers: `python tools/write_cli_reference.py`."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from haru.cli.main import build_parser

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
HEAD = """\
# Commands

<!-- Written by tools/write_cli_reference.py from the parsers; do not edit by hand. -->

Results go to stdout, messages to stderr. Commands that read a cluster look for it in this order: `--kubeconfig`; the
environment variable `KUBECONFIG` (several files, merged); the `haru up` that runs with this user's default data
directory; `~/.kube/config`. `--as`, `--as-uid` and `--as-group` mean what they mean to kubectl; so do `HTTPS_PROXY`,
`HTTP_PROXY` and `NO_PROXY`, with `proxy-url` of the kubeconfig before them. Flags cannot be abbreviated.

| exit status | meaning |
| --- | --- |
| 0 | yes; done; a server: stopped by SIGINT or SIGTERM |
| 1 | a well-formed no: does not fit, findings; a server: Lease lost, a part failed, two signals, no stop within 45 s |
| 2 | bad usage or input: one line on stderr names the flag or file, the value and the remedy |
| 130 | interrupted |
"""


def page() -> str:
    """Return the whole page."""
    parser = build_parser()
    [commands] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    helps = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    parts = [HEAD, *(_section(name, helps[name], sub) for name, sub in commands.choices.items())]
    return "\n".join(parts)


def _section(name: str, text: str, parser: argparse.ArgumentParser) -> str:
    lines = [f"## haru {name}", "", (parser.description or text).strip()]
    lines += [
        "",
        "```text",
        *textwrap.wrap(_usage(parser), 116, subsequent_indent="    ", break_on_hyphens=False),
        "```",
        "",
    ]
    rows = list(_rows(parser))
    if rows:
        lines += ["| flag or argument | meaning |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=10_000)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return " ".join(formatter.format_help().split()).replace("[-h] ", "").replace(" [-h]", "")


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        value = str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest)
        names = ", ".join(action.option_strings)
        shown = names if action.nargs == 0 else f"{names} {value}".strip()
        text = parser._get_formatter()._expand_help(action) if action.help else ""
        yield f"| `{_cell(shown)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
