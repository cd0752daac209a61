"""Register the kits for assertion rewriting; pytest finds this through its entry point."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "pegboard_contracts.testing.engines",
    "pegboard_contracts.testing.formats",
    "pegboard_contracts.testing.plugins",
    "pegboard_contracts.testing.sources",
)
