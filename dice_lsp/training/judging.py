"""Several workers that judge side by side, and the job of one body of one file.

Compiling and emulating take one core each, so as many workers as cores are of use. On a GPU two kernels at a time would
disturb each other's times: then one worker alone times, see `timed_alone`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import attrs

from dice_lsp.config import Settings
from dice_lsp.pipeline import judge_job
from dice_lsp.records import Judged, JudgeJob, Unverified, Verified
from dice_lsp.source.flags import DeviceFlags
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.client import WorkerClient


def job_of(
    text: str, path: str, kernel: str, settings: Settings, *, verify: bool = True, benchmark: bool = False
) -> JudgeJob:
    """The job of a kernel of a text, launched as its directive says. Raises `ValueError` if there is no such kernel."""
    model = parse(text)
    found = [item for item in model.kernels if item.name == kernel]
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} kernels called {kernel}, it must have one")
    spec = launch_spec(text, found[0], model)
    no_flags = DeviceFlags((), (), ())
    return judge_job(text, path, found[0], spec, no_flags, settings, verify=verify, benchmark=benchmark)


def beside(job: JudgeJob, rival_text: str) -> JudgeJob:
    """The job with a rival: the same kernel as it stands in another text, timed in turns with the job's own."""
    rival = next(item for item in parse(rival_text).kernels if item.name == job.kernel.name)
    return attrs.evolve(job, baseline_text=rival_text, baseline_kernel=rival)


class Judges:
    """A pool of workers. Each judges one job at a time; a worker that dies is started again by its client."""

    def __init__(self, settings: Settings, count: int) -> None:
        self._settings = settings
        self._clients = [WorkerClient(settings) for _ in range(max(1, count))]
        self._free: asyncio.Queue[WorkerClient] = asyncio.Queue()
        self._timing = asyncio.Lock()
        self.device = ""
        """Where kernels run: a GPU's name or `host`, once `start` has asked."""

    async def start(self) -> None:
        """Start one worker and ask it where it runs kernels; the others start with their first job."""
        info = await self._clients[0].hello()
        self.device = str(info.get("device") or "host")
        for client in self._clients:
            self._free.put_nowait(client)

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(client.close() for client in self._clients), return_exceptions=True)

    @property
    def on_gpu(self) -> bool:
        """Whether times could be measured."""
        return self.device not in ("", "host")

    @property
    def times(self) -> bool:
        """Whether times are measured: where there is a GPU and the settings do not forbid it."""
        return self.on_gpu and self._settings.benchmark

    async def judge(self, job: JudgeJob) -> Judged:
        """The answer about a job, from the next worker that is free. Jobs that time come one after another."""
        async with self._timing if job.benchmark else contextlib.nullcontext():
            client = await self._free.get()
            try:
                return await client.judge(job)
            finally:
                self._free.put_nowait(client)


@contextlib.asynccontextmanager
async def judges(settings: Settings, count: int) -> AsyncIterator[Judges]:
    """A pool that is started, and ended however the block ends."""
    pool = Judges(settings, count)
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


async def judged_and_timed(pool: Judges, job: JudgeJob, rival_text: str) -> Judged:
    """A job's verdict and, if it is verified and a GPU is there, its time beside a rival's; as an editor's fill has them.

    What fails under the stopwatch is not verified any more.
    """
    judged = await pool.judge(job)
    if not pool.times or not isinstance(judged.verdict, Verified):
        return judged
    timed = await pool.judge(beside(attrs.evolve(job, verify=False, benchmark=True), rival_text))
    verdict = judged.verdict if isinstance(timed.verdict, (Verified, Unverified)) else timed.verdict
    return attrs.evolve(judged, verdict=verdict, timing=timed.timing, comparison=timed.comparison)
