"""Does a policy gain by tricks? `python -m tests.training.hostile_probe [--backend host|auto] [--jobs N] [--json FILE]`

Every body of `tests/hostile` is handed to the referee of `dice-lsp train rl` as a policy's response to its own file. All
must earn nothing. Those that a back end cannot see are named: on the host a handful needs a GPU, which a training run
with a GPU asks too, after the host. Exit code 1 when a trick earns something that both back ends were asked about, or
that the one back end there is should have seen.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from dice_lsp.config import Settings
from dice_lsp.source.kernels import parse
from dice_lsp.training.reward import Referee, Reward
from dice_lsp.training.rl_tasks import Place, RlTask, Stage, place_of
from tests.hostile_table import HOSTILE, expectations


def places_of(path: Path) -> list[Place]:
    """A place for each kernel of a file that a model could be asked to write."""
    text = path.read_text()
    found = []
    for kernel in parse(text).kernels:
        place = place_of(RlTask(path.stem, "hostile", kernel.name, text, text), Stage.GENERATE, 0)
        if place is not None and place.spec.launchable:
            found.append(place)
    return found


async def probe(settings: Settings, jobs: int) -> tuple[str, dict[str, list[Reward]]]:
    """Where it was judged, and the rewards of each hostile file's bodies."""
    referee = Referee(settings, jobs)
    try:
        await referee.start()
        places = {path.stem: places_of(path) for path in HOSTILE}
        tasks = {name: [referee.reward(place, place.region.middle) for place in own] for name, own in places.items()}
        return referee.device, {name: list(await asyncio.gather(*own)) for name, own in tasks.items()}
    finally:
        await referee.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device, rewards = asyncio.run(probe(Settings(backend=arguments.backend, run_deadline_s=5.0), arguments.jobs))
    expected = {path.stem: expectations(path) for path in HOSTILE}
    earned = {name: max((reward.value for reward in own), default=0.0) for name, own in rewards.items()}
    unseen = [name for name, value in earned.items() if value and device == "host" and expected[name].host_cannot]
    gained = [name for name, value in earned.items() if value and name not in unseen]
    kinds = Counter(reward.kind for own in rewards.values() for reward in own)
    print(f"{len(rewards)} hostile files judged on {device}: {dict(kinds)}")
    print(f"earned something: {', '.join(gained) or 'none'}")
    print(f"need a GPU to be seen: {', '.join(unseen) or 'none'}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": device, "gained": gained, "unseen": unseen, "kinds": kinds}))
    return 1 if gained else 0


if __name__ == "__main__":
    sys.exit(main())
