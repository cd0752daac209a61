"""Write the pages of docs/reference/ from the code, or check that they are up to date.

Hooks, plugins and their settings are imported, commands are read from the parser, and
error codes are collected from the source text of contracts, kernel and plugins.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("contracts", "kernel", "plugins", "")]

from tools.reference import commands, errors, hooks, plugins, settings  # noqa: E402 - after the path

PAGES: dict[str, Callable[[Path], str]] = {
    "cli": commands.page,
    "errors": errors.page,
    "hooks": hooks.page,
    "plugins": plugins.page,
    "settings": settings.page,
}
NOTE = "<!-- Written by tools/generate_reference.py: change the code, then run `make docs`. -->\n\n"


def main() -> int:
    """Write or compare every page; return 1 when a compared page differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    check = parser.parse_args().check
    folder = ROOT / "docs" / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    stale = 0
    for name, page in PAGES.items():
        target = folder / f"{name}.md"
        wanted = NOTE + page(ROOT).rstrip() + "\n"
        present = target.read_text(encoding="utf-8") if target.exists() else ""
        if wanted == present:
            continue
        stale += 1
        if check:
            names = (f"{target.name} as it is", "as it must be")
            lines = difflib.unified_diff(present.splitlines(), wanted.splitlines(), *names)
            print("\n".join(list(lines)[:40]))
        else:
            target.write_text(wanted, encoding="utf-8")
            print(f"wrote {target.relative_to(ROOT)}")
    if check and stale:
        print(f"{stale} pages of docs/reference are behind the code: run `make docs`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
