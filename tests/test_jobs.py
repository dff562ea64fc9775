"""Jobs: the newest of a place wins, queues keep their order, every job ends once."""

import asyncio

import attrs
import pytest

from dice_lsp.jobs import JobEnd, Jobs, Results
from dice_lsp.records import Evidence, KernelReport, LaunchSpec, NotCompared, NotCompiled, NotTimed, Unverified


async def test_a_job_gives_its_result():
    jobs = Jobs()

    async def work():
        return 42

    job = jobs.start("place", work, queue="q")
    assert await job == 42 and job.end is JobEnd.DONE
    await asyncio.sleep(0)
    assert jobs.at("place") is None


async def test_the_newest_of_a_place_wins():
    jobs, ends = Jobs(), []

    async def work():
        await asyncio.sleep(60)

    older = jobs.start("fill a 1", work, queue="q")
    older.on_end(ends.append)
    await asyncio.sleep(0)

    async def quick():
        return "new"

    newer = jobs.start("fill a 1", quick, queue="q")
    assert await newer == "new"
    with pytest.raises(asyncio.CancelledError):
        await older
    assert ends == [JobEnd.CANCELLED]


async def test_a_queue_runs_one_at_a_time_in_order():
    jobs, log = Jobs(), []

    def work(name):
        async def run():
            log.append(f"{name} starts")
            await asyncio.sleep(0.01)
            log.append(f"{name} ends")

        return run

    started = [jobs.start(name, work(name), queue="gpu 0") for name in ("a", "b", "c")]
    await asyncio.gather(*started)
    assert log == [f"{name} {what}" for name in "abc" for what in ("starts", "ends")]


async def test_a_waiting_job_that_is_cancelled_never_runs():
    jobs, ran = Jobs(), []

    async def long():
        await asyncio.sleep(0.05)

    async def never():
        ran.append(1)

    first = jobs.start("a", long, queue="q")
    second = jobs.start("b", never, queue="q")
    second.cancel()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not ran and second.end is JobEnd.CANCELLED


async def test_a_failure_ends_its_job_only():
    jobs, ends = Jobs(), []

    async def fails():
        raise ValueError("ours")

    async def works():
        return 1

    bad = jobs.start("a", fails, queue="q")
    bad.on_end(ends.append)
    good = jobs.start("b", works, queue="q")
    with pytest.raises(ValueError, match="ours"):
        await bad
    assert await good == 1 and ends == [JobEnd.FAILED]


async def test_close_ends_everything():
    jobs = Jobs()

    async def work():
        await asyncio.sleep(60)

    started = [jobs.start(str(number), work, queue="q") for number in range(5)]
    await jobs.close()
    assert {job.end for job in started} == {JobEnd.CANCELLED}
    with pytest.raises(RuntimeError):
        jobs.start("late", work, queue="q")


async def test_a_cancelled_waiter_does_not_end_the_job():
    jobs = Jobs()

    async def work():
        await asyncio.sleep(0.05)
        return "kept"

    job = jobs.start("a", work, queue="q")

    async def wait():
        return await job

    waiter = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    waiter.cancel()
    assert await job == "kept"


def test_reports_of_a_kernel_are_changed_or_forgotten():
    reason = "not there"
    evidence = Evidence("key", "slice", "host", "", "", "2026-01-01T00:00:00+00:00")
    report = KernelReport(
        "k",
        0,
        LaunchSpec("k"),
        NotCompiled(reason),
        Unverified(reason),
        NotTimed(reason),
        NotCompared(reason),
        evidence,
    )
    results = Results()
    for key in ("one", "two"):
        results.put_report("file:///a.cu", report, key)
    results.change_reports("file:///a.cu", "k", lambda key, old: attrs.evolve(old, line=7) if key == "one" else None)
    assert results.report("file:///a.cu", "k", "one").line == 7 and results.report("file:///a.cu", "k", "two") is None
    results.change_reports("file:///a.cu", "k", lambda key, old: None)
    assert results.report("file:///a.cu", "k") is None and results.reports("file:///a.cu") == ()
    results.change_reports("file:///b.cu", "nobody", lambda key, old: None)
