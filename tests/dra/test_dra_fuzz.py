"""Random bytes, random YAML and random expressions through `haru allocate`, `haru cel` and `haru lint`: an answer or a
message with status 2, never a traceback, never a hang, memory bounded.

HARU_FUZZ_SECONDS says for how long at night, all commands together.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from device_objects import class_, exact, first_of
from small_problems import SELECTORS, problem

from haru.cli.main import main
from haru.kube.yaml import dump_all

Obj = dict[str, Any]

COMMANDS = ("allocate", "cel", "lint")
SECONDS = float(os.environ.get("HARU_FUZZ_SECONDS", "600"))
SECONDS_EACH = 20.0  # of this process: a busy machine is no hang
MEMORY = 600 * 1024  # KiB on top of what the process has
WORDS = (
    *SELECTORS, "device", ".attributes", "['gpu.example.com']", ".model", "device.driver", "==", "!=", "&&", "||", "!",
    "(", ")", "[", "]", "{", "}", "?", ":", "1", "-1", "9223372036854775807", "1.5e300", "1u", "'x'", '"', "'", "b'a'",
    "true", "null", "in", "quantity('1Gi')", ".compareTo(", "semver('1.0.0')", ".matches('(a*)*b')", ".exists(x, x)",
    ".map(x, x)", ".all(k, v, true)", "cel.bind(a, 1, a)", ".format([1])", "'%s'", "lists.range(99)", "//", "\n", "é",
)  # fmt: skip


def objects(rng: random.Random) -> list[Obj]:
    given = problem(rng.randrange(2**32))
    kinds = {"ResourceSlice": given["slices"], "DeviceClass": [class_(), class_("x", rng.choice(SELECTORS))]}
    kinds["ResourceClaim"] = given["claims"]
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [first_of("f", exact(1))]}}}}
    found = [{"apiVersion": "resource.k8s.io/v1", "kind": kind, **obj} for kind, objs in kinds.items() for obj in objs]
    found.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", **template})
    return [*found, {"apiVersion": "v1", "kind": "Node", **given["node"]}]


def places(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a value."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((*prefix, key), *places(value[key], (*prefix, key)))]


def mutated(rng: random.Random, value: Any) -> Any:
    """A copy in which up to three things are exchanged, dropped, doubled or renamed."""
    found = json.loads(json.dumps(value))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        paths = places(found)
        if not paths:
            break
        *path, key = rng.choice(paths)
        holder = found
        for step in path:
            holder = holder[step]
        old, kind = holder[key], rng.random()
        if kind < 0.3:
            del holder[key]
        elif kind < 0.4 and isinstance(holder, dict):
            holder[str(key) + rng.choice(("s", "x", "/y"))] = holder.pop(key)
        elif kind < 0.5 and isinstance(holder, list):
            holder.insert(key, old)
        elif kind < 0.7 and isinstance(old, str):
            holder[key] = rng.choice((old + "x", old[:-1], "", "x" * 70, "5Gi", "-1", "*", "é"))
        elif kind < 0.7 and isinstance(old, int):
            holder[key] = rng.choice((0, -1, old + 1, 33, 2**31, 2**63, 2**70))
        else:
            holder[key] = rng.choice((None, True, -1, 1.5, "", "5Gi", [], {}, [old, old], {"a": old}))
    return found


def garbled(rng: random.Random, text: bytes) -> bytes:
    """The text with some bytes exchanged, or other bytes altogether."""
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(400))
    data = bytearray(text)
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(data))
        data[at : at + rng.randrange(3)] = rng.choice(
            (rng.randbytes(2), b"\n", b"  ", b": ", b"- ", b"&a ", b"*a", b"{")
        )
    return bytes(data)


def case_of(rng: random.Random, of: str) -> Obj:
    """A case for `haru allocate` or `haru cel`."""
    if of == "cel":
        device = {
            "driver": "gpu.example.com",
            "attributes": {"model": {"string": "x"}},
            "capacity": {"m": {"value": "1"}},
        }
        expression = nonsense(rng) if rng.random() < 0.5 else rng.choice(SELECTORS)
        return {"name": "y", "features": {}, "newExpression": True, "expression": expression, "device": device}
    given = problem(rng.randrange(2**32))
    case: Obj = {"name": "x", "features": {"DeviceTaints": True}, "allocated": given.pop("taken"), **given}
    if rng.random() < 0.3:
        case["nodes"] = [case.pop("node")]
    return case


def nonsense(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 12)))


def command(rng: random.Random, path: Path, of: str) -> list[str]:
    """One command line of `haru allocate`, `haru cel` or `haru lint`, with what it reads written to the path."""
    form = ["-o", rng.choice(("text", "json", "yaml"))]
    scoring = ["--device-scoring"] if rng.random() < 0.5 else []
    if of != "lint" and rng.random() < 0.4:
        lines = b"\n".join(json.dumps(mutated(rng, case_of(rng, of))).encode() for _ in range(3))
        path.write_bytes(lines if rng.random() < 0.8 else garbled(rng, lines))
        return [of, "--cases", str(path), *(scoring if of == "allocate" else ())]
    found, spoiled = objects(rng), rng.random()
    text = dump_all([mutated(rng, o) if rng.random() < 0.15 else o for o in found]).encode()
    path.write_bytes(garbled(rng, text) if spoiled < 0.3 else text)
    if of == "cel":
        expression = nonsense(rng) if rng.random() < 0.7 else rng.choice(SELECTORS)
        return ["cel", f" {expression}", "-f", str(path), *form]
    if of == "lint":
        return ["lint", str(path), *form, *(["--fix"] if rng.random() < 0.3 else ())]
    return ["allocate", "-f", str(path), *form, *scoring]


def fuzz(of: str, path: Path, capsys: pytest.CaptureFixture[str], seed: int, seconds: float, at_least: int) -> int:
    """Runs one command again and again, for so long and so many times; returns how many."""
    start, first_seed = time.monotonic(), seed
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while time.monotonic() - start < seconds or seed - first_seed < at_least:
        arguments = command(random.Random(seed), path, of)
        begun = time.process_time()
        try:
            status = main(arguments)
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {arguments[0]} {arguments[1:2]}: {error!r}") from error
        captured = capsys.readouterr()
        assert status in (0, 1, 2), seed
        assert status < 2 or (captured.err.startswith("haru ") and "Traceback" not in captured.err), seed
        assert time.process_time() - begun < SECONDS_EACH, seed
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MEMORY, seed
        seed += 1
    return seed - first_seed


@pytest.mark.parametrize("of", COMMANDS)
def test_random_input_gives_answers_or_errors_in_20_runs(
    of: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("haru.cli.allocate_cases._ROUNDS", 1)
    assert fuzz(of, tmp_path / "in", capsys, 1, 0, at_least=20) == 20


@pytest.mark.nightly
@pytest.mark.parametrize("of", COMMANDS)
def test_random_input_gives_answers_or_errors_in_long_run(
    of: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("haru.cli.allocate_cases._ROUNDS", 1)
    first = random.SystemRandom().randrange(1 << 32)
    count = fuzz(of, tmp_path / "in", capsys, first, SECONDS / len(COMMANDS), at_least=500)
    with capsys.disabled():
        print(f"\n{count} runs of haru {of} from seed {first}")
