"""The Common Expression Language as Kubernetes 1.36 has it: parser, type checker, compiler, costs, libraries.

An expression goes through `parser` (tokens, tree, macros expanded), `checker` (names, overloads, types), `estimate` (what it
can cost at worst) and `compiler` (Python closures; `metering` has the same with a counter). An `environment.Environment` holds
what an expression may speak of. `device` is the environment of DRA's selectors, ready to use; others are the same libraries
with other variables:

    from haru.cel.environment import KUBERNETES, Environment
    from haru.cel.libraries import BASE
    from haru.cel.program import Program, parse_and_check
    from haru.cel.types import DYN

    admission = Environment(BASE, {"object": DYN, "oldObject": DYN}, KUBERNETES)
    root = parse_and_check("object.spec.replicas <= 5", admission)
    Program(root, admission, ("object", "oldObject")).evaluate({"spec": {"replicas": 3}}, None)

Values are plain Python values, see `values`. Errors are those of `errors`, worded as cel-go does.

| library | what it has |
| --- | --- |
| standard | operators, `size`, `contains`, `startsWith`, `endsWith`, `matches`, conversions, `getHours` …, `has`, `all`, `exists`, `exists_one`, `map`, `filter` |
| optionals | `optional.of`, `optional.none`, `a.?b`, `a[?b]`, `hasValue`, `value`, `or`, `orValue`, `optMap`, `optFlatMap` |
| comprehensions | `all`, `exists`, `existsOne` over two variables, `transformList`, `transformMap`, `transformMapEntry` |
| bindings | `cel.bind` (device environment) |
| strings | version 2: `charAt`, `indexOf`, `join`, `lowerAscii`, `replace`, `split`, `substring`, `trim`, `format`, `strings.quote` … |
| lists | `isSorted`, `sum`, `min`, `max`, `indexOf`; version 3: `slice`, `flatten`, `sort`, `sortBy`, `distinct`, `reverse`, `lists.range` |
| sets | `sets.contains`, `sets.equivalent`, `sets.intersects` |
| regex | `find`, `findAll` |
| urls | `url`, `isURL`, `getScheme`, `getHost`, `getHostname`, `getPort`, `getEscapedPath`, `getQuery` |
| network | `ip`, `isIP`, `ip.isCanonical`, `family`, …; `cidr`, `isCIDR`, `containsIP`, `containsCIDR`, `prefixLength`, `masked` |
| quantity | `quantity`, `isQuantity`, `compareTo`, `isGreaterThan`, `isLessThan`, `add`, `sub`, `sign`, `asInteger`, … |
| semver | `semver`, `isSemver`, `compareTo`, `isGreaterThan`, `isLessThan`, `major`, `minor`, `patch` |
| format | `format.dns1123Label()` and twelve more, `format.named`, `validate` |
| authorization | `authorizer.group(…).resource(…).check(…)` |
| device | `includes` (DRAListTypeAttributes) |

Known differences from the reference: nesting is limited to 80 brackets and a tree of 150 levels (cel-go: 250). Maps are
visited in the order of their making (Go's order is random, and with it the cost of an `exists` over a map). The text of some
syntax errors is ANTLR's there. A faulty constant format string is found when it is evaluated (there: compiled).
`lists.range` stops at a million. Messages (protobuf) exist only as far as an environment declares them.
"""  # noqa: E501 - the table
