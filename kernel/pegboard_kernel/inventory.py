"""What is installed: every plugin's entry point, with nothing imported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions

from pegboard_kernel.faults import StartupError
from pegboard_kernel.profiles import GROUP_PREFIX


@dataclass(frozen=True, kw_only=True)
class Found:
    """Describe one installed plugin by its entry point."""

    kind: str
    name: str
    entry_point: EntryPoint
    distribution: str
    version: str


def take_inventory(entry_points: Iterable[EntryPoint] | None = None) -> dict[str, Found]:
    """List all plugins by name, sorted by kind and name.

    `entry_points` replaces what is installed. Raises `StartupError` when two plugins share
    a name, whatever their kinds; both distributions are named.
    """
    wanted = installed_entry_points() if entry_points is None else list(entry_points)
    inventory: dict[str, Found] = {}
    clashes: list[str] = []
    for found in sorted(map(_found, wanted), key=lambda item: (item.kind, item.name)):
        first = inventory.setdefault(found.name, found)
        if first is not found:
            clashes.append(
                f"two plugins are named '{found.name}': {_origin(first)} and {_origin(found)}; "
                "uninstall one of the two, names are unique across all kinds"
            )
    if clashes:
        raise StartupError(*clashes)
    return inventory


def installed_entry_points() -> list[EntryPoint]:
    """Return every plugin entry point on `sys.path`, a shadowed distribution's left out."""
    seen: set[str] = set()
    result: list[EntryPoint] = []
    for distribution in distributions():
        name = _normalized(distribution.metadata["Name"] or "")
        if name in seen:
            continue
        seen.add(name)
        result += [
            point for point in distribution.entry_points if point.group.startswith(GROUP_PREFIX)
        ]
    return result


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _found(entry_point: EntryPoint) -> Found:
    distribution = entry_point.dist
    return Found(
        kind=entry_point.group.removeprefix(GROUP_PREFIX),
        name=entry_point.name,
        entry_point=entry_point,
        distribution=distribution.name if distribution else "",
        version=distribution.version if distribution else "",
    )


def _origin(found: Found) -> str:
    return (
        f"{found.kind} of {found.distribution or 'an unnamed distribution'} {found.version}".strip()
    )
