"""The documents of the command line are those of the parsers."""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from haru.cli.main import build_parser, flags_of

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference" / "cli.md"


def test_cli_reference_equals_parsers() -> None:
    spec = importlib.util.spec_from_file_location("write_cli_reference", ROOT / "tools" / "write_cli_reference.py")
    assert spec is not None and spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert REFERENCE.read_text() == writer.page(), "run: python tools/write_cli_reference.py"


def test_cli_reference_has_every_command_and_flag() -> None:
    sections = dict(re.findall(r"^## haru (\w+)\n(.*?)(?=^## |\Z)", REFERENCE.read_text(), re.M | re.S))
    flags = flags_of(build_parser())
    assert sections.keys() == flags.keys()
    for command, names in flags.items():
        assert all(f"{name}" in sections[command] for name in names if name != "--help"), command


PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_name_only_existing_flags_and_files(page: Path) -> None:
    text = page.read_text()
    known = flags_of(build_parser())
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    for command, rest in re.findall(r"^(?:\$ )haru (\w+)(.*)$", text, re.M) + re.findall(
        r"^haru (\w+)(.*)$", shell, re.M
    ):
        assert command in known, f"{page.name}: haru {command}"
        used = re.findall(r"(?<!\S)(--[a-z][a-z0-9-]*)", rest.split("#")[0])
        assert set(used) <= set(known[command]), f"{page.name}: haru {command}{rest}"
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for target in re.findall(r"(?<![\w/.-])examples/[\w./-]+\.(?:yaml|py)", text):
        assert (ROOT / target).exists() or (ROOT / "tests" / target).exists(), f"{page.name} names {target}"


def test_every_page_is_linked_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)", index.read_text())}
    missing = [page.relative_to(ROOT) for page in PAGES if page.is_relative_to(ROOT / "docs") and page not in linked]
    assert [page for page in missing if page.name != "README.md"] == []


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands, at every depth."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _parsers(inner)


def test_default_of_every_flag_is_a_value_that_it_takes() -> None:
    for parser in _parsers(build_parser()):
        for action in parser._actions:
            if isinstance(action.default, str) and action.default != argparse.SUPPRESS:
                parser._get_value(action, action.default)
