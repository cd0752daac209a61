"""A request's sampling as GenAI's generation config."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from pegboard_contracts.engine import Submission
from pegboard_contracts.generation import Constraint

from pegboard_backends._openvino import library
from pegboard_backends._openvino.constraint_config import structured_output_config

_LARGEST_SEED = (1 << 63) - 1
_SMALLEST_SHARE = 1e-6


def generation_config(
    submission: Submission,
    constraint: Constraint | None,
    end_tokens: Iterable[int],
    limit: int,
    *,
    echo: bool = False,
) -> Any:  # noqa: ANN401 - GenAI's
    """Build the config of one request of at most `limit` tokens that obeys `constraint`.

    A fresh config does not stop at any token, so `end_tokens` are set on every request.
    GenAI's own seed is always 0: without a seed a random one is drawn. Stop strings are
    not set: the kernel matches them in visible text. With `echo` the prompt's tokens come
    out first, with their log probabilities.
    """
    sampling = submission.sampling
    values: dict[str, Any] = {
        "max_new_tokens": limit,
        "ignore_eos": sampling.ignore_eos,
        "logprobs": int(submission.logprobs),
        "echo": echo,
        "repetition_penalty": sampling.repetition_penalty or 1.0,
        "presence_penalty": sampling.presence_penalty or 0.0,
        "frequency_penalty": sampling.frequency_penalty or 0.0,
    }
    if sampling.temperature != 0:
        values |= {
            "do_sample": True,
            "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
            "rng_seed": _seed(sampling.seed),
        }
        if sampling.top_p is not None:
            values["top_p"] = max(sampling.top_p, _SMALLEST_SHARE)
        if sampling.top_k:
            values["top_k"] = sampling.top_k
        if sampling.min_p:
            values["min_p"] = sampling.min_p
    config = library.genai().GenerationConfig(**values)
    if constraint is not None:
        config.structured_output_config = structured_output_config(constraint)
    ends = set(end_tokens)
    if ends:
        config.eos_token_id = min(ends)
        config.stop_token_ids = ends
    return config


def _seed(seed: int | None) -> int:
    return secrets.randbelow(_LARGEST_SEED) if seed is None else seed & _LARGEST_SEED
