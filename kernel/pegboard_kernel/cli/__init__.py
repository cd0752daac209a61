"""The command line: `pegboard`. A command's module is imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from pegboard_kernel.cli.parser import COMMANDS, make_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 is success, 1 a fault while running, 2 bad usage or bad settings, 130 an interrupt.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser, commands = make_parser()
    from pegboard_kernel.faults import StartupError  # noqa: PLC0415 - after a cheap --help

    try:
        if arguments and arguments[0] in COMMANDS:
            name = arguments[0]
            import_module(COMMANDS[name].module).configure(commands[name], arguments[1:])
        namespace, unknown = parser.parse_known_args(arguments)
        if unknown:
            asked = commands.get(arguments[0], parser)
            asked.error(f"unrecognized arguments: {' '.join(unknown)}")
        if "run" not in namespace:
            parser.print_help()
            return 2
        return int(namespace.run(namespace))
    except StartupError as error:
        for fault in error.faults:
            print(f"pegboard: {fault}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stdout = None  # nobody reads it; flushing would raise again
        return 1
