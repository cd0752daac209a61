"""Where settings come from: flag over environment over file over preset over default.

Every value keeps its source, so that a fault names what the operator typed and
`pegboard config show` can tell where each value came from.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from pegboard_contracts.plugin import Plugin
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pegboard_kernel.compat import PRESETS
from pegboard_kernel.faults import StartupError, suggestion
from pegboard_kernel.settings import CONFIG_FILE, Settings

PREFIX = "PEGBOARD_"
PLUGINS = "plugins."
"""Dotted paths of plugins' settings begin with this and the plugin's name."""


@dataclass(frozen=True, kw_only=True)
class SettingField:
    """Name one setting everywhere: dotted path, flag, environment variables."""

    path: str
    info: FieldInfo
    flag: str | None
    env: tuple[str, ...]

    @property
    def repeatable(self) -> bool:
        """Tell whether the setting holds several values."""
        return self._holds(list, tuple, set, frozenset)

    @property
    def boolean(self) -> bool:
        """Tell whether the setting is a switch."""
        return self._holds(bool)

    def parse(self, text: str) -> Any:  # noqa: ANN401 - validated by the field's own type
        """Read the text of an environment variable: JSON, or a comma list for several values."""
        structured = self.repeatable or self._holds(dict)
        if structured and text.lstrip().startswith(("[", "{")):
            try:
                return json.loads(text)
            except ValueError:
                raise StartupError(f"{self.env[0]}: this is not valid JSON") from None
        if self.repeatable:
            return [part.strip() for part in text.split(",") if part.strip()]
        return text

    def _holds(self, *wanted: type) -> bool:
        annotation: object = self.info.annotation
        choices = (annotation, *get_args(annotation))
        return any((get_origin(choice) or choice) in wanted for choice in choices)


@dataclass(frozen=True)
class Given:
    """Carry a value that somebody gave, and where."""

    value: Any
    source: str


Layer = dict[str, Given]
"""Values by dotted path; what nobody gave is absent."""


def kernel_fields() -> list[SettingField]:
    """List the kernel's own settings."""
    return list(_fields(Settings, ""))


def plugin_fields(classes: Mapping[str, type[Plugin]]) -> list[SettingField]:
    """List the settings of loaded plugins, in their order."""
    return [
        field
        for name, plugin_class in classes.items()
        for field in _fields(plugin_class.Settings, f"{PLUGINS}{name}.")
    ]


def _fields(model: type[BaseModel], prefix: str) -> Iterator[SettingField]:
    for name, info in model.model_fields.items():
        path = prefix + name
        annotation: object = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _fields(annotation, path + ".")
        elif path != "plugins":
            extra = cast("dict[str, Any]", info.json_schema_extra or {})
            own = PREFIX + path.upper().replace(".", "__")
            yield SettingField(
                path=path, info=info, flag=extra.get("flag"), env=(own, *extra.get("env", ()))
            )


def read_layer(
    fields: Sequence[SettingField], flags: Mapping[str, Any], environ: Mapping[str, str]
) -> Layer:
    """Merge every source, the stronger over the weaker.

    `flags` has values by dotted path. Raises `StartupError` for a file that cannot be read
    and for every unknown key, section or `PEGBOARD_` variable.
    """
    by_path = {field.path: field for field in fields}
    typed = {path: Given(value, f"flag {by_path[path].flag}") for path, value in flags.items()}
    stronger = _from_environment(fields, environ) | typed
    layer = _from_file(stronger, by_path) | stronger
    return _from_presets(layer) | layer


def _from_environment(fields: Iterable[SettingField], environ: Mapping[str, str]) -> Layer:
    layer: Layer = {}
    known: set[str] = set()
    for field in fields:
        known.update(field.env)
        for name in field.env:
            if environ.get(name) and field.path not in layer:
                layer[field.path] = Given(field.parse(environ[name]), f"env {name}")
    unknown = [name for name in environ if name.startswith(PREFIX) and name not in known]
    faults: list[str] = []
    for name in sorted(unknown):
        path = name.removeprefix(PREFIX).lower().replace("__", ".")
        if path.startswith(PLUGINS) and path.count(".") > 1:
            layer[path] = Given(environ[name], f"env {name}")
        else:
            faults.append(f"{name}: there is no such setting.{suggestion(name, known)}")
    if faults:
        raise StartupError(*faults)
    return layer


def _from_file(stronger: Layer, known: Collection[str]) -> Layer:
    given = stronger.get("config")
    file = Path(str(given.value)).expanduser() if given else Path(CONFIG_FILE)
    if given is None and not file.is_file():
        return {}
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"config: {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"config: {file} is not valid TOML: {error}") from None
    layer: Layer = {}
    faults: list[str] = []
    for path, value in _flatten(document, "", known):
        if path == "config":
            faults.append(f"{file}: 'config' says where this file is; give it as --config")
        elif path in known or (path.count(".") > 1 and path.startswith(PLUGINS)):
            layer[path] = Given(value, f"file {file}")
        else:
            faults.append(f"{file}: there is no setting '{path}'.{suggestion(path, known)}")
    if faults:
        raise StartupError(*faults)
    return layer


def _flatten(
    table: Mapping[str, Any], prefix: str, known: Collection[str]
) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = prefix + key
        in_plugin = path.startswith(PLUGINS)
        section = (
            not in_plugin or path.count(".") == 1 or any(k.startswith(path + ".") for k in known)
        )
        if isinstance(value, dict) and section and path not in known:
            yield from _flatten(cast("dict[str, Any]", value), path + ".", known)
        else:
            yield path, value


def _from_presets(layer: Layer) -> Layer:
    given = layer.get("compat")
    presets: Layer = {}
    for name in cast("list[str]", given.value if given else []):
        if name not in PRESETS:
            hint = suggestion(name, PRESETS)
            raise StartupError(
                f"compat: there is no preset '{name}', only {', '.join(PRESETS)}.{hint}"
            )
        for path, value in PRESETS[name].values.items():
            presets[path] = Given(value, f"compat {name}")
    return presets


def build_settings(layer: Layer) -> Settings:
    """Validate the kernel's settings; raises `StartupError`, each fault named by its source."""
    nested: dict[str, Any] = {}
    for path, given in layer.items():
        *parents, last = path.split(".")
        target = nested
        for parent in parents:
            inner: object = target.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise StartupError(f"{path} ({given.source}): '{parent}' is no section")
            target = cast("dict[str, Any]", inner)
        target[last] = given.value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        raise StartupError(*_told(layer, "", error)) from None


def check_sections(
    layer: Layer, settings: Settings, classes: Mapping[str, type[Plugin]]
) -> dict[str, BaseModel]:
    """Validate each plugin's section as start-up will, and return what is in force.

    Raises `StartupError`, each fault named by its source.
    """
    sections: dict[str, BaseModel] = {}
    faults: list[str] = []
    for name, plugin_class in classes.items():
        try:
            sections[name] = plugin_class.Settings.model_validate(settings.plugins.get(name, {}))
        except ValidationError as error:
            faults += _told(layer, f"{PLUGINS}{name}.", error)
    if faults:
        raise StartupError(*faults)
    return sections


def _told(layer: Layer, prefix: str, error: ValidationError) -> list[str]:
    lines: list[str] = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        path = prefix + ".".join(map(str, fault["loc"]))
        source = next(
            (given.source for known, given in layer.items() if f"{path}.".startswith(f"{known}.")),
            None,
        )
        where = f"{path} ({source})" if source else path
        lines.append(f"{where}: {fault['msg'].removeprefix('Value error, ')}")
    return lines
