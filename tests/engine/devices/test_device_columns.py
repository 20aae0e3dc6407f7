"""Devices made column by column, and selectors on their shapes: the same as each device by itself, as CEL sees it."""

from __future__ import annotations

import json

import pytest
from device_objects import DRIVER, Obj, device, slice_
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.cel.device import DeviceView, compile_device_selector
from haru.cel.errors import EvaluationError
from haru.drivers.simulated.objects import device_classes
from haru.drivers.simulated.profiles import load_profile, profile_names
from haru.drivers.simulated.slices import resource_slices
from haru.engine.dra import DeviceSnapshot, NodeView
from haru.engine.dra.model.interning import Interner, decode_slice
from haru.engine.dra.model.model import Device, Slice
from haru.engine.dra.selectors.compiled_selectors import Reader, Selection, SelectionError, reader_of

A = f"device.attributes['{DRIVER}']"
EXPRESSIONS = (
    f"{A}.a == 'x' && {A}.b >= 1",
    f"{A}.?a.orValue('y') in ['x', 'y']",
    f"{A}.b in [0, 1]",
    f"{A}.a.startsWith('x') || device.capacity['{DRIVER}'].mem.compareTo(quantity('2Gi')) > 0",
    f"'b' in {A} && {A}.b == true",
    f"device.attributes['other.example.com'].c == 1 || device.driver == '{DRIVER}'",
    f"{A}.exists(key, key == 'a')",
    f"has({A}.v) && {A}.v.isLessThan(semver('2.0.0'))",
    f"{A}.a == semver('1.2.3')",
    f"{A}.a == '1.2.3' || {A}.b == {A}.a",
    f"{A}.exists(key, {A}[key] == semver('1.2.3'))",
    f"{A}.?a.orValue(semver('1.2.3')).major() == 1",
    f"{A}.a",
    "has(device.driver) && has(device.allowMultipleAllocations)",
    f"device.attributes[?'{DRIVER}'].?a.orValue('x') == 'x'",
    "device.attributes['other.example.com'][?'c'].hasValue()",
    f"cel.bind(a, {A}.a, a == 'x' || a == 'y')",
    f"['x', 'y'].exists(device, device == 'x') && {A}.a != 'x'",
    f"{A}.a != 'x' || {A}.b == true",
    f"{A}.b < 1 || {A}.b >= 1.0",
    *(f"device.capacity['{DRIVER}'].mem.compareTo(quantity('2.5')) {op} 0" for op in ("<", "<=", ">", ">=", "==")),
    f"device.capacity['{DRIVER}'].mem.compareTo(quantity('1Gi')) < 1",
    f"device.capacity['{DRIVER}'].mem.isLessThan(quantity('4Gi'))",
    f"device.capacity['{DRIVER}'].mem.isGreaterThan(quantity('1Gi'))",
    f"device.capacity['{DRIVER}'].mem == quantity('1Gi')",
    f"'mem' in device.capacity['{DRIVER}'] && device.capacity['{DRIVER}'].mem.asInteger() > 5",
)
VERSIONS = ({"version": "1.2.3"}, {"version": "1.2.3+build"}, {"version": "2.0.0"})
VALUES = st.one_of(
    st.sampled_from(({"string": "x"}, {"string": "y"}, {"int": 0}, {"int": 1}, {"bool": True}, *VERSIONS)),
    st.sampled_from(({"version": "wrong"}, {"strings": ["x"]}, {}, {"string": "x", "int": 1}, {"string": None})),
)
NAMES = st.sampled_from(("a", "b", "v", "other.example.com/c"))


def spelled(attributes: Obj, full: bool) -> Obj:
    """The same attributes with the driver's own domain left out or not."""
    return {f"{DRIVER}/{name}" if full and "/" not in name else name: value for name, value in attributes.items()}


DEVICES = st.builds(
    lambda attributes, full, memory, shared: {
        **({"attributes": spelled(attributes, full)} if attributes is not None else {}),
        **({"capacity": {"mem": {"value": memory}}} if memory else {}),
        **({"allowMultipleAllocations": True} if shared else {}),
    },
    st.none() | st.dictionaries(NAMES, VALUES, max_size=4),
    st.booleans(),
    st.sampled_from(("", "1Gi", "4Gi", "2.5")),
    st.booleans(),
)


def alone(raw: Obj, expression: str) -> bool | str:
    """What an expression says of one device, without any of the allocator's shortcuts."""
    attributes, capacity = raw.get("attributes") or {}, raw.get("capacity") or {}
    view = DeviceView(DRIVER, attributes, capacity, bool(raw.get("allowMultipleAllocations")))
    try:
        return compile_device_selector(expression, new=False).matches(view)
    except EvaluationError as error:
        return f"CEL runtime error: {error}"


def agree(lists: list[list[Obj]], expression: str) -> None:
    """The columns of these pools, and each shape by itself, say what each of the devices says."""
    named = [[{"name": f"d{number}", **entry} for number, entry in enumerate(raw)] for raw in lists]
    slices = [slice_(f"s{number}", raw, pool=f"pool-{number}") for number, raw in enumerate(named)]
    snapshot = DeviceSnapshot.of(slices)
    views = snapshot.views(NodeView("node-1", {}))
    found = [
        verdict.message if isinstance(verdict, SelectionError) else verdict
        for view in views
        for verdict in Selection((), (expression,), False, True).column(view)
    ]
    reader = reader_of(expression, False, True, snapshot.cache)
    assert found == [reader.verdict(shape) for view in views for shape in view.table.shape_of]
    wanted = [alone(entry, expression) for raw in named for entry in raw]
    # Which of several unusable attributes is named may differ: that the device is unusable may not.
    unusable = [isinstance(w, str) and "attribute " in w for w in wanted]
    assert [f if not odd else isinstance(f, str) for f, odd in zip(found, unusable, strict=True)] == [
        w if not odd else True for w, odd in zip(wanted, unusable, strict=True)
    ]


@settings(max_examples=800, deadline=None)
@given(st.lists(DEVICES, min_size=1, max_size=30), st.sampled_from(EXPRESSIONS))
def test_selector_column_equals_selector_per_device(raw: list[Obj], expression: str) -> None:
    agree([raw], expression)


TERMS = (
    f"{A}.a == 'x'",
    f"{A}.b >= 1",
    f"{A}.b in [0, 1]",
    f"{A}.a",  # mostly no boolean
    f"{A}.a == {A}.b",
    f"{A}.b == true",
    f"{A}.b != 1",
    f"has({A}.a)",
    f"{A}.a == semver('1.2.3')",
    f"{A}.a.compareTo(semver('2.0.0')) < 0",
    f"device.capacity['{DRIVER}'].mem.isLessThan(quantity('2Gi'))",
    f"device.capacity['{DRIVER}'].mem.compareTo(quantity('2Gi')) > 0",
    f"device.driver == '{DRIVER}'",
    "device.attributes['other.example.com'].c == 1",
    "device.allowMultipleAllocations",
    "true",
    "1 / 0 == 1",
)
CHAINS = st.recursive(
    st.sampled_from(TERMS),
    lambda part: st.builds(
        lambda terms, operator: f"({f' {operator} '.join(terms)})",
        st.lists(part, min_size=2, max_size=3),
        st.sampled_from(("&&", "||")),
    ),
    max_leaves=6,
)
SOUND = st.builds(
    lambda attributes, full, memory: {
        "attributes": spelled(attributes, full),
        **({"capacity": {"mem": {"value": memory}}} if memory else {}),
    },
    st.dictionaries(
        st.sampled_from(("a", "b", "other.example.com/c")),
        st.sampled_from(
            ({"string": "x"}, {"string": "y"}, {"int": 0}, {"int": 1}, {"bool": True}, {"bool": False}, *VERSIONS)
        ),
        max_size=3,
    ),
    st.booleans(),
    st.sampled_from(("", "1Gi", "4Gi")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(SOUND, min_size=1, max_size=8), min_size=1, max_size=3), CHAINS)
def test_combined_selector_columns_equal_whole_selector(lists: list[list[Obj]], expression: str) -> None:
    agree(lists, expression)  # what is known of the first devices serves for the others


@pytest.mark.parametrize(("version", "is_plain"), [("580.65.6", True), ("580.65.06", False)])
def test_devices_with_sound_versions_are_of_one_sort(version: str, is_plain: bool) -> None:
    """Cards publish the versions of their drivers: what most clusters have is judged node by node, not card by card."""
    cards = [device(f"gpu-{number}", {"n": number}) for number in range(8)]
    for card in cards:
        card["attributes"]["driverVersion"] = {"version": version}
    (view,) = DeviceSnapshot.of([slice_("s", cards)]).views(NodeView("node-1", {}))
    assert view.table.uniform is is_plain


@pytest.mark.parametrize("name", profile_names())
def test_cards_of_each_profile_are_judged_a_node_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No identity, version or partition of what drivers publish has each card be looked at by itself."""
    profile, nodes = load_profile(name), [f"n{number}" for number in range(20)]
    slices = [item for node in nodes for item in resource_slices(profile, node, f"uid-{node}", {}, 1)]
    snapshot = DeviceSnapshot.of(slices, device_classes())
    views = [view for node in nodes for view in snapshot.views(NodeView(node, {}))]
    monkeypatch.delattr(Reader, "verdict")
    for asked in snapshot.classes.values():
        selected = Selection(asked.selectors, (), True, True)
        assert all(len(selected.column(view)) == len(view.devices) for view in views)


def plain(item: Device) -> tuple[object, ...]:
    shape = item.shape
    held = (shape.driver, shape.attributes, shape.capacity, shape.shareable, shape.by_name, shape.faulty)
    return (item.name, *held, item.consumes, item.taints, item.binding)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(DEVICES, max_size=6), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_device_decodes_equally_alone_and_in_a_slice(lists: list[list[Obj]], random: object) -> None:
    slices = [
        slice_(f"s{number}", [{"name": f"d{i}", **entry} for i, entry in enumerate(entries)])
        for number, entries in enumerate(lists)
    ]
    together = Interner()
    for _ in range(3):  # unknown, known by the first device, known by the whole text
        for item in slices:
            made: Slice = decode_slice(json.loads(json.dumps(item)), together)
            for raw, decoded in zip(item["spec"].get("devices", ()), made.devices, strict=True):
                (single,) = decode_slice(slice_("s", [raw]), Interner()).devices
                assert plain(decoded) == plain(single)


def test_equal_slices_share_decoded_devices() -> None:
    interner = Interner()
    raw = [device("a", {"n": 1}), device("b", {"n": 2}, consumes={"card": {"mem": 1}})]
    made = [decode_slice(slice_(f"s{number}", raw), interner).devices for number in range(3)]
    assert made[1] is made[2]
    assert [d.shape for d in made[0]] == [d.shape for d in made[1]]
    changed = decode_slice(slice_("t", [raw[0], device("b", {"n": 3})]), interner).devices
    assert changed[0].shape is made[0][0].shape
    assert changed[1].shape is not made[0][1].shape


@pytest.mark.parametrize("counters", [{}, {"mem": 1}])
def test_device_consuming_unknown_counter_set_invalidates_pool(counters: Obj) -> None:
    lost = device("a", consumes={"nowhere": counters})
    (view,) = DeviceSnapshot.of([slice_("s", [lost])]).views(NodeView("node-1", {}))
    assert (view.status, view.problem) == ("invalid", "device a consumes from unknown counter set nowhere")
