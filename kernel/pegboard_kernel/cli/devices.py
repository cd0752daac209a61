"""`pegboard devices`: what models can run on, and why a device cannot be used."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from pegboard_contracts.backend import Device

from pegboard_kernel.app import build_app
from pegboard_kernel.cli.output import print_json, print_table
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.setting_flags import SettingFlags, add_setting_flags, find_setting_flags
from pegboard_kernel.devices import BoardDevices

_EXAMPLES = """\
examples:
  pegboard devices
  pegboard devices --json

No server is needed: the devices are looked for anew.
exit codes: 0 success, 2 bad usage or bad settings
"""


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the flags."""
    parser.epilog = _EXAMPLES
    flags = find_setting_flags(arguments)
    add_setting_flags(parser, flags)
    parser.set_defaults(run=partial(_list, flags))


def _list(flags: SettingFlags, namespace: argparse.Namespace) -> int:
    report = BoardDevices(build_app(flags.settings(namespace)).wiring.board).look()
    if namespace.json:
        print_json(report)
        return 0
    if not report.devices:
        print("No active backend lists devices; `pegboard plugins list` shows which are missing.")
        return 0
    rows = [(one.name, "yes" if one.usable else "no", _words(one)) for one in report.devices]
    print_table(("DEVICE", "USABLE", ""), rows)
    if report.suggestions:
        print()
        print("Expressions to try: " + "  ".join(report.suggestions))
    return 0


def _words(device: Device) -> str:
    if device.problem:
        return device.problem
    capabilities = device.properties.get("OPTIMIZATION_CAPABILITIES", [])
    return f"{device.full_name}  {' '.join(map(str, capabilities))}".strip()
