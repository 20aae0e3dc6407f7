"""Bodies as text and bytes that no well-behaved client writes: JSON, YAML, CBOR."""

from __future__ import annotations

import json
import random
from typing import Any

NUMBERS = [
    *("1e400", "-0", "1.0", "01", "1E5", "-", "123456789012345678901234567890", "0.1e-999", "NaN", "Infinity", "0x10"),
    *(
        "1e5",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "1.",
        ".5",
        "+1",
        "1_000",
        "2147483648",
    ),
    *("1e-5", "1.5e300", "18446744073709551616", "4.9e-324", "1e0", "-1"),
]
STRINGS = [
    *('"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u00e9"', '"\\x41"', '"\t"', '"\\ud83d\\ude00"', '"\\/"', '"'),
    *('"\u2028"', '"\ufeff"', "'a'", '"\ud800"', '"%s"', '"{{.}}"', '"\\u202e"', '"../../x"', '"a\\nb"', '"-"', '"*"'),
    *(
        '"0"',
        '"1e9999999"',
        '"1e9999999Gi"',
        '"9999999999999999999E"',
        '"0001-01-01T00:00:00Z"',
        '"9999-12-31T23:59:59Z"',
    ),
    *(
        '"2026-02-30T00:00:00Z"',
        '"2026-01-01T00:00:00.123456789+23:59"',
        '"P1Y"',
        '"1h1m1s"',
        '"99999h"',
        '"::1"',
        '"10.0.0.0/33"',
    ),
]
YAMLS = [
    "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9) if i else '1'}]" for i in range(8)),
    *("&a [*a]", "a: &a {b: *a}", "!!python/object/apply:os.system [x]", "!!binary x", "!!set {a, b}", "!!omap [a: 1]"),
    *(
        "? [a]\n: b",
        "1: x\nnull: y\ntrue: z",
        "a: .inf\nb: .nan\nc: 1:30\nd: 0o17\ne: 0x_1",
        "---\na: 1\n---\nb: 2\n",
        "...",
    ),
    *(
        "%YAML 9.9\n---\na: 1",
        "a: \x00",
        "\ufeffa: 1",
        "<<: {a: 1}\nb: 2",
        "<<: [1]",
        "a:\n\t- b",
        "[" * 3000,
        "{a: " * 3000,
    ),
    *(
        "- " * 3000,
        "a: !!float x",
        "a: !!int 99999999999999999999",
        "a: 2026-99-99",
        "a: !!timestamp x",
        "a: 2026-01-01",
        "!<!> a",
    ),
    *(
        "",
        "~",
        "[]",
        "a: |\n  " + "x" * 1000,
        '"\\ud800"',
        "a: 0.1e-999\nb: 1e400",
        "a: -0.0",
        "a: 9" + "9" * 400,
        "? a",
        "*x",
    ),
]
CBORS = [
    *(
        "d9d9f7a1616101",
        "a0",
        "ff",
        "9fff",
        "bf616101ff",
        "fb7ff0000000000000",
        "1bffffffffffffffff",
        "81" * 500,
        "5f",
        "c249" + "ff" * 9,
    ),
    "d9d9f7a26a61706956657273696f6e627631646b696e64635" + "06f64",
]


class OddTexts:
    """Writes values in odd ways, from one source of randomness."""

    def __init__(self, source: random.Random) -> None:
        self.random = source

    def json(self, value: Any) -> bytes:
        """The value as JSON, with numbers, texts, names and blanks as nobody writes them."""
        r = self.random
        text = self._write(value, r.choice([0.0, 0.0, 0.004, 0.03]), 0)
        what = r.random()
        if what < 0.01:
            return text.encode("utf-16", "surrogatepass")
        if what < 0.02:
            return b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")
        if what < 0.03:
            return text.encode("utf-8", "surrogatepass") + r.choice([b"x", b"{}", b"\n\n", b"\0", b"//x", b"]"])
        if what < 0.04:
            return text.encode("utf-8", "surrogatepass").replace(
                b"a", r.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80"]), 1
            )
        return text.encode("utf-8", "surrogatepass")

    def _write(self, value: Any, odd: float, depth: int) -> str:
        r = self.random
        if r.random() < odd:
            return self._odd()
        if isinstance(value, dict) and depth < 150:
            pairs = [(json.dumps(str(k)), self._write(v, odd, depth + 1)) for k, v in value.items()]
            if pairs and r.random() < odd:
                pairs.append((r.choice(pairs)[0], r.choice([r.choice(pairs)[1], self._odd()])))
            if r.random() < odd:
                pairs.append((r.choice(STRINGS), self._odd()))
            blank = r.choice(["", " ", "\r\n\t"]) if odd else ""
            return "{" + ",".join(f"{blank}{key}:{blank}{inner}" for key, inner in pairs) + "}"
        if isinstance(value, list) and depth < 150:
            return "[" + ",".join(self._write(v, odd, depth + 1) for v in value) + "]"
        return "null" if isinstance(value, dict | list) else json.dumps(value)

    def _odd(self) -> str:
        r = self.random
        what = r.random()
        if what < 0.4:
            return r.choice(NUMBERS)
        if what < 0.8:
            return r.choice(STRINGS)
        if what < 0.88:
            depth = r.choice([10, 199, 201, 2000])
            return "[" * depth + "]" * depth if r.random() < 0.5 else '{"a":' * depth + "1" + "}" * depth
        if what < 0.94:
            return '"' + r.choice(["x", "\\u0001", "é", "a/", "1"]) * r.choice([100, 20_000, 400_000]) + '"'
        return r.choice(["null", "true", "[]", "{}", "[null]", '{"":null}', '{"a":{}}', "tru", "", "[1,]"])

    def yaml(self) -> bytes:
        """A document that uses what YAML has and JSON lacks."""
        r = self.random
        text = r.choice(YAMLS)
        if r.random() < 0.6:
            text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata:\n" + "\n".join(
                "  " + x for x in text.split("\n")
            )
        return text.encode("utf-8", "surrogatepass")

    def cbor(self) -> bytes:
        """CBOR: finite, endless, broken."""
        return bytes.fromhex(self.random.choice(CBORS))
