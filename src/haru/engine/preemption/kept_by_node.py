"""Keep what is worked out of nodes for a class of members until the node changes.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from haru.engine.preemption.node_occupancy import NodeOccupancies
from haru.engine.state.snapshot import Snapshot

_TOPIC = "kept by node"
_MAX_QUESTIONS = 128


class KeptByNode:
    """Keep the answers of nodes to some questions.

    They hold the pods that were on the node: once it changes they go, also those that nobody asks for again.
    """

    def __init__(self) -> None:
        self._by_question: dict[Hashable, dict[str, Any]] = {}
        self._position = 0

    @staticmethod
    def of(base: Snapshot, occupancies: NodeOccupancies, question: Hashable) -> dict[str, Any]:
        """Return the answers by node; the caller adds to them."""
        kept = base.decision_cache.get_or_compute(_TOPIC, occupancies, KeptByNode)
        kept._catch_up(occupancies)
        found = kept._by_question.pop(question, None)
        if found is None:
            found = {}
            if len(kept._by_question) >= _MAX_QUESTIONS:
                del kept._by_question[next(iter(kept._by_question))]
        kept._by_question[question] = found
        return found

    def _catch_up(self, occupancies: NodeOccupancies) -> None:
        changed = occupancies.changes.since(self._position)
        self._position = occupancies.changes.position
        if changed is None:
            self._by_question.clear()
            return
        for answers in self._by_question.values() if changed else ():
            for name in changed & answers.keys():
                del answers[name]
