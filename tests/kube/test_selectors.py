import pytest

from haru.kube import kinds, selectors
from haru.kube.errors import StatusError

LABELS = {"app": "web", "tier": "front", "n": "5", "example.com/x": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app!=web", False),
        ("missing!=web", True),
        ("app in (db,web),tier", True),
        ("app in (db, cache)", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("missing in (db)", False),
        ("!missing,app", True),
        ("!app", False),
        ("n>4,n<6", True),
        ("n>5", False),
        ("app>5", False),
        ("example.com/x=", True),
        ("example.com/x", True),
        ("app=", False),
        ("app in ()", False),
        ("example.com/x in (,a)", True),
    ],
)
def test_label_selector_matches(text: str, matches: bool) -> None:
    assert selectors.parse_label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app in web", "unable to parse requirement: found 'web' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
    ],
)
def test_malformed_label_selector_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatusError) as error:
        selectors.parse_label_selector(text)
    assert (error.value.code, error.value.message) == (400, message)


@pytest.mark.parametrize(
    ("text", "start"), [("a/b/c=d", '<nil>: Invalid value: "a/b/c"'), ("a=-", "values[0][a]"), ("a>b", "values[0]: ")]
)
def test_label_keys_and_values_are_validated(text: str, start: str) -> None:
    with pytest.raises(StatusError) as error:
        selectors.parse_label_selector(text)
    assert error.value.message.startswith(f"unable to parse requirement: {start}")


@pytest.mark.parametrize(
    ("obj", "matches"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "z", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_label_selector_object_matches(obj, matches: bool) -> None:
    assert selectors.label_selector_from(obj).matches(LABELS) is matches


def test_unknown_selector_operator_is_refused() -> None:
    with pytest.raises(ValueError, match='"Near" is not a valid label selector operator'):
        selectors.label_selector_from({"matchExpressions": [{"key": "a", "operator": "Near"}]})


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"nodeName": "node-a"},
    "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("metadata.name==p,spec.nodeName=node-a", True),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("status.phase!=Running", False),
        ("spec.hostNetwork=false", True),
        ("status.podIPs=10.0.0.1\\,fd00::1", True),
        ("spec.schedulerName=", True),
    ],
)
def test_field_selector_matches(text: str, matches: bool) -> None:
    kind = kinds.lookup("", "v1", "pods")
    assert kind is not None
    assert selectors.parse_field_selector(text).matches(kind, POD) is matches


def test_invalid_field_selector_is_refused() -> None:
    kind = kinds.lookup("", "v1", "pods")
    assert kind is not None
    with pytest.raises(StatusError, match=r"field label not supported: spec\.image"):
        selectors.field_value(kind, POD, "spec.image")
    with pytest.raises(StatusError, match="invalid selector: 'a'; can't understand 'a'"):
        selectors.parse_field_selector("a")
    with pytest.raises(StatusError, match=r"invalid field selector: unescaped character in value: 61"):
        selectors.parse_field_selector("a=b=c")
    for text in ("a=b\\", "a=\\x"):
        with pytest.raises(StatusError, match=r"invalid field selector: invalid escape sequence: \\"):
            selectors.parse_field_selector(text)
    assert selectors.parse_field_selector("metadata.name=x").exact("metadata.name") == "x"
    assert selectors.parse_field_selector("b=1, a=2,,").requirements == ((" a", "=", "2"), ("b", "=", "1"))


NODE = {"zone": "a", "gpus": "8"}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        ({}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["7"]}]}, True),
        ({"matchExpressions": [{"key": "gpus", "operator": "Lt", "values": ["8"]}]}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["1"]}]}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-a"]}]}, False),
        ({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["node-a"]}]}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "Exists"}, {"key": "q", "operator": "Exists"}]}, False),
    ],
)
def test_node_selector_term_matches(term, matches: bool) -> None:
    assert selectors.node_selector_term_matches(term, "node-a", NODE) is matches
    assert selectors.node_selector_matches({"nodeSelectorTerms": [{}, term]}, "node-a", NODE) is matches


def test_empty_node_selector_terms_match_nothing() -> None:
    assert not selectors.node_selector_matches({"nodeSelectorTerms": []}, "node-a", NODE)
