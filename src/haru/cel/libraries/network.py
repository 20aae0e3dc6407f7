"""IP addresses and networks: `ip("10.0.0.1").family()`, `cidr("10.0.0.0/8").containsIP("10.1.2.3")`.

IPv4 addresses inside IPv6 ones and zones are refused, as Kubernetes does.
"""

from __future__ import annotations

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.overloads import accepted_by, function, member
from haru.cel.types import BOOL, INT, STRING, opaque

IP_TYPE = opaque("net.IP")
CIDR_TYPE = opaque("net.CIDR")


class Ip:
    """An address: its family and its bits."""

    __slots__ = ("family", "number")
    cel_type = IP_TYPE

    def __init__(self, family: int, number: int) -> None:
        self.family = family
        self.number = number

    @property
    def width(self) -> int:
        """How many bits an address of the family has."""
        return 32 if self.family == 4 else 128

    def top(self, bits: int) -> int:
        """The leading bits."""
        return self.number >> (self.width - bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and (self.family, self.number) == (other.family, other.number)

    def __hash__(self) -> int:
        return hash((self.family, self.number))

    def __str__(self) -> str:
        import ipaddress

        address = ipaddress.IPv4Address if self.family == 4 else ipaddress.IPv6Address
        return str(address(self.number))


class Cidr:
    """A network as it was written: the address may have bits beyond the prefix."""

    __slots__ = ("address", "bits")
    cel_type = CIDR_TYPE

    def __init__(self, address: Ip, bits: int) -> None:
        self.address = address
        self.bits = bits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cidr) and self.address == other.address and self.bits == other.bits

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def contains(self, address: Ip) -> bool:
        """Whether an address is inside."""
        return self.address.family == address.family and self.address.top(self.bits) == address.top(self.bits)

    def masked(self) -> Cidr:
        """The network with its own address."""
        shift = self.address.width - self.bits
        return Cidr(Ip(self.address.family, self.address.number >> shift << shift), self.bits)


def _address(text: str) -> Ip:
    # Imported late: few expressions speak of addresses.
    import ipaddress

    if "%" in text:
        raise ValueError("zones are not allowed")
    parsed = ipaddress.ip_address(text)
    return Ip(parsed.version, int(parsed))


def _is_mapped(address: Ip) -> bool:
    return address.family == 6 and address.number >> 32 == 0xFFFF


def parse_ip(text: str) -> Ip:
    """The address. Raises EvaluationError."""
    if "%" in text:
        raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = _address(text)
    except ValueError as error:
        raise EvaluationError(f'IP Address "{text}" parse error during conversion from string: {error}') from None
    if _is_mapped(address):
        raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def parse_cidr(text: str) -> Cidr:
    """The network. Raises EvaluationError."""
    prefix = "network address parse error during conversion from string: "
    head, slash, bits = text.rpartition("/")
    try:
        if not slash:
            raise ValueError("no '/'")
        address = _address(head)
        if not (bits.isascii() and bits.isdigit() and str(int(bits[:9])) == bits[:9]):
            raise ValueError(f'bad bits after slash: "{bits}"')
        if len(bits) > 3 or int(bits) > address.width:
            raise ValueError("prefix length out of range")
    except ValueError as error:
        raise EvaluationError(f'{prefix}{prefix}netip.ParsePrefix("{text}"): {error}') from None
    if _is_mapped(address):
        raise EvaluationError(f'{prefix}IPv4-mapped IPv6 address "{text}" is not allowed')
    return Cidr(address, int(bits))


def _is_loopback(address: Ip) -> bool:
    return address.top(8) == 127 if address.family == 4 else address.number == 1


def _is_link_local_multicast(address: Ip) -> bool:
    if address.family == 4:
        return address.top(24) == 0xE00000
    return address.top(8) == 0xFF and address.top(16) & 0xF == 2


def _is_link_local_unicast(address: Ip) -> bool:
    return address.top(16) == 0xA9FE if address.family == 4 else address.top(10) == 0x3FA


def _is_multicast(address: Ip) -> bool:
    return address.top(4) == 0xE if address.family == 4 else address.top(8) == 0xFF


def _is_global_unicast(address: Ip) -> bool:
    broadcast = address.family == 4 and address.number == 0xFFFFFFFF
    special = _is_loopback(address) or _is_multicast(address) or _is_link_local_unicast(address)
    return address.number != 0 and not broadcast and not special


def _contains_cidr(outer: Cidr, inner: Cidr) -> bool:
    return outer.bits <= inner.bits and outer.contains(inner.address)


_IP, _CIDR = (IP_TYPE,), (CIDR_TYPE,)

IPS = Library(
    "kubernetes.net.ip",
    {
        "ip": (function("string_to_ip", (STRING,), IP_TYPE, parse_ip),),
        "family": (member("ip_family", _IP, INT, lambda address: address.family),),
        "ip.isCanonical": (function("ip_is_canonical", (STRING,), BOOL, lambda text: str(parse_ip(text)) == text),),
        "isUnspecified": (member("ip_is_unspecified", _IP, BOOL, lambda address: address.number == 0),),
        "isLoopback": (member("ip_is_loopback", _IP, BOOL, _is_loopback),),
        "isLinkLocalMulticast": (member("ip_is_link_local_multicast", _IP, BOOL, _is_link_local_multicast),),
        "isLinkLocalUnicast": (member("ip_is_link_local_unicast", _IP, BOOL, _is_link_local_unicast),),
        "isGlobalUnicast": (member("ip_is_global_unicast", _IP, BOOL, _is_global_unicast),),
        "isIP": (function("is_ip", (STRING,), BOOL, accepted_by(parse_ip)),),
        "string": (function("ip_to_string", _IP, STRING, str),),
    },
    types=(IP_TYPE,),
)

CIDRS = Library(
    "kubernetes.net.cidr",
    {
        "cidr": (function("string_to_cidr", (STRING,), CIDR_TYPE, parse_cidr),),
        "containsIP": (
            member(
                "cidr_contains_ip_string",
                (CIDR_TYPE, STRING),
                BOOL,
                lambda network, text: network.contains(parse_ip(text)),
            ),
            member("cidr_contains_ip_ip", (CIDR_TYPE, IP_TYPE), BOOL, Cidr.contains),
        ),
        "containsCIDR": (
            member(
                "cidr_contains_cidr_string",
                (CIDR_TYPE, STRING),
                BOOL,
                lambda network, text: _contains_cidr(network, parse_cidr(text)),
            ),
            member("cidr_contains_cidr", (CIDR_TYPE, CIDR_TYPE), BOOL, _contains_cidr),
        ),
        "ip": (member("cidr_ip", _CIDR, IP_TYPE, lambda network: network.address),),
        "prefixLength": (member("cidr_prefix_length", _CIDR, INT, lambda network: network.bits),),
        "masked": (member("cidr_masked", _CIDR, CIDR_TYPE, Cidr.masked),),
        "isCIDR": (function("is_cidr", (STRING,), BOOL, accepted_by(parse_cidr)),),
        "string": (function("cidr_to_string", _CIDR, STRING, str),),
    },
    types=(CIDR_TYPE,),
)
