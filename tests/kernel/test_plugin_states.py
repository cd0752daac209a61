"""Each state of a plugin's record, reached by a plugin that deserves it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pegboard_contracts.server import PluginRecord, PluginState
from pegboard_kernel.app import Application, create_app
from pegboard_kernel.faults import StartupError
from pegboard_kernel.settings import Settings

from tests.kernel.plugin_site import Build, Site

GOOD = """
class Good(Plugin):
    summary = "does nothing, well"
plugin = Good
"""


def record(application: Application, name: str) -> PluginRecord:
    found = application.records.get(name)
    assert found is not None
    return found


def test_active(site: Site, build: Build) -> None:
    site.add("good", GOOD)
    found = record(build(), "good")
    assert found.state is PluginState.ACTIVE
    assert (found.kind, found.distribution, found.version) == ("routes", "dist-good", "1.2.3")
    assert found.summary == "does nothing, well"
    assert found.reason is None


FAULTS = {
    "import fails": ("import module_that_nobody_has\n", "module_that_nobody_has"),
    "import asserts": ("assert False, 'no luck'\n", "AssertionError: no luck"),
    "import exits": ("raise SystemExit(3)\n", "SystemExit: 3"),
    "no plugin class": ("plugin = 7\n", "no class derived from Plugin"),
    "no such attribute": ("other = 7\n", "plugin"),
    "constructor raises": (
        """
        class Bad(Plugin):
            def __init__(self):
                raise RuntimeError("too early")
        plugin = Bad
        """,
        "RuntimeError: too early",
    ),
    "configure raises": (
        """
        class Bad(Plugin):
            def configure(self, settings):
                raise RuntimeError("no device")
        plugin = Bad
        """,
        "RuntimeError: no device",
    ),
    "misspelt hook": (
        """
        class Bad(Plugin):
            @hookimpl
            def pegboard_provide_ruoters(self, services):
                return ()
        plugin = Bad
        """,
        "pegboard_provide_ruoters",
    ),
    "unmarked hook": (
        """
        class Bad(Plugin):
            def pegboard_provide_routers(self, services):
                return ()
        plugin = Bad
        """,
        "lacks its mark",
    ),
    "wrong hook argument": (
        """
        class Bad(Plugin):
            @hookimpl
            def pegboard_provide_routers(self, services, database):
                return ()
        plugin = Bad
        """,
        "database",
    ),
    "hook raises": (
        """
        class Bad(Plugin):
            @hookimpl
            def pegboard_provide_services(self, services):
                raise SystemExit("out of order")
        plugin = Bad
        """,
        "out of order",
    ),
    "async hook": (
        """
        class Bad(Plugin):
            @hookimpl
            async def pegboard_provide_routers(self, services):
                return ()
        plugin = Bad
        """,
        "is async",
    ),
    "wrong type from a hook": (
        """
        class Bad(Plugin):
            @hookimpl
            def pegboard_provide_routers(self, services):
                return ["/v1/things"]
        plugin = Bad
        """,
        "a sequence with a str",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_alone(site: Site, build: Build, fault: str) -> None:
    code, reason = FAULTS[fault]
    site.add("bad", code)
    site.add("good", GOOD)
    application = build()
    found = record(application, "bad")
    assert found.state is PluginState.FAILED
    assert reason in str(found.reason)
    assert found.remedy
    assert application.records.error_of("bad") is not None
    assert record(application, "good").state is PluginState.ACTIVE


def test_a_reason_names_no_folder(site: Site, build: Build, tmp_path: Path) -> None:
    site.add("bad", f"open({str(tmp_path / 'secret' / 'file.txt')!r})\n")
    reason = record(build(), "bad").reason
    assert reason is not None
    assert str(tmp_path) not in reason
    assert "file.txt" in reason


def test_interrupt_is_not_swallowed(site: Site, build: Build) -> None:
    site.add("bad", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        build()


@pytest.mark.parametrize(
    ("contract", "remedy"), [((1, 99), "pegboard"), ((2, 0), "pegboard"), ((0, 1), "dist-bad")]
)
def test_incompatible(site: Site, build: Build, contract: tuple[int, int], remedy: str) -> None:
    site.add("bad", f"class Bad(Plugin):\n    contract = {contract}\nplugin = Bad\n")
    found = record(build(), "bad")
    assert found.state is PluginState.INCOMPATIBLE
    assert f"{contract[0]}.{contract[1]}" in str(found.reason)
    assert found.remedy == f"upgrade {remedy}"


def test_blocked_directly_and_transitively(site: Site, build: Build) -> None:
    site.add("one", "raise ImportError('gone')\n")
    site.add("two", "class P(Plugin):\n    requires = ('one',)\nplugin = P\n")
    site.add("three", "class P(Plugin):\n    requires = ('two',)\nplugin = P\n")
    site.add("four", "class P(Plugin):\n    requires = ('nowhere',)\nplugin = P\n")
    application = build()
    assert record(application, "one").state is PluginState.FAILED
    for name, requirement in (("two", "one"), ("three", "two"), ("four", "nowhere")):
        found = record(application, name)
        assert found.state is PluginState.BLOCKED
        assert f"'{requirement}'" in str(found.reason)


def test_blocked_when_the_requirement_fails_late(site: Site, build: Build) -> None:
    site.add(
        "base",
        """
        class P(Plugin):
            @hookimpl
            def pegboard_provide_services(self, services):
                raise RuntimeError("no store")
        plugin = P
        """,
    )
    site.add("user", "class P(Plugin):\n    requires = ('base',)\nplugin = P\n")
    application = build()
    assert record(application, "base").state is PluginState.FAILED
    assert record(application, "user").state is PluginState.BLOCKED


def test_disabled_is_never_imported(site: Site, build: Build) -> None:
    by_name = site.add("off", "raise SystemExit\n")
    by_profile = site.add("other", "raise SystemExit\n")
    wanted = site.add("wanted", GOOD)
    application = build(profile="minimal", disabled=("off",), enabled=("wanted",))
    assert record(application, "off").state is PluginState.DISABLED
    assert record(application, "off").reason == "disabled by name"
    assert record(application, "other").state is PluginState.DISABLED
    assert "minimal" in str(record(application, "other").reason)
    assert record(application, "wanted").state is PluginState.ACTIVE
    assert {by_name, by_profile}.isdisjoint(sys.modules)
    assert wanted in sys.modules


def test_missing_by_name(site: Site, build: Build) -> None:
    site.add("hermes", GOOD)
    found = record(build(enabled=("hermse",)), "hermse")
    assert found.state is PluginState.MISSING
    assert "'hermes'" in str(found.remedy)


def test_missing_extra_names_the_command(site: Site, build: Build) -> None:
    site.add(
        "heavy",
        "class P(Plugin):\n    modules = ('nobody_has_this',)\n    extra = 'big'\nplugin = P\n",
        distribution="things",
    )
    found = record(build(), "heavy")
    assert found.state is PluginState.MISSING
    assert "nobody_has_this" in str(found.reason)
    assert found.remedy == 'pip install "things[big]"'


def test_unknown_kind(site: Site, build: Build) -> None:
    site.add("lost", GOOD, kind="tool_format")
    found = record(build(), "lost")
    assert found.state is PluginState.FAILED
    assert "Did you mean 'tool_formats'?" in str(found.reason)


def test_order_is_by_requirements_then_name(site: Site, build: Build) -> None:
    site.add("a", "class P(Plugin):\n    after = ('c', 'absent')\nplugin = P\n")
    site.add("b", "class P(Plugin):\n    requires = ('d',)\nplugin = P\n")
    site.add("c", GOOD)
    site.add("d", GOOD)
    assert list(build().wiring.plugins) == ["c", "d", "a", "b"]


def test_a_cycle_is_fatal_and_shown(site: Site, build: Build) -> None:
    site.add("a", "class P(Plugin):\n    requires = ('b',)\nplugin = P\n")
    site.add("b", "class P(Plugin):\n    after = ('a',)\nplugin = P\n")
    with pytest.raises(StartupError, match=r"a -> b -> a|b -> a -> b"):
        build()


@pytest.mark.parametrize("kinds", [("routes", "routes"), ("routes", "stores")])
def test_one_name_twice_is_fatal_and_names_both(
    site: Site, build: Build, kinds: tuple[str, str]
) -> None:
    for distribution, kind in zip(("first-dist", "second-dist"), kinds, strict=True):
        site.add("twin", GOOD, distribution=distribution, kind=kind)
    with pytest.raises(StartupError) as caught:
        build()
    assert "'twin'" in caught.value.faults[0]
    assert "first-dist" in caught.value.faults[0]
    assert "second-dist" in caught.value.faults[0]


ROUTE = """
class P(Plugin):
    @hookimpl
    def pegboard_provide_routers(self, services):
        from fastapi import APIRouter
        router = APIRouter(prefix="/v9")
        @router.get("/things/{%s}")
        async def things(%s: str):
            return {}
        outer = APIRouter()
        outer.include_router(router)
        return [outer]
plugin = P
"""


def test_one_route_twice_is_fatal_and_names_both(site: Site, build: Build) -> None:
    site.add("left", ROUTE % ("one", "one"))
    site.add("right", ROUTE % ("two", "two"))
    with pytest.raises(StartupError) as caught:
        build()
    (fault,) = caught.value.faults
    assert "GET /v9/things/" in fault
    assert "'left'" in fault
    assert "'right'" in fault


def test_a_required_plugin_must_be_active(site: Site, tmp_path: Path) -> None:
    site.add(
        "needed", "class P(Plugin):\n    required = True\n    requires = ('gone',)\nplugin = P\n"
    )
    site.add("wished", "raise ImportError('gone')\n")
    settings = Settings(data_dir=tmp_path, required=("wished", "absent"))
    with pytest.raises(StartupError) as caught:
        create_app(settings, entry_points=site.entry_points())
    told = "\n".join(caught.value.faults)
    for name in ("needed", "wished", "absent", "network_guard", "body_limit"):
        assert f"required plugin '{name}' is " in told
        # Nobody can disable what was never known.
        assert (f"--disable {name}" in told) == (name != "absent")


def test_summary_counts_and_explains(site: Site, build: Build) -> None:
    site.add("good", GOOD)
    site.add("off", GOOD)
    site.add("gpu", "raise RuntimeError('no GPU found')\n", kind="backends")
    summary = build(disabled=("off",)).records.summary()
    assert summary == "1 plugins active, 1 failed (gpu: RuntimeError: no GPU found), 1 disabled"
