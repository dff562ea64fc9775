"""Records with a card: a fill that a user accepts is kept with what was measured, and measured again it still holds."""

from pathlib import Path

import attrs

from dice_lsp.config import Settings
from dice_lsp.dataset.again import judge_again
from dice_lsp.records import Faster, Verified
from tests.gpu.support import record
from tests.stdio.dataset_session import session
from tests.stdio.raw import ROOT

SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
HEAD = SAXPY.index("{", SAXPY.index("__global__")) + 1
TAIL = SAXPY.index("int main")
SLOW = "\n    if (blockIdx.x == 0)\n        for (int i = threadIdx.x; i < n; i += blockDim.x)\n            z[i] = a * x[i] + y[i];\n"


async def test_an_accepted_fill_is_kept_and_holds_when_it_is_measured_again(tmp_path: Path) -> None:
    async with session(tmp_path, card=True, datasetKeep=True) as there:
        uri = there.open("saxpy", SAXPY[:HEAD] + SLOW + "}\n\n" + SAXPY[TAIL:])
        number = await there.fill(uri, "saxpy")
        assert (await there.command("dice.apply", fill=number, candidate="A"))["applied"]
        await there.client.until(lambda: there.records or any("not kept" in each for each in there.told))
        assert there.records, there.told
        (kept,) = there.records
        assert await there.client.stop() == 0
    assert kept.rival == SLOW and isinstance(kept.verdict, Verified) and isinstance(kept.comparison, Faster)
    assert kept.evidence is not None and kept.evidence.device == kept.verdict.device != "host"
    # The same code under other names is certainly not twice as fast, whatever a record says.
    lie = attrs.evolve(kept, rival=kept.middle.replace("z[i] =", "z[i]  ="), comparison=Faster(9.0, 8.0, 10.0))
    holds, dropped = await judge_again([kept, lie], Settings())
    assert not holds.dropped and not holds.left, holds
    assert isinstance(holds.record.comparison, Faster) and holds.record.speedup >= 2.0
    assert holds.record.evidence is not None and holds.record.evidence.when >= kept.evidence.when
    assert "2x is asked for" in dropped.dropped, dropped
    first, second = kept.comparison, holds.record.comparison
    record("dataset", "kept when it was accepted", f"{first.ratio:.2f}x ({first.low:.2f} to {first.high:.2f})")
    record("dataset", "judged again", f"{second.ratio:.2f}x ({second.low:.2f} to {second.high:.2f})")
    record("dataset", "the same code as its own rival", dropped.dropped)
