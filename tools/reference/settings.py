"""The page of settings: the kernel's, then each plugin's section."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pegboard_kernel.settings import Settings
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tools.reference.builtin import built_ins
from tools.reference.markdown import table

HEAD = ("key", "flag", "environment", "type", "default", "meaning")
INTRODUCTION = """\
# Settings

A flag wins over the environment, the environment over the configuration file (`pegboard.toml`,
or `--config FILE`), the file over the default. `pegboard config show` prints what is in force
and where each value came from. An unknown section, key or value is an error that names it.\
"""


def page(root: Path) -> str:
    """Write the page."""
    parts = [INTRODUCTION, "## The server", table(HEAD, _rows(Settings, ""))]
    parts.append("## Plugins")
    parts.append(
        "Each plugin has the section of its name; a plugin that is not here has no settings."
    )
    for one in built_ins(root):
        if one.plugin.Settings.model_fields:
            prefix = f"plugins.{one.name}."
            parts += [
                f"### `[plugins.{one.name}]`",
                table(HEAD, _rows(one.plugin.Settings, prefix)),
            ]
    return "\n\n".join(parts)


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _rows(inner, f"{prefix}{name}.")
            continue
        extra = _extra(field)
        aliases = [f"`{alias}`" for alias in extra.get("env", ())]
        variable = "PEGBOARD_" + (prefix + name).replace(".", "__").upper()
        flag = extra.get("flag")
        yield (
            f"`{prefix}{name}`",
            f"`{flag}`" if flag else "",
            ", ".join([f"`{variable}`", *aliases]),
            f"`{_type_name(field.annotation)}`",
            _default(field),
            field.description or "",
        )


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = cast("object", field.json_schema_extra)
    return cast("dict[str, Any]", extra) if isinstance(extra, dict) else {}


def _type_name(shown: object) -> str:
    """Write a type as one would in a document: no modules, no validators."""
    origin, arguments = get_origin(shown), get_args(shown)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return " or ".join(str(argument) for argument in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_type_name(argument) for argument in arguments)
    if origin is not None:
        inner = ", ".join(_type_name(argument) for argument in arguments)
        return f"{getattr(origin, '__name__', origin)}[{inner}]"
    if shown in (None, type(None)):
        return "none"
    return "..." if shown is Ellipsis else getattr(shown, "__name__", str(shown))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        factory = field.default_factory
        made_here = factory is not None and factory.__name__.startswith("_default")
        return "depends on the system" if made_here else "empty"
    if field.default in ((), None):
        return "none"
    return (
        f"`{field.default}`"
        if not isinstance(field.default, str)
        else f"`{field.default or '(empty)'}`"
    )
