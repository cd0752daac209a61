"""`pegboard completion`: a completion script of every command and flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

import shtab

from pegboard_kernel.cli.parser import COMMANDS, Parser, make_parser
from pegboard_kernel.cli.setting_flags import add_common_flags

_EXAMPLES = """\
examples:
  pegboard completion bash > ~/.local/share/bash-completion/completions/pegboard
  pegboard completion zsh > ~/.zfunc/_pegboard
"""


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the shell's name."""
    del arguments
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", metavar="SHELL", choices=shtab.SUPPORTED_SHELLS, help="your shell")
    add_common_flags(parser)
    parser.set_defaults(run=_print_script)


def _print_script(namespace: argparse.Namespace) -> int:
    parser, commands = make_parser()
    for name, command in COMMANDS.items():
        import_module(command.module).configure(commands[name], [])
    print(shtab.complete(parser, shell=namespace.shell))
    return 0
