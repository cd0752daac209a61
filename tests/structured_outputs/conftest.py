"""The engine and the tokenizer of the real small model."""

from tests.backends.conftest import (
    describe_smollm2,
    real_engine,
    smollm2_gguf,
    tokenizer,
)

__all__ = ["describe_smollm2", "real_engine", "smollm2_gguf", "tokenizer"]
