"""Names, label keys and values, times: what is well-formed, and in which words 1.36 says that something is not.

Every `is_*` function returns the list of complaints, empty for a good value.
Source: k8s.io/apimachinery `util/validation`, `util/rand` and `apis/meta/v1` (Time, MicroTime), as behaviour.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
GENERATED_SUFFIX_LENGTH: Final = 5
MAX_GENERATED_BASE: Final = 63 - GENERATED_SUFFIX_LENGTH

_LABEL_FMT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FMT: Final = _LABEL_FMT + r"(\." + _LABEL_FMT + ")*"
_CASELESS_FMT: Final = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
_CASELESS_SUBDOMAIN_FMT: Final = _CASELESS_FMT + r"(\." + _CASELESS_FMT + ")*"
_DNS1035_FMT: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED_FMT: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE_FMT: Final = "(" + _QUALIFIED_FMT + ")?"
_C_IDENTIFIER_FMT: Final = "[A-Za-z_][A-Za-z0-9_]*"
_CONFIG_KEY_FMT: Final = "[-._a-zA-Z0-9]+"

_LABEL: Final = re.compile(_LABEL_FMT)
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_FMT)
_CASELESS_SUBDOMAIN: Final = re.compile(_CASELESS_SUBDOMAIN_FMT)
_DNS1035: Final = re.compile(_DNS1035_FMT)
_QUALIFIED: Final = re.compile(_QUALIFIED_FMT)
_LABEL_VALUE: Final = re.compile(_LABEL_VALUE_FMT)
_C_IDENTIFIER: Final = re.compile(_C_IDENTIFIER_FMT)
_CONFIG_KEY: Final = re.compile(_CONFIG_KEY_FMT)

_ALNUM_ENDS: Final = "must start and end with an alphanumeric character"
_LABEL_MESSAGE: Final = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ALNUM_ENDS}"
)
_SUBDOMAIN_MESSAGE: Final = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {_ALNUM_ENDS}"
)
_CASELESS_MESSAGE: Final = (
    f"an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and {_ALNUM_ENDS}"
)
_DNS1035_MESSAGE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_QUALIFIED_MESSAGE: Final = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ALNUM_ENDS}"
_LABEL_VALUE_MESSAGE: Final = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_ALNUM_ENDS}"
)
_C_IDENTIFIER_MESSAGE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_'"
)
_CONFIG_KEY_MESSAGE: Final = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
_ENV_NAME_MESSAGE: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)


def regex_error(message: str, fmt: str, *examples: str) -> str:
    """The complaint of a pattern, with its examples, as upstream composes it."""
    if not examples:
        return f"{message} (regex used for validation is '{fmt}')"
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {listed}regex used for validation is '{fmt}')"


def max_length_error(maximum: int) -> str:
    """The complaint about a value of more than `maximum` bytes."""
    return f"must be no more than {maximum} bytes"


def _too_long(value: str, maximum: int) -> list[str]:
    if len(value) <= maximum and (value.isascii() or len(value.encode()) <= maximum):
        return []
    return [max_length_error(maximum)]


def is_dns1123_label(value: str) -> list[str]:
    """A DNS-1123 label: at most 63 of `a-z0-9-`."""
    if _LABEL.fullmatch(value) and len(value) <= 63:
        return []
    errors = _too_long(value, 63)
    if not _LABEL.fullmatch(value):
        if _SUBDOMAIN.fullmatch(value):
            errors.append("must not contain dots")
        else:
            errors.append(regex_error(_LABEL_MESSAGE, _LABEL_FMT, "my-name", "123-abc"))
    return errors


def is_dns1123_subdomain(value: str) -> list[str]:
    """DNS-1123 labels joined by dots, at most 253 characters."""
    errors = _too_long(value, 253)
    if not _SUBDOMAIN.fullmatch(value):
        errors.append(regex_error(_SUBDOMAIN_MESSAGE, _SUBDOMAIN_FMT, "example.com"))
    return errors


def is_caseless_subdomain(value: str) -> list[str]:
    """A DNS-1123 subdomain in any case (drivers); the pattern that is told is that of the lower case, as in 1.36."""
    errors = _too_long(value, 253)
    if not _CASELESS_SUBDOMAIN.fullmatch(value):
        errors.append(regex_error(_CASELESS_MESSAGE, _SUBDOMAIN_FMT, "Example.com"))
    return errors


_UNDERSCORE_LABEL_FMT: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORE_FMT: Final = _UNDERSCORE_LABEL_FMT + r"(\." + _UNDERSCORE_LABEL_FMT + ")*"
_UNDERSCORE: Final = re.compile(_UNDERSCORE_FMT)
_UNDERSCORE_MESSAGE: Final = _SUBDOMAIN_MESSAGE.replace("characters, '-'", "characters, '_', '-'")


def is_dns1123_subdomain_with_underscore(value: str) -> list[str]:
    """A DNS-1123 subdomain whose labels may have underscores (search domains)."""
    errors = _too_long(value, 253)
    if not _UNDERSCORE.fullmatch(value):
        errors.append(regex_error(_UNDERSCORE_MESSAGE, _UNDERSCORE_FMT, "example.com"))
    return errors


def is_dns1035_label(value: str) -> list[str]:
    """A DNS-1035 label: as a DNS-1123 label, but it starts with a letter (Service names)."""
    errors = _too_long(value, 63)
    if not _DNS1035.fullmatch(value):
        errors.append(regex_error(_DNS1035_MESSAGE, _DNS1035_FMT, "my-name", "abc-123"))
    return errors


def is_qualified_name(value: str) -> list[str]:
    """`name` or `domain/name`: label keys, annotation keys (lower-cased), finalizers, resource names."""
    prefix, slash, name = value.partition("/")
    if not slash:
        prefix, name = "", value
    elif "/" in name:
        complaint = regex_error(_QUALIFIED_MESSAGE, _QUALIFIED_FMT, "MyName", "my.name", "123-abc")
        optional = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {complaint}{optional}"]
    errors: list[str] = []
    if slash:
        if not prefix:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {message}" for message in is_dns1123_subdomain(prefix)]
    if not name:
        errors.append("name part must be non-empty")
    else:
        errors += [f"name part {message}" for message in _too_long(name, 63)]
    if not _QUALIFIED.fullmatch(name):
        errors.append("name part " + regex_error(_QUALIFIED_MESSAGE, _QUALIFIED_FMT, "MyName", "my.name", "123-abc"))
    return errors


def is_label_value(value: str) -> list[str]:
    """A label's value: empty or at most 63 characters."""
    errors = _too_long(value, 63)
    if not _LABEL_VALUE.fullmatch(value):
        errors.append(regex_error(_LABEL_VALUE_MESSAGE, _LABEL_VALUE_FMT, "MyValue", "my_value", "12345"))
    return errors


def is_c_identifier(value: str) -> list[str]:
    """An identifier of C (the ID of a device attribute)."""
    if _C_IDENTIFIER.fullmatch(value):
        return []
    return [regex_error(_C_IDENTIFIER_MESSAGE, _C_IDENTIFIER_FMT, "my_name", "MY_NAME", "MyName")]


def is_env_var_name(value: str) -> list[str]:
    """A name of an environment variable (the relaxed rule, stable since 1.34)."""
    if not value:
        return ["environment variable name must be non-empty"]
    if all(" " <= c <= "~" and c != "=" for c in value):
        return []
    return [_ENV_NAME_MESSAGE]


def is_config_map_key(value: str) -> list[str]:
    """A key of a ConfigMap or Secret."""
    errors = _too_long(value, 253)
    if not _CONFIG_KEY.fullmatch(value):
        errors.append(regex_error(_CONFIG_KEY_MESSAGE, _CONFIG_KEY_FMT, "key.name", "KEY_NAME", "key-name"))
    if value == ".":
        errors.append("must not be '.'")
    elif value == "..":
        errors.append("must not be '..'")
    elif value.startswith(".."):
        errors.append("must not start with '..'")
    return errors


def is_path_segment_name(value: str) -> list[str]:
    """A name that can stand in a URL's path (RBAC objects and others with free names)."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in value]


def is_port_name(value: str) -> list[str]:
    """An IANA service name: the name of a port."""
    errors = _too_long(value, 15)
    if not re.fullmatch("[-a-z0-9]+", value):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        errors.append("must contain at least one letter (a-z)")
    if "--" in value:
        errors.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return errors


_LEADING_ZEROS: Final = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")


def without_leading_zeros(address: str) -> str:
    """An IPv4 address as it is meant by who writes its numbers with leading zeros."""
    before = max(0, len(address.rstrip("0123456789.")) - 1)
    return address[:before] + _LEADING_ZEROS.sub("", address[before:])


def is_ip(value: str) -> list[str]:
    """An IPv4 or IPv6 address: without a zone, and no IPv4 address in IPv6 notation."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        address = None
    if address is None and (plain := without_leading_zeros(value)) != value and not is_ip(plain):
        return ["must not have leading 0s"]
    if address is None or "%" in value:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return ["must not be an IPv4-mapped IPv6 address"]
    return []


def is_canonical_ip(value: str) -> list[str]:
    """An address as it is printed: IPv6 in lower case, its longest run of zeros left out."""
    errors = is_ip(value)
    if not errors and str(ipaddress.ip_address(value)) != value:
        errors.append(f'must be in canonical form ("{ipaddress.ip_address(value)}")')
    return errors


_PREFIX: Final = re.compile("0|[1-9][0-9]{0,2}")


def is_cidr(value: str) -> list[str]:
    """An address with a prefix length."""
    return [] if _interface(value) else ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]


def is_interface_address(value: str) -> list[str]:
    """An address with a prefix length, as it is written."""
    found = _interface(value)
    if found is None:
        return ["must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"]
    return [] if value == found.with_prefixlen else [f'must be in canonical form ("{found.with_prefixlen}")']


def _interface(value: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    address, _, prefix = value.rpartition("/")
    if not _PREFIX.fullmatch(prefix) or "%" in address:
        return None
    try:
        return ipaddress.ip_interface(value)
    except ValueError:
        return None


def is_network(value: str) -> list[str]:
    """A network: an address with a prefix length, and nothing set behind it."""
    errors = is_cidr(value)
    if errors:
        return errors
    network = ipaddress.ip_interface(value)
    if isinstance(network, ipaddress.IPv6Interface) and network.ip.ipv4_mapped is not None:
        return ["must not have an IPv4-mapped IPv6 address"]
    if network.ip != network.network.network_address:
        return ["must not have bits set beyond the prefix length"]
    return []


def is_canonical_network(value: str) -> list[str]:
    """A network as it is printed."""
    errors = is_network(value)
    if not errors and str(ipaddress.ip_interface(value).network) != value:
        errors.append(f'must be in canonical form ("{ipaddress.ip_interface(value).network}")')
    return errors


def is_extended_resource_name(value: str) -> bool:
    """Whether a resource name is an extended one: `domain/name` outside kubernetes.io, countable by a quota."""
    if "/" not in value or "kubernetes.io/" in value or value.startswith("requests."):
        return False
    return not is_qualified_name(f"requests.{value}")


def is_native_resource(name: str) -> bool:
    """Whether a resource is one of Kubernetes' own: without a domain, or of kubernetes.io."""
    return "/" not in name or "kubernetes.io/" in name


def generate_name(base: str, random_suffix: str) -> str:
    """The name made from `metadata.generateName`: the base cut to 58 characters, then the given random suffix."""
    return base[:MAX_GENERATED_BASE] + random_suffix


def name_suffix(number: int, length: int = GENERATED_SUFFIX_LENGTH) -> str:
    """`length` letters of the generated names' alphabet that stand for `number` (a draw, or a hash)."""
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(NAME_ALPHABET))
        letters.append(NAME_ALPHABET[letter])
    return "".join(letters)


def short_hash(text: str, length: int = 10) -> str:
    """A short, stable hash of a text that can stand in a name."""
    return name_suffix(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"), length)


def format_time(moment: datetime) -> str:
    """A metav1.Time: seconds, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[: -len("+00:00")] + "Z"


def format_micro_time(moment: datetime) -> str:
    """A metav1.MicroTime: six decimals, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)


def parse_time(text: str) -> datetime:
    """The moment an RFC 3339 text names (finer than microseconds is cut off); ValueError otherwise."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError(f'parsing time "{text}": not an RFC 3339 time such as 2026-01-02T03:04:05Z')
    day, clock, fraction, zone = parts.groups()
    micro = (fraction or "")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{day}T{clock}.{micro}{'+00:00' if zone == 'Z' else zone}").astimezone(UTC)


def format_milliseconds(milliseconds: float) -> str:
    """Milliseconds since 1970 as a metav1.Time."""
    return format_time(datetime.fromtimestamp(milliseconds / 1000, UTC))


def parse_milliseconds(text: str | None) -> int:
    """A time (RFC 3339) as milliseconds since 1970; 0 for none, ValueError for another text."""
    return int(datetime.fromisoformat(text).timestamp() * 1000) if text else 0


def names_text(names: Sequence[str], most: int = 5) -> str:
    """Join names for a message: the first ones, and how many there are besides: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, word: str) -> str:
    """A number with its word for a message: `1 device`, `2 devices`, `2 replies`."""
    if count == 1:
        return f"1 {word}"
    return f"{count} {word[:-1]}ies" if word.endswith("y") else f"{count} {word}s"
