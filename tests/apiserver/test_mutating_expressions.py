"""Every function that mutations may use, evaluated by the running server; and those that they may not."""

from __future__ import annotations

import re
from typing import Any

from api_caller import MAPS, config_map
from mutating_objects import MUTATORS, WireCaller, applying, install, mutator, wire

from haru.cel.admission import Composition

__all__ = ["wire"]

Obj = dict[str, Any]

TRUE = """
1 + 2 * 3 - 4 / 2 % 2 == 7 && !false && -1 < 0 && 1 in [1] && (true ? 1 : 2) == 1 && [1, 2][1] == 2
1 <= 2.0 && 2u > 1 && 1.5 >= 1 && 1 < 2.5 && 1 != 2
size('abc') == 3 && size([1]) == 1 && size({'a': 1}) == 1 && size(b'ab') == 2
has(object.metadata.name) && !has(object.spec)
dyn(1) == 1 && type(1) == int
int('1') == 1 && uint(1) == 1u && double('1.5') == 1.5 && string(1) == '1' && bytes('a') == b'a' && bool('true')
duration('90s').getMinutes() == 1 && timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026
timestamp('2026-01-02T03:04:05Z').getMonth() == 0 && timestamp('2026-01-02T03:04:05Z').getDate() == 2
timestamp('2026-01-02T03:04:05Z').getDayOfMonth() == 1 && timestamp('2026-01-02T03:04:05Z').getDayOfWeek() == 5
timestamp('2026-01-02T03:04:05Z').getDayOfYear() == 1 && timestamp('2026-01-02T03:04:05Z').getHours('+01:00') == 4
timestamp('2026-01-02T03:04:05.006Z').getMilliseconds() == 6 && timestamp('2026-01-02T03:04:05Z').getSeconds() == 5
'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo') && 'hello'.matches('^h.*o$')
[1, 2].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2].exists_one(x, x == 1)
[1, 2].map(x, x + 1) == [2, 3] && [1, 2].map(x, x > 1, x * 2) == [4] && [1, 2].filter(x, x > 1) == [2]
'abc'.charAt(1) == 'b' && 'abcb'.indexOf('b') == 1 && 'abcb'.indexOf('b', 2) == 3 && 'abcb'.lastIndexOf('b') == 3
'aBc'.lowerAscii() == 'abc' && 'aBc'.upperAscii() == 'ABC' && ' a '.trim() == 'a'
'aaa'.replace('a', 'b') == 'bbb' && 'aaa'.replace('a', 'b', 1) == 'baa'
'a,b'.split(',') == ['a', 'b'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']
'abcd'.substring(1) == 'bcd' && 'abcd'.substring(1, 3) == 'bc'
['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b'
'%s %d %.1f %x %X %o %b'.format(['a', 1, 2.55, 255, 255, 8, 5]) == 'a 1 2.5 ff FF 10 101'
strings.quote('a"b') == '"a\\\\"b"'
[1, 2, 3].isSorted() && ![2, 1].isSorted() && [1, 2].sum() == 3 && [1, 2].min() == 1 && [1, 2].max() == 2
[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2
[1, 2, 3].slice(1, 3) == [2, 3] && [[1], [2]].flatten() == [1, 2] && [1, 1, 2].distinct() == [1, 2]
lists.range(3) == [0, 1, 2] && [1, 2].reverse() == [2, 1] && [2, 1].sort() == [1, 2]
['bb', 'a'].sortBy(x, size(x)) == ['a', 'bb']
'abc 123'.find('[0-9]+') == '123' && '1 2 3'.findAll('[0-9]') == ['1', '2', '3'] && '1 2'.findAll('[0-9]', 1) == ['1']
isURL('https://a.b/c') && !isURL('x') && url('https://h:80/p?q=1').getScheme() == 'https'
url('https://h:80/p?q=1').getHost() == 'h:80' && url('https://h:80/p').getHostname() == 'h'
url('https://h:80/p').getPort() == '80' && url('https://h/a%20b').getEscapedPath() == '/a%20b'
url('https://h/?q=1&q=2').getQuery() == {'q': ['1', '2']}
isQuantity('1Gi') && !isQuantity('x') && quantity('2k').isInteger() && quantity('2k').asInteger() == 2000
quantity('500m').asApproximateFloat() == 0.5 && quantity('1').add(quantity('1')).compareTo(quantity('2')) == 0
quantity('3').sub(1).isLessThan(quantity('3')) && quantity('3').isGreaterThan(quantity('2'))
sign(quantity('-1')) == -1 && sign(quantity('5')) == 1
isSemver('1.2.3') && !isSemver('v1') && semver('v1.2', true).minor() == 2 && semver('1.2.3').major() == 1
semver('1.2.3').patch() == 3 && semver('1.0.0').isLessThan(semver('1.0.1'))
semver('2.0.0').isGreaterThan(semver('1.9.9')) && semver('1.0.0').compareTo(semver('1.0.0')) == 0
isIP('10.0.0.1') && !isIP('10.0.0.01') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')
ip.isCanonical('::1') && string(ip('::1')) == '::1' && ip('10.0.0.1').family() == 4 && ip('::1').family() == 6
ip('0.0.0.0').isUnspecified() && ip('127.0.0.1').isLoopback() && ip('224.0.0.1').isLinkLocalMulticast()
ip('169.254.0.1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast()
isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && cidr('10.0.0.0/8').containsIP('10.1.1.1')
cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')
cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('10.0.0.0/8').prefixLength() == 8
string(cidr('10.0.0.0/8')) == '10.0.0.0/8' && !isCIDR('::ffff:1.2.3.4/96')
!format.dns1123Label().validate('ok').hasValue() && format.dns1123Label().validate('Not ok').hasValue()
!format.named('uuid').value().validate('3b6a9d2c-0d1e-4e8e-9d58-8e6c4f4f3a11').hasValue()
!format.named('nothing').hasValue() && format.dns1123Subdomain().validate('a_b').value().size() == 1
!format.labelValue().validate('a').hasValue() && !format.qualifiedName().validate('a/b').hasValue()
!format.uri().validate('https://a.b/c').hasValue() && format.uri().validate('a b').hasValue()
format.uuid().validate('x').hasValue()
!format.byte().validate('YQ==').hasValue() && format.byte().validate('?').hasValue()
!format.dns1035Label().validate('a1').hasValue() && format.dns1035Label().validate('1a').hasValue()
!format.dns1123LabelPrefix().validate('a-').hasValue() && format.dns1123LabelPrefix().validate('a.').hasValue()
!format.dns1123SubdomainPrefix().validate('a.b-').hasValue() && format.dns1123SubdomainPrefix().validate('_').hasValue()
!format.dns1035LabelPrefix().validate('a-').hasValue() && format.dns1035LabelPrefix().validate('1-').hasValue()
authorizer.requestResource.check('create').error() == ''
!format.date().validate('2026-01-02').hasValue() && format.datetime().validate('x').hasValue()
sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1, 2])
optional.of(1).hasValue() && !optional.none().hasValue() && !optional.ofNonZeroValue(0).hasValue()
optional.of(1).value() == 1 && optional.none().or(optional.of(2)).value() == 2 && optional.none().orValue(3) == 3
optional.of(1).optMap(x, x + 1).value() == 2 && optional.of(1).optFlatMap(x, optional.of(x)).value() == 1
object.?absent.orValue('x') == 'x' && [1][?5].orValue(2) == 2
{?'a': optional.none()} == {} && [?optional.of(1)] == [1]
[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && optional.unwrap([optional.of(1), optional.none()]) == [1]
[optional.of(1)].unwrapOpt() == [1]
[1, 2].all(i, v, v == i + 1) && {'a': 1}.exists(k, v, k == 'a' && v == 1) && [1, 2].existsOne(i, v, v == 2)
[1, 2].transformList(i, v, i + v) == [1, 3] && [1, 2].transformList(i, v, i > 0, v) == [2]
{'a': 1}.transformMap(k, v, v + 1) == {'a': 2} && ['a'].transformMapEntry(i, v, {v: i}) == {'a': 0}
authorizer.group('').resource('pods').namespace('default').name('p').subresource('log').check('get').allowed()
authorizer.path('/healthz').check('get').allowed()
!authorizer.serviceAccount('a', 'b').path('/x').check('get').allowed()
authorizer.requestResource.check('create').reason() != 'x' && !authorizer.requestResource.check('create').errored()
authorizer.group('apps').resource('deployments').fieldSelector('a=b').labelSelector('c=d').check('list').allowed()
jsonpatch.escapeKey('a/b~c') == 'a~1b~0c'
JSONPatch{op: 'add'} == JSONPatch{op: 'add'} && Object{a: 1} == Object{a: 1} && dyn(Object.a{}) != dyn(Object.b{})
"""
INTERNAL = {"cel.@mapInsert"}
"""What macros become."""
WRONG: list[tuple[str, str]] = [
    ("'abc'.reverse()", "found no matching overload for 'reverse'"),
    ("math.greatest(1, 2)", "undeclared reference to 'math'"),
    ("base64.encode(b'a')", "undeclared reference to 'base64'"),
    ("cel.bind(x, 1, x)", "undeclared reference to"),
    ("[1, 'a']", "expected type 'int' but found 'string'"),
    ("{'a': 1, 'b': 'c'}", "expected type 'int' but found 'string'"),
    ("params", "undeclared reference to 'params'"),
    ("request.uid", "undefined field 'uid'"),
    ("request.object", "undefined field 'object'"),
    ("namespaceObject.metadata.managedFields", "undefined field 'managedFields'"),
    ("'a'.matches('(')", "invalid matches argument"),
]
FAILING: list[tuple[str, str]] = [
    ("ip('10.0.0.0' + '1')", 'IP Address "10.0.0.01" parse error during conversion from string'),
    ("ip('::ffff:1.2.3.' + '4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
    ("cidr('10.0.0.0/3' + '3')", "network address parse error"),
    ("quantity('x' + 'y')", "quantities must match"),
    ("url('a' + 'b')", "URL parse error"),
    ("optional.none().value()", "optional.none() dereference"),
    ("[1, 2][5]", "index out of bounds: 5"),
    ("{'a': 1}[string(object.metadata.name)]", "no such key: wrong"),
    ("1 / (size(object.metadata.name) - 5)", "division by zero"),
    ("'abc'.substring(2, 1)", "invalid substring range"),
    ("['a', 'b'].transformMapEntry(i, v, {'same': v})", "insert failed: key same already exists"),
    ("authorizer.group('').resource('').check('get')", "resource must not be empty"),
]


def held(expression: str) -> Obj:
    """A mutation whose value is not used for anything."""
    return applying(f"[{expression}].size() == 7 ? Object{{}} : Object{{}}")


async def test_all_cel_functions_work_in_mutations(wire: WireCaller) -> None:
    lines = TRUE.strip().splitlines()
    # What the authorizer is asked costs a third of an expression's limit: a mutation for each of those.
    dear = [number for number, line in enumerate(lines) if "authorizer" in line]
    groups = [[number for number in range(len(lines)) if number not in dear], *([number] for number in dear)]
    mutations = []
    for group in groups:
        told = ", ".join(f'"e{number}": string({lines[number]})' for number in group)
        mutations.append(applying(f"Object{{data: {{{told}}}}}"))
    await install(wire, mutator(*mutations))
    stored = await wire.create(MAPS, config_map("m"))
    assert [lines[int(name[1:])] for name, value in stored["data"].items() if value != "true"] == []
    assert len(stored["data"]) == len(lines) > 60


def test_every_cel_function_is_covered() -> None:
    """The names of all functions of the environment stand in the expressions above."""
    known = Composition((), params=True).patching.functions
    spelled = set(re.findall(r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)*", TRUE))
    spelled |= {name.rpartition(".")[2] for name in spelled}
    named = {name for name in known if name[0].isalpha()} - INTERNAL
    assert len(named) > 110 and sorted(named - spelled) == []


async def test_invalid_mutation_expression_is_refused(wire: WireCaller) -> None:
    for expression, why in WRONG:
        answer = await wire("POST", MUTATORS, mutator(held(expression)))
        assert answer.status == 422, expression
        assert why in answer.json["message"], (expression, answer.json["message"])


async def test_failing_mutation_expression_denies_request(wire: WireCaller) -> None:
    await install(wire, mutator(applying("Object{}")))
    for expression, why in FAILING:
        body = {"spec": {"mutations": [held(expression)]}}
        answer = await wire("PATCH", f"{MUTATORS}/m.example.com", body, type="application/merge-patch+json")
        assert answer.status == 200, answer.json
        answer = await wire("POST", MAPS, config_map("wrong"))
        assert answer.status == 403, expression
        assert why in answer.json["message"], (expression, answer.json["message"])
