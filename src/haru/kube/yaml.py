"""YAML as Kubernetes reads it: text that stands for JSON.

kubectl and the API server turn YAML into JSON with Go's YAML 1.1 library, so that is the dialect here: `yes`, `on` and
`y` are booleans, `0644` is octal, `1:30` and `2026-01-01` are strings, keys become strings. Stricter than they are:
a key that occurs twice is an error. Errors name the line. PyYAML's C parser does the work and is imported on first use.
Source: sigs.k8s.io/yaml, as behaviour.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from haru.kube.meta import Obj

_MAX_NODES = 1_000_000
_MOST_DIGITS = 400
"""Of an integer: no number is as long, and what takes the square of its digits to read stays short."""
# As Go's YAML: beyond a few, aliases may make up 99 % of a document, and less of a large one.
_FEW_ALIASES, _FEW_NODES = 100, 1000
_MANY_NODES = 400_000
_SHARE_OF_FEW, _SHARE_OF_MANY = 0.99, 0.80
_MAX_DEPTH = 1000
_TOO_DEEP = "yaml: exceeded max depth"
_LIBYAML_TOO_DEEP = "exceeded maximum nesting depth"
"""What PyYAML 6.0.4 and newer say at 1,000 levels."""
# Nesting needs brackets, or lines that begin far to the right.
_MAY_BE_DEEP = re.compile(r"^[ \t?:-]{400}", re.MULTILINE)
_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_BOOL = re.compile("^(?:" + "|".join(_BOOLEANS) + ")$")
_NULL = re.compile("^(?:~|null|Null|NULL|)$")
_INT = re.compile(r"^[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")
_SPECIAL_FLOAT = re.compile(r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
_MERGE = re.compile("^<<$")
_TAG = "tag:yaml.org,2002:"
_KIND_WORDS = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
_REPEATED = " already set in map"


NO_JSON = "error converting YAML to JSON: "
Repeated = tuple[int, str]
"""A key that its mapping had before: the line, and what is wrong."""


class YamlError(ValueError):
    """The text is no YAML that stands for JSON; the message names the line."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{NO_JSON}{problem}")


def load_all(text: str, repeated: list[Repeated] | None = None) -> list[Obj]:
    """Every object in a stream of documents; empty documents are passed over. YamlError names the line.

    Of several equal keys the last counts if there is a list to tell them in; otherwise they are an error.
    """
    documents = [document for document in _documents(text, repeated) if document is not None]
    for position, document in enumerate(documents, 1):
        if not isinstance(document, dict):
            raise YamlError(
                f"document {position} is {_KIND_WORDS.get(type(document), 'a value')}, not an object: "
                f"start it with apiVersion and kind"
            )
    return documents


def load(text: str, repeated: list[Repeated] | None = None, *, empty: Obj | None = None) -> Obj:
    """The one object in the text; `empty`: what a text stands for that has none."""
    documents = load_all(text, repeated)
    if not documents and empty is not None:
        return empty
    if len(documents) != 1:
        raise YamlError(f"found {len(documents)} documents where one is expected")
    return documents[0]


def dump(obj: Any) -> str:
    """YAML as kubectl prints it: block style, sorted keys, texts quoted when another reader might see more in them."""
    import yaml

    return str(yaml.dump(obj, Dumper=_dumper(), default_flow_style=False, sort_keys=True, width=10**9))


def dump_all(objects: list[Obj]) -> str:
    """Several objects as one stream of documents."""
    return "---\n".join(dump(obj) for obj in objects)


def _documents(text: str, repeated: list[Repeated] | None = None) -> list[Any]:
    if text.lstrip()[:1] == "{":
        try:
            return [json.loads(text, parse_float=_finite)]
        except RecursionError:
            raise YamlError(_TOO_DEEP) from None
        except ValueError:
            pass  # a flow mapping, or several documents: YAML after all
    import yaml

    check_depth(text)
    try:
        loader: Any = partial(_loader(), repeated=repeated)
        documents = list(yaml.load_all(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        raise YamlError(_TOO_DEEP if error.problem == _LIBYAML_TOO_DEEP else _problem(error)) from None
    except yaml.YAMLError as error:  # of the reader: it knows a character, and no line
        raise YamlError(f"yaml: {getattr(error, 'reason', error)}") from None
    except RecursionError:
        raise YamlError(_TOO_DEEP) from None
    if "*" in text and "&" in text:
        return [_Expansion().copy(document, ()) for document in documents]
    return documents


def check_depth(text: str) -> None:
    """YamlError for nesting so deep that PyYAML's C parser, which recurses, would end the process."""
    if text.count("[") + text.count("{") < _MAX_DEPTH and _MAY_BE_DEEP.search(text) is None:
        return
    import yaml

    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MAX_DEPTH:
                    raise YamlError(_TOO_DEEP)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        return  # composing stops at the same place and says what is wrong there


def _problem(error: Any) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}: " if mark is not None else ""
    head = "yaml: unmarshal errors:\n  " if str(error.problem).endswith(_REPEATED) else "yaml: "
    return f"{head}{where}{error.problem or error.context}"


class _Expansion:
    """Copies what anchors share, so that an object is a tree; bounded, as aliases of aliases grow without end."""

    def __init__(self) -> None:
        self.nodes = 0
        self.aliases = 0
        self.aliased = 0
        """Of the nodes, those that an alias repeats."""
        self._seen: set[int] = set()

    def copy(self, value: Any, above: tuple[int, ...], repeated: bool = False) -> Any:
        self.nodes += 1
        if isinstance(value, dict | list):
            if id(value) in above:
                raise YamlError("yaml: an anchor's value contains itself")
            if id(value) in self._seen:
                self.aliases += 1
                self.nodes += not repeated  # the alias itself is written out
                repeated = True
            self._seen.add(id(value))
        self.aliased += repeated
        if self._excessive():
            raise YamlError("yaml: document contains excessive aliasing")
        if not isinstance(value, dict | list):
            return value
        above = (*above, id(value))
        if isinstance(value, dict):
            return {key: self.copy(inner, above, repeated) for key, inner in value.items()}
        return [self.copy(inner, above, repeated) for inner in value]

    def _excessive(self) -> bool:
        if self.nodes > _MAX_NODES:
            return True
        if self.aliases <= _FEW_ALIASES or self.nodes <= _FEW_NODES:
            return False
        share = _SHARE_OF_FEW if self.nodes <= _MANY_NODES else _SHARE_OF_MANY
        return self.aliased > share * self.nodes


def _integer(text: str) -> int:
    plain = text.replace("_", "")
    sign = -1 if plain.startswith("-") else 1
    digits = plain.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def _of_64_bits(text: str) -> int | float | str:
    """An integer; a decimal one beyond 64 bits is a number as any other, what is no number then a text, as to Go."""
    value = _integer(text) if len(text) <= _MOST_DIGITS else math.inf
    if -(2**63) <= value < 2**64:
        return value
    plain = text.replace("_", "")
    wide = float(plain) if plain.lstrip("+-").isdigit() else math.inf
    return wide if math.isfinite(wide) else text


def _number(value: float) -> int | float:
    """JSON has one kind of number: a whole float is written without a fraction."""
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def _key(value: Any) -> str:
    """What a key is called in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _implicit() -> list[tuple[str, re.Pattern[str], list[str]]]:
    """(tag, form, first characters) of the plain scalars that are not strings."""
    digits = list("-+0123456789.")
    return [
        (_TAG + "bool", _BOOL, list("yYnNtTfFoO")),
        (_TAG + "int", _INT, digits),
        (_TAG + "float", _FLOAT, digits),
        (_TAG + "float", _SPECIAL_FLOAT, digits),
        (_TAG + "null", _NULL, ["~", "n", "N", ""]),
        (_TAG + "merge", _MERGE, ["<"]),
    ]


@cache
def _loader() -> Any:
    import yaml
    from yaml.constructor import ConstructorError

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}

        def __init__(self, stream: str, repeated: list[Repeated] | None) -> None:
            super().__init__(stream)
            self.repeated = repeated

        def construct_mapping(self, node: Any, deep: bool = False) -> Obj:
            self.flatten_mapping(node)
            mapping: Obj = {}
            merged = getattr(node, "merged", 0)
            own: set[str] = set()
            for position, (key_node, value_node) in enumerate(node.value):
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str | int | float):
                    raise ConstructorError(None, None, "a key must be a string or a number", key_node.start_mark)
                name = _key(key)
                if name in own:
                    self.tell_repeated(f'key "{name}"{_REPEATED}', key_node.start_mark)
                if position >= merged:
                    own.add(name)
                mapping[name] = self.construct_object(value_node, deep=deep)
            return mapping

        def tell_repeated(self, problem: str, mark: Any) -> None:
            if self.repeated is None:
                raise ConstructorError(None, None, problem, mark)
            self.repeated.append((mark.line + 1, problem))

        def flatten_mapping(self, node: Any) -> None:
            """Resolve `<<`; what it brings comes first and may be overridden."""
            own = [pair for pair in node.value if pair[0].tag != _TAG + "merge"]
            if len(own) == len(node.value):
                return
            super().flatten_mapping(node)
            node.merged = len(node.value) - len(own)

    def scalar(make: Callable[[str], Any]) -> Callable[[Any, Any], Any]:
        def made(loader: Any, node: Any) -> Any:
            text = str(loader.construct_scalar(node))
            try:
                return make(text)
            except (ValueError, KeyError):  # a tag that says what the text is not
                what = f"cannot decode !!str `{text}` as a !!{node.tag.removeprefix(_TAG)}"
                raise ConstructorError(None, None, what, node.start_mark) from None

        return made

    def floating(loader: Any, node: Any) -> Any:
        text = str(loader.construct_scalar(node))
        if _SPECIAL_FLOAT.match(text):
            raise ConstructorError(None, None, f"{text} has no form in JSON", node.start_mark)
        return read_float(loader, node)

    # What is too large for a number is a text, as to Go.
    read_float = scalar(lambda text: _number(value) if math.isfinite(value := float(text)) else text)
    for tag, form, first in _implicit():
        Loader.add_implicit_resolver(tag, form, first)
    Loader.add_constructor(_TAG + "bool", scalar(lambda text: _BOOLEANS[text]))
    Loader.add_constructor(_TAG + "int", scalar(_of_64_bits))
    Loader.add_constructor(_TAG + "float", floating)
    Loader.add_constructor(_TAG + "timestamp", scalar(str))
    return Loader


@cache
def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar(_TAG + "str", value, style="|" if "\n" in value.strip("\n") else None)

    for tag, form, first in _implicit():  # beside PyYAML's own: quoted if either dialect sees more than a text
        if tag != _TAG + "merge":
            Dumper.add_implicit_resolver(tag, form, first)
    Dumper.add_representer(str, text)
    return Dumper
