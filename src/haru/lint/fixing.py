"""Mends what can be mended: one finding after the other, each on the text, until nothing is left that would help.

A finding's edits are kept only if the whole report is better with them: fewer errors at the earliest stage that
changed, and the finding itself gone. So mending twice changes nothing more, and no fault is
traded for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from haru.lint import documents
from haru.lint.editing import EditError, apply_edit
from haru.lint.findings import Finding
from haru.lint.paths import Keys
from haru.lint.report import Report
from haru.lint.run import lint_texts

MAX_CHAIN = 40
Identity = tuple[str, str, int, str, str]
Step = tuple[dict[str, str], Report, list[Finding]]


@dataclass(frozen=True, slots=True)
class Fixed:
    """One finding that was mended."""

    finding: Finding

    def to_json(self) -> dict[str, str | int]:
        """As `-o json` prints it."""
        place, finding = self.finding.place, self.finding
        return {
            "check": finding.check,
            "file": place.file,
            "line": place.line,
            "object": place.object,
            "path": finding.path,
            "suggestion": finding.suggestion or finding.message,
        }

    def __str__(self) -> str:
        place, finding = self.finding.place, self.finding
        what = finding.suggestion or finding.message
        return f"{place.file}:{place.line}: fixed {finding.path} of {place.object}: {what} [{finding.check}]"


def fix_texts(texts: Mapping[str, str]) -> tuple[dict[str, str], list[Fixed], Report]:
    """The mended files, what was mended, and the report on what is left."""
    state = _State(dict(texts), lint_texts(texts))
    # Ends: every round makes the report's weight less or refuses a finding, and weights are well-ordered.
    while batch := state.next_batch():
        state.mend(batch)
    return state.texts, [Fixed(finding) for finding in state.fixed], state.report


@dataclass(slots=True)
class _State:
    """The texts as far as they are mended."""

    texts: dict[str, str]
    report: Report
    fixed: list[Finding] = field(default_factory=list)
    refused: set[Identity] = field(default_factory=set)

    def next_batch(self) -> list[Finding]:
        """The first finding of each document that can be mended: findings of different documents do not interfere."""
        first: dict[tuple[str, int], Finding] = {}
        for finding in (*self.report.findings, *self.report.notices):
            if finding.fixable and _identity(finding) not in self.refused:
                first.setdefault((finding.place.file, finding.place.document), finding)
        return list(first.values())

    def mend(self, batch: Sequence[Finding]) -> None:
        """Mends all at once if that is better; otherwise the halves, down to single findings, which may be refused."""
        if self._accept(_attempt(self.texts, self.report, batch, self.refused)):
            return
        if len(batch) == 1:
            self.refused.add(_identity(batch[0]))
            return
        middle = len(batch) // 2
        self.mend(batch[:middle])
        self.mend(batch[middle:])

    def _accept(self, step: Step | None) -> bool:
        if step is None:
            return False
        self.texts, self.report, done = step
        self.fixed += done
        return True


def _identity(finding: Finding) -> Identity:
    return (finding.check, finding.place.file, finding.place.document, finding.path, finding.message)


def _attempt(texts: dict[str, str], report: Report, batch: Sequence[Finding], refused: set[Identity]) -> Step | None:
    changed = dict(texts)
    try:
        for finding in batch:
            changed[finding.place.file] = _edited(changed[finding.place.file], finding)
    except EditError:
        return None
    return _complete(changed, report, list(batch), refused, len(batch) + MAX_CHAIN)


def _complete(
    changed: dict[str, str], before: Report, done: list[Finding], refused: set[Identity], limit: int
) -> Step | None:
    """Goes on with what an edit brought to light until the report is better, or nothing can be done about it."""
    after = lint_texts(changed)
    known = {_identity(one) for one in (*before.findings, *before.notices, *done)}
    left = {_identity(one) for one in (*after.findings, *after.notices)}
    if any(_identity(one) in left for one in done):
        return None
    if _weight(after) < _weight(before):
        return changed, after, done
    if len(done) >= limit:
        return None
    for finding in after.findings:
        identity = _identity(finding)
        if not finding.fixable or identity in known or identity in refused:
            continue
        try:
            further = {**changed, finding.place.file: _edited(changed[finding.place.file], finding)}
        except EditError:
            continue
        return _complete(further, before, [*done, finding], refused, limit)
    return None


def _edited(text: str, finding: Finding) -> str:
    """The file with all edits of a finding done to its document."""
    mark, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    pieces = documents.split(text)
    number = 0
    for at, piece in enumerate(pieces):
        if documents.is_blank(piece):
            continue
        number += 1
        if number == finding.place.document:
            prefix = _prefix(piece, finding)
            for edit in finding.edits:
                piece = apply_edit(piece, edit, prefix)
            return mark + "".join([*pieces[:at], piece, *pieces[at + 1 :]])
    raise EditError("the document is not there")


def _prefix(piece: str, finding: Finding) -> Keys:
    """Where in the document the finding's object is: inside of a List it is an item."""
    value = documents.parse(piece).value
    if not isinstance(value, dict) or value.get("kind") != "List" or not isinstance(value.get("items"), list):
        return ()
    for index, item in enumerate(value["items"]):
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        if isinstance(item, dict) and f"{item.get('kind')}/{name}" == finding.place.object:
            return ("items", index)
    raise EditError("the object is not there")


_STAGE_WEIGHT = {"yaml": 0, "kind": 1, "schema": 2, "validation": 3, "semantic": 4}


def _weight(report: Report) -> tuple[int, ...]:
    """Errors by stage, the first stage counting most; then warnings, then notices."""
    counts = [0] * 7
    for finding in report.findings:
        counts[_STAGE_WEIGHT[finding.stage] if finding.severity == "error" else 5] += 1
    counts[6] = sum(notice.fixable for notice in report.notices)
    return tuple(counts)
