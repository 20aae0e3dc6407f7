"""Tokens to a syntax tree: precedence climbing over the operators, macros expanded as soon as their call is read.

Chains of `&&` and of `||` become balanced trees, as in cel-go: their depth, and with it every later recursion, stays
logarithmic. All other nesting is limited, because the stages after this one recurse.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf

from haru.cel.ast import (
    Call,
    Entry,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    qualified_name,
)
from haru.cel.errors import CompileError, Issue, Source, compile_error
from haru.cel.lexer import LexError, Token, tokenize
from haru.cel.macros import Macro, MacroError
from haru.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

MAX_DEPTH = 80
"""How deep brackets, calls and operators may nest. (cel-go: 250; real selectors: below 20.)"""
MAX_LENGTH = 100_000

MAX_TREE_DEPTH = 150
"""How deep the tree may become: chains of one operator grow it without any nesting of brackets."""

_OPERATORS: Mapping[str, tuple[int, str]] = {
    "||": (1, "_||_"),
    "&&": (2, "_&&_"),
    "<": (3, "_<_"),
    "<=": (3, "_<=_"),
    ">": (3, "_>_"),
    ">=": (3, "_>=_"),
    "==": (3, "_==_"),
    "!=": (3, "_!=_"),
    "in": (3, "@in"),
    "+": (4, "_+_"),
    "-": (4, "_-_"),
    "*": (5, "_*_"),
    "/": (5, "_/_"),
    "%": (5, "_%_"),
}
"""Binary operators: how strongly they bind, and the functions they stand for."""
_NO_OPERATOR = (0, "")

RESERVED: frozenset[str] = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"),
        *("namespace", "return", "var", "void", "while"),
    )
)
_STARTS: frozenset[str] = frozenset(
    (*"[{(.-!", "true", "false", "null", "float", "int", "uint", "string", "bytes", "ident")
)
_EXPECTING = (
    "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
    "IDENTIFIER}"
)


class SyntaxFault(Exception):
    """Parsing cannot go on."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.issue = Issue(offset, message)


def parse(
    source: Source,
    macros: Mapping[tuple[str, int, bool], Macro],
    *,
    optionals: bool = True,
    quoted_fields: bool = False,
) -> Node:
    """The tree of an expression. Raises CompileError."""
    if len(source.text) > MAX_LENGTH:
        raise CompileError(f"expression code point size exceeds limit: size: {len(source.text)}, limit {MAX_LENGTH}")
    try:
        node = _Parser(tokenize(source.text), macros, optionals, quoted_fields).parse()
        _check_depth(node)
        return node
    except (LexError, SyntaxFault) as error:
        raise compile_error(source, [error.issue]) from None
    except MacroError as error:
        raise compile_error(source, [Issue(error.offset, str(error))]) from None


class _Parser:
    def __init__(
        self,
        tokens: list[Token],
        macros: Mapping[tuple[str, int, bool], Macro],
        optionals: bool,
        quoted_fields: bool,
    ) -> None:
        self.tokens = tokens
        self.position = 0
        self.macros = macros
        self.optionals = optionals
        self.quoted_fields = quoted_fields
        self.depth = 0

    # Tokens

    def peek(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def accept(self, kind: str) -> Token | None:
        return self.take() if self.tokens[self.position].kind == kind else None

    def expect(self, kind: str) -> Token:
        token = self.peek()
        if token.kind != kind:
            raise SyntaxFault(token.offset, f"Syntax error: missing '{kind}' at '{token.text}'")
        return self.take()

    def unexpected(self, token: Token) -> SyntaxFault:
        following = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        what = "extraneous" if token.kind != "eof" and following.kind in _STARTS else "mismatched"
        return SyntaxFault(token.offset, f"Syntax error: {what} input '{token.text}' {_EXPECTING}")

    def deepen(self, offset: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SyntaxFault(offset, f"expression recursion limit exceeded: {MAX_DEPTH}")

    # Operators

    def parse(self) -> Node:
        node = self.expression()
        token = self.peek()
        if token.kind != "eof":
            what = "extraneous" if self.tokens[self.position + 1].kind == "eof" else "mismatched"
            raise SyntaxFault(token.offset, f"Syntax error: {what} input '{token.text}' expecting <EOF>")
        return node

    def expression(self) -> Node:
        self.deepen(self.peek().offset)
        node = self.binary(1)
        mark = self.accept("?")
        if mark is not None:
            truthy = self.binary(1)
            self.expect(":")
            node = Call(mark.offset, "_?_:_", [node, truthy, self.expression()])
        self.depth -= 1
        return node

    def binary(self, weakest: int) -> Node:
        node = self.unary()
        while True:
            strength, function = _OPERATORS.get(self.peek().kind, _NO_OPERATOR)
            if strength == 0 or strength < weakest:
                return node
            if strength <= 2:
                node = self.chain(node, strength, function)
            else:
                node = Call(self.take().offset, function, [node, self.binary(strength + 1)])

    def chain(self, first: Node, strength: int, function: str) -> Node:
        kind = self.peek().kind
        terms, marks = [first], []
        while (mark := self.accept(kind)) is not None:
            marks.append(mark.offset)
            terms.append(self.binary(strength + 1))
        return _balanced(function, terms, marks, 0, len(marks))

    def unary(self) -> Node:
        token = self.peek()
        if token.kind == "!":
            negations = 0
            while self.accept("!") is not None:
                negations += 1
            operand = self.member(self.primary())
            return operand if negations % 2 == 0 else Call(token.offset, "!_", [operand])
        if token.kind == "-" and self.tokens[self.position + 1].kind not in ("int", "float"):
            negations = 0
            while self.accept("-") is not None:  # of several signs none belongs to the number
                negations += 1
            operand = self.member(self.primary())
            return operand if negations % 2 == 0 else Call(token.offset, "-_", [operand])
        return self.member(self.primary())

    # Members

    def member(self, node: Node) -> Node:
        while True:
            token = self.peek()
            if token.kind == ".":
                self.take()
                node = self.selection(node, token)
            elif token.kind == "[":
                self.take()
                node = self.index(node, token)
            elif token.kind == "{" and (name := qualified_name(node)) is not None:
                node = self.message(name, self.take())
            else:
                return node

    def selection(self, operand: Node, dot: Token) -> Node:
        mark = self.accept("?")
        name = self.take()
        field = name.text
        if name.kind != "ident" and not (name.kind == "quoted" and self.quoted_fields):
            raise SyntaxFault(name.offset, f"Syntax error: no viable alternative at input '.{name.text}'")
        if mark is not None:
            self.require_optionals(mark)
            return Call(dot.offset, "_?._", [operand, Literal(name.offset, field)])
        opening = self.accept("(") if name.kind != "quoted" else None
        if opening is None:
            return Select(dot.offset, operand, field)
        args = self.arguments(")")
        macro = self.macros.get((field, len(args), True))
        if macro is not None:
            expanded = macro(opening.offset, operand, args)
            if expanded is not None:
                return expanded
        return Call(opening.offset, field, args, operand)

    def index(self, operand: Node, bracket: Token) -> Node:
        mark = self.accept("?")
        key = self.expression()
        self.expect("]")
        if mark is not None:
            self.require_optionals(mark)
            return Call(bracket.offset, "_[?_]", [operand, key])
        return Call(bracket.offset, "_[_]", [operand, key])

    def require_optionals(self, mark: Token) -> None:
        if not self.optionals:
            raise SyntaxFault(mark.offset, "unsupported syntax '?'")

    def arguments(self, closing: str) -> list[Node]:
        if self.accept(closing) is not None:
            return []
        args = [self.expression()]
        while self.accept(",") is not None:
            args.append(self.expression())
        self.expect(closing)
        return args

    def lone_comma(self, closing: str) -> None:
        """Literals may end in a comma, and that may be all there is in them: `[,]` is the empty list."""
        if self.peek().kind == "," and self.tokens[self.position + 1].kind == closing:
            self.take()

    def message(self, name: str, brace: Token) -> Node:
        self.lone_comma("}")
        entries: list[Entry] = []
        while self.peek().kind != "}":
            mark = self.accept("?")
            if mark is not None:
                self.require_optionals(mark)
            field = self.take()
            if field.kind not in ("ident", "quoted"):
                raise SyntaxFault(field.offset, f"Syntax error: mismatched input '{field.text}' expecting IDENTIFIER")
            colon = self.expect(":")
            key = Literal(field.offset, field.text)
            entries.append(Entry(colon.offset, key, self.expression(), mark is not None))
            if self.accept(",") is None:
                break
        self.expect("}")
        return StructLiteral(brace.offset, name, entries)

    # Primaries

    def primary(self) -> Node:
        token = self.peek()
        kind = token.kind
        if kind == "ident" or kind == ".":
            return self.name()
        if kind == "(":
            self.take()
            node = self.expression()
            self.expect(")")
            return node
        if kind == "[":
            return self.list_literal()
        if kind == "{":
            return self.map_literal()
        literal = self.literal()
        if literal is None:
            raise self.unexpected(token)
        return literal

    def name(self) -> Node:
        dot = self.accept(".")
        token = self.peek()
        if token.kind != "ident":
            raise self.unexpected(token)
        self.take()
        if token.text in RESERVED:
            raise SyntaxFault(token.offset, f"reserved identifier: {token.text}")
        name = "." + token.text if dot is not None else token.text
        opening = self.accept("(")
        if opening is None:
            return Ident(token.offset, name)
        args = self.arguments(")")
        macro = self.macros.get((name, len(args), False))
        if macro is not None:
            expanded = macro(opening.offset, None, args)
            if expanded is not None:
                return expanded
        return Call(opening.offset, name, args)

    def list_literal(self) -> Node:
        bracket = self.take()
        self.lone_comma("]")
        elements: list[Node] = []
        optional: set[int] = set()
        while self.peek().kind != "]":
            mark = self.accept("?")
            if mark is not None:
                self.require_optionals(mark)
                optional.add(len(elements))
            elements.append(self.expression())
            if self.accept(",") is None:
                break
        self.expect("]")
        return ListLiteral(bracket.offset, elements, frozenset(optional))

    def map_literal(self) -> Node:
        brace = self.take()
        self.lone_comma("}")
        entries: list[Entry] = []
        while self.peek().kind != "}":
            mark = self.accept("?")
            if mark is not None:
                self.require_optionals(mark)
            key = self.expression()
            colon = self.expect(":")
            entries.append(Entry(colon.offset, key, self.expression(), mark is not None))
            if self.accept(",") is None:
                break
        self.expect("}")
        return MapLiteral(brace.offset, entries)

    def literal(self) -> Node | None:
        token = self.peek()
        if token.kind == "-":
            number = self.tokens[self.position + 1]
            if number.kind == "int":
                self.position += 2
                return _int_literal(token.offset, -number.value)
            if number.kind == "float":
                self.position += 2
                return _double_literal(token.offset, -number.value)
            return None
        if token.kind == "int":
            self.take()
            return _int_literal(token.offset, token.value)
        if token.kind == "uint":
            self.take()
            if token.value > UINT_MAX:
                raise SyntaxFault(token.offset, "invalid uint literal")
            return Literal(token.offset, Uint(token.value))
        if token.kind == "float":
            self.take()
            return _double_literal(token.offset, token.value)
        if token.kind in ("string", "bytes"):
            self.take()
            return Literal(token.offset, token.value)
        if token.kind in _CONSTANTS:
            self.take()
            return Literal(token.offset, _CONSTANTS[token.kind])
        return None


_CONSTANTS = {"true": True, "false": False, "null": None}


def _double_literal(offset: int, value: float) -> Node:
    if isinf(value):
        raise SyntaxFault(offset, "invalid double literal")
    return Literal(offset, value)


def _int_literal(offset: int, value: int) -> Node:
    if not INT_MIN <= value <= INT_MAX:
        raise SyntaxFault(offset, "invalid int literal")
    return Literal(offset, value)


def _check_depth(root: Node) -> None:
    level, depth = [root], 0
    while level:
        depth += 1
        if depth > MAX_TREE_DEPTH:
            raise SyntaxFault(level[0].offset, f"expression recursion limit exceeded: {MAX_TREE_DEPTH}")
        level = [child for node in level for child in node.children()]


def _balanced(function: str, terms: list[Node], marks: list[int], low: int, high: int) -> Node:
    if low == high:
        return terms[low]
    middle = (low + high) // 2
    left = _balanced(function, terms, marks, low, middle)
    right = _balanced(function, terms, marks, middle + 1, high)
    return Call(marks[middle], function, [left, right])
