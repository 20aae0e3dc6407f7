"""The language itself, in tables: values, overflow, errors that logic absorbs, types, libraries."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from haru.cel.environment import Dialect, Environment
from haru.cel.errors import CompileError, EvaluationError
from haru.cel.libraries.authorization import AUTHORIZER, Authorizer, Decision, Question
from haru.cel.libraries.kubernetes import BASE, BINDINGS
from haru.cel.metering import MeteringCompiler
from haru.cel.program import MeteredProgram, Program, parse_and_check
from haru.cel.types import DYN, INT, STRING, format_type, list_of, map_of
from haru.cel.values import Duration, Timestamp, Uint

KUBERNETES = Environment(
    (*BASE, BINDINGS),
    {"x": DYN, "numbers": list_of(INT), "labels": map_of(STRING, STRING)},
    dialect=Dialect(kubernetes=True),
)
VARIABLES = ("x", "numbers", "labels")
BOUND: tuple[Any, ...] = ({"a": [1, 2.5, "t", True, None]}, [3, 1, 2], {"app": "web"})


def evaluate(expression: str) -> Any:
    """The value, which must be the same with and without counting."""
    root = parse_and_check(expression, KUBERNETES)
    metered = MeteredProgram(root, KUBERNETES, VARIABLES).measure(math.inf, *BOUND)
    try:
        value = Program(root, KUBERNETES, VARIABLES).evaluate(*BOUND)
    except EvaluationError as error:
        assert str(metered.error) == str(error)
        raise
    assert metered.error is None
    assert metered.value == value or value != value
    return value


@pytest.mark.parametrize(
    "expression", ["x.?a.?b.orValue(2)", "labels.?tier.orValue(string(1 / 0))", "dyn({'a': [1]}).?a.?b.?c.orValue(1)"]
)
def test_optional_field_errors_equal_those_of_plain_selection(expression: str) -> None:
    with pytest.raises(EvaluationError):
        evaluate(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3 - 4 / 2 % 2", 7),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("-9223372036854775808", -(1 << 63)),
        ("2u * 3u", Uint(6)),
        ("1.0 / 0.0", math.inf),
        ("'a' + 'b'", "ab"),
        ("b'a' + b'\\xff'", b"a\xff"),
        ("[1] + [2]", [1, 2]),
        ("r'\\d' == '\\\\d'", True),
        ("bR'\\d' == b'\\\\d'", True),
        ("'''two\nlines'''", "two\nlines"),
        ("!!true", True),
        ("- -1 == 1", True),
        ("true ? 1 : 2", 1),
        ("{'a': 1}.a", 1),
        ("[,].size() + {,}.size() + [1,].size() + {'a': 1,}.size()", 2),
        ("{true: 1, false: 2}[true]", 1),
        ("{1: 'one'}[dyn(1.0)]", "one"),
        ("{1: 'one'}[dyn(1u)]", "one"),
        ("dyn(true) == dyn(1)", False),
        ("dyn(1) in [dyn(true)]", False),
        ("dyn(1u) == dyn(1.0)", True),
        ("9223372036854775807 == dyn(9223372036854775808.0)", True),
        ("null == null", True),
        ("dyn('1') == dyn(1)", False),
        ("[[1, 2], [3]] == [[1, 2], [3]]", True),
        ("x.a[3] == true && x.a[1] == 2.5", True),
        ("x.a.exists(v, v == 'missing') || x.a[0] == 1", True),
        ("false && (1 / 0 == 1)", False),
        ("(1 / 0 == 1) && false", False),
        ("true || x.nothing", True),
        ("x.nothing || true", True),
        ("[0, 1].exists(v, 1 / v == 1)", True),
        ("[0, 1].all(v, 1 / v == 5)", False),
        ("[1, 2, 3].map(v, v > 1, v * 2)", [4, 6]),
        ("[1, 2, 3].filter(v, v != 2)", [1, 3]),
        ("[1, 2, 2].exists_one(v, v == 2)", False),
        ("labels.exists(k, v, k == 'app' && v == 'web')", True),
        ("[3, 5].transformMap(i, v, v + i)", {0: 3, 1: 6}),
        ("{'a': 1}.transformMapEntry(k, v, {v: k})", {1: "a"}),
        ("cel.bind(v, 1 / 0, true || v == 1)", True),
        ("cel.bind(v, numbers.sum(), v * v)", 36),
        ("optional.of(1).optMap(v, v + 1).value()", 2),
        ("optional.none().orValue(5)", 5),
        ("labels.?app.orValue('none')", "web"),
        ("labels.?tier.orValue('none')", "none"),
        ("labels.?app.orValue(string(1 / 0))", "web"),
        ("dyn({'a': {'b': {'c': 1}}}).?a.?b.?c.orValue(2)", 1),
        ("dyn({'a': {'b': null}}).?a.?b.?c.orValue(2)", 2),
        ("dyn({'a': {'b': null}}).?a.?b.orValue(2)", None),
        ("dyn({'a': optional.of({'b': 1})}).?a.?b.orValue(2)", 1),
        ("dyn({'a': optional.none()}).?a.?b.orValue(2)", 2),
        ("optional.of({'a': {'b': 1}}).?a.?b.orValue(2)", 1),
        ("x.?b.?c.orValue(2)", 2),
        ("dyn('text').?b.orValue(2)", 2),
        ("optional.of(1).orValue(1 / 0)", 1),
        ("[?optional.none(), ?optional.of(1)]", [1]),
        ("type(1) == int && type([]) == list && type(null) == null_type", True),
        ("string(123456.0) + ' ' + string(1234567.0) + ' ' + string(1e15)", "123456 1.234567e+06 1e+15"),
        ("string(1.0) + string(1e21) + string(-0.5) + string(1e-7)", "11e+21-0.51e-07"),
        ("int(3.9) + int('-4') + int(5u)", 4),
        ("double('1.5') + double(2)", 3.5),
        ("bool('t') && !bool('FALSE')", True),
        ("duration('1h30m') - duration('30m')", Duration(3_600 * 10**9)),
        ("string(duration('-1.5s'))", "-1.5s"),
        ("timestamp('2024-02-29T12:30:00.5Z') + duration('24h')", Timestamp(1709296200500000000)),
        ("timestamp('2024-02-29T23:30:00Z').getDate('+01:00')", 1),
        ("timestamp('2024-07-01T12:00:00Z').getHours('Europe/Berlin')", 14),
        ("timestamp('1969-12-31T23:59:59.250Z').getMilliseconds()", 250),
        ("timestamp('2024-02-29T00:00:00Z').getDayOfWeek()", 4),
        ("string(timestamp('2024-02-29T00:00:00+02:00'))", "2024-02-28T22:00:00Z"),
    ],
)
def test_expression_evaluates_to_value_of_expected_type(expression: str, expected: Any) -> None:
    value = evaluate(expression)
    assert value == expected
    assert value.__class__ is expected.__class__


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'tacocat'.indexOf('c', 3)", 4),
        ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
        ("'abc'.split('')", ["a", "b", "c"]),
        ("'aXbX'.replace('X', '-', 1)", "a-bX"),
        ("'ÀB'.lowerAscii() + 'é'.upperAscii()", "Àbé"),
        ("' \\u2003x '.trim()", "x"),
        ("strings.quote('a\"b\\n')", '"a\\"b\\n"'),
        (
            "'%s %d %.2f %x %e'.format([dyn('a'), dyn(1), dyn(1234.5), dyn(255), dyn(2.71828)])",
            "a 1 1,234.50 ff 2.718280\u202f×\u202f10⁰⁰",
        ),
        ("'%s'.format([[dyn('a'), dyn(1.5), dyn(duration('1s'))]])", '["a", 1.500000, duration("1s")]'),
        ("numbers.sum() + numbers.max() - numbers.min()", 8),
        ("numbers.isSorted()", False),
        ("numbers.sort() + numbers.sortBy(v, -v)", [1, 2, 3, 3, 2, 1]),
        ("[[1], [2, 3]].flatten() + [1, 1].distinct() + lists.range(2)", [1, 2, 3, 1, 0, 1]),
        ("numbers.slice(1, 3).reverse()", [2, 1]),
        ("sets.equivalent([1, 1, 2], [2, 1]) && !sets.intersects([1], [2])", True),
        ("'a1b22'.find('[0-9]+') + ''.find('x')", "1"),
        ("'a1b22'.findAll('[0-9]+')", ["1", "22"]),
        ("'abc'.findAll('x*', 2)", ["", ""]),
        ("'abc'.matches('^a.c$')", True),
        ("url('https://u@h.example:8443/a%20b?q=1&q=2').getHost()", "h.example:8443"),
        ("url('https://h/a b').getEscapedPath()", "/a%20b"),
        ("url('https://h/?q=1&q=2&r=x+y').getQuery()", {"q": ["1", "2"], "r": ["x y"]}),
        ("isURL('no') || isURL('http://[::1') || isURL('http://h:x/') || isURL('h://a b/')", False),
        ("url('http://[::1]:80/').getHostname() + url('http://[::1]:80/').getPort()", "::180"),
        ("string(ip('2001:DB8::1'))", "2001:db8::1"),
        ("isIP('::ffff:1.2.3.4') || isIP('fe80::1%eth0') || isIP('010.0.0.1')", False),
        ("ip.isCanonical('127.0.0.1') && !ip.isCanonical('2001:DB8::1')", True),
        ("ip('127.0.0.1').isLoopback() && ip('ff02::1').isLinkLocalMulticast()", True),
        ("ip('169.254.0.1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast()", True),
        ("cidr('10.0.0.1/8').containsIP('10.255.0.1') && !cidr('10.0.0.0/8').containsIP(ip('::1'))", True),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')", True),
        ("string(cidr('10.1.2.3/8').masked()) + string(cidr('10.1.2.3/8').ip())", "10.0.0.0/810.1.2.3"),
        ("isCIDR('10.0.0.0/33') || isCIDR('10.0.0.0/08') || isCIDR('10.0.0.0')", False),
        ("quantity('1Gi').add(quantity('512Mi')).sub(1).asInteger()", 3 * 2**29 - 1),
        ("quantity('100m').isInteger() || sign(quantity('-1')) == 1", False),
        ("quantity('1500m').asApproximateFloat()", 1.5),
        ("semver('1.2.3-rc.1').isLessThan(semver('1.2.3')) && semver('1.0.0-2').isLessThan(semver('1.0.0-a'))", True),
        ("semver('v01.2', true) == semver('1.2.0')", True),
        ("isSemver('01.0.0') || isSemver('1.0', false) || isSemver('1.0.0-01') || isSemver('1-a', true)", False),
        ("format.dns1123Label().validate('Bad').hasValue()", True),
        ("format.named('uuid').value().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()", False),
        ("format.dns1123LabelPrefix().validate('web-').hasValue()", False),
        ("format.named('nothing').hasValue()", False),
        ("timestamp('0001-01-01T00:00:00Z').getFullYear('America/St_Johns')", 0),
        ("timestamp('0001-01-01T00:00:00Z').getHours('America/St_Johns')", 20),
        ("timestamp('9999-12-31T23:59:59Z').getFullYear('Europe/Berlin')", 10000),
        ("format.date().validate('2024-02-30').hasValue() && format.byte().validate('a').hasValue()", True),
    ],
)
def test_library_functions_return_expected_values(expression: str, expected: Any) -> None:
    assert evaluate(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("9223372036854775807 + numbers[0]", "integer overflow"),
        ("-(-9223372036854775807 - numbers[1] - 0)", "integer overflow"),
        ("1u - 2u", "unsigned integer overflow"),
        ("int(1e19)", "integer overflow"),
        ("numbers[0] / 0", "division by zero"),
        ("numbers[0] % 0", "modulus by zero"),
        ("numbers[9]", "index out of bounds: 9"),
        ("labels.nothing", "no such key: nothing"),
        ("x.a[2] + 1", "no such overload: _+_(string, int)"),
        ("x.a[2] ? 1 : 2", "no such overload"),
        ("x.a[2] && true", "no such overload"),
        ("optional.none().value()", "optional.none() dereference"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
        ("timestamp(0).getHours('Nowhere/Land')", "unknown time zone Nowhere/Land"),
        ("quantity('10Mo')", "quantities must match the regular expression"),
        ("semver('1.0')", "No Major.Minor.Patch elements found"),
        ("numbers.filter(v, v > 9).max()", "max called on empty list"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("lists.range(2000000)", "operation cancelled: actual cost limit exceeded"),
        (
            "[1].transformMapEntry(i, v, {'k': v}).k + {'a': 1, 'b': 2}.transformMapEntry(k, v, {'k': v}).k",
            "insert failed",
        ),
        ("x.a.join(',')", "join: invalid input: 1"),
        ("x.a[2].matches('(' + x.a[2])", "error parsing regexp"),
    ],
)
def test_evaluation_error_starts_with_message(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(expression)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'}", "expected type 'int' but found 'string'"),
        ("nothing + other", "undeclared reference to 'nothing' (in container '')"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("'a'.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("1.foo()", "undeclared reference to 'foo'"),
        ("'a'.b", "type 'string' does not support field selection"),
        ("1.exists(v, true)", "cannot be range of a comprehension"),
        ("[1].exists(v.w, true)", "argument must be a simple name"),
        ("[1].exists(v, v, true)", "duplicate variable name: v"),
        ("has(x)", "invalid argument to has() macro"),
        ("[1].all(v, v)", "expected type 'bool' but found 'int'"),
        ("duration('soon')", "invalid duration argument"),
        ("timestamp('now')", "invalid timestamp argument"),
        ("timestamp(null)", "invalid timestamp argument"),
        ("duration(null)", "invalid duration argument"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("9223372036854775808", "invalid int literal"),
        ("- -9223372036854775808", "invalid int literal"),
        ("18446744073709551616u", "invalid uint literal"),
        ("'\\ud800'", "invalid unicode code point"),
        ("Message{field: 1}", "undeclared reference to 'Message'"),
        ("break", "reserved identifier: break"),
        ("rb'a'", "Syntax error"),
        ("a ? b", "missing ':' at '<EOF>'"),
    ],
)
def test_compile_error_contains_message(expression: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_and_check(expression, KUBERNETES)
    assert message in str(caught.value)


def test_all_compile_errors_are_reported_in_source_order() -> None:
    with pytest.raises(CompileError) as caught:
        parse_and_check("a + 1 == b\n&& c", KUBERNETES)
    assert [line for line in str(caught.value).splitlines() if line.startswith("ERROR")] == [
        "ERROR: <input>:1:1: undeclared reference to 'a' (in container '')",
        "ERROR: <input>:1:10: undeclared reference to 'b' (in container '')",
        "ERROR: <input>:2:4: undeclared reference to 'c' (in container '')",
    ]
    assert (caught.value.line, caught.value.column) == (1, 0)


@pytest.mark.parametrize(
    ("expression", "type_name"),
    [
        ("[]", "list(dyn)"),
        ("[x, x]", "list(dyn)"),
        ("{'a': [1u]}", "map(string, list(uint))"),
        ("optional.of(1)", "optional_type(int)"),
        ("timestamp(0)", "timestamp"),
        ("true ? x : 1", "dyn"),
        ("numbers.map(v, string(v))", "list(string)"),
        ("type(1)", "type(int)"),
    ],
)
def test_type_checker_deduces_expression_type(expression: str, type_name: str) -> None:
    root = parse_and_check(expression, KUBERNETES)
    assert root.type is not None
    assert format_type(root.type) == type_name


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 500 + "1" + ")" * 500,
        "[" * 500,
        "!" + "-" * 5_000 + "1",
        "1" + " + 1" * 5_000,
        "x" + ".a" * 5_000,
        "f(" * 500,
    ],
)
def test_deeply_nested_expression_is_a_compile_error(expression: str) -> None:
    with pytest.raises(CompileError):
        parse_and_check(expression, KUBERNETES)


def test_long_chain_of_and_operators_is_accepted() -> None:
    expression = " && ".join(["numbers[0] == 3"] * 600)
    assert evaluate(expression) is True


def test_message_literal_accepts_only_declared_fields() -> None:
    environment = Environment(BASE, structs={"Object": {"name": STRING, "size": INT}}, dialect=Dialect(kubernetes=True))
    root = parse_and_check("Object{name: 'a', ?size: optional.none()}", environment)
    assert Program(root, environment, ()).evaluate() == {"name": "a"}
    with pytest.raises(CompileError, match="expected type of field 'name' is 'string' but provided type is 'int'"):
        parse_and_check("Object{name: 1}", environment)
    with pytest.raises(CompileError, match="undefined field 'nothing'"):
        parse_and_check("Object{nothing: 1}", environment)


def test_authorizer_call_passes_collected_attributes() -> None:
    asked: list[Question] = []

    def decide(question: Question) -> Decision:
        asked.append(question)
        return Decision(question.verb == "get", "because")

    environment = Environment(BASE, {"authorizer": AUTHORIZER})
    expression = (
        "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('d').check('get')"
        ".allowed() && authorizer.serviceAccount('n', 's').path('/x').check('put').reason() == 'because'"
    )
    root = parse_and_check(expression, environment)
    assert Program(root, environment, ("authorizer",)).evaluate(Authorizer(decide)) is True
    assert asked == [
        Question("", "apps", "deployments", "scale", "n", "d", "get"),
        Question(path="/x", verb="put", service_account=("n", "s")),
    ]
    cost = MeteredProgram(root, environment, ("authorizer",)).measure(math.inf, Authorizer(decide)).cost
    assert cost > 700_000


def test_overload_ids_of_each_function_are_unique() -> None:
    for name, overloads in KUBERNETES.functions.items():
        ids = [overload.id for overload in overloads]
        assert len(set(ids)) == len(ids), name


def test_constant_expression_costs_nothing() -> None:
    root = parse_and_check("int('3') in [1, 2, 3]", KUBERNETES)
    compiler = MeteringCompiler(KUBERNETES, VARIABLES)
    assert compiler.compile(root) is not None
    assert MeteredProgram(root, KUBERNETES, VARIABLES).measure(0, *BOUND).value is True


def test_import_of_device_selectors_loads_no_slow_module() -> None:
    slow = ("re2", "ipaddress", "zoneinfo", "datetime", "dataclasses")
    script = f"import sys, haru.cel.device; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
