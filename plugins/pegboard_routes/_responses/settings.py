"""The settings of the plugin `responses`."""

from __future__ import annotations

from typing import Literal

from pegboard_contracts.plugin import PluginSettings
from pydantic import Field


class Settings(PluginSettings):
    """Say what is kept for how long, and how responses are told."""

    store_max_entries: int = Field(
        default=1024,
        ge=0,
        description="Responses that are kept; 0 disables keeping them.",
        json_schema_extra={
            "flag": "--responses-store-max-entries",
            "env": ["LLAMA_ARG_RESPONSES_STORE_MAX_ENTRIES"],
        },
    )
    store_max_bytes: int = Field(
        default=268_435_456,
        ge=0,
        description="Approximate bytes of kept responses; 0 keeps none.",
        json_schema_extra={
            "flag": "--responses-store-max-bytes",
            "env": ["MLXCEL_RESPONSES_STORE_MAX_BYTES"],
        },
    )
    store_ttl_secs: int = Field(
        default=3600,
        ge=0,
        description="Seconds a response is kept; 0 is for ever.",
        json_schema_extra={
            "flag": "--responses-store-ttl-secs",
            "env": ["LLAMA_ARG_RESPONSES_STORE_TTL_SECS"],
        },
    )
    background_max_jobs: int = Field(
        default=64,
        ge=0,
        description="Background responses at a time; 0 disables background mode.",
        json_schema_extra={
            "flag": "--responses-background-max-jobs",
            "env": ["MLXCEL_RESPONSES_BACKGROUND_MAX_JOBS"],
        },
    )
    background_ephemeral_ttl_secs: int = Field(
        default=600,
        ge=1,
        description="Seconds a finished background response with store: false stays readable.",
        json_schema_extra={
            "flag": "--responses-background-ephemeral-ttl-secs",
            "env": ["MLXCEL_RESPONSES_BACKGROUND_EPHEMERAL_TTL_SECS"],
        },
    )
    reasoning_events: Literal["text", "summary", "both"] = Field(
        default="text",
        description="Events that reasoning is streamed in: reasoning_text, the summary's, or both.",
        json_schema_extra={"flag": "--reasoning-events"},
    )
    reasoning_echo_max_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=0,
        description="Bytes of reasoning remembered for turns that come back without it; 0 is none.",
        json_schema_extra={
            "flag": "--reasoning-echo-max-bytes",
            "env": ["MLXCEL_REASONING_ECHO_MAX_BYTES"],
        },
    )
    unsupported_tools: Literal["reject", "ignore"] = Field(
        default="reject",
        description="What becomes of tools that are no functions: 400, or left out.",
        json_schema_extra={"flag": "--unsupported-tools"},
    )
    map_reasoning_effort: bool = Field(
        default=False,
        description="Hand the Responses API's reasoning.effort to the chat template.",
        json_schema_extra={"flag": "--map-reasoning-effort"},
    )
    compact_short_histories: bool = Field(
        default=False,
        description="Let /responses/compact summarize what does not get shorter by it.",
        json_schema_extra={"flag": "--compact-short-histories"},
    )
    compaction_events: bool = Field(
        default=True,
        description="Stream the mlx.compaction events, which strict clients do not know.",
        json_schema_extra={"flag": "--compaction-events"},
    )
    background_key_always: bool = Field(
        default=False,
        description="Give foreground responses a key background: false, as strict schemas want.",
        json_schema_extra={"flag": "--background-key-always"},
    )
