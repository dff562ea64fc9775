"""Without the editor the tests are skipped with the reason, and fail where DICE_REQUIRE_EDITORS says that they must run."""

import os

import pytest

from tests.vscode import install


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Everything that a session needs; minutes at the first run, nothing later."""
    try:
        install.node()
        install.editor()
        install.browser()
        install.driver()
        install.extension()
    except install.NotInstalled as error:
        if os.environ.get("DICE_REQUIRE_EDITORS") == "1":
            pytest.fail(f"VS Code's tests must run here (DICE_REQUIRE_EDITORS=1): {error}", pytrace=False)
        pytest.skip(f"VS Code's tests were left out: {error}")
