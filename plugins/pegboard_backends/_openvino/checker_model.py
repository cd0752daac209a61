"""A model of one small layer with the vocabulary of another: it runs grammars, and knows nothing.

Its next token is nearly as likely as any other, but texts that close something (`"`, `}`,
`]`, `<`, a line's end) are drawn about every fourth time: so a few dozen tokens wander
through a whole grammar.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pegboard_backends._openvino import library
from pegboard_backends._openvino.token_table import TokenTable

_FORM = 1
"""Grows when what we write changes, so that older folders are made again."""

_WIDTH = 32
_CLOSING = (b'"', b"}", b"]", b"<", b"\n")
_CLOSING_SHARE = 0.25


def checker_folder(table: TokenTable, cache_dir: Path) -> Path:
    """Return the folder of the checker model, making it when it is not there yet (a second)."""
    vocabulary = hashlib.sha256(repr((_FORM, table.size)).encode())
    for piece in table.pieces:
        vocabulary.update(piece[:1])
    folder = cache_dir / f"checker-{vocabulary.hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    cache_dir.mkdir(parents=True, exist_ok=True)
    staging = Path(mkdtemp(prefix="staging-checker-", dir=cache_dir))
    try:
        model = _build(table)
        library.openvino().save_model(model, staging / "openvino_model.xml", compress_to_fp16=False)
        staging.replace(folder)
    except OSError:
        # Another process was faster.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def _build(table: TokenTable) -> Any:  # noqa: ANN401 - OpenVINO's
    """Build the graph in the form that GenAI turns into one with paged attention."""
    import numpy as np  # noqa: PLC0415 - comes with OpenVINO

    openvino = library.openvino()
    ops: Any = openvino.opset13
    numbers = np.random.default_rng(0)
    weights = (numbers.standard_normal((table.size, _WIDTH)) * 0.1).astype(np.float16)
    closing = [index for index, piece in enumerate(table.pieces) if piece.startswith(_CLOSING)]
    bias = np.zeros(table.size, np.float32)
    if closing:
        others = max(1, table.size - len(closing))
        odds = _CLOSING_SHARE / (1 - _CLOSING_SHARE)
        bias[closing] = max(0.0, math.log(odds * others / len(closing)))

    token_ids = _parameter("input_ids", 2)
    mask = _parameter("attention_mask", 2)
    positions = _parameter("position_ids", 2)
    beams = _parameter("beam_idx", 1, np.int32)
    table_of_rows = ops.convert(ops.constant(weights), "f32")
    axis = ops.constant(0, dtype=np.int32)
    rows = ops.gather(table_of_rows, ops.convert(token_ids, "i32"), axis)
    # GenAI wants the positions to be used; here they change nothing.
    nothing = ops.multiply(ops.unsqueeze(positions, ops.constant(-1)), ops.constant(np.int64(0)))
    cache = _Cache(ops.gather(ops.shape_of(token_ids, "i64"), _integers(0), axis), beams)
    seen = ops.unsqueeze(
        ops.unsqueeze(
            ops.convert(ops.subtract(mask, ops.constant(np.int64(1))), "f32"), ops.constant(1)
        ),
        ops.constant(1),
    )
    attended = ops.scaled_dot_product_attention(
        _heads(ops.add(rows, ops.convert(nothing, "f32"))),
        cache.extended(_heads(rows), "key"),
        cache.extended(_heads(rows), "value"),
        seen,
    )
    merged = ops.reshape(
        ops.transpose(attended, _integers(0, 2, 1, 3)), _integers(0, 0, _WIDTH), True
    )
    scores = ops.matmul(ops.add(rows, merged), table_of_rows, False, True)
    logits = ops.add(scores, ops.constant(bias))
    logits.output(0).get_tensor().set_names({"logits"})
    inputs = [token_ids, mask, positions, beams]
    return openvino.Model([ops.result(logits)], cache.written, inputs, "checker")


class _Cache:
    """Hold the keys and values of earlier tokens as the state of the model."""

    def __init__(self, batch: Any, beams: Any) -> None:  # noqa: ANN401 - nodes
        self.written: list[Any] = []
        self._batch = batch
        self._beams = beams

    def extended(self, current: Any, name: str) -> Any:  # noqa: ANN401 - nodes
        import numpy as np  # noqa: PLC0415 - comes with OpenVINO

        openvino = library.openvino()
        ops: Any = openvino.opset13
        util: Any = openvino.op.util
        described = util.VariableInfo()
        described.data_shape = openvino.PartialShape([-1, 1, -1, _WIDTH])
        described.data_type = openvino.Type.f32
        described.variable_id = f"past_key_values.0.{name}present.0.{name}"
        variable = util.Variable(described)
        shape = ops.concat([self._batch, _integers(1), _integers(0), _integers(_WIDTH)], 0)
        empty = ops.broadcast(ops.constant(np.float32(0)), shape)
        past = ops.gather(ops.read_value(empty, variable), self._beams, ops.constant(0))
        both = ops.concat([past, current], 2)
        self.written.append(ops.assign(both, variable))
        return both


def _parameter(name: str, rank: int, kind: Any = None) -> Any:  # noqa: ANN401 - nodes
    import numpy as np  # noqa: PLC0415 - comes with OpenVINO

    openvino = library.openvino()
    made = openvino.opset13.parameter(
        openvino.PartialShape([-1] * rank), kind or np.int64, name=name
    )
    made.output(0).get_tensor().set_names({name})
    return made


def _heads(rows: Any) -> Any:  # noqa: ANN401 - nodes
    ops: Any = library.openvino().opset13
    return ops.transpose(ops.reshape(rows, _integers(0, 0, 1, _WIDTH), True), _integers(0, 2, 1, 3))


def _integers(*values: int) -> Any:  # noqa: ANN401 - a node
    import numpy as np  # noqa: PLC0415 - comes with OpenVINO

    return library.openvino().opset13.constant(np.array(values, np.int64))
