"""Every right kernel of `tests/data/tolerance` is verified on the host, and every wrong one is refused."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import local

import pytest

from tests.tolerance_table import PAIRS, Member, Row, members, open_judge

pytestmark = pytest.mark.timeout(180)
ALL = [member for path in PAIRS for member in members(path)]


class Ahead:
    """Judges on two cores: while one kernel's verdict is looked at, the next pair is already being judged."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2)
        self._own = local()
        self._opened = ExitStack()
        self._rows: dict[Member, Future[Row]] = {}

    def __call__(self, member: Member) -> Row:
        at = PAIRS.index(member.path)
        for path in PAIRS[at : at + 2]:
            # The kernels of a pair share their reference's build, which a judge keeps.
            wanted = [other for other in ALL if other.path == path and other not in self._rows]
            if wanted:
                futures = {other: Future[Row]() for other in wanted}
                self._rows |= futures
                self._pool.submit(self._judge, futures)
        return self._rows[member].result()

    def _judge(self, futures: dict[Member, "Future[Row]"]) -> None:
        try:
            if not hasattr(self._own, "judge"):
                self._own.judge = self._opened.enter_context(open_judge("host"))
            for member, future in futures.items():
                future.set_result(self._own.judge(member))
        except BaseException as error:
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._opened.close()


@pytest.fixture(scope="module")
def judge() -> Iterator[Ahead]:
    ahead = Ahead()
    yield ahead
    ahead.close()


@pytest.mark.parametrize("member", ALL, ids=lambda member: member.label.replace(": ", "-"))
def test_a_right_kernel_is_accepted_and_a_wrong_one_is_not(judge: Ahead, member: Member) -> None:
    row = judge(member)
    assert row.fine, row.words


def test_each_pair_has_both_and_says_what_tells_them_apart() -> None:
    assert len(PAIRS) >= 40
    for path in PAIRS:
        roles = {member.role.split("_")[0] for member in ALL if member.path == path}
        assert roles == {"right", "wrong"}, path
        header = path.read_text().split("\n\n")[0]
        assert header.startswith("// ") and "Right" in header and "Wrong" in header, path
