"""The laws of converters, as a test class to subclass."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from pegboard_contracts.converters import ConversionOrder, Converter, Report
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase

_PHASES = {Phase.RESOLVING, Phase.DOWNLOADING, Phase.CONVERTING, Phase.FINALIZING}
_HEAVY = {"torch", "transformers", "optimum", "nncf", "openvino", "numpy"}


class ConverterLaws:
    """Hold what every converter must do; no law needs a network."""

    @pytest.fixture
    def converter(self) -> Converter:
        """Return the converter, configured; override."""
        raise NotImplementedError

    @pytest.fixture
    def good_order(self, tmp_path: Path) -> ConversionOrder:
        """Order a conversion that succeeds, with a target that is not there yet; override."""
        del tmp_path
        raise NotImplementedError

    @pytest.fixture
    def broken_order(self, tmp_path: Path) -> ConversionOrder:
        """Order the conversion of something that is no model; override."""
        del tmp_path
        raise NotImplementedError

    def test_it_says_whose_models_it_makes(self, converter: Converter) -> None:
        """A converter serves a backend at least, and says so in words without blanks."""
        assert converter.model_backends
        assert all(word and word == "".join(word.split()) for word in converter.model_backends)

    def test_importing_it_is_cheap(self, converter: Converter) -> None:
        """The module brings none of the libraries that the conversion needs."""
        module = type(converter).__module__
        code = f"import sys, {module}; print(*sys.modules)"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        assert not _HEAVY & set(done.stdout.split())

    @pytest.mark.parametrize(
        ("option", "value"),
        [("weight_format", "int5 or so"), ("ratio", 1.5), ("ratio", -0.1), ("group_size", 0)],
    )
    def test_nonsense_is_refused_by_name(
        self, converter: Converter, good_order: ConversionOrder, option: str, value: object
    ) -> None:
        """It is a 400 that names the option and does not repeat what was given."""
        base = {"weight_format": "int4", option: value}
        with pytest.raises(ApiError) as refused:
            converter.check(msgspec.structs.replace(good_order, **base))
        assert refused.value.status == 400
        assert refused.value.param == option
        assert option in refused.value.message
        assert "int5" not in refused.value.message

    def test_a_check_needs_no_source(
        self, converter: Converter, good_order: ConversionOrder, tmp_path: Path
    ) -> None:
        """What a source will download is not there yet."""
        converter.check(msgspec.structs.replace(good_order, source=tmp_path / "later"))

    def test_a_conversion_fills_its_target(
        self, converter: Converter, good_order: ConversionOrder
    ) -> None:
        """Files appear in the target and nowhere beside it; reports are ordered and honest."""
        outside = _files(good_order.target.parent)
        good_order.target.mkdir()
        reports: list[Report] = []
        converter.check(good_order)
        converter.convert(good_order, reports.append)
        made = _files(good_order.target)
        assert made
        assert all(path.stat().st_size for path in made if path.suffix in {".xml", ".bin"})
        assert _files(good_order.target.parent) - made == outside
        assert_honest(reports, good_order)

    def test_a_failure_names_no_path(
        self, converter: Converter, broken_order: ConversionOrder
    ) -> None:
        """It is an `ApiError` with a sentence that holds neither path nor traceback."""
        broken_order.target.mkdir()
        reports: list[Report] = []
        with pytest.raises(ApiError) as refused:
            converter.convert(broken_order, reports.append)
        assert 400 <= refused.value.status < 600
        assert_private([refused.value.message, *(one.message for one in reports)], broken_order)


def assert_honest(reports: list[Report], order: ConversionOrder) -> None:
    """Assert that reports name known phases and that a percentage only grows within one."""
    assert reports
    highest: dict[Phase, float] = {}
    for one in reports:
        assert one.phase in _PHASES
        if one.percent is not None:
            assert highest.get(one.phase, 0.0) <= one.percent <= 100
            highest[one.phase] = one.percent
        if one.completed is not None and one.total is not None:
            assert 0 <= one.completed <= one.total
    assert_private((one.message for one in reports), order)


def assert_private(messages: Iterable[str], order: ConversionOrder) -> None:
    """Assert that messages are one line each and name no folder of this machine."""
    for message in messages:
        assert "\n" not in message
        assert "Traceback" not in message
        assert str(order.target.parent) not in message
        assert str(order.source.parent) not in message


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
