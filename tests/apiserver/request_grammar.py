"""Requests from a grammar: each is mostly right and wrong in one place that a parser must look at."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from custom_objects import TRAININGS
from extension_grammar import ExtensionGrammar
from odd_words import LABELS, PATHS, PROTOBUF, SELECTING
from request_fuzzer import FuzzedRequest, nested
from sample_objects import path_of


class RequestGrammar(ExtensionGrammar):
    """Requests of one run; the same source of randomness makes the same requests."""

    def request(self) -> FuzzedRequest:
        """The next request."""
        ways = [
            *[self._odd_body] * 3,
            *[self._protobuf_body] * 3,
            *[self._json_patch] * 2,
            *[self._strategic] * 3,
            *[self._applied] * 3,
            *[self._selected] * 2,
            *(
                self._continued,
                self._custom,
                self._custom_definition,
                self._definition_bent,
                self._policy,
                self._policy,
            ),
            *(self._subresource, self._subresource, super().request),
        ]
        return self.random.choice(ways)()

    def _odd_body(self) -> FuzzedRequest:
        r = self.random
        seed = r.choice(self.seeds)
        method, path = self._where(seed)
        what = r.random()
        if what < 0.2:
            return self._ask(method, path, kind="application/yaml", body=self.texts.yaml())
        if what < 0.23:
            return self._ask(method, path, kind="application/cbor", body=self.texts.cbor())
        value = self._object(seed, method) if r.random() < 0.4 else json.loads(json.dumps(seed))
        if method == "POST" and isinstance(value, dict) and isinstance(value.get("metadata"), dict):
            value["metadata"] = {"generateName": r.choice(["a-", "", "x" * 300, "A", "ü"]), **value["metadata"]}
            if r.random() < 0.5:
                value["metadata"]["name"] = f"n{r.randrange(99)}"
        kind = r.choice(["application/json"] * 4 + ["application/yaml"])
        return self._ask(method, path, kind=kind, body=self.texts.json(value))

    def _protobuf_body(self) -> FuzzedRequest:
        r = self.random
        seed = r.choice(self.seeds)
        if r.random() < 0.4:
            data = self.protobuf.bent()
            seed = next((s for s in self.seeds if f"\x02{s['kind']}"[1:].encode() in data[:60]), seed)
        else:
            data = self.protobuf.made(self._kind(seed), r.choice([seed["metadata"]["name"], "n1", "", "ü"]))
        method, path = self._where(seed)
        return self._ask(method, path, kind=PROTOBUF, body=self._bytes(data) if r.random() < 0.1 else data)

    def _selected(self) -> FuzzedRequest:
        r = self.random
        seed = r.choice(self.stored)
        tokens = [r.choice([r.choice(LABELS), r.choice(SELECTING)]) for _ in range(r.choice([1, 3, 3, 5, 9]))]
        labels = "".join(tokens) * r.choice([1, 1, 1, 40])
        fields = ",".join(
            f"{r.choice(PATHS)}{r.choice(SELECTING)}{r.choice(LABELS)}" for _ in range(r.choice([1, 1, 2, 5]))
        )
        query = "&".join(
            r.sample(
                [f"labelSelector={quote(labels)}", f"fieldSelector={quote(fields)}", f"limit={r.choice(['1', '2'])}"], 2
            )
        )
        watch = r.choice(
            [
                "",
                "",
                f"&watch={r.choice(['1', 'true'])}&timeoutSeconds=0&resourceVersion={r.choice(['', '0', '1', 'x'])}",
            ]
        )
        method = "DELETE" if r.random() < 0.1 else "GET"
        return self._ask(method, r.choice([path_of(seed), TRAININGS]), query + watch)

    def _continued(self) -> FuzzedRequest:
        r = self.random
        seed = r.choice(self.stored)
        prefix = f"{self._kind(seed).plural}/"
        token: Any = {
            "v": r.choice(["meta.k8s.io/v1"] * 5 + ["v2", 1, None]),
            "rv": r.choice([-1, 0, 1, 5, 40, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1.0, "1", None, True]),
            "start": r.choice(
                [
                    prefix,
                    "",
                    "\ud7ff",
                    prefix + "default/\x00",
                    prefix + "ü",
                    "configmaps/default/",
                    1,
                    ["a"],
                    prefix * 500,
                ]
            ),
        }
        token = r.choice([token] * 8 + [[], "x", None, 1, {**token, "x": nested(400, "list")}])
        encoded = base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")
        encoded = encoded if r.random() < 0.9 else self._bytes(encoded.encode()).decode("latin-1")
        return self._ask(
            r.choice(["GET", "GET", "DELETE"]),
            path_of(seed),
            f"limit={r.choice(['0', '1', '500'])}&continue={quote(encoded)}",
        )
