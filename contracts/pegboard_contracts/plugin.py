"""What every plugin is: a class with a manifest, its settings and its hooks."""

from __future__ import annotations

from typing import ClassVar

import pluggy
from pydantic import BaseModel, ConfigDict

PROJECT = "pegboard"
"""The name under which pluggy collects our hooks."""

CONTRACT: tuple[int, int] = (1, 0)
"""Version of these contracts: another major breaks plugins, a newer minor only adds."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Mark a method of a plugin as the implementation of the hook of the same name."""


class PluginSettings(BaseModel):
    """Describe a plugin's section of the configuration, `[plugins.<name>]`.

    Every field has a default and a description. A field becomes a flag of
    `pegboard serve`, and gets further environment names, when it says so:
    `Field(..., json_schema_extra={"flag": "--max-things", "env": ["OLD_NAME"]})`.
    Secrets are typed `SecretStr` and shown masked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class Plugin:
    """Be the base of every plugin; the entry point names the class itself.

    Instantiated once per server, without arguments and without doing work. After
    `configure` the settings are there and the hooks may be called. Instances are
    compared by identity.
    """

    summary: ClassVar[str] = ""
    """One line for `pegboard plugins list`."""

    contract: ClassVar[tuple[int, int]] = CONTRACT
    """The contract version the plugin was written against."""

    requires: ClassVar[tuple[str, ...]] = ()
    """Names of plugins without which this one is blocked."""

    after: ClassVar[tuple[str, ...]] = ()
    """Names of plugins that come earlier in every order when they are active."""

    required: ClassVar[bool] = False
    """Whether the server refuses to start unless this plugin is active or disabled by name."""

    modules: ClassVar[tuple[str, ...]] = ()
    """Modules beyond the base install that it imports when used; absent, it is `missing`."""

    extra: ClassVar[str] = ""
    """The extra of its distribution that installs `modules`."""

    Settings: ClassVar[type[PluginSettings]] = PluginSettings

    name: str = ""
    """The entry point's name, set by the kernel before `configure`."""

    settings: PluginSettings

    def configure(self, settings: PluginSettings) -> None:
        """Take the validated settings; called once, before any hook.

        Raises whatever makes the plugin unusable; its record becomes `failed`.
        """
        self.settings = settings
