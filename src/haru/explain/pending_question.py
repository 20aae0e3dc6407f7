"""Why a pod waits, or its group where it has one that waits: what is published of it, with few names or all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from haru.engine import Options, Snapshot
from haru.engine.framework import MetricsRecorder
from haru.explain.entry import explain
from haru.explain.render.condition_message import is_waiting
from haru.explain.render.redaction import redacted
from haru.explain.results import Explanation
from haru.kube.meta import Obj, namespace_of


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """Ask at `now` (RFC 3339); `unread` and `gates` as for `explain`."""

    snapshot: Snapshot
    pod: Obj
    group: Obj | None
    options: Options
    now: str
    unread: Sequence[str] = ()
    gates: Mapping[str, bool] | None = None

    def answer(self, recorder: MetricsRecorder, *, remedies: bool, names: bool) -> Explanation:
        """Explain; without the names of other namespaces unless they are shown."""
        found = self._explained("podgroup", self.group, recorder, remedies) if self.group is not None else None
        if found is None or not (is_waiting(found) or found.verdict == "Starting"):
            found = self._explained("pod", self.pod, recorder, remedies)
        return found if names else redacted(found, self.snapshot, {namespace_of(self.pod)})

    def _explained(
        self, kind: Literal["pod", "podgroup"], obj: Obj, recorder: MetricsRecorder, remedies: bool
    ) -> Explanation:
        options = replace(self.options, recorder=recorder)
        return explain(
            self.snapshot,
            kind,
            obj,
            now=self.now,
            options=options,
            remedies=remedies,
            unread=self.unread,
            gates=self.gates,
        )
