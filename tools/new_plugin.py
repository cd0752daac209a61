"""Write a new plugin: its module, its test, its entry point and its place in the reference.

    .venv/bin/python tools/new_plugin.py tool_formats my_family

The module works as it is written and passes its test, once an install has seen the entry point.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCAFFOLD = Path(__file__).resolve().parent / "scaffold"
FOLDER_OF_TESTS = {
    "backends": "backends",
    "converters": "converters",
    "middlewares": "middlewares",
    "model_sources": "sources",
    "reasoning_formats": "formats",
    "routes": "routes",
    "structured_outputs": "structured_outputs",
    "tool_formats": "formats",
}


def main() -> int:
    """Write the files; return 2 when the name cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kind", metavar="KIND", choices=FOLDER_OF_TESTS, help=", ".join(FOLDER_OF_TESTS)
    )
    parser.add_argument("name", metavar="NAME", help="the word operators type, in snake_case")
    parsed = parser.parse_args()
    kind, name = str(parsed.kind), str(parsed.name)
    fault = fault_of(name)
    if fault:
        print(f"new_plugin: {fault}", file=sys.stderr)
        return 2
    module = ROOT / "plugins" / f"pegboard_{kind}" / f"{name}.py"
    test = ROOT / "tests" / FOLDER_OF_TESTS[kind] / f"test_{name}.py"
    write(module, f"{kind}.plugin.txt", name)
    write(test, f"{kind}.test.txt", name)
    add_entry_point(kind, name)
    if find_spec("ruff"):
        formatter = [sys.executable, "-m", "ruff", "format", "--quiet", str(module), str(test)]
        subprocess.run(formatter, check=True, cwd=ROOT)  # noqa: S603 - the formatter of the house
    generator = [sys.executable, str(ROOT / "tools" / "generate_reference.py")]
    subprocess.run(generator, check=True)  # noqa: S603 - our own interpreter and tool
    print("Next: `make test` installs the entry point and runs the new test; then make it yours.")
    return 0


def fault_of(name: str) -> str | None:
    """Return why a name cannot be used, or nothing."""
    if not name.isidentifier() or name != name.lower() or name.startswith("_"):
        return f"'{name}' is no snake_case word; try letters, digits and underscores."
    groups = entry_points().values()
    if any(name in entries for entries in groups):
        return f"'{name}' is taken; names are unique across kinds, see `pegboard plugins list`."
    return None


def entry_points() -> dict[str, Any]:
    """Read the entry points of the project file."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["project"]["entry-points"]
    return found


def write(target: Path, scaffold: str, name: str) -> None:
    """Fill in a scaffold; an existing file is never overwritten."""
    class_name = "".join(word.capitalize() for word in name.split("_"))
    template = Template((SCAFFOLD / scaffold).read_text(encoding="utf-8"))
    text = template.substitute(name=name, class_name=class_name, dashed=name.replace("_", "-"))
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("x", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {target.relative_to(ROOT)}")


def add_entry_point(kind: str, name: str) -> None:
    """Add the line to the group of the kind, which stays sorted."""
    path = ROOT / "pyproject.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    start = lines.index(f'[project.entry-points."pegboard.{kind}"]') + 1
    end = start
    while end < len(lines) and lines[end]:
        end += 1
    entries = [*lines[start:end], f'{name} = "pegboard_{kind}.{name}:plugin"']
    lines[start:end] = sorted(entries)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"added {name} to pyproject.toml")


if __name__ == "__main__":
    sys.exit(main())
