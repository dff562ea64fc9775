"""The shipped checkpoint does what the README says of it: every textbook body has a verified fill, none is overturned."""

import pytest

from dice_lsp.config import Settings
from dice_lsp.pipeline import Engine
from tests.fill import DATA, run_task

TEXTBOOK = sorted((DATA / "textbook").glob("*.cu"))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_textbook_body_has_a_verified_candidate_among_eight():
    assert len(TEXTBOOK) == 12
    engine = Engine(Settings(backend="host"))
    try:
        results = [await run_task(engine, path, 8) for path in TEXTBOOK]
    finally:
        await engine.close()
    assert [result.task for result in results if not result.verified] == []
    assert [result.task for result in results if result.overturned] == []
