"""The programs of a simulated container that ask the network: `nslookup`, `nc -z`, `wget`, `curl`, `pg_isready`. Pure.

What resolves and what answers says `cluster_network.py`. Of an answer nothing more is known: each one over HTTP counts
as 200 with an empty body. Each returns its exit code, or None for what nothing is known of: hosts outside the cluster,
the container's own pod, other options.
Source: busybox, curl and the clients of PostgreSQL, MySQL and Redis, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from haru.kube.simulated_containers.cluster_network import Fact, PodNetwork, is_address

SECONDS: Final = 0.01
"""How long a question takes."""
_NAME_SERVER: Final = "10.96.0.10"
_REFUSED: Final = "Connection refused"
_MOST_TRIES: Final = 100
_WRITE_OUT: Final = {"%{http_code}": "200", "%{response_code}": "200", "\\n": "\n", "%{size_download}": "0"}
_PORTS: Final = {"http": 80, "https": 443}


class NetworkShell(Protocol):
    """What these programs need of a shell."""

    variables: dict[str, str]
    at: float
    began: float
    awaited: list[float]

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Print a line."""

    def print_text(self, text: str) -> None:
        """Print text of several lines."""

    def change(self, path: str, text: str | None, *, appends: bool = False, every: float = 0.0) -> None:
        """Write a file."""

    def last(self, seconds: float) -> None:
        """Let time pass."""


class _Asked(NamedTuple):
    """What came of an attempt to connect: which code (0: it answers, 1: refused, 2: no such name), and the address."""

    problem: int
    address: str


def run_on_network(shell: NetworkShell, network: PodNetwork, name: str, words: Sequence[str]) -> int | None:
    """Run a program."""
    program = _PROGRAMS.get(name)
    return None if program is None else program(shell, network, words)


def _holds(shell: NetworkShell, fact: Fact) -> bool:
    """Whether it is so at this moment; the shell learns when that changes."""
    moment = shell.began + shell.at
    shell.awaited.append(fact.next_change(moment) - shell.began)
    return fact.holds(moment)


def _connect(shell: NetworkShell, network: PodNetwork, host: str, port: int) -> _Asked | None:
    """Try to connect; None if it is not known what comes of it."""
    named = network.name(host)
    if named is None:
        return None
    shell.last(SECONDS)
    if not _holds(shell, named):
        return _Asked(2, "")
    address, answers = (named.addresses or ("",))[0], network.port(host, port)
    return None if answers is None else _Asked(0 if _holds(shell, answers) else 1, address)


def _options(words: Sequence[str], short: str, long: frozenset[str]) -> tuple[dict[str, str], list[str]]:
    """Options by name, and the other words; `short` and `long` are those that have a value."""
    given, rest, left = dict[str, str](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            given[name] = value if equals or name not in long or not left else left.pop(0)
        elif word.startswith("-") and len(word) > 1:
            for number, letter in enumerate(word[1:], 2):
                if letter in short:
                    given[letter] = word[number:] or (left.pop(0) if left else "")
                    break
                given[letter] = ""
        else:
            rest.append(word)
    return given, rest


# -- names ------------------------------------------------------------------------------------------------------------


def _nslookup(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    rest = [word for word in words if word not in ("-type=a", "-query=a", "-type=A")]
    if not 1 <= len(rest) <= 2 or rest[0].startswith("-") or is_address(rest[0]):
        return None
    fact = network.name(rest[0])
    if fact is None:
        return None
    shell.last(SECONDS)
    found = _holds(shell, fact)
    shell.print_text(f"Server:\t\t{_NAME_SERVER}\nAddress:\t{_NAME_SERVER}:53\n\n")
    for address in fact.addresses if found else ():
        shell.print_text(f"Name:\t{fact.name}\nAddress: {address}\n")
    if not found:
        shell.say(f"** server can't find {fact.name}: NXDOMAIN")
    shell.say("")
    return 0 if found else 1


def _getent(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    if len(words) != 2 or words[0] not in ("hosts", "ahosts", "ahostsv4"):
        return None
    fact = network.name(words[1])
    if fact is None:
        return None
    shell.last(SECONDS)
    if not _holds(shell, fact):
        return 2
    for address in fact.addresses:
        shell.say(f"{address:15s} {words[1]}")
    return 0


# -- connections ------------------------------------------------------------------------------------------------------


def _nc(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    given, rest = _options(words, "wpsiqX", frozenset())
    if "z" not in given or "u" in given or len(rest) != 2 or not rest[1].isdecimal():
        return None
    asked = _connect(shell, network, rest[0], int(rest[1]))
    if asked is None:
        return None
    if asked.problem == 2:
        shell.say(f"nc: bad address '{rest[0]}'", is_error=True)
    elif "v" in given:
        where = f"{rest[0]} ({asked.address}:{rest[1]})"
        shell.say(f"nc: {where}: {_REFUSED}" if asked.problem else f"{where} open", is_error=True)
    return min(asked.problem, 1)


def _wget(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    given, rest = _options(words, "OTtPUoYw", _WGET_VALUES)
    url = _url(rest[0]) if len(rest) == 1 else None
    asked = _connect(shell, network, url[0], url[1]) if url is not None else None
    if url is None or asked is None:
        return None
    host, port, path = url
    is_quiet = "q" in given or "quiet" in given
    if asked.problem == 2:
        shell.say(f"wget: bad address '{urlsplit(_with_scheme(rest[0])).netloc}'", is_error=True)
        return 1
    if not is_quiet:
        shell.say(f"Connecting to {host}:{port} ({asked.address}:{port})", is_error=True)
    if asked.problem:
        shell.say(f"wget: can't connect to remote host ({asked.address}): {_REFUSED}", is_error=True)
        return 1
    if "S" in given or "server-response" in given:
        shell.say("  HTTP/1.1 200 OK", is_error=True)
    if "spider" in given:
        if not is_quiet:
            shell.say("remote file exists", is_error=True)
        return 0
    target = given.get("O", given.get("output-document", path.rpartition("/")[2] or "index.html"))
    if not is_quiet:
        stdout = target == "-"
        told = ("writing to stdout", "written to stdout") if stdout else (f"saving to '{target}'", f"'{target}' saved")
        for line in told:
            shell.say(line, is_error=True)
    return _write(shell, "wget", target)


def _curl(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    given, rest = _options(words, "AbcCdDeEFHKmoPQrtTuUwxXyYz", _CURL_VALUES)
    url = _url(rest[0]) if len(rest) == 1 else None
    out = given.get("w", given.get("write-out", ""))
    shown = re.sub(r"%\{\w+\}|\\n", lambda found: _WRITE_OUT.get(found[0], "\0"), out)
    if url is None or "\0" in shown:
        return None
    asked = _connect(shell, network, url[0], url[1])
    for pause in _retries(given):
        if asked is None or not asked.problem or (asked.problem == 1 and not _RETRY_REFUSED.intersection(given)):
            break
        shell.last(pause)
        asked = _connect(shell, network, url[0], url[1])
    if asked is None:
        return None
    if asked.problem:
        if not ({"s", "silent"}.intersection(given) and not {"S", "show-error"}.intersection(given)):
            shell.say(_curl_problem(asked.problem, url), is_error=True)
        shell.print_text(shown.replace("200", "000"))
        return 6 if asked.problem == 2 else 7
    if {"I", "i", "head", "include"}.intersection(given):
        shell.print_text("HTTP/1.1 200 OK\n\n")
    target = given.get("o", given.get("output", "-"))
    code = _write(shell, "curl", target)
    shell.print_text(shown)
    return code


def _curl_problem(problem: int, url: tuple[str, int, str]) -> str:
    if problem == 2:
        return f"curl: (6) Could not resolve host: {url[0]}"
    return f"curl: (7) Failed to connect to {url[0]} port {url[1]} after 0 ms: Could not connect to server"


def _retries(given: Mapping[str, str]) -> list[float]:
    """How long curl waits before each further attempt."""
    tries, pause = given.get("retry", ""), given.get("retry-delay", "")
    number = min(int(tries), _MOST_TRIES) if re.fullmatch(r"\d{1,9}", tries) else 0
    if re.fullmatch(r"\d{1,6}", pause) and int(pause):
        return [float(pause)] * number
    return [min(2.0**turn, 600.0) for turn in range(number)]


def _write(shell: NetworkShell, name: str, target: str) -> int:
    """Put the empty body of an answer where it goes."""
    if not target.startswith("/"):
        return 0
    try:
        shell.change(target, "")
    except OSError as error:
        shell.say(f"{name}: can't open '{target}': {error.strerror}", is_error=True)
        return 1
    return 0


def _with_scheme(text: str) -> str:
    return text if "://" in text else f"http://{text}"


def _url(text: str) -> tuple[str, int, str] | None:
    """Host, port and path; None for another scheme, or for what is no URL."""
    try:
        parts = urlsplit(_with_scheme(text))
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port, parts.path) if parts.hostname and port and parts.scheme in _PORTS else None


# -- clients of databases ---------------------------------------------------------------------------------------------


def _pg_isready(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    given, _ = _options(words, "hpdUt", frozenset({"host", "port", "dbname", "username", "timeout"}))
    host = given.get("h", given.get("host", shell.variables.get("PGHOST", "")))
    port = given.get("p", given.get("port", shell.variables.get("PGPORT", "5432")))
    asked = _connect(shell, network, host, int(port)) if host and port.isdecimal() else None
    if asked is None:
        return None
    if "q" not in given and "quiet" not in given:
        shell.say(f"{host}:{port} - {'no response' if asked.problem else 'accepting connections'}")
    return 2 if asked.problem else 0


def _mysqladmin(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    given, rest = _options(words, "hPu", frozenset({"host", "port", "user"}))
    host, port = given.get("h", given.get("host", "")), given.get("P", given.get("port", "3306"))
    asked = _connect(shell, network, host, int(port)) if host and port.isdecimal() and "ping" in rest else None
    if asked is None:
        return None
    if asked.problem:
        shell.say(f"mysqladmin: connect to server at '{host}' failed", is_error=True)
        return 1
    shell.say("mysqld is alive")
    return 0


def _redis_cli(shell: NetworkShell, network: PodNetwork, words: Sequence[str]) -> int | None:
    given, rest = _options(words, "hpan", frozenset({"pass", "user"}))
    host, port = given.get("h", ""), given.get("p", "6379")
    is_ping = [word.lower() for word in rest] == ["ping"]
    asked = _connect(shell, network, host, int(port)) if host and port.isdecimal() and is_ping else None
    if asked is None:
        return None
    if asked.problem:
        why = "Name or service not known" if asked.problem == 2 else _REFUSED
        shell.say(f"Could not connect to Redis at {host}:{port}: {why}", is_error=True)
        return 1
    shell.say("PONG")
    return 0


_RETRY_REFUSED: Final = frozenset({"retry-connrefused", "retry-all-errors"})
_WGET_VALUES: Final = frozenset({"timeout", "tries", "output-document", "header", "post-data", "user-agent"})
_CURL_VALUES: Final = frozenset({
    "max-time", "connect-timeout", "retry", "retry-delay", "retry-max-time", "header", "output", "request", "data",
    "data-raw", "data-binary", "user", "user-agent", "write-out", "cacert", "cert", "key", "form", "max-redirs",
})  # fmt: skip
_PROGRAMS: Final[Mapping[str, Callable[[NetworkShell, PodNetwork, Sequence[str]], int | None]]] = {
    "nslookup": _nslookup, "getent": _getent, "nc": _nc, "wget": _wget, "curl": _curl,
    "pg_isready": _pg_isready, "mysqladmin": _mysqladmin, "redis-cli": _redis_cli,
}  # fmt: skip
