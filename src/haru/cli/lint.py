"""Find mistakes in manifests, explain them, and show the fix.

Files are checked together: give all files that belong together. Beyond what an API server rejects (unknown fields,
invalid values, selectors that do not compile), lint finds what can never work: attributes that no driver publishes, a
template that is a claim, a gang larger than its Job. Exit status: 0 no errors, 1 errors, 2 files that cannot be read
(the others are checked all the same), or that have no object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.main import UsageError
from haru.errors import InputError
from haru.files import write_whole

if TYPE_CHECKING:
    from haru.lint import Fixed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru lint`."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="manifests, or directories with manifests")
    parser.add_argument(
        "-f",
        "--filename",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="manifests, as FILE (- is stdin)",
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="output format")
    parser.add_argument("--fix", action="store_true", help="fix the files in place, where the fix is certain")


def run(options: argparse.Namespace) -> int:
    """Prints the report; 1 when there are errors in what is (left) there."""
    from haru.kube.yaml import load_all
    from haru.lint import fix_texts, lint_texts, to_json, to_text

    names = [*options.files, *options.filename]
    texts, unread = _read(names, fix=options.fix)
    fixed: list[Fixed] = []
    if options.fix:
        mended, fixed, report = fix_texts(texts)
        _write(texts, mended)
    else:
        report = lint_texts(texts)
    if not report.objects and not report.findings and not any(any(load_all(text)) for text in texts.values()):
        # Mostly a template or a program before the pipe that failed: a check of nothing must not pass.
        raise UsageError(f"there is no object in {', '.join('standard input' if n == '-' else n for n in names)}")
    if options.output == "json":
        print(json.dumps(to_json(report, fixed), indent=2, ensure_ascii=False))
    elif options.output == "yaml":
        from haru.kube.yaml import dump

        print(dump(to_json(report, fixed)), end="")
    else:
        for one in fixed:
            print(one)
        print(to_text(report))
    for error in unread:
        print(f"haru lint: {error}", file=sys.stderr)
    return 2 if unread else 1 if report.errors else 0


def _read(names: list[str], *, fix: bool) -> tuple[dict[str, str], list[InputError]]:
    """The files that can be read, and why the others cannot. Nothing is mended without having read everything."""
    from haru.api.lint import readable_texts

    if not names:
        raise UsageError("no FILE is given; - is standard input")
    if fix and "-" in names:
        raise UsageError("--fix writes files in place, standard input is none")
    texts, unread = readable_texts(names)
    if unread and (fix or not texts):
        raise unread[0]
    return texts, unread


def _write(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for name, text in after.items():
        if text != before[name]:
            _replace(Path(name).resolve(), text)


def _replace(path: Path, text: str) -> None:
    """All of the new text, or the old one: never a part."""
    try:
        write_whole(path, text, path.stat().st_mode & 0o7777)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
