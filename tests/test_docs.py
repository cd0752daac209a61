"""The documents are complete and true: they name everything, and what they show exists."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import msgspec
import pytest
from pegboard_contracts import hooks
from pegboard_contracts.models import ModelEntry
from pegboard_contracts.plugin import PROJECT, Plugin
from pegboard_kernel.cli.parser import COMMANDS
from pegboard_kernel.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/README.md"), *(ROOT / "docs").rglob("*.md")})
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PLUGINS: dict[str, type[Plugin]] = {
    entry.name: entry.load()
    for entry in distribution(PROJECT).entry_points
    if entry.group.startswith(f"{PROJECT}.")
}
FLAGS_OF_OTHERS = {"--no-deps", "--check", "--help"}

_BLOCK = re.compile(
    r"(?:<!-- from: (?P<source>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def reference(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def in_table(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def blocks(page: Path) -> list[re.Match[str]]:
    return list(_BLOCK.finditer(page.read_text(encoding="utf-8")))


def block(name: str, language: str) -> str:
    return next(b["text"] for b in blocks(ROOT / "docs" / name) if b["language"] == language)


def test_the_reference_pages_are_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"run `make docs`\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}"


def test_every_hook_is_documented_with_its_exact_signature() -> None:
    page = reference("hooks")
    source = ast.parse(Path(hooks.__file__).read_text(encoding="utf-8"))
    specs = [
        node
        for node in source.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(f"{PROJECT}_")
    ]
    assert specs
    for spec in specs:
        assert spec.returns is not None
        signature = f"{spec.name}({ast.unparse(spec.args)}) -> {ast.unparse(spec.returns)}"
        assert f"## `{signature}`\n" in page
        assert (ast.get_docstring(spec) or "").splitlines()[0] in page


def test_every_setting_is_documented() -> None:
    page = reference("settings")
    for name, field in Settings.model_fields.items():
        assert f"| `{name}" in page
        assert field.description
    for plugin, plugin_class in PLUGINS.items():
        for name, field in plugin_class.Settings.model_fields.items():
            assert f"| `plugins.{plugin}.{name}` |" in page
            assert in_table(field.description or "") in page


def test_every_plugin_is_documented() -> None:
    page = reference("plugins")
    for name, plugin_class in PLUGINS.items():
        assert f"### `{name}`\n" in page
        assert in_table(plugin_class.summary) in page


def test_every_command_is_documented() -> None:
    page = reference("cli")
    for name, command in COMMANDS.items():
        assert f"## `pegboard {name}`\n" in page
        assert command.summary in page


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_examples_are_pieces_of_files_that_run(page: Path) -> None:
    for found in blocks(page):
        if found["source"]:
            source = (ROOT / found["source"]).read_text(encoding="utf-8")
            assert found["text"] in source, f"{found['source']} says something else"
        else:
            assert found["language"] != "python" or page.name == "README.md", "name its file"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_flags_exist(page: Path) -> None:
    known = set(re.findall(r"--[a-z-]+", reference("settings") + reference("cli")))
    code = re.findall(
        r"^.*\bpegboard .*$|`[^`\n]+`", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    named = {flag for text in code for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    assert named <= known | FLAGS_OF_OTHERS


def test_the_catalogue_example_is_a_catalogue() -> None:
    catalogue = json.loads(block("how-to/add-a-model.md", "json"))
    for entry in catalogue["models"]:
        assert set(entry) <= {field.name for field in msgspec.structs.fields(ModelEntry)}
        msgspec.convert(entry, ModelEntry)


def test_the_configuration_example_is_a_configuration() -> None:
    configuration = tomllib.loads(block("how-to/choose-plugins.md", "toml"))
    settings = Settings.model_validate(configuration)
    for plugin, section in settings.plugins.items():
        PLUGINS[plugin].Settings.model_validate(section)


def test_plugins_named_in_examples_exist() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"--(?:enable|disable|require) ([a-z]\w*)", text))
    assert named <= set(PLUGINS)
