"""Settings: who wins, what is refused, and that no secret is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.plugin import Plugin, PluginSettings
from pegboard_kernel.faults import StartupError
from pegboard_kernel.settings import Settings
from pegboard_kernel.settings_sources import (
    Layer,
    build_settings,
    check_sections,
    kernel_fields,
    plugin_fields,
    read_layer,
)
from pydantic import Field


class BodyLimit(Plugin):
    class Settings(PluginSettings):
        limit_mb: int = Field(
            default=40,
            description="Limit.",
            json_schema_extra={
                "flag": "--max-request-body-mb",
                "env": ["OV_LLM_MAX_REQUEST_BODY_MB"],
            },
        )
        hosts: tuple[str, ...] = Field(default=(), description="Hosts.")


WriteToml = Callable[[str], Path]

CLASSES: dict[str, type[Plugin]] = {"body_limit": BodyLimit}


def read(
    flags: dict[str, Any] | None = None, env: dict[str, str] | None = None, file: Path | None = None
) -> tuple[Settings, Layer]:
    fields = [*kernel_fields(), *plugin_fields(CLASSES)]
    flags = {**(flags or {}), **({"config": str(file)} if file else {})}
    layer = read_layer(fields, flags, env or {})
    settings = build_settings(layer)
    check_sections(layer, settings, CLASSES)
    return settings, layer


def faults(
    flags: dict[str, Any] | None = None, env: dict[str, str] | None = None, file: Path | None = None
) -> str:
    with pytest.raises(StartupError) as caught:
        read(flags, env, file)
    return "\n".join(caught.value.faults)


@pytest.fixture
def toml(tmp_path: Path) -> WriteToml:
    def write(text: str) -> Path:
        file = tmp_path / "pegboard.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


@given(given_by=st.sets(st.sampled_from(["flag", "env", "alias", "file", "preset"])))
def test_the_stronger_source_wins(
    tmp_path_factory: pytest.TempPathFactory, given_by: set[str]
) -> None:
    path = tmp_path_factory.mktemp("config") / "pegboard.toml"
    text = "port = 4\n[schema_error_status]\nopenai = 422\n" if "file" in given_by else ""
    path.write_text(text, encoding="utf-8")
    variables = {
        "env": ("PEGBOARD_PORT", "2"),
        "alias": ("OV_LLM_PORT", "3"),
        "preset": ("PEGBOARD_COMPAT", "openai"),
    }
    environ = dict(variables[one] for one in given_by if one in variables)
    settings, layer = read({"port": "1"} if "flag" in given_by else {}, environ, path)
    values = {
        "flag": (1, "flag --port"),
        "env": (2, "env PEGBOARD_PORT"),
        "alias": (3, "env OV_LLM_PORT"),
        "file": (4, f"file {path}"),
    }
    strongest = next((value for one, value in values.items() if one in given_by), (8000, None))
    source = layer["port"].source if "port" in layer else None
    assert (settings.port, source) == strongest
    expected = 400 if "preset" in given_by and "file" not in given_by else 422
    assert settings.schema_error_status.openai == expected


def test_presets_change_what_they_say() -> None:
    assert read({"compat": ["inferbridge"]})[0].schema_error_status.responses == 422
    assert read({"compat": ["openai"]})[0].schema_error_status.openai == 400
    assert "there is no preset 'opnai'" in faults({"compat": ["opnai"]})


def test_lists_come_from_commas_json_and_repeated_flags(toml: WriteToml) -> None:
    assert read(env={"OV_LLM_API_KEY": "a, b"})[0].api_keys[1].get_secret_value() == "b"
    assert read(env={"PEGBOARD_MODELS": '["x,y"]'})[0].models == ("x,y",)
    assert read({"models": ["a", "b"]})[0].models == ("a", "b")
    assert read(file=toml('disabled = ["x"]'))[0].disabled == ("x",)
    assert "PEGBOARD_MODELS" in faults(env={"PEGBOARD_MODELS": "[broken"})


def test_empty_variables_are_unset() -> None:
    assert read(env={"OV_LLM_PORT": "", "PEGBOARD_PORT": ""})[0].port == 8000


def test_plugin_sections_from_every_source(toml: WriteToml) -> None:
    file = toml('[plugins.body_limit]\nlimit_mb = 4\nhosts = ["a"]\n[plugins.other]\nx = 1\n')
    settings, layer = read(file=file)
    assert settings.plugins == {"body_limit": {"limit_mb": 4, "hosts": ["a"]}, "other": {"x": 1}}
    for env in (
        {"PEGBOARD_PLUGINS__BODY_LIMIT__LIMIT_MB": "3"},
        {"OV_LLM_MAX_REQUEST_BODY_MB": "3"},
    ):
        settings, layer = read(env=env, file=file)
        assert settings.plugins["body_limit"]["limit_mb"] == "3"
        assert layer["plugins.body_limit.limit_mb"].source == f"env {next(iter(env))}"
    assert read(env={"PEGBOARD_PLUGINS__BODY_LIMIT__HOSTS": "a,b"})[0].plugins["body_limit"] == {
        "hosts": ["a", "b"]
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1\n", "there is no setting 'prot'. Did you mean 'port'?"),
        ("[schema_error_status]\nopenia = 400\n", "'schema_error_status.openia'"),
        ("[plugin.hermes]\nx = 1\n", "'plugin.hermes.x'"),
        ("port = \n", "is not valid TOML"),
        ("[plugins.body_limit]\nlimit = 3\n", "plugins.body_limit.limit (file "),
        ("port = 'many'\n", "port (file "),
    ],
)
def test_mistakes_in_the_file_are_named(toml: WriteToml, text: str, told: str) -> None:
    assert told in faults(file=toml(text))


def test_mistakes_elsewhere_are_named(tmp_path: Path) -> None:
    assert "PEGBOARD_PROT: there is no such setting. Did you mean 'PEGBOARD_PORT'?" in faults(
        env={"PEGBOARD_PROT": "1"}
    )
    assert faults(env={"OV_LLM_PORT": "many"}).startswith("port (env OV_LLM_PORT): ")
    assert faults({"port": "many"}).startswith("port (flag --port): ")
    told = faults({"plugins.body_limit.limit_mb": "many"})
    assert told.startswith("plugins.body_limit.limit_mb (flag --max-request-body-mb): ")
    assert "cannot be read" in faults(file=tmp_path / "absent.toml")


def test_every_fault_has_its_line() -> None:
    with pytest.raises(StartupError) as caught:
        read({"port": "many", "max_queue": "-1"})
    assert len(caught.value.faults) == 2


@given(
    st.text(min_size=4, alphabet=st.characters(categories=["L", "N"])).map(lambda key: "sk" + key)
)
def test_no_fault_and_no_repr_shows_a_key(key: str) -> None:
    settings, _ = read({"api_keys": [key]})
    assert key not in repr(settings)
    assert key not in faults({"api_keys": [key], "port": "many"})


def test_every_field_has_a_description_and_a_unique_name() -> None:
    fields = kernel_fields()
    assert all(field.info.description for field in fields)
    names = [name for field in fields for name in (field.flag, *field.env) if name]
    assert len(names) == len(set(names))
