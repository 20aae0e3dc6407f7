"""Whole requests over HTTP/2: `haru.http2` against `h2`, two servers by turns in one run.

    python -m benchmarks.http2_comparison [--turns 5]

curl asks for a small object, lists 5,000 pods and creates ConfigMaps, eight requests at once on one connection; 400
watchers on four connections get what is created. What is measured is the processor time of the server; the last column
is the median of the ratios, turn by turn. With `h2` is the server of `benchmarks/http2_by_h2.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from statistics import median

import uvloop

from benchmarks.api_speed import MAP, MAPS, POD, PODS, Server, _steady, _watched, alone
from benchmarks.cluster import _cpu_seconds
from benchmarks.tables import plain

GETS, LISTS, CREATES = 2_000, 50, 1_000
WATCHERS, EVENTS, PER_SECOND = 400, 240, 80.0
CREATED = '{"metadata":{"generateName":"made-"},"data":{"text":"' + "x" * 500 + '"}}'


def by_curl(server: Server, path: str, count: int, body: str = "") -> float:
    """Processor seconds of the server for each of so many requests, eight at once on one connection."""
    with tempfile.NamedTemporaryFile("w", suffix=".crt") as authority:
        authority.write(server.target["ca"])
        authority.flush()
        # What comes after # is not sent: the same request each time.
        url = f"https://{server.target['host']}:{server.target['port']}{path}#[1-{count}]"
        command = ["curl", "-sSf", "--http2", "--cacert", authority.name, "-Z", "--parallel-max", "8"]
        command += ["-H", f"Authorization: Bearer {server.target['token']}", "-o", "/dev/null", "-w", "%{http_version}"]
        # Answers to curl's own name are indented.
        command += ["-A", "benchmark", "-H", "Accept: application/json"]
        command += ["-H", "Content-Type: application/json", "-d", body] if body else []
        before = _cpu_seconds(server.process.pid)
        done = subprocess.run([*command, url], capture_output=True, text=True)
    if done.stdout != "2" * count:
        raise RuntimeError(f"curl: {done.returncode}: {done.stdout[:100]}: {done.stderr[-500:]}")
    return (_cpu_seconds(server.process.pid) - before) / count


class Watches:
    """Deliveries to many watchers, without what it costs to create what is delivered."""

    def __init__(self) -> None:
        self._first = 10_000_000

    def __call__(self, server: Server) -> float:
        """Processor seconds of the server for each delivery."""
        self._first += 1_000_000
        before = _cpu_seconds(server.process.pid)
        uvloop.run(_steady(server, EVENTS, PER_SECOND, self._first))
        alone_seconds = _cpu_seconds(server.process.pid) - before
        watched = _watched(server, WATCHERS, EVENTS, PER_SECOND, self._first + 500_000, streams=100)[1]
        return (watched - alone_seconds) / EVENTS / WATCHERS


PARTS: dict[str, Callable[[Server], float]] = {
    "GET of a small object": lambda server: by_curl(server, f"{MAPS}/object-0", GETS),
    "LIST of 5,000 pods": lambda server: by_curl(server, PODS, LISTS),
    "POST of a ConfigMap": lambda server: by_curl(server, MAPS, CREATES, CREATED),
    "delivery to a watcher": Watches(),
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    with alone() as own, alone("benchmarks.http2_by_h2") as library:
        servers = {"own": own, "h2": library}
        for server in servers.values():
            server.rate("POST", MAPS, 1, 1, MAP)
            server.rate("POST", PODS, 5_000, 32, POD)
            by_curl(server, f"{MAPS}/object-0", 200)
        rows = []
        for name, measure in PARTS.items():
            found: dict[str, list[float]] = {"own": [], "h2": []}
            for turn in range(turns):
                for which in ("own", "h2") if turn % 2 == 0 else ("h2", "own"):
                    found[which].append(measure(servers[which]))
            ratio = median(theirs / ours for ours, theirs in zip(found["own"], found["h2"], strict=True))
            micros = {which: median(seconds) * 1e6 for which, seconds in found.items()}
            rows.append([name, f"{micros['own']:,.1f} µs", f"{micros['h2']:,.1f} µs", f"{ratio:.2f}"])
            print(*rows[-1], flush=True)
    print(plain(("what", "haru.http2", "h2", "ratio"), rows, frozenset(range(4))))


if __name__ == "__main__":
    main()
