"""The tokenizer of scripted models: one token a word."""

from __future__ import annotations

from pegboard_contracts.engine import ConstraintCost, FillMarks, TemplateSource
from pegboard_contracts.generation import Constraint

from pegboard_backends._scripted.pieces import token_id
from pegboard_backends._scripted.script import Answer, BytesPiece, Script

_REMEMBERED_WORDS = 1 << 16

PLAIN_TEMPLATE = """\
{%- for tool in tools or [] %}{{- tool | tojson }}{{- "\\n" }}{% endfor -%}
{%- for message in messages %}
{{- message.role + ": " + (message.content or "") + "\\n" -}}
{%- for call in message.tool_calls or [] %}{{- call | tojson }}{{- "\\n" }}{% endfor -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{- "assistant:" }}{% endif -%}
"""
"""The template of a script that brings none: role and content a line, the rest as JSON lines."""


class ScriptedTokenizer:
    """Count words. `decode` knows the words it has seen and the pieces of its script."""

    def __init__(self, script: Script) -> None:
        """Learn the pieces of the script."""
        self._contents: dict[int, bytes] = {}
        self._remembered = _REMEMBERED_WORDS
        for answer in (*script.rules, script.default):
            self._learn(answer)
        self._remembered = _REMEMBERED_WORDS + len(self._contents)
        self._source = TemplateSource(
            template=PLAIN_TEMPLATE if script.chat_template is None else script.chat_template,
            prompt_suffix=script.prompt_suffix,
            prompt_start=tuple(self.encode(script.prompt_start)),
            fill_marks=self._fill_marks() if script.fill_in_the_middle else None,
        )

    def _learn(self, answer: Answer) -> None:
        for piece in answer.pieces or ():
            raw = bytes.fromhex(piece.bytes) if isinstance(piece, BytesPiece) else piece.encode()
            self._contents[token_id(b"\0" + raw)] = raw

    def _fill_marks(self) -> FillMarks:
        prefix, suffix, middle = self.encode("<|fim_prefix|> <|fim_suffix|> <|fim_middle|>")
        return FillMarks(
            parts=(("prefix", prefix), ("suffix", suffix), ("middle", middle)),
            ends=("<|fim_pad|>",),
        )

    def source(self) -> TemplateSource:
        """Return the script's template, or the plain one, and its special tokens."""
        return self._source

    def special_texts(self) -> frozenset[str]:
        """Return nothing: every text is ordinary here."""
        return frozenset()

    def encode(self, text: str, literal_mark: str | None = None) -> list[int]:
        """Turn each word into an id; where `literal_mark` stood, nothing is left."""
        if literal_mark is not None:
            text = text.replace(literal_mark, "")
        words = [word.encode(errors="surrogatepass") for word in text.split()]
        token_ids = [token_id(word) for word in words]
        if len(self._contents) < self._remembered:
            self._contents.update(
                (key, word + b" ") for key, word in zip(token_ids, words, strict=True)
            )
        return token_ids

    def decode(self, token_ids: list[int]) -> str:
        """Turn ids into text: a blank after each word, U+FFFD for an id never seen."""
        unknown = "\N{REPLACEMENT CHARACTER}".encode()
        return b"".join(self._contents.get(key, unknown) for key in token_ids).decode(
            errors="replace"
        )

    def check(self, constraint: Constraint, step_limit: float) -> ConstraintCost:
        """Take every constraint: a script obeys none and records what it was given."""
        del constraint, step_limit
        return ConstraintCost()
