"""What the README says is what the code does. `python -m tests.test_readme` writes the generated parts."""

import re
import sys
from pathlib import Path

import attrs
import pytest

from dice_lsp.__main__ import settings_markdown
from dice_lsp.config import Settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- settings: .*? -->\n)(.*?)(<!-- /settings -->)", re.DOTALL)


def test_the_table_of_settings_is_up_to_date():
    match = BLOCK.search(README.read_text())
    assert match is not None
    assert match.group(2) == settings_markdown() + "\n", "run python -m tests.test_readme"
    assert all(f"`{field.name}`" in match.group(2) for field in attrs.fields(Settings))


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README.read_text()))
def test_every_link_leads_somewhere(link):
    assert (ROOT / link).exists(), link


def test_the_commands_of_the_first_screen_exist():
    first_screen = README.read_text()[:1800]
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in first_screen and re.search(rf"^{target}:", makefile, re.MULTILINE)


if __name__ == "__main__":
    text = README.read_text()
    README.write_text(BLOCK.sub(lambda match: match.group(1) + settings_markdown() + "\n" + match.group(3), text))
    sys.exit(0)
