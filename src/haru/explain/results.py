"""Return explanations as Python programs get them: the data, its text, its JSON and its HTML."""

from __future__ import annotations

from dataclasses import dataclass

from haru.explain.explanation import ExplanationData
from haru.explain.render.columns import Block
from haru.explain.render.html import story_html, to_html
from haru.explain.render.json import to_json
from haru.explain.render.short import device_short, node_short, to_short
from haru.explain.render.story_json import device_json, node_json
from haru.explain.render.story_text import device_text, node_blocks, node_text
from haru.explain.render.text import to_blocks, to_text
from haru.explain.stories.values import DeviceStoryData, NodeStoryData
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class Explanation(ExplanationData):
    """Why an object is as it is, and what would help; `ExplanationData` explains the fields."""

    def as_dict(self) -> Obj:
        """The Explanation object of haru.dev/v1alpha1, as `haru explain -o json` prints it."""
        return to_json(self)

    def __str__(self) -> str:
        return to_text(self).rstrip()

    def blocks(self) -> list[Block]:
        """The whole text as lines and tables."""
        return list(to_blocks(self))

    def short(self, command: str = "") -> str:
        """The five lines that `haru explain` prints; `command` is the one that asked, without `--wide`."""
        return to_short(self, command).rstrip()

    def html(self) -> str:
        """The answer as tables, as a notebook shows it and `-o html` prints it."""
        return to_html(self)

    def _repr_html_(self) -> str:
        return self.html()


@dataclass(frozen=True, slots=True)
class NodeStory(NodeStoryData):
    """A node: what it has, who uses it, and why what waits does not; `NodeStoryData` explains the fields."""

    def as_dict(self) -> Obj:
        """The NodeExplanation object of haru.dev/v1alpha1, as `haru explain node/NAME -o json` prints it."""
        return node_json(self)

    def __str__(self) -> str:
        return node_text(self)

    def blocks(self) -> list[Block]:
        """The whole text as lines and tables."""
        return list(node_blocks(self))

    def short(self, command: str = "") -> str:
        """The five lines that `haru explain` prints; `command` is the one that asked, without `--wide`."""
        return node_short(self, command).rstrip()

    def html(self) -> str:
        """The answer as tables, as a notebook shows it and `-o html` prints it."""
        return story_html(f"Node {self.name}: {self.state}: {self.summary}", self.reasons, self.waiting, str(self))

    def _repr_html_(self) -> str:
        return self.html()


@dataclass(frozen=True, slots=True)
class DeviceStory(DeviceStoryData):
    """A device: who holds it, what blocks it, and what it blocks; `DeviceStoryData` explains the fields."""

    def as_dict(self) -> Obj:
        """The DeviceExplanation object of haru.dev/v1alpha1, as `haru explain device/NODE/DEVICE -o json` prints it."""
        return device_json(self)

    def __str__(self) -> str:
        return device_text(self)

    def blocks(self) -> list[Block]:
        """The whole text as lines."""
        return list(device_text(self).split("\n"))

    def short(self, command: str = "") -> str:
        """The five lines that `haru explain` prints; `command` is the one that asked, without `--wide`."""
        return device_short(self, command).rstrip()

    def html(self) -> str:
        """The answer as tables, as a notebook shows it and `-o html` prints it."""
        title = f"Device {self.state.path}: {self.state.status}: {self.summary}"
        return story_html(title, self.reasons, self.waiting, str(self))

    def _repr_html_(self) -> str:
        return self.html()
