"""The script: the JSON file that says what a scripted model answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from pegboard_contracts.errors import ApiError

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]
Phase = Literal["downloading", "converting", "finalizing"]
CONVERTED = "script.json"
TokenLogprobs = tuple[float, list[tuple[str, float]]]


class BytesPiece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Carry a token that may end inside a character, as hexadecimal digits."""

    bytes: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what is emitted, and when. Without `pieces` the last message's text is echoed."""

    pieces: list[str | BytesPiece] | None = None
    echo: bool = False
    repeat: Count = 1
    finish: Literal["stop", "length"] = "stop"
    first_delay_ms: Milliseconds = 0
    delay_ms: Milliseconds = 0
    raise_after: Count | None = None
    exit_after: Count | None = None
    hang_after: Count | None = None
    logprobs: list[TokenLogprobs] | None = None


class Rule(Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer where the regular expression `match` is found in the last message's text."""

    match: str


class Embedding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make the model an embedding model."""

    dimensions: Annotated[int, msgspec.Meta(ge=1, le=65_536)]


class Rerank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make the model a rerank model."""


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe a scripted model. Source: the fixed interface "The scripted backend"."""

    context_tokens: Positive = 4096
    tool_format: str | None = None
    reasoning_format: str | None = None
    prompt_suffix: str = ""
    prompt_start: str = ""
    fill_in_the_middle: bool = False
    chat_template: str | None = None
    rules: list[Rule] = []
    default: Answer = Answer(echo=True)
    embedding: Embedding | None = None
    rerank: Rerank | None = None
    load_delay_ms: Milliseconds = 0
    load_error: str | None = None
    convert_phases: list[tuple[Phase, Milliseconds]] = []

    @property
    def kind(self) -> Literal["generate", "embedding", "rerank"]:
        """Tell what the model can be asked for."""
        if self.embedding is not None:
            return "embedding"
        return "generate" if self.rerank is None else "rerank"


def read_script(path: Path) -> str:
    """Return the text of a script file that `parse_script` accepts.

    A folder is what a conversion made: its script is in `script.json`. Raises `ApiError` 400
    when it cannot be read, naming the key at fault.
    """
    try:
        text = (path / CONVERTED if path.is_dir() else path).read_bytes().decode()
    except UnicodeDecodeError:
        raise _bad("it is not UTF-8") from None
    except OSError as error:
        raise _bad(f"it cannot be read ({error.strerror})") from None
    parse_script(text)
    return text


def parse_script(text: str) -> Script:
    """Parse and check a script; raises `ApiError` 400 that names the key at fault."""
    try:
        script = msgspec.json.decode(text.removeprefix("\ufeff"), type=Script)
    except msgspec.ValidationError as error:
        raise _bad(_explain(str(error))) from None
    except (msgspec.DecodeError, RecursionError):
        raise _bad("it is not valid JSON") from None
    _check_kinds(script)
    for index, rule in enumerate(script.rules):
        _check_pattern(rule.match, f"rules[{index}].match")
        _check_answer(rule, f"rules[{index}]")
    _check_answer(script.default, "default")
    return script


def _bad(what: str) -> ApiError:
    message = f"The scripted model's file cannot be used: {what}. Correct it and load again."
    return ApiError(400, message, param="source_model", code="invalid_script")


def _explain(fault: str) -> str:
    what, _, where = fault.partition(" - at `$")
    if what.startswith("Invalid enum value"):
        what = "not one of the words allowed here"
    key = where.rstrip("`").lstrip(".")
    return f"'{key}': {what}" if key else what


def _check_kinds(script: Script) -> None:
    kinds = [key for key in ("rules", "embedding", "rerank") if getattr(script, key)]
    if script.rerank is not None and script.embedding is not None:
        raise _bad("'rerank': a model with 'embedding' cannot have it too")
    if script.rules and script.kind != "generate":
        raise _bad(f"'{kinds[-1]}': a model with 'rules' cannot have it too")


def _check_pattern(pattern: str, key: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        raise _bad(f"'{key}': it is not a Python regular expression") from None


def _check_answer(answer: Answer, key: str) -> None:
    if answer.echo and answer.pieces is not None:
        raise _bad(f"'{key}.echo': an answer with 'pieces' cannot have it too")
    for index, piece in enumerate(answer.pieces or ()):
        if isinstance(piece, BytesPiece):
            try:
                bytes.fromhex(piece.bytes)
            except ValueError:
                where = f"{key}.pieces[{index}].bytes"
                raise _bad(f"'{where}': it must be pairs of hexadecimal digits") from None
    if answer.logprobs is not None and len(answer.logprobs) != len(answer.pieces or ()):
        raise _bad(f"'{key}.logprobs': it needs one entry for each of 'pieces'")
