"""The house keeps its own rules: sizes, borders, entry points, and what its files say."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts import hooks
from pegboard_contracts.plugin import PROJECT, Plugin

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = ("contracts", "kernel", "plugins")
PROJECT_FILE: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, dict[str, str]] = {
    group: entries
    for group, entries in PROJECT_FILE["project"]["entry-points"].items()
    if group.startswith(f"{PROJECT}.")
}
ENTRIES = sorted((group, name) for group, entries in GROUPS.items() for name in entries)

LINES_OF_A_MODULE = 400
LINES_OF_A_README = {"README.md": 120} | {
    f"{folder}/README.md": 40 for folder in (*SOURCE_ROOTS, "tests", "docs", "tools")
}


def tracked(pattern: str = "*") -> list[Path]:
    """List the files under version control, and those that are about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def packages() -> list[Path]:
    return sorted(
        path
        for folder in SOURCE_ROOTS
        for path in (ROOT / folder).iterdir()
        if path.is_dir() and path.name != "__pycache__"
    )


def plugin_class(group: str, name: str) -> type[Plugin]:
    (entry,) = distribution(PROJECT).entry_points.select(group=group, name=name)
    loaded: type[Plugin] = entry.load()
    return loaded


def test_modules_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in tracked("*.py")
        if not path.is_relative_to(ROOT / "tests")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) >= LINES_OF_A_MODULE
    }
    assert not long, f"modules of {LINES_OF_A_MODULE} lines and more: split them by topic"


@pytest.mark.parametrize(("name", "limit"), LINES_OF_A_README.items())
def test_readmes_stay_short(name: str, limit: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= limit


def test_the_install_knows_the_entry_points_of_the_project_file() -> None:
    installed = {
        (entry.group, entry.name, entry.value) for entry in distribution(PROJECT).entry_points
    }
    declared = {
        (group, name, value)
        for group, entries in PROJECT_FILE["project"]["entry-points"].items()
        for name, value in entries.items()
    }
    missing = {entry for entry in declared - installed if entry[0].startswith(f"{PROJECT}.")}
    gone = {entry for entry in installed - declared if entry[0].startswith(f"{PROJECT}.")}
    assert not missing, "re-run the install: .venv/bin/python -m pip install -e ."
    assert not gone, "re-run the install: .venv/bin/python -m pip install -e ."


def test_modules_on_disk_are_the_entry_points() -> None:
    on_disk = {
        (f"{PROJECT}.{package.name.removeprefix(f'{PROJECT}_')}", module.stem)
        for package in (ROOT / "plugins").iterdir()
        if package.is_dir()
        for module in package.glob("*.py")
        if not module.stem.startswith("_")
    }
    assert on_disk == set(ENTRIES), "a public module of a plugin package is an entry point"


@pytest.mark.parametrize(("group", "name"), ENTRIES)
def test_an_entry_point_names_the_plugin_of_its_module(group: str, name: str) -> None:
    kind = group.removeprefix(f"{PROJECT}.")
    assert GROUPS[group][name] == f"{PROJECT}_{kind}.{name}:plugin"


@pytest.mark.parametrize(("group", "name"), ENTRIES)
def test_a_plugin_module_reads_in_the_usual_order(group: str, name: str) -> None:
    kind = group.removeprefix(f"{PROJECT}.")
    module = ROOT / "plugins" / f"{PROJECT}_{kind}" / f"{name}.py"
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "it begins with a docstring"
    last = tree.body[-1]
    assert isinstance(last, ast.Assign), "it ends with `plugin = ClassName`"
    assert ast.unparse(last).startswith("plugin = ")


@pytest.mark.parametrize(("group", "name"), ENTRIES)
def test_a_plugin_describes_itself_and_its_settings(group: str, name: str) -> None:
    plugin = plugin_class(group, name)
    assert issubclass(plugin, Plugin)
    assert plugin.summary, "one line for `pegboard plugins list`"
    assert "\n" not in plugin.summary
    plugin.Settings()
    config = plugin.Settings.model_config
    assert config.get("frozen")
    assert config.get("extra") == "forbid"
    for key, field in plugin.Settings.model_fields.items():
        assert field.description, f"{name}.{key} has no description"


def test_every_hook_is_used_by_a_built_in() -> None:
    specs = {name for name, value in vars(hooks).items() if hasattr(value, f"{PROJECT}_spec")}
    used = {
        spec
        for group, name in ENTRIES
        for spec in specs
        if hasattr(getattr(plugin_class(group, name), spec, None), f"{PROJECT}_impl")
    }
    assert specs == used, "a hook exists because a built-in needs it"


def test_import_linter_knows_every_package() -> None:
    names = {path.name for path in packages()}
    linter = PROJECT_FILE["tool"]["importlinter"]
    assert set(linter["root_packages"]) == names
    layers = [contract for contract in linter["contracts"] if contract["type"] == "layers"]
    above = {name.strip() for name in layers[0]["layers"][0].split("|")}
    assert above == names - {"pegboard_contracts"}, "kernel and plugins are siblings"


def test_every_package_is_typed() -> None:
    assert all((package / "py.typed").is_file() for package in packages())


def test_only_the_hook_calls_use_the_plugin_manager() -> None:
    users = {
        path.name
        for path in (ROOT / "kernel").rglob("*.py")
        if "PluginManager(" in (text := path.read_text(encoding="utf-8")) or ".hook." in text
    }
    assert users == {"hook_calls.py"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("/" + "work/", id="a folder of one machine"),
        pytest.param("/" + "root/", id="a home"),
        pytest.param("pypi" + ".org", id="a package index"),
        pytest.param("python" + "hosted.org", id="its files"),
        pytest.param("registry.npm" + "js", id="another index"),
    ],
)
def test_no_file_tells_where_it_was_made(text: str) -> None:
    found = [
        path for path in tracked() if text in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert not found


def test_other_products_are_named_only_where_compatibility_needs_it() -> None:
    names = ("mlx" + "cel", "infer" + "bridge")
    prose = [path for path in tracked("*.md") if path.parent != ROOT / "docs" / "reference"]
    found = [
        path
        for path in prose
        if any(name in path.read_text(encoding="utf-8").lower() for name in names)
    ]
    assert not found, "the documents speak of this product"
