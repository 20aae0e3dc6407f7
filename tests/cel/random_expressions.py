"""Random expressions over the common language, mostly well typed; what they speak of is bound at random too."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

KINDS = ("int", "uint", "double", "string", "bytes", "bool", "duration", "timestamp", "list", "map", "dyn")
INTS = ("0", "1", "2", "-1", "7", "42", "-9223372036854775808", "9223372036854775807", "1000000007", "0x1F")
UINTS = ("0u", "1u", "2u", "18446744073709551615u", "9223372036854775808u", "0x10u")
DOUBLES = ("0.0", "-0.0", "1.0", "1.5", "-2.25", "1e300", "1e-320", "0.1", "9223372036854775807.0", "1e19", "2.0e2")
STRINGS = (
    "''", "'a'", "'abc'", '"b\\"c"', "'é'", "'\\u00e9\\n'", "r'\\d'", "'😀x'", "'1'", "'-7'", "'1.5'", "'true'",
    "'NaN'", "'''a'b'''", "'18446744073709551615'", "'9223372036854775808'", "'-9223372036854775808'", "'1h'",
    "'2020-01-01T00:00:00Z'", "'a,b,,c'", "'Straße'",
)  # fmt: skip
BYTES = ("b''", "b'a'", "b'abc'", "b'é'", "b'\\xff'", "b'\\x00'")
DURATIONS = (
    "'0s'",
    "'1s'",
    "'-1.5s'",
    "'1h30m'",
    "'100ms'",
    "'9223372036s'",
    "'-9223372036s'",
    "'86399s'",
    "'2h45m30s'",
)
TIMESTAMPS = (
    "'1970-01-01T00:00:00Z'", "'2020-02-29T23:59:59.5Z'", "'2023-12-31T12:00:00+05:30'", "'0001-01-01T00:00:00Z'",
    "'9999-12-31T23:59:59Z'", "'1969-12-31T23:59:59Z'", "'1999-01-01T01:02:03.004Z'",
)  # fmt: skip
WHOLE_SECONDS = tuple(moment for moment in TIMESTAMPS if "." not in moment)
ZONES = ("'UTC'", "'+05:30'", "'-08:00'", "'Europe/Berlin'", "'America/St_Johns'")
PATTERNS = ("'a'", "'^a.*c$'", "'[0-9]+'", "'(a|b)*'", "'\\\\d'", "'é'", "'^$'", "'(?i)ABC'", "'x{2,3}'")
PARTS = (
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
)
PARTS += ("getSeconds", "getMilliseconds")
COMPARED = ("==", "!=", "<", "<=", ">", ">=")
VARIABLES = ("a", "b")
TYPES = ("int", "string", "list", "map", "double", "type")
FIELDS = ("x", "y", "name")


class Maker:
    """Makes expressions by kind, with the variables of the macros around. `exact`: never one of another kind."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._scope: list[tuple[str, str]] = []
        self._names = count()
        self._exact = False

    def make(self, kind: str, depth: int) -> str:
        """An expression that has this kind unless something in it fails; seldom one of any kind in its place."""
        rng = self._rng
        if depth <= 0:
            return self._leaf(kind)
        chance = rng.random()
        if chance < 0.03 and not self._exact:
            return f"dyn({self.make(rng.choice(KINDS), depth - 1)})"
        if chance < 0.10:
            test, yes, no = self.make("bool", depth - 1), self.make(kind, depth - 1), self.make(kind, depth - 1)
            return f"({test} ? {yes} : {no})"
        if chance < 0.14:
            return self._bind(kind, depth)
        if chance < 0.22:
            return self._element(kind, depth)
        if chance < 0.30:
            return self._leaf(kind)
        made: str = getattr(self, f"_{kind}")(depth - 1)
        return made

    def _of(self, kind: str, depth: int) -> str:
        """An expression of this kind or none at all."""
        before, self._exact = self._exact, True
        made = self.make(kind, depth)
        self._exact = before
        return made

    def _name(self) -> str:
        """A name for a variable of a macro, used nowhere else."""
        return f"v{next(self._names)}"

    def _pick(self, *choices: str) -> str:
        return self._rng.choice(choices)

    def _joined(self, left: str, operator: str, right: str) -> str:
        """Two operands, mostly in brackets: without, precedence decides."""
        text = f"{left} {operator} {right}"
        return f"({text})" if self._rng.random() < 0.7 else text

    def _leaf(self, kind: str) -> str:
        named = [name for name, of in self._scope if of == kind]
        if named and self._rng.random() < 0.5:
            return self._rng.choice(named)
        literals = {"int": INTS, "uint": UINTS, "double": DOUBLES, "string": STRINGS, "bytes": BYTES}
        if kind in literals:
            return self._rng.choice(literals[kind])
        if kind == "bool":
            return self._pick("true", "false")
        if kind == "duration":
            return f"duration({self._rng.choice(DURATIONS)})"
        if kind == "timestamp":
            return f"timestamp({self._rng.choice(TIMESTAMPS)})"
        if kind == "list":
            return self._pick("[1, 2, 3]", "[0]", "[3, 1, 2, 1]", "[7].filter(e, false)")
        if kind == "map":
            return self._pick("{}", "{'x': 1}", "{'x': 1, 'y': 2}", "{'name': 7}")
        return self._rng.choice(
            (*VARIABLES, "null", "dyn(1)", "dyn('a')", "a.x", "b.name", "a[0]", "b['x']", "dyn(2u)")
        )

    def _bind(self, kind: str, depth: int) -> str:
        of, name = self._rng.choice(KINDS), self._name()
        bound = self.make(of, depth - 1)
        self._scope.append((name, of))
        body = self.make(kind, depth - 1)
        self._scope.pop()
        return f"cel.bind({name}, {bound}, {body})"

    def _element(self, kind: str, depth: int) -> str:
        """Something out of a literal list or map."""
        rng = self._rng
        one, other = self.make(kind, depth - 1), self.make(kind, depth - 1)
        index = self._pick("0", "1", "2", "-1", "1u", "dyn(0.0)", self.make("int", depth - 2))
        key = self._pick("'x'", "'y'", self.make("string", depth - 2))
        form = rng.randrange(6)
        if form == 0:
            return f"[{one}, {other}][{index}]"
        if form == 1:
            return f"{{'x': {one}, 'y': {other}}}[{key}]"
        if form == 2:
            return f"{{'x': {one}}}.{self._pick('x', 'y')}"
        if form == 3:
            return f"[{one}][?{self._pick('0', '1', '2', '-1')}].orValue({other})"
        if form == 4:
            return f"{{'x': {one}}}.?{self._pick('x', 'y')}.orValue({other})"
        return f"{{1: {one}, 2: {other}}}[{self._pick('1', '2', '3', '1u', 'dyn(2.0)', 'dyn(1.5)')}]"

    def _list_with(self, depth: int) -> tuple[str, str]:
        """A list, and the kind of its elements."""
        kind = self._rng.choice(("int", "int", "string", "uint", "double", "bool", "dyn"))
        if kind == "int" and self._rng.random() < 0.5:
            return self.make("list", depth), "int"
        parts = ", ".join(self.make(kind, depth - 1) for _ in range(self._rng.randint(1, 3)))
        return f"[{parts}]", kind

    def _macro(self, depth: int, body: str, *names: str) -> str:
        """A macro over a list or the keys of a map."""
        over, kind = (self.make("map", depth), "string") if self._rng.random() < 0.25 else self._list_with(depth)
        name = self._name()
        self._scope.append((name, kind))
        inner = self.make(body, depth)
        self._scope.pop()
        return f"{over}.{self._rng.choice(names)}({name}, {inner})"

    def _int(self, depth: int) -> str:
        make = self.make
        form = self._rng.randrange(12)
        if form < 4:
            return self._joined(make("int", depth), self._pick("+", "-", "*", "/", "%"), make("int", depth))
        if form == 4:
            return f"-({make('int', depth)})"
        if form == 5:
            return f"size({make(self._pick('string', 'bytes', 'list', 'map'), depth)})"
        if form == 6:
            return f"int({make(self._pick('uint', 'double', 'string', 'timestamp', 'int'), depth)})"
        if form == 7:
            zone = self._rng.choice((*ZONES, "", ""))
            return f"{make('timestamp', depth)}.{self._rng.choice(PARTS)}({zone})"
        if form == 8:
            return f"{make('duration', depth)}.{self._pick('getHours', 'getMinutes', 'getSeconds')}()"
        if form == 9:
            return f"{make('string', depth)}.{self._pick('indexOf', 'lastIndexOf')}({make('string', depth)})"
        if form == 10:
            return f"{make(self._pick('string', 'list', 'map'), depth)}.size()"
        return f"{make('list', depth)}[{make('int', depth)}]"

    def _uint(self, depth: int) -> str:
        if self._rng.random() < 0.6:
            return f"({self.make('uint', depth)} {self._pick('+', '-', '*', '/', '%')} {self.make('uint', depth)})"
        return f"uint({self.make(self._pick('int', 'double', 'string', 'uint'), depth)})"

    def _double(self, depth: int) -> str:
        chance = self._rng.random()
        if chance < 0.6:
            return f"({self.make('double', depth)} {self._pick('+', '-', '*', '/')} {self.make('double', depth)})"
        if chance < 0.7:
            return f"-({self.make('double', depth)})"
        return f"double({self.make(self._pick('int', 'uint', 'string', 'double'), depth)})"

    def _string(self, depth: int) -> str:
        make, text, rng = self.make, self.make("string", depth), self._rng
        form = rng.randrange(12)
        if form < 3:
            return f"({text} + {make('string', depth)})"
        if form < 5:
            if rng.random() < 0.1:
                return self._pick(f"string(timestamp({rng.choice(WHOLE_SECONDS)}))", f"string({rng.choice(DOUBLES)})")
            return f"string({self._of(self._pick('int', 'uint', 'bytes', 'bool', 'string'), depth)})"
        if form == 5:
            return f"{text}.{self._pick('lowerAscii', 'upperAscii', 'trim')}()"
        if form == 6:
            return f"{text}.charAt({make('int', depth)})"
        if form == 7:
            return f"{text}.substring({make('int', depth)})"
        if form == 8:
            return f"{text}.replace({make('string', depth)}, {make('string', depth)})"
        if form == 9:
            return f"{text}.split({make('string', depth)}).join({self._pick('', make('string', depth))})"
        if form == 10:
            return f"{text}.reverse()"
        verb, kind = rng.choice((("%s", "string"), ("%d", "int"), ("%s", "bool"), ("%x", "int"), ("%b", "uint")))
        return f"'<{verb}>'.format([{self._of(kind, depth)}])"

    def _bytes(self, depth: int) -> str:
        if self._rng.random() < 0.6:
            return f"({self.make('bytes', depth)} + {self.make('bytes', depth)})"
        return f"bytes({self.make('string', depth)})"

    def _bool(self, depth: int) -> str:
        make, rng = self.make, self._rng
        form = rng.randrange(14)
        if form < 3:
            kind = rng.choice(KINDS)
            return self._joined(make(kind, depth), self._pick("==", "!="), make(kind, depth))
        if form < 5:
            kind = rng.choice(KINDS[:8])
            return f"({make(kind, depth)} {rng.choice(COMPARED)} {make(kind, depth)})"
        if form == 5:
            numbers = ("int", "uint", "double")
            left, right = make(rng.choice(numbers), depth), make(rng.choice(numbers), depth)
            return f"(dyn({left}) {rng.choice(COMPARED)} dyn({right}))"
        if form < 8:
            return self._joined(make("bool", depth), self._pick("&&", "||"), make("bool", depth))
        if form == 8:
            return f"!({make('bool', depth)})"
        if form == 9:
            return f"({make('int', depth)} in {make('list', depth)})"
        if form == 10:
            return f"({make('string', depth)} in {make('map', depth)})"
        if form == 11:
            name = self._pick("contains", "startsWith", "endsWith")
            if rng.random() < 0.3:
                return f"{make('string', depth)}.matches({rng.choice(PATTERNS)})"
            return f"{make('string', depth)}.{name}({make('string', depth)})"
        if form == 12:
            return self._macro(depth, "bool", "all", "exists", "exists_one")
        return self._pick(
            f"has({rng.choice((*VARIABLES, make('map', depth)))}.{rng.choice(FIELDS)})",
            f"(type({make(rng.choice(KINDS), depth)}) == {rng.choice(TYPES)})",
            f"{make('map', depth)}[?{make('string', depth)}].hasValue()",
            f"bool({make('string', depth)})",
        )

    def _duration(self, depth: int) -> str:
        return self._pick(
            f"({self.make('duration', depth)} {self._pick('+', '-')} {self.make('duration', depth)})",
            f"({self.make('timestamp', depth)} - {self.make('timestamp', depth)})",
            f"duration(string({self.make('string', depth)}))",
        )

    def _timestamp(self, depth: int) -> str:
        return self._pick(
            f"({self.make('timestamp', depth)} {self._pick('+', '-')} {self.make('duration', depth)})",
            f"timestamp({self._pick('string', 'int')}({self.make('string', depth)}))",
        )

    def _list(self, depth: int) -> str:
        form = self._rng.randrange(5)
        if form == 0:
            return f"({self.make('list', depth)} + {self.make('list', depth)})"
        if form == 1:
            return f"[{', '.join(self.make('int', depth) for _ in range(self._rng.randint(1, 3)))}]"
        if form == 2:
            return f"[{self.make('int', depth)}, ?{self._pick('optional.none()', 'optional.of(5)')}]"
        name = self._name()
        over = self.make("list", depth)
        self._scope.append((name, "int"))
        test, value = self.make("bool", depth), self.make("int", depth)
        self._scope.pop()
        macro = self._pick(f"map({name}, {value})", f"map({name}, {test}, {value})", f"filter({name}, {test})")
        return f"{over}.{macro}"

    def _map(self, depth: int) -> str:
        if self._rng.random() < 0.7:
            keys = self._rng.sample(("'x'", "'y'", "'name'", self.make("string", depth)), self._rng.randrange(4))
            return "{" + ", ".join(f"{key}: {self.make('int', depth)}" for key in keys) + "}"
        return self.make("map", depth)

    def _dyn(self, depth: int) -> str:
        return f"dyn({self.make(self._rng.choice(KINDS[:-1]), depth)})"


PIECES = (
    *"()[]{}.,:?!+-*/%<>=&|'\"\\ \n1u", "==", "&&", "0x", "1e3", ".5", "5.", "r'", "b'", "//", "in", "true", "null",
    "has(", "[?", ".?", "-1", "for", "`a`", "@", "\\u00e9", "\\x41", "'''", "_x", "é", "9223372036854775808", "1.0.0",
)  # fmt: skip


def garbled(rng: Random, text: str) -> str:
    """The text with a few pieces put in, dropped or doubled: mostly no expression any more."""
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randrange(len(text) + 1), rng.choice((0, 0, 1, 1, 3))
        put = rng.choice(("", rng.choice(PIECES), rng.choice(PIECES), text[at : at + rng.randint(1, 4)]))
        text = text[:at] + put + text[at + size :]
    return text


def expression(rng: Random) -> str:
    """One expression of any kind."""
    return Maker(rng).make(rng.choice(KINDS), rng.choice((1, 2, 2, 3, 3, 4)))


def value(rng: Random, depth: int = 2) -> Any:
    """Something that a variable can be bound to, as JSON has it."""
    kind = rng.random()
    if depth and kind < 0.3:
        return {name: value(rng, depth - 1) for name in rng.sample(FIELDS, rng.randrange(4))}
    if depth and kind < 0.5:
        return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return rng.choice((None, True, False, 0, 1, -1, 2**62, 1.5, "", "a", "é"))
