"""The text of /metrics, read by prometheus-client's parser."""

from __future__ import annotations

from api_caller import PODS, Caller, pod
from prometheus_client.parser import text_string_to_metric_families

from haru.exposition import CounterOf, HistogramOf


async def test_metrics_of_a_server_are_read_by_prometheus_parser(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    text = (await api("GET", "/metrics")).body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    requests = families["apiserver_request"].samples
    assert [(s.labels["code"], s.value) for s in requests if s.labels["resource"] == "pods"] == [("201", 1.0)]
    assert all(family.type != "unknown" and family.documentation for family in families.values())
    for family in families.values():
        if family.type == "histogram":
            counts = sum(s.value for s in family.samples if s.name.endswith("_count"))
            assert counts == sum(s.value for s in family.samples if s.labels.get("le") == "+Inf"), family.name


def test_label_values_with_quotes_backslashes_and_newlines_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    counter, histogram = CounterOf("n_total", "N.", ("x",)), HistogramOf("s", "S.", ("x",), (0.5, 2))
    counter.add(odd)
    histogram.observe(1.0, odd)
    read = list(text_string_to_metric_families("\n".join([*counter.lines(), *histogram.lines()]) + "\n"))
    assert [sample.labels["x"] for family in read for sample in family.samples] == [odd] * 6
    assert [s.value for s in read[1].samples] == [0.0, 1.0, 1.0, 1.0, 1.0]
