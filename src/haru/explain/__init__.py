"""From a snapshot to an answer: does it run, why not, and what would help; every remedy confirmed by re-solving."""

from haru.explain.device_story import explain_device
from haru.explain.explanation import Explanation, Funnel, NodeGroup, Remedy, Verdict
from haru.explain.node_story import explain_node
from haru.explain.output import to_json
from haru.explain.stories import DeviceStory, NodeStory
from haru.explain.subject import explain
from haru.explain.text import to_text

__all__ = [
    "DeviceStory",
    "Explanation",
    "Funnel",
    "NodeGroup",
    "NodeStory",
    "Remedy",
    "Verdict",
    "explain",
    "explain_device",
    "explain_node",
    "to_json",
    "to_text",
]
