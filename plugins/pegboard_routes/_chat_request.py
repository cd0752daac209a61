"""The body of a chat completion as clients send it: what is known, and its bounds."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, cast

from pegboard_contracts.http import JsonObject, RequestModel
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from pegboard_routes._output_formats import OutputFormatFields
from pegboard_routes._sampling_fields import UNSUPPORTED_SAMPLING, SamplingFields

PartType = Literal[
    "text",
    "input_text",
    "output_text",
    "refusal",
    "image_url",
    "input_image",
    "input_audio",
    "video_url",
    "file",
    "input_file",
]
_PAYLOADS = {
    "input_text": "text",
    "output_text": "text",
    "input_image": "image_url",
    "input_file": "file",
}


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_address(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


def _as_parts(value: object) -> object:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _as_json_text(value: object) -> object:
    if value is None:
        return "{}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class MediaAddress(RequestModel):
    """Point to media: a `data:` or `https:` address."""

    url: str


class AudioData(RequestModel):
    """Carry audio in base64."""

    data: str
    format: str


class FileData(RequestModel):
    """Carry a file as a `data:` address."""

    file_data: str | None = None
    file_id: str | None = None


Address = Annotated[
    MediaAddress | None,
    BeforeValidator(_as_address, json_schema_input_type=str | MediaAddress | None),
]


class ContentPart(RequestModel):
    """Carry one part of a message; the field named by `type` holds its content."""

    type: PartType | None = None
    text: str | None = None
    refusal: str | None = None
    image_url: Address = None
    video_url: Address = None
    input_audio: AudioData | None = None
    file: FileData | None = None

    @property
    def payload(self) -> str:
        """Name the field that holds the content."""
        return _PAYLOADS.get(self.type or "text", self.type or "text")

    @model_validator(mode="after")
    def _complete(self) -> ContentPart:
        if getattr(self, self.payload) is None:
            raise ValueError(f"a part of this type needs '{self.payload}'")
        return self


class CalledFunction(RequestModel):
    """Name a function and its arguments, a JSON text; an object is accepted too."""

    name: str = Field(min_length=1)
    arguments: Annotated[
        str, BeforeValidator(_as_json_text, json_schema_input_type=str | dict[str, Any])
    ] = "{}"


class AssistantCall(RequestModel):
    """Replay one call of an assistant turn."""

    id: str | None = None
    function: CalledFunction


class ChatMessage(RequestModel):
    """Carry one turn; only assistant and tool turns may lack content."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        list[ContentPart] | None,
        BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart] | None),
    ] = None
    name: str | None = None
    tool_calls: list[AssistantCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> ChatMessage:
        if self.content is None and self.role not in {"assistant", "tool"}:
            raise ValueError(f"a {self.role} message needs 'content'")
        return self


class FunctionDefinition(RequestModel):
    """Describe a function; `parameters` is a JSON schema."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


def _nested_function(value: object) -> object:
    tool = _fields(value)
    if "name" in tool and "function" not in tool:
        return {**tool, "function": tool}
    return value


class ToolDefinition(RequestModel):
    """Offer a tool, nested under `function` or flat as the Responses API has it."""

    type: str | None = None
    function: FunctionDefinition | None = None

    @model_validator(mode="after")
    def _has_function(self) -> ToolDefinition:
        if self.type in {None, "function"} and self.function is None:
            raise ValueError("a function tool needs 'function'")
        return self


class ChosenTools(RequestModel):
    """Say in one form what every form of `tool_choice` says."""

    mode: Literal["auto", "none", "required"]
    names: tuple[str, ...] = ()


def _chosen_name(value: object) -> str:
    choice = _fields(value)
    name = (_fields(choice.get("function")) or choice).get("name")
    if not isinstance(name, str) or choice.get("type") != "function":
        raise ValueError("a tool is chosen as {'type': 'function', 'function': {'name': ...}}")
    return name


def _plain_choice(value: object) -> object:
    """Bring every form of a choice into that of `ChosenTools`."""
    if value is None:
        return None
    if isinstance(value, str):
        return {"mode": value}
    choice = _fields(value)
    if choice.get("type") != "allowed_tools":
        return {"mode": "required", "names": (_chosen_name(choice),)}
    allowed = _fields(choice.get("allowed_tools")) or choice
    tools, mode = allowed.get("tools"), allowed.get("mode")
    if not isinstance(tools, list) or not tools:
        raise ValueError("'allowed_tools' needs a list 'tools' that is not empty")
    if mode not in ("auto", "required"):  # any JSON may stand there: a set would hash it
        raise ValueError("the mode of 'allowed_tools' is 'auto' or 'required'")
    names = tuple(_chosen_name(tool) for tool in cast("list[object]", tools))
    return {"mode": mode, "names": names}


class ChatRequest(SamplingFields, OutputFormatFields):
    """Describe a chat completion; unknown fields are ignored.

    Of the known ones, `service_tier`, `user`, `safety_identifier`,
    `prompt_cache_retention` and `verbosity` are ignored too; those of `refused` are
    refused unless they say what happens anyway.
    """

    model_config = ConfigDict(extra="allow")

    refused: ClassVar[dict[str, tuple[Any, ...]]] = {
        **UNSUPPORTED_SAMPLING,
        "audio": (),
        "best_of": (1,),
        "documents": ([],),
        "echo": (False,),
        "function_call": ("none",),
        "functions": ([],),
        "modalities": (["text"], []),
        "moderation": (),
        "prediction": (),
        "store": (False,),
        "suffix": ("",),
        "web_search_options": (),
    }
    """Known fields that cannot be honoured, with the values that ask for nothing."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=4096)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**63)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    tools: (
        Annotated[
            list[
                Annotated[
                    ToolDefinition,
                    BeforeValidator(_nested_function, json_schema_input_type=ToolDefinition),
                ]
            ],
            Field(max_length=128),
        ]
        | None
    ) = None
    tool_choice: Annotated[
        ChosenTools | None,
        BeforeValidator(_plain_choice, json_schema_input_type=str | dict[str, Any] | None),
    ] = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: JsonObject | None = None
    reasoning_effort: str | None = None
    thinking_budget_tokens: int | None = Field(default=None, ge=-1, lt=2**63)
    reasoning_budget_tokens: int | None = Field(default=None, ge=-1, lt=2**63)
    thinking_token_budget: int | None = Field(default=None, ge=-1, lt=2**63)
    thinking_budget: int | None = Field(default=None, ge=-1, lt=2**63)

    @model_validator(mode="after")
    def _logprobs_asked_for(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("'top_logprobs' needs 'logprobs': true")
        return self
