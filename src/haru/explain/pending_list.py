"""Everything that waits, as Python programs and `haru explain --all` get it."""

from __future__ import annotations

from dataclasses import dataclass

from haru.explain.pending_rows import PendingRow
from haru.explain.render.columns import Table, aligned
from haru.explain.render.pending_table import (
    pending_html,
    pending_json,
    pending_table,
    step_lines,
    total_text,
    trouble_text,
)
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class PendingList:
    """Rows of waiting work, those first whose first remedy lets most of it start. `where` says what was looked at."""

    rows: tuple[PendingRow, ...]
    where: str
    now: str = ""
    in_trouble: tuple[str, ...] = ()
    """Pods that have their places and do not run, by path."""

    @property
    def total(self) -> str:
        """How much waits, in one sentence."""
        return total_text(self.rows, self.where) + trouble_text(self.in_trouble)

    def table(self, *, wide: bool = False) -> Table:
        """The columns and their rows; with the namespace where there is more than one."""
        namespaces = len({row.namespace for row in self.rows}) > 1
        return pending_table(self.rows, self.now, wide=wide, namespaces=namespaces)

    def below(self, *, wide: bool = False, source: str = "") -> str:
        """The lines below the table: the sentence, and the command to begin with, which the wide table has itself.

        `source` are the flags of a command that asks about the same cluster.
        """
        return "\n".join([self.total, *(() if wide else step_lines(self.rows, source))])

    def text(self, *, wide: bool = False) -> str:
        """The table and what stands below it."""
        return "\n".join([*([aligned(self.table(wide=wide))] if self.rows else []), self.below(wide=wide)])

    def as_dict(self) -> Obj:
        """The ExplanationList object of haru.dev/v1alpha1."""
        told = pending_json(self.rows, self.now)
        return {**told, "inTrouble": list(self.in_trouble)} if self.in_trouble else told

    def __str__(self) -> str:
        return self.text()

    def html(self) -> str:
        """The table as HTML."""
        return pending_html(self.rows, self.where, self.now)

    def _repr_html_(self) -> str:
        return self.html()
