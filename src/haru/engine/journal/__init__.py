"""What decisions are made from and what they were, as JSON values: written by a scheduler, replayed by anybody.

A journal is a list of entries: every change that a `Cluster` was told of, and every decision with its options. Who
applies the changes in order has the very snapshots that the decisions were made on.
"""

from haru.engine.journal.entries import decided_entry, entry_kinds
from haru.engine.journal.recorded import RecordedCluster
from haru.engine.journal.replay import JournalError, Replay, Replayed
from haru.engine.journal.values import decision_value

__all__ = [
    "JournalError",
    "RecordedCluster",
    "Replay",
    "Replayed",
    "decided_entry",
    "decision_value",
    "entry_kinds",
]
