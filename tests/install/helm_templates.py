"""The part of Helm's templates that `deploy/chart` uses, so that the chart is tested where there is no helm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"(\s*\{\{-|\{\{)\s*(.*?)\s*\}\}", re.S)
_WORD = re.compile(r'"[^"]*"|\S+')


def rendered(chart: Path, namespace: str, values: dict[str, Any]) -> str:
    """All manifests of a chart under its default values with `values` over them."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    scope = {
        "Values": _merged(yaml.safe_load((chart / "values.yaml").read_text()), values),
        "Release": {"Namespace": namespace, "Name": "haru"},
        "Chart": {"AppVersion": about["appVersion"]},
    }
    template = Template(chart, scope)
    return "\n---\n".join(template.render(file.read_text()) for file in sorted((chart / "templates").glob("*.yaml")))


def _merged(base: Any, over: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: _merged(base.get(key), value) for key, value in over.items()}}


class Template:
    """Renders texts in one scope."""

    def __init__(self, chart: Path, scope: dict[str, Any]) -> None:
        self._chart, self._scope = chart, scope

    def render(self, text: str) -> str:
        """The text with its actions carried out."""
        parts = list(_parts(text))
        output, rest = self._block(parts)
        assert not rest, f"an action too many: {rest[0]}"
        return output

    def _block(self, parts: list[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
        """What parts give up to an `else` or `end` of somebody else, and what is left from there."""
        output = ""
        while parts:
            kind, text = parts[0]
            if kind == "action" and text.partition(" ")[0] in ("else", "end"):
                break
            parts = parts[1:]
            if kind == "text":
                output += text
            elif text.startswith("if "):
                chosen, parts = self._branches(text.removeprefix("if "), parts)
                output += chosen
            else:
                value = self._pipeline(text)
                output += value if isinstance(value, str) else str(value)
        return output, parts

    def _branches(self, condition: str, parts: list[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
        """The branch that holds, and what is left behind the `end`."""
        chosen: str | None = None
        while True:
            output, parts = self._block(parts)
            if chosen is None and (not condition or self._pipeline(condition)):
                chosen = output
            (_, action), parts = parts[0], parts[1:]
            if action == "end":
                return chosen or "", parts
            condition = action.removeprefix("else").strip().removeprefix("if ")

    def _pipeline(self, text: str) -> Any:
        stages = [_WORD.findall(stage) for stage in text.split("|")]
        value = self._call(stages[0], [])
        for stage in stages[1:]:
            value = self._call(stage, [value])
        return value

    def _call(self, words: list[str], piped: list[Any]) -> Any:
        name, arguments = words[0], [self._value(word) for word in words[1:]] + piped
        if name == ".Files.Get":
            return (self._chart / arguments[0]).read_text()
        if name == "or":
            return next((value for value in arguments if value), arguments[-1])
        if name == "eq":
            return arguments[0] == arguments[1]
        if name == "toYaml":
            return yaml.safe_dump(arguments[0]).rstrip("\n")
        if name == "nindent":
            return "".join(f"\n{' ' * arguments[0]}{line}" for line in arguments[1].splitlines())
        if name == "default":
            return arguments[1] or arguments[0]
        if name == "replace":
            return arguments[2].replace(arguments[0], arguments[1])
        assert len(words) == 1, f"not known here: {' '.join(words)}"
        return self._value(name)

    def _value(self, word: str) -> Any:
        if word.startswith('"'):
            return word[1:-1]
        if word.isdigit():
            return int(word)
        value: Any = self._scope
        for name in word.lstrip(".").split("."):
            value = value[name]
        return value


def _parts(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for found in _ACTION.finditer(text):
        yield "text", text[at : found.start()]
        if not found[1].endswith("-"):
            yield "text", found[1][: -len("{{")]
        yield "action", found[2]
        at = found.end()
    yield "text", text[at:]
