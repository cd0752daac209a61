"""The settings of the kernel: one frozen object per server, described field by field."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

CONFIG_FILE = "pegboard.toml"
"""The configuration file that is read from the working directory when none is named."""


LocalPath = Annotated[Path, AfterValidator(Path.expanduser)]
"""A path that may begin with `~`."""


def _folder(path: Path) -> Path:
    with contextlib.suppress(OSError):  # what cannot be looked at is told when it is used
        if path.is_file():
            raise ValueError("this is a file and no folder")
    return path


def _default_data_dir() -> Path:
    from platformdirs import user_data_path  # noqa: PLC0415 - only who asks for the default pays

    return user_data_path("pegboard", appauthor=False)


def _setting(
    default: Any,  # noqa: ANN401 - the field's annotation is the type
    description: str,
    *,
    flag: str,
    env: tuple[str, ...] = (),
    **limits: Any,  # noqa: ANN401 - passed to pydantic as they are
) -> Any:  # noqa: ANN401 - stands where a field's default stands
    extra: dict[str, Any] = {"flag": flag, "env": list(env)}
    return Field(default, description=description, json_schema_extra=extra, **limits)


class SchemaErrorStatus(BaseModel):
    """Say which status answers a body that breaks its schema, per route family."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    openai: Literal[400, 422] = Field(default=422, description="On OpenAI-style routes.")
    responses: Literal[400, 422] = Field(default=400, description="On the Responses family.")
    native: Literal[400, 422] = Field(default=422, description="On every other route.")


class Settings(BaseModel):
    """Hold everything an operator decides about one server.

    Built by `settings_sources` from flags, environment and file, or directly in a test.
    A field's `flag` and `env` are its names on the command line and, beside
    `PEGBOARD_<FIELD>`, in the environment.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = _setting(
        "127.0.0.1",
        "Address to listen on. Beyond loopback every request needs an API key.",
        flag="--host",
        env=("OV_LLM_HOST", "LLAMA_ARG_HOST"),
    )
    port: int = _setting(
        8000,
        "Port to listen on; 0 takes a free one.",
        flag="--port",
        env=("OV_LLM_PORT", "LLAMA_ARG_PORT"),
        ge=0,
        le=65535,
    )
    data_dir: Annotated[LocalPath, AfterValidator(_folder)] = Field(
        default_factory=_default_data_dir,
        description="Folder of the catalogue, converted models and caches.",
        json_schema_extra={"flag": "--data-dir", "env": ["OV_LLM_DATA_DIR"]},
    )
    catalog: LocalPath | None = _setting(
        None,
        "Catalogue file; without it, models.json in the data folder.",
        flag="--catalog",
        env=("OV_LLM_MODELS_FILE",),
    )
    config: LocalPath | None = _setting(
        None,
        f"Configuration file; without it, {CONFIG_FILE} of the working directory if there is one.",
        flag="--config",
    )
    models: tuple[str, ...] = _setting(
        (),
        "Model to register and load at start: a catalogue id, a folder, a .gguf file, "
        "package:MODULE/FILE, scripted:FILE, or ID=SPEC to name it. Repeatable.",
        flag="--model",
        env=("OV_LLM_MODEL",),
    )
    api_keys: tuple[SecretStr, ...] = _setting(
        (),
        "Key that clients must send as a bearer token. Repeatable.",
        flag="--api-key",
        env=("OV_LLM_API_KEY", "LLAMA_API_KEY"),
    )
    autoload: bool = _setting(
        False,
        "Load a registered model when a request names it, instead of answering 409.",
        flag="--autoload",
    )
    mock: bool = _setting(
        False,
        "Load one built-in scripted model, 'mock', which echoes and needs no OpenVINO.",
        flag="--mock",
        env=("OV_LLM_MOCK",),
    )
    default_device: str = _setting(
        "CPU",
        "Device of a model whose catalogue entry names none.",
        flag="--device",
        env=("OV_LLM_DEVICE",),
    )
    max_loaded_models: int | None = _setting(
        None,
        "How many models may be loaded at once; none is no limit.",
        flag="--max-loaded-models",
        ge=1,
    )
    idle_unload: float | None = _setting(
        None,
        "Seconds without a request after which a model is unloaded; none is never.",
        flag="--idle-unload",
        gt=0,
    )
    agent_grace: float = _setting(
        300.0,
        "Seconds that a model stays after an answer that called tools, on top of --idle-unload.",
        flag="--agent-grace",
        ge=0,
    )
    kv_cache_gb: float | None = _setting(
        None,
        "Memory of a model's key-value cache, in GB; without it, chosen by the backend.",
        flag="--kv-cache-gb",
        gt=0,
    )
    max_queue: int = _setting(
        64,
        "Requests that may wait for one model; the next one is answered 503.",
        flag="--max-queue",
        ge=0,
    )
    request_timeout: float | None = _setting(
        None,
        "Seconds after which an answer is stopped; none is no limit.",
        flag="--request-timeout",
        gt=0,
    )
    engine_hang_timeout: float = _setting(
        60.0,
        "Seconds without a sign of life after which an engine is restarted.",
        flag="--engine-hang-timeout",
        gt=0,
    )
    load_timeout: float = _setting(
        1800.0,
        "Seconds after which the loading of a model is given up.",
        flag="--load-timeout",
        gt=0,
    )
    template_timeout: float = _setting(
        5.0,
        "Seconds that rendering one chat template may take.",
        flag="--template-timeout",
        gt=0,
    )
    constraint_compile_limit: float = _setting(
        2.0,
        "Seconds of processor time that compiling the grammar of an answer may take.",
        flag="--constraint-compile-limit",
        gt=0,
    )
    constraint_step_limit: float = _setting(
        0.03,
        "Seconds of processor time that a grammar may add to every step of all answers.",
        flag="--constraint-step-limit",
        gt=0,
    )
    conversion_inactivity_timeout: float = _setting(
        900.0,
        "Seconds without a sign of life after which a download or a conversion is stopped.",
        flag="--conversion-inactivity-timeout",
        gt=0,
        le=86_400,
    )
    conversion_timeout: float = _setting(
        86_400.0,
        "Seconds that fetching and converting one model may take in all.",
        flag="--conversion-timeout",
        gt=0,
    )
    disk_reserve_gb: float = _setting(
        0.5,
        "Disk space, in GB, that a conversion must leave free in the data folder.",
        flag="--disk-reserve-gb",
        ge=0,
    )
    keepalive_interval: float = _setting(
        15.0,
        "Seconds of silence in a stream after which a comment is sent.",
        flag="--keepalive-interval",
        gt=0,
    )
    drain_timeout: float = _setting(
        10.0,
        "Seconds that running answers get to finish when the server stops.",
        flag="--drain-timeout",
        ge=0,
    )
    profile: str = _setting(
        "full",
        "Named selection of plugins: minimal, openai or full (everything installed).",
        flag="--profile",
    )
    enabled: tuple[str, ...] = _setting(
        (), "Plugin to enable in addition to the profile. Repeatable.", flag="--enable"
    )
    disabled: tuple[str, ...] = _setting(
        (), "Plugin to disable; it is not even imported. Repeatable.", flag="--disable"
    )
    required: tuple[str, ...] = _setting(
        (), "Plugin without which the server refuses to start. Repeatable.", flag="--require"
    )
    store: str = _setting(
        "memory",
        "Plugin that keeps responses and conversations: memory, or sqlite to outlive a restart.",
        flag="--store",
    )
    compat: tuple[str, ...] = _setting(
        (),
        "Compatibility preset, see `pegboard config compat`. Repeatable; the last one wins.",
        flag="--compat",
    )
    schema_error_status: SchemaErrorStatus = Field(
        default_factory=SchemaErrorStatus,
        description="Status of a body that breaks its schema, per route family.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "How much is logged to standard error.", flag="--log-level"
    )
    plugins: dict[str, dict[str, Any]] = Field(
        default_factory=dict[str, dict[str, Any]],
        description="Settings of each plugin, in a section of its name.",
    )
