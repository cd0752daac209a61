"""The laws of every plugin, whatever its kind, as a test class to subclass."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from typing import ClassVar

import pluggy

from pegboard_contracts import hooks
from pegboard_contracts.plugin import CONTRACT, PROJECT, Plugin, PluginSettings

HEAVY_MODULES = (
    "huggingface_hub",
    "numpy",
    "openvino",
    "openvino_genai",
    "openvino_tokenizers",
    "torch",
    "transformers",
)
"""Modules that importing a plugin must not import."""

_IMPORT = "import json, sys, {}; print(json.dumps(list(sys.modules)))"


class PluginLaws:
    """Hold what every plugin must do; a subclass names it: `plugin = MyFormat`."""

    plugin: ClassVar[type[Plugin]]
    banned_modules: ClassVar[tuple[str, ...]] = HEAVY_MODULES

    def test_importing_it_is_cheap(self) -> None:
        """Its module, imported alone in a new process, imports nothing heavy."""
        program = _IMPORT.format(self.plugin.__module__)
        ran = subprocess.run(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        loaded = {name.partition(".")[0] for name in json.loads(ran.stdout)}
        assert not loaded & set(self.banned_modules)

    def test_its_manifest_is_well_formed(self) -> None:
        """It has a line to be listed with, and names plugins by words."""
        assert issubclass(self.plugin, Plugin)
        assert 0 < len(self.plugin.summary) <= 80
        assert "\n" not in self.plugin.summary
        assert self.plugin.contract[0] == CONTRACT[0]
        assert all(name.isidentifier() for name in (*self.plugin.requires, *self.plugin.after))

    def test_it_is_made_without_arguments_and_configured_by_defaults(self) -> None:
        """Every setting has a default, so a server starts with it and no configuration."""
        made = self.plugin()
        made.configure(self.plugin.Settings())
        assert isinstance(made.settings, self.plugin.Settings)

    def test_its_settings_explain_themselves(self) -> None:
        """Settings are frozen, refuse unknown keys, and each has a description."""
        described = self.plugin.Settings
        assert issubclass(described, PluginSettings)
        assert described.model_config.get("frozen")
        assert described.model_config.get("extra") == "forbid"
        for name, field in described.model_fields.items():
            assert not field.is_required(), f"setting {name} has no default"
            assert field.description, f"setting {name} has no description"

    def test_its_hooks_exist(self) -> None:
        """Each of its hooks is a hook, with arguments that the hook has."""
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(hooks)
        manager.register(self.plugin())
        manager.check_pending()
        assert manager.get_hookcallers(manager.get_plugins().pop())

    def test_its_entry_point_is_the_class(self) -> None:
        """An installed entry point of a kind leads to the class, by a name that users can type."""
        found = [
            entry_point
            for distribution in distributions()
            for entry_point in distribution.entry_points
            if entry_point.group.startswith(f"{PROJECT}.")
            and entry_point.module == self.plugin.__module__
            and entry_point.load() is self.plugin
        ]
        assert found, f"no entry point names {self.plugin.__qualname__}; install the distribution"
        assert all(entry_point.name.isidentifier() for entry_point in found)
        assert all(entry_point.name == entry_point.name.lower() for entry_point in found)
