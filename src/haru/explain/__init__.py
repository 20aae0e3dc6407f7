"""From a snapshot to an answer: does it run, why not, and what would help; every remedy confirmed by re-solving."""

from haru.explain.explanation import Explanation, Funnel, NodeGroup, Remedy, Verdict
from haru.explain.output import to_json
from haru.explain.subject import explain
from haru.explain.text import to_text

__all__ = ["Explanation", "Funnel", "NodeGroup", "Remedy", "Verdict", "explain", "to_json", "to_text"]
