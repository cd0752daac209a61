"""A request's sampling as GenAI's generation config."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from pegboard_contracts.engine import Submission
from pegboard_contracts.generation import Beams, Constraint, Sampling

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
    if sampling.min_tokens:
        values["min_new_tokens"] = min(sampling.min_tokens, limit)
    if sampling.beams is not None:
        values |= _beam_values(sampling.beams)
    elif sampling.temperature != 0:
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
    _set_ends(config, sampling, set(end_tokens))
    return config


def _set_ends(config: Any, sampling: Sampling, own: set[int]) -> None:  # noqa: ANN401 - GenAI's
    if sampling.ignore_eos and sampling.stop_token_ids:
        # GenAI would ignore these too; without an end of its own nothing else ends an answer.
        config.ignore_eos = False
        own.clear()
    if own:
        config.eos_token_id = min(own)
    if ends := own.union(sampling.stop_token_ids):
        config.stop_token_ids = ends


def _beam_values(beams: Beams) -> dict[str, Any]:
    criteria = library.genai().StopCriteria
    values: dict[str, Any] = {
        "num_beams": beams.count,
        "num_beam_groups": beams.groups,
        "num_return_sequences": beams.count,
        "diversity_penalty": beams.diversity_penalty,
        "length_penalty": beams.length_penalty,
        "stop_criteria": getattr(criteria, beams.ends.upper()),
    }
    if beams.no_repeat_ngram_size:
        values["no_repeat_ngram_size"] = beams.no_repeat_ngram_size
    return values


def _seed(seed: int | None) -> int:
    return secrets.randbelow(_LARGEST_SEED) if seed is None else seed & _LARGEST_SEED


def known_ends(config: Any, tokenizer: Any, declared: Iterable[int]) -> frozenset[int]:  # noqa: ANN401 - GenAI's
    """Unite the tokens that end an answer: of the model's files, its config and its tokenizer."""
    ends = {*declared, *config.stop_token_ids, config.eos_token_id, tokenizer.get_eos_token_id()}
    return frozenset(end for end in ends if end >= 0)
