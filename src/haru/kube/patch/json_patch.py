"""JSON patch: a list of operations on pointers (RFC 6902, RFC 6901).

A patch that cannot be read is a bad request (400), one with too many operations too large (413), and one whose
operation fails on this object, `test` included, is unprocessable (422).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from haru.kube.cloning import clone
from haru.kube.errors import StatusError, bad_request_error, too_large_error
from haru.kube.meta import Obj

MAX_OPERATIONS: Final = 10000
MAX_COPIED: Final = 3 * 1024 * 1024
MAX_DEPTH: Final = 200
"""Copies of copies double with every operation, and what is put into what was put nests without end."""


REJECTED: Final = "the server rejected our request due to an error in our request: "


_INDEX: Final = re.compile("[-+]?[0-9]{1,9}")


class _Failed(Exception):
    """An operation cannot be applied to this object."""


class _TestFailed(_Failed):
    """A `test` found another value."""


class TestFailedError(StatusError):
    """A `test` found another value than it named: the patch does not apply, and is otherwise right."""

    __test__ = False


def apply_json_patch(obj: Obj, ops: list[Any], *, replace_adds: bool = False, shared: bool = False) -> Obj:
    """The object after all operations, in order; all of them or none.

    `replace_adds`: replacing a member that an object does not have adds it, as it does in 1.36.
    `shared`: what the operations leave alone may be shared with `obj`.
    Raises StatusError, TestFailedError where all that is wrong is that a `test` does not hold.
    """
    if not isinstance(ops, list):
        raise bad_request_error("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(ops) > MAX_OPERATIONS:
        raise too_large_error(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}")
    checked = [_decode(index, op) for index, op in enumerate(ops)]
    document: Any = obj if shared else clone(obj)
    copied = 0
    try:
        for op in checked:
            if op["op"] == "copy":
                copied += len(json.dumps(_get(document, op["from"], "copy")))
                if copied > MAX_COPIED:
                    raise _Failed(
                        f"Unable to complete the copy, the accumulated size increase of copy is {copied}, "
                        f"exceeding the limit {MAX_COPIED}"
                    )
            if replace_adds and op["op"] == "replace" and _is_absent_member(document, op["path"]):
                document = _add(document, op)
            else:
                document = _OPERATIONS[op["op"]](document, op)
        if not isinstance(document, dict):
            raise _Failed("the patch leaves no object")
        if not _stays_shallow(checked) and _is_deeper(document, MAX_DEPTH):
            raise _Failed(f"the patched object is nested deeper than {MAX_DEPTH} levels")
    except _TestFailed as failure:
        found = _unprocessable(str(failure))
        raise TestFailedError(found.code, found.reason, found.message, found.details) from None
    except _Failed as failure:
        raise _unprocessable(str(failure)) from None
    except RecursionError:
        raise _unprocessable(f"the patched object is nested deeper than {MAX_DEPTH} levels") from None
    result: Obj = document
    return result


def _stays_shallow(ops: list[Obj]) -> bool:
    """Whether the operations can not make an object deep that was not: they put shallow values at short paths."""
    return all(
        op["op"] in ("add", "remove", "replace", "test")
        and op["path"].count("/") < MAX_DEPTH // 4
        and not (isinstance(op.get("value"), dict | list) and _is_deeper(op["value"], MAX_DEPTH // 4))
        for op in ops
    )


def _is_deeper(document: Any, limit: int) -> bool:
    level: list[Any] = [document]
    for _ in range(limit + 1):
        level = [
            inner
            for node in level
            for inner in (node.values() if isinstance(node, dict) else node)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _unprocessable(message: str) -> StatusError:
    return StatusError(422, "Invalid", REJECTED + message)


def _decode(index: int, op: Any) -> Obj:
    if not isinstance(op, dict):
        raise bad_request_error(f"json patch operation {index} is not an object")
    name = op.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        raise _unprocessable(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}")
    for field in ("path", "from") if name in ("move", "copy") else ("path",):
        if not isinstance(op.get(field), str):
            what = "operation, missing from field: " if field == "from" else ""
            raise _unprocessable(f"{name} operation failed to decode {field}: {what}missing value")
        if op[field] and not op[field].startswith("/"):
            raise _unprocessable(f'json patch operation {index}: {field} "{op[field]}" must start with "/"')
    if name in ("add", "replace", "test") and "value" not in op:
        return {**op, "value": None}
    return dict(op)


def _tokens(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _index(token: str, length: int) -> int | None:
    """The place of an item in a list of this length, a negative one counted from its end, as 1.36 does; or None."""
    if _INDEX.fullmatch(token) is None:
        return None
    index = int(token)
    index += length if index < 0 else 0
    return index if 0 <= index < length else None


def _place(node: Any, token: str, length: int, pointer: str, action: str) -> Any:
    """Where in its parent the last part of a pointer lies: the name of a member, or the index of an item."""
    if isinstance(node, dict):
        return token
    index = _index(token, length)
    if index is None:
        is_number = _INDEX.fullmatch(token) is not None
        why = f"Unable to access invalid index: {token}: invalid index referenced"
        raise _Failed(
            f"error in {action} for path: '{pointer}': "
            + (why if is_number else f'strconv.Atoi: parsing "{token}": invalid syntax')
        )
    return index


def _missing(action: str, pointer: str) -> _Failed:
    told = f'"{pointer}"' if action in ("add", "remove") else pointer
    return _Failed(f"{action} operation does not apply: doc is missing path: {told}: missing value")


def _parent(document: Any, pointer: str, action: str) -> tuple[Any, str]:
    tokens = _tokens(pointer)
    if not tokens:
        raise _Failed(f"{action} operation does not apply: the whole document cannot be meant here")
    node = document
    for token in tokens[:-1]:
        node = _child(node, token, pointer, action)
    if not isinstance(node, dict | list):
        raise _missing(action, pointer)
    return node, tokens[-1]


def _own_parent(document: Any, pointer: str, action: str) -> tuple[Any, Any, str]:
    """The document with all that leads to a pointer copied, the node that holds the last part, and that part.

    What is not on the way stays shared with the document that was given.
    """
    tokens = _tokens(pointer)
    if not tokens:
        raise _Failed(f"{action} operation does not apply: the whole document cannot be meant here")
    if not isinstance(document, dict | list):
        raise _missing(action, pointer)
    copied: Any = document.copy()
    node: Any = copied
    for token in tokens[:-1]:
        child = _child(node, token, pointer, action)
        if not isinstance(child, dict | list):
            raise _missing(action, pointer)
        child = child.copy()
        node[_index(token, len(node)) if isinstance(node, list) else token] = child
        node = child
    return copied, node, tokens[-1]


def _child(node: Any, token: str, pointer: str, action: str) -> Any:
    if isinstance(node, list) and (index := _index(token, len(node))) is not None:
        return node[index]
    if isinstance(node, dict) and token in node:
        return node[token]
    raise _missing(action, pointer)


def _get(document: Any, pointer: str, action: str) -> Any:
    node = document
    for token in _tokens(pointer):
        node = _child(node, token, pointer, action)
    return node


def _is_absent_member(document: Any, pointer: str) -> bool:
    """Whether the pointer leads to an object that lacks just its last member."""
    if not pointer:
        return False
    try:
        node, token = _parent(document, pointer, "test")
    except _Failed:
        return False
    return isinstance(node, dict) and token not in node


def _put(document: Any, pointer: str, value: Any, action: str) -> Any:
    if pointer == "":
        return value
    document, node, token = _own_parent(document, pointer, action)
    if isinstance(node, dict):
        node[token] = value
    else:
        node.insert(len(node) if token == "-" else _place(node, token, len(node) + 1, pointer, action), value)
    return document


def _remove_at(document: Any, pointer: str, action: str) -> Any:
    document, node, token = _own_parent(document, pointer, action)
    if action == "remove" and isinstance(node, dict) and token not in node:
        why = f"Unable to remove nonexistent key: {token}: missing value"
        raise _Failed(f"error in remove for path: '{pointer}': {why}")
    place = _place(node, token, len(node), pointer, action)
    _child(node, token, pointer, action)
    del node[place]
    return document


def _add(document: Any, op: Obj) -> Any:
    return _put(document, op["path"], clone(op["value"]), "add")


def _remove(document: Any, op: Obj) -> Any:
    return _remove_at(document, op["path"], "remove")


def _replace(document: Any, op: Obj) -> Any:
    if op["path"] == "":
        return clone(op["value"])
    document, node, token = _own_parent(document, op["path"], "replace")
    _child(node, token, op["path"], "replace")
    node[_place(node, token, len(node), op["path"], "replace")] = clone(op["value"])
    return document


def _move(document: Any, op: Obj) -> Any:
    if op["path"].startswith(op["from"] + "/"):
        raise _Failed(f"move operation does not apply: {op['from']} cannot move into itself")
    value = _get(document, op["from"], "move")
    if op["path"] == op["from"]:
        return document
    return _put(_remove_at(document, op["from"], "move"), op["path"], value, "move")


def _copy(document: Any, op: Obj) -> Any:
    return _put(document, op["path"], clone(_get(document, op["from"], "copy")), "copy")


def _test(document: Any, op: Obj) -> Any:
    try:
        value = _get(document, op["path"], "test")
    except _Failed:
        if op["value"] is None:
            return document
        if _is_absent_member(document, op["path"]):
            raise _TestFailed(_untrue(op)) from None
        raise
    if not _equal(value, op["value"]):
        raise _TestFailed(_untrue(op))
    return document


def _untrue(op: Obj) -> str:
    return f"testing value {op['path']} failed: test failed"


def _equal(left: Any, right: Any) -> bool:
    """JSON equality: `1` is not `true`, although Python says so."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


_OPERATIONS: Final[dict[Any, Callable[[Any, Obj], Any]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
