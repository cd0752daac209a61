from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pegboard_backends.scripted import plugin as backend_plugin
from pegboard_contracts.backend import EngineOrder
from pegboard_contracts.converters import ConversionOrder, Converter, Report
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase
from pegboard_contracts.testing.converters import ConverterLaws
from pegboard_converters.scripted_phases import plugin


def order_of(folder: Path, script: object, **options: Any) -> ConversionOrder:
    source = folder / "m.json"
    source.write_text(script if isinstance(script, str) else json.dumps(script))
    target = folder / "target"
    return ConversionOrder(model="m", source=source, target=target, backend="scripted", **options)


@pytest.fixture
def converter() -> Converter:
    made = plugin()
    made.configure(plugin.Settings())
    return made


class TestScriptedPhases(ConverterLaws):
    @pytest.fixture
    def converter(self, converter: Converter) -> Converter:
        return converter

    @pytest.fixture
    def good_order(self, tmp_path: Path) -> ConversionOrder:
        phases = [["downloading", 40], ["converting", 60], ["finalizing", 0]]
        return order_of(tmp_path, {"convert_phases": phases})

    @pytest.fixture
    def broken_order(self, tmp_path: Path) -> ConversionOrder:
        return order_of(tmp_path, "{")


def played(converter: Converter, order: ConversionOrder) -> list[Report]:
    reports: list[Report] = []
    order.target.mkdir(exist_ok=True)
    converter.convert(order, reports.append)
    return reports


def test_phases_last_as_the_script_says_and_tell_their_share(
    converter: Converter, tmp_path: Path
) -> None:
    order = order_of(tmp_path, {"convert_phases": [["downloading", 100], ["converting", 200]]})
    started = time.monotonic()
    reports = played(converter, order)
    assert time.monotonic() - started >= 0.3
    order_seen = list(dict.fromkeys(one.phase for one in reports))
    assert order_seen == [Phase.DOWNLOADING, Phase.CONVERTING]
    for phase in order_seen:
        shares = [one.percent for one in reports if one.phase is phase]
        assert len(shares) >= 3
        assert shares[-1] == 100


def test_the_script_is_read_again_at_each_conversion(converter: Converter, tmp_path: Path) -> None:
    order = order_of(tmp_path, {"convert_phases": [["converting", 0]]})
    assert {one.phase for one in played(converter, order)} == {Phase.CONVERTING}
    order_of(tmp_path, {"convert_phases": [["finalizing", 0]]})
    assert {one.phase for one in played(converter, order)} == {Phase.FINALIZING}
    order_of(tmp_path, {})
    assert played(converter, order) == []


def test_the_backend_serves_what_the_conversion_made(converter: Converter, tmp_path: Path) -> None:
    order = order_of(tmp_path, {"context_tokens": 77, "convert_phases": [["converting", 0]]})
    played(converter, order)
    backend = backend_plugin()
    backend.configure(backend_plugin.Settings())
    assert backend.can_serve(order.target)
    assert backend.facts(order.target).default_context_tokens == 77
    asked = EngineOrder(model="m", source=order.target, device="CPU", cache_dir=tmp_path)
    assert json.loads(backend.describe_engine(asked).options["script"])["context_tokens"] == 77


@pytest.mark.parametrize(
    ("phases", "named"),
    [
        ([["dreaming", 5]], "dreaming"),
        ([["queued", 5]], "queued"),
        ([["converting", -5]], "-5"),
        ([["converting"]], "convert_phases"),
        ("converting", "convert_phases"),
    ],
)
def test_wrong_phases_are_named(
    converter: Converter, tmp_path: Path, phases: object, named: str
) -> None:
    order = order_of(tmp_path, {"convert_phases": phases})
    for refuse in (lambda: converter.check(order), lambda: played(converter, order)):
        with pytest.raises(ApiError, match=named) as refused:
            refuse()
        assert refused.value.status == 400
        assert refused.value.code == "invalid_script"


@pytest.mark.parametrize("option", ["group_size", "ratio", "sym"])
def test_options_of_int4_need_int4(converter: Converter, tmp_path: Path, option: str) -> None:
    for weight_format in (None, "int8", "fp16"):
        order = order_of(tmp_path, {}, weight_format=weight_format, **{option: 1})
        with pytest.raises(ApiError, match="int4") as refused:
            converter.check(order)
        assert refused.value.param == option
    converter.check(order_of(tmp_path, {}, weight_format="int4", **{option: 1}))
    converter.check(order_of(tmp_path, {}, weight_format="int4", group_size=-1))
