from datetime import UTC, datetime, timedelta, timezone

import pytest

from haru.kube import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("check", "value", "messages"),
    [
        (names.is_dns1123_label, "a-1", []),
        (names.is_dns1123_label, "A", [LABEL]),
        (names.is_dns1123_label, "a\n", [LABEL]),
        (names.is_dns1123_label, "", [LABEL]),
        (names.is_dns1123_label, "a.b", ["must not contain dots"]),
        (names.is_dns1123_label, "a" * 64, ["must be no more than 63 bytes"]),
        (names.is_dns1123_subdomain, "a.b-c.d", []),
        (names.is_dns1123_subdomain, "a" * 254, ["must be no more than 253 bytes"]),
        (names.is_dns1035_label, "a1", []),
        (names.is_qualified_name, "example.com/My.Name_1", []),
        (names.is_qualified_name, "x", []),
        (names.is_qualified_name, "/x", ["prefix part must be non-empty"]),
        (names.is_qualified_name, "-x", [f"name part {QUALIFIED}"]),
        (names.is_qualified_name, "a.b/", ["name part must be non-empty", f"name part {QUALIFIED}"]),
        (
            names.is_qualified_name,
            "a/b/c",
            [
                f"a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ],
        ),
        (names.is_label_value, "", []),
        (names.is_label_value, "x" * 64, ["must be no more than 63 bytes"]),
        (names.is_c_identifier, "_a1", []),
        (names.is_env_var_name, "1 a.b", []),
        (names.is_env_var_name, "", ["environment variable name must be non-empty"]),
        (names.is_config_map_key, "..x", ["must not start with '..'"]),
        (names.is_path_segment_name, "a/b%", ["may not contain '/'", "may not contain '%'"]),
        (names.is_path_segment_name, "..", ["may not be '..'"]),
        (names.is_port_name, "http-alt", []),
        (names.is_port_name, "--1", [
            "must contain at least one letter (a-z)",
            "must not contain consecutive hyphens",
            "must not begin or end with a hyphen",
        ]),
        (names.is_ip, "10.0.0.1", []),
        (names.is_interface_address, "10.0.0.1/24", []),
        (names.is_interface_address, "fd00::0:1/64", ['must be in canonical form ("fd00::1/64")']),
        (names.is_cidr, "10.0.0.1", ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
    ],
)  # fmt: skip
def test_invalid_names_give_kubernetes_messages(check, value, messages) -> None:
    assert check(value) == messages


@pytest.mark.parametrize("value", ["-", "a_", "1-a", "a b"])
def test_invalid_dns1035_label_is_refused(value: str) -> None:
    assert names.is_dns1035_label(value)


@pytest.mark.parametrize(
    ("name", "extended"),
    [("nvidia.com/gpu", True), ("cpu", False), ("kubernetes.io/x", False), ("requests.a/b", False), ("a/b/c", False)],
)
def test_extended_resource_names_are_recognised(name: str, extended: bool) -> None:
    assert names.is_extended_resource_name(name) is extended


def test_generated_names_and_hashes_are_deterministic_and_short() -> None:
    assert names.generate_name("web-", "x2x4z") == "web-x2x4z"
    assert len(names.generate_name("a" * 80, "bcdfg")) == 63
    assert set(names.name_suffix(123456789)) <= set(names.NAME_ALPHABET)
    assert names.short_hash("a") == names.short_hash("a") != names.short_hash("b")


def test_times_are_formatted_and_parsed() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    assert names.format_time(moment) == "2026-01-02T03:04:05Z"
    assert names.format_micro_time(moment) == "2026-01-02T03:04:05.678901Z"
    assert names.parse_time("2026-01-02T03:04:05.678901Z") == moment
    assert names.parse_time("2026-01-02T05:04:05.678901234+02:00") == moment
    assert names.format_time(moment.astimezone(timezone(timedelta(hours=2)))) == "2026-01-02T03:04:05Z"
    for text in ("2026-01-02", "yesterday", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z"):
        with pytest.raises(ValueError):
            names.parse_time(text)
