"""What is counted of tokens and of the signer outside, under the names of 1.36."""

from __future__ import annotations

from collections import Counter

from haru.exposition import HistogramOf, head
from haru.externaljwt import METADATA

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class TokenMetrics:
    """Counters of one server."""

    def __init__(self, *, external: bool) -> None:
        self._external = external
        self.legacy = 0
        self.stale = 0
        self.valid = 0
        self.fetched_at = 0.0
        """When keys were last fetched; seconds since the epoch."""
        self.data_at = 0.0
        """The time of the data in that answer."""
        self.fetches: Counter[str] = Counter()
        self.signs: Counter[str] = Counter()
        text = f"Time of calls of the signer, {METADATA} among them."
        name = "apiserver_externaljwt_request_duration_seconds"
        self._durations = HistogramOf(name, text, ("method", "code"), _BUCKETS)

    def called(self, method: str, code: str, seconds: float) -> None:
        """Count a call of the signer."""
        self._durations.observe(seconds, method, code)

    def lines(self) -> list[str]:
        """The exposition."""
        lines: list[str] = []
        for name, count, text in (
            ("legacy", self.legacy, "Tokens from Secrets that were used."),
            ("stale", self.stale, "Tokens that were used after they should have been renewed."),
            ("valid", self.valid, "Extended tokens that were used in time."),
        ):
            lines += head(f"serviceaccount_{name}_tokens_total", "counter", text)
            lines.append(f"serviceaccount_{name}_tokens_total {count}")
        return lines + self._of_signer() if self._external else lines

    def _of_signer(self) -> list[str]:
        lines: list[str] = []
        for name, value, text in (
            ("success", self.fetched_at, "When keys were last fetched."),
            ("data", self.data_at, "The time of the data in the keys that were last fetched."),
        ):
            full = f"apiserver_externaljwt_fetch_keys_{name}_timestamp"
            lines += [*head(full, "gauge", text), f"{full} {value!r}"]
        for name, counts in (("fetch_keys", self.fetches), ("sign", self.signs)):
            full = f"apiserver_externaljwt_{name}_request_total"
            lines += head(full, "counter", "Calls of the signer, by gRPC's code.")
            lines += [f'{full}{{code="{code}"}} {count}' for code, count in sorted(counts.items())]
        return lines + self._durations.lines()
