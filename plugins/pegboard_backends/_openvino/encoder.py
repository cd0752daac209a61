"""A folder of OpenVINO IR as an encoder: vectors of texts, or scores of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pegboard_contracts.encoding import Encoded, EncoderInput
from pegboard_contracts.engine import EngineInfo

from pegboard_backends._openvino.encoder_files import Activation, Pooling
from pegboard_backends._openvino.encoder_texts import EncoderTokenizer, TokenizedInput

Finish = Callable[[Any, Any], Any]
"""Turn the model's output and its mask into one row of 32-bit floats per input."""

_BATCH_TOKENS = 4096
"""Tokens of one inference, padding included."""

_SECOND_INPUT = "token_type_ids"
_HIDDEN_OUTPUTS = ("last_hidden_state", "token_embeddings", "sentence_embedding", "logits")


class FolderEncoder:
    """Encode batches: inputs of like length are padded and computed together."""

    def __init__(
        self,
        compiled: Any,  # noqa: ANN401 - OpenVINO's
        tokenizer: EncoderTokenizer,
        info: EngineInfo,
        finish: Finish,
        fixed_tokens: int | None = None,
    ) -> None:
        """Take an open model; `finish` pools its hidden states or makes scores of its logits.

        One that was compiled for one input of `fixed_tokens` gets every input padded to it.
        """
        self._request: Any = compiled.create_infer_request()
        self._names = frozenset(name for port in compiled.inputs for name in port.get_names())
        self._output: Any = output_of(compiled)
        self._tokenizer = tokenizer
        self._info = info
        self._finish = finish
        self._fixed_tokens = fixed_tokens
        self._batches = self._inputs = self._inferences = 0

    def describe(self) -> EngineInfo:
        """Describe the open encoder."""
        return self._info

    def encode(self, inputs: list[EncoderInput]) -> list[Encoded]:
        """Encode a batch; see `Encoder.encode`."""
        self._batches += 1
        self._inputs += len(inputs)
        results = [Encoded()] * len(inputs)
        usable: list[tuple[int, TokenizedInput]] = []
        for index, found in enumerate(self._tokenizer.tokenize(inputs)):
            if isinstance(found, TokenizedInput):
                usable.append((index, found))
            else:
                results[index] = Encoded(error=found)
        most = 0 if self._fixed_tokens else _BATCH_TOKENS
        for group in _groups(sorted(usable, key=lambda one: len(one[1].ids)), most):
            rows = self._infer([found for _, found in group])
            for (index, found), row in zip(group, rows, strict=True):
                results[index] = Encoded(row.tobytes(), len(found.ids))
        return results

    def _infer(self, group: Sequence[TokenizedInput]) -> Any:  # noqa: ANN401 - numpy's
        import numpy as np  # noqa: PLC0415 - comes with OpenVINO

        self._inferences += 1
        longest = self._fixed_tokens or max(len(one.ids) for one in group)
        ids = np.zeros((len(group), longest), np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, one in enumerate(group):
            length = len(one.ids)
            ids[row, :length] = one.ids
            mask[row, :length] = 1
            types[row, one.second_start : length] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, _SECOND_INPUT: types}
        feeds["position_ids"] = np.maximum(mask.cumsum(1) - 1, 0)
        self._request.infer({name: feeds[name] for name in feeds if name in self._names})
        output = self._request.get_tensor(self._output).data
        return self._finish(output.astype(np.float32, copy=False), mask).astype("<f4")

    def inspect(self) -> dict[str, Any]:
        """Return the counters."""
        return {
            "batches": self._batches,
            "inputs": self._inputs,
            "inferences": self._inferences,
        }

    def close(self) -> None:
        """Let the model go."""
        del self._request


def output_of(compiled: Any) -> Any:  # noqa: ANN401 - OpenVINO's
    """Return the output that is pooled or scored: by its name, else the first."""
    by_name = {name: port for port in compiled.outputs for name in port.get_names()}
    return next((by_name[name] for name in _HIDDEN_OUTPUTS if name in by_name), compiled.outputs[0])


def _groups(
    ordered: Sequence[tuple[int, TokenizedInput]], most_tokens: int
) -> Iterator[list[tuple[int, TokenizedInput]]]:
    """Cut a list that is sorted by length where one inference would be too big."""
    group: list[tuple[int, TokenizedInput]] = []
    for one in ordered:
        if group and (len(group) + 1) * len(one[1].ids) > most_tokens:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def pool(hidden: Any, mask: Any, pooling: Pooling, *, normalize: bool) -> Any:  # noqa: ANN401 - numpy's
    """Make one vector of each row of hidden states; padding does not count.

    A model that pools by itself gives rows of numbers, which are only normalized.
    """
    import numpy as np  # noqa: PLC0415 - comes with OpenVINO

    if hidden.ndim == 2:
        vectors = hidden
    elif pooling == "cls":
        vectors = hidden[:, 0]
    elif pooling == "lasttoken":
        vectors = hidden[np.arange(len(hidden)), mask.sum(1) - 1]
    elif pooling == "max":
        vectors = np.where(mask[:, :, None] == 1, hidden, -np.inf).max(1)
    else:
        weights = mask.astype(np.float32)[:, None, :]
        vectors = (weights @ hidden)[:, 0] / weights.sum(2)
    if normalize:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(lengths, 1e-12)
    return vectors


def scores_of(logits: Any, activation: Activation) -> Any:  # noqa: ANN401 - numpy's
    """Turn the last number of each row into a score, as the model was made to be read.

    `softmax` is the last one's share of two.
    """
    import numpy as np  # noqa: PLC0415 - comes with OpenVINO

    last = logits[:, -1:]
    if activation == "identity":
        return last
    if activation == "softmax":
        last = last - logits[:, 0:1]
    return 1.0 / (1.0 + np.exp(-np.clip(last, -60, 60)))
