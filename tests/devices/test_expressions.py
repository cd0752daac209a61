"""Device expressions: what is understood, what is refused, and with which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_backends._openvino.devices import (
    EXAMPLES,
    check_available,
    parse_device,
    suggestions,
)
from pegboard_contracts.errors import ApiError


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("auto:npu, gpu", "AUTO:NPU,GPU"),
        (" cpu ", "CPU"),
        ("gpu.1", "GPU.1"),
        ("Auto", "AUTO"),
        ("HETERO:GPU.0,CPU", "HETERO:GPU.0,CPU"),
        ("multi:gpu", "MULTI:GPU"),
    ],
)
def test_expressions_are_normalized(written: str, read: str) -> None:
    assert parse_device(written).text == read


@pytest.mark.parametrize(
    "written",
    [
        "AUTO:", "MULTI", "HETERO", "GPU,CPU", "AUTO:GPU,GPU", "GPU.x", "", "  ", "GPU.0.1",
        "BATCH:CPU", "AUTO:AUTO", "CPU(THREADS=1)", "MULTI:", "AUTO:GPU,,CPU", "MYRIAD",
        "G PU", "GPU .1", "AUTO:CP U", "AU TO:CPU", "GPU.1\n2", "AUTO:GPU CPU",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_answered_with_examples(written: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_device(written)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "invalid_device", "device")
    assert "AUTO:NPU,GPU,CPU" in error.message


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(written: str) -> None:
    try:
        parsed = parse_device(written)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - either is right
    else:
        assert parse_device(parsed.text) == parsed


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_understood(example: str) -> None:
    assert parse_device(example).text == example


@pytest.mark.parametrize(
    ("expression", "available", "usable"),
    [
        ("GPU", ["CPU", "GPU"], True),
        ("GPU", ["CPU", "GPU.0", "GPU.1"], True),
        ("GPU.0", ["CPU", "GPU"], True),
        ("GPU.1", ["CPU", "GPU"], False),
        ("GPU.1", ["CPU", "GPU.0"], False),
        ("NPU", ["CPU"], False),
        ("AUTO", [], True),
        ("AUTO:GPU,CPU", ["CPU"], False),
        ("HETERO:CPU", ["CPU"], True),
    ],
)
def test_devices_must_be_there(expression: str, available: list[str], usable: bool) -> None:
    parsed = parse_device(expression)
    if usable:
        check_available(parsed, available)
        return
    with pytest.raises(ApiError) as caught:
        check_available(parsed, available)
    assert caught.value.code == "device_not_available"
    assert all(name in caught.value.message for name in available)


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ([], []),
        (["CPU"], ["CPU", "AUTO"]),
        (
            ["CPU", "GPU.0"],
            ["CPU", "GPU", "AUTO", "AUTO:GPU,CPU", "HETERO:GPU,CPU", "MULTI:GPU,CPU"],
        ),
        (["CPU", "NPU"], ["CPU", "NPU", "AUTO", "AUTO:NPU,CPU", "HETERO:NPU,CPU"]),
    ],
)
def test_suggestions_fit_the_machine(available: list[str], expected: list[str]) -> None:
    assert suggestions(available) == expected
    assert suggestions(iter(available)) == expected
    assert all(parse_device(one).text == one for one in expected)
