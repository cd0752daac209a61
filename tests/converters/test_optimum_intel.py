"""The converter around its export: options, faults, and a process that is never left behind.

The exports here are small scripts; `test_real_conversions.py` has the real ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.converters import ConversionOrder, Report
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import Phase
from pegboard_converters._export import failure_of
from pegboard_converters._export_faults import fault_of, without_private

from tests.converters.conftest import optimum_intel

MakeOrder = Callable[..., ConversionOrder]
Interpreter = Callable[[str], Path]

FILES = ("openvino_model", "openvino_tokenizer", "openvino_detokenizer")
MAKE_FILES = (
    "target = pathlib.Path(order['target'])\n"
    f"for name in {FILES}:\n"
    "    for suffix in ('.xml', '.bin'):\n"
    "        (target / (name + suffix)).write_text('x')\n"
    "(target / 'config.json').write_text('{}')\n"
)


def failed(python: Path, order: ConversionOrder) -> ApiError:
    order.target.mkdir()
    with pytest.raises(ApiError) as caught:
        optimum_intel(python).convert(order, list[Report]().append)
    return caught.value


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"weight_format": "int3"}, "weight_format"),
        ({"weight_format": "int8", "group_size": 64}, "group_size"),
        ({"weight_format": "fp16", "sym": True}, "sym"),
        ({"ratio": 0.5}, "ratio"),
        ({"weight_format": "int4", "ratio": 1.01}, "ratio"),
        ({"weight_format": "int4", "group_size": -2}, "group_size"),
        ({"backend": "openvino-nothing"}, "backend"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    make_order: MakeOrder, interpreter: Interpreter, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ApiError, match=named) as refused:
        optimum_intel(interpreter("")).check(make_order(Path("later"), **options))
    assert (refused.value.status, refused.value.param) == (400, named)


def test_unknown_formats_are_answered_with_the_known(
    make_order: MakeOrder, interpreter: Interpreter
) -> None:
    with pytest.raises(ApiError, match="int4, int8, fp16"):
        optimum_intel(interpreter("")).check(make_order(Path("later"), weight_format="q4"))


def test_what_can_be_done_is_not_refused(make_order: MakeOrder, interpreter: Interpreter) -> None:
    converter = optimum_intel(interpreter(""))
    for backend in converter.model_backends:
        converter.check(make_order(Path("later"), backend))
    for options in ({"ratio": 0}, {"ratio": 1}, {"sym": False}, {"group_size": 128}):
        converter.check(make_order(Path("later"), weight_format="int4", **options))


def test_a_converter_that_is_not_there_names_the_commands(
    make_order: MakeOrder, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    for python, words in ((bare, "pip install torch"), (tmp_path / "none", "does not run")):
        with pytest.raises(ApiError, match=words) as refused:
            optimum_intel(python).check(make_order(Path("later")))
        assert (refused.value.status, refused.value.code) == (501, "converter_not_installed")
        assert str(tmp_path) not in refused.value.message


def test_progress_passes_from_the_export_to_reports(
    make_order: MakeOrder, interpreter: Interpreter, source: Path
) -> None:
    order = make_order(source, weight_format="int4")
    order.target.mkdir()
    code = (
        "say(step='libraries')\n"
        "sys.stderr.write('\\rLoading weights:  50%|##  | 3/6 [00:00]'); sys.stderr.flush()\n"
        "time.sleep(0.3)\n"
        "say(step='compressing', percent=40.0)\n"
        "say(step='tokenizer')\n" + MAKE_FILES + "say(done={'group_size': 64, 'versions': {}})\n"
    )
    reports: list[Report] = []
    optimum_intel(interpreter(code)).convert(order, reports.append)
    assert reports[-1].phase is Phase.FINALIZING
    assert any(one.percent == 40 for one in reports)
    record = msgspec.json.decode((order.target / "pegboard-conversion.json").read_bytes())
    assert (record["weight_format"], record["group_size"]) == ("int4", 64)
    assert str(source.parent) not in str(record)


def test_a_bar_of_loading_is_counted(
    make_order: MakeOrder, interpreter: Interpreter, source: Path
) -> None:
    order = make_order(source)
    order.target.mkdir()
    code = (
        "sys.stderr.write('\\rLoading weights:  50%|##  | 3/6 [00:00]\\r'); sys.stderr.flush()\n"
        + MAKE_FILES
        + "sys.stderr.close(); os.close(2)\n"
        + "time.sleep(0.5)\nsay(done={'versions': {}})\n"
    )
    reports: list[Report] = []
    optimum_intel(interpreter(code)).convert(order, reports.append)
    assert [(one.completed, one.total) for one in reports if one.total] == [(3, 6)]
    assert [one.percent for one in reports] == [None] * len(reports)


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", (507, "out_of_memory")),
        ("sys.exit(0)", (500, "conversion_failed")),
        ("say(failed='disk_full')", (507, "disk_full")),
        ("say(failed='gated')", (409, "access_denied")),
        ("say(failed='remote_code')", (409, "remote_code_required")),
        ("say(failed='architecture_unknown')", (400, "unsupported_model")),
        ("say(failed='tokenizer_missing')", (400, "tokenizer_missing")),
        ("say(failed='out_of_memory')", (507, "out_of_memory")),
        ("say(failed='group_size', detail='96')", (400, "invalid_group_size")),
        ("say(failed='module_missing', detail='timm')", (501, "converter_not_installed")),
        ("say(done={'versions': {}})", (500, "conversion_incomplete")),
    ],
)
def test_ends_are_translated(
    make_order: MakeOrder, interpreter: Interpreter, source: Path, code: str, end: tuple[int, str]
) -> None:
    error = failed(interpreter(code + "\n"), make_order(source))
    assert (error.status, error.code) == end
    assert str(source.parent) not in error.message


def test_an_export_that_fails_leaves_its_last_words_in_the_log(
    make_order: MakeOrder, interpreter: Interpreter, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "print('it fails with hf_secretsecret in', order['source'])\n"
    error = failed(interpreter(code), make_order(source))
    assert "it fails with" in caplog.text
    for text in (error.message, caplog.text):
        assert str(source.parent) not in text
        assert "hf_secretsecret" not in text


def test_a_good_end_without_a_file_is_a_failure_that_names_it(
    make_order: MakeOrder, interpreter: Interpreter, source: Path
) -> None:
    code = MAKE_FILES + "(target / 'openvino_detokenizer.bin').unlink()\nsay(done={})\n"
    error = failed(interpreter(code), make_order(source))
    assert error.code == "conversion_incomplete"
    assert "openvino_detokenizer.bin" in error.message


def test_encoders_need_no_detokenizer(
    make_order: MakeOrder, interpreter: Interpreter, source: Path
) -> None:
    order = make_order(source, "openvino-embeddings")
    order.target.mkdir()
    code = MAKE_FILES + "(target / 'openvino_detokenizer.bin').unlink()\nsay(done={})\n"
    optimum_intel(interpreter(code)).convert(order, list[Report]().append)


def test_a_folder_that_is_no_model_starts_nothing(make_order: MakeOrder, tmp_path: Path) -> None:
    error = failed(tmp_path / "no interpreter", make_order(tmp_path))
    assert (error.status, error.param) == (400, "source_model")


def test_a_failing_reporter_leaves_no_process(
    make_order: MakeOrder, interpreter: Interpreter, source: Path, tmp_path: Path
) -> None:
    order, started = make_order(source), tmp_path / "pid"
    order.target.mkdir()
    code = f"pathlib.Path({str(started)!r}).write_text(str(os.getpid()))\n"
    code += "say(step='tracing')\ntime.sleep(60)\n"

    def stop(report: Report) -> None:
        if started.exists() and report.message.startswith("tracing"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        optimum_intel(interpreter(code)).convert(order, stop)
    assert not psutil.pid_exists(int(started.read_text()))


def test_the_export_sees_no_token_and_no_network(
    make_order: MakeOrder,
    interpreter: Interpreter,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    seen = tmp_path / "seen.json"
    code = f"pathlib.Path({str(seen)!r}).write_text(json.dumps([sys.argv, dict(os.environ)]))\n"
    order = make_order(source)
    failed(interpreter(code), order)
    assert "hf_secretsecret" not in seen.read_text()
    arguments, environment = msgspec.json.decode(seen.read_bytes())
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
    assert Path(environment["TMPDIR"]).is_relative_to(order.target)
    assert msgspec.json.decode(arguments[2])["trust_remote_code"] is False


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "out_of_memory"),
        (OSError(28, os.strerror(28)), "disk_full"),
        (ModuleNotFoundError("No module named 'timm'", name="timm"), "module_missing"),
        (RuntimeError("operator torchvision::nms does not exist"), "torchvision"),
        (ValueError("contains custom code, set `trust_remote_code=True`"), "remote_code"),
        (ValueError("Trying to export a x model, that is a custom"), "unknown"),
        (
            ValueError("a custom or unsupported architecture, but no custom export"),
            "architecture_unknown",
        ),
        (ValueError("the Optimum exporter only supports the tasks x"), "task_unsupported"),
        (ImportError("Maximum required is 5.0, got: 5.5.4"), "version"),
        (OSError("Error no file named model.safetensors found in directory"), "weights_missing"),
        (ValueError("nobody knows"), "unknown"),
    ],
)
def test_libraries_errors_are_understood_through_their_chain(error: Exception, word: str) -> None:
    assert failure_of(error).word == word
    outer = RuntimeError("export failed")
    outer.__cause__ = error
    assert failure_of(outer).word == word
    assert fault_of(word, "x").message


@given(st.text(max_size=20), st.sampled_from(["/home/me/x", "C:\\Users\\me\\x", "hf_abcdefghijk"]))
def test_the_log_has_no_path_and_no_token(text: str, private: str) -> None:
    line = without_private(f"{text} {private} {text}")
    assert private not in line.replace(text, "")
    assert len(line) <= 300
