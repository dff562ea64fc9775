"""How long an editor waits for its answers while everything else is busy: `python -m tests.bench.latency`.

Asks the real server over stdio, one request after another, in three situations: nothing runs, a check runs, a fill
runs. Prints median, 99th percentile and worst per request; nothing is asserted, since machines differ.
"""

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stdio.raw import ROOT, RawClient

CAPABILITIES = {
    "window": {"workDoneProgress": True},
    "textDocument": {"inlayHint": {}, "codeLens": {}, "hover": {"contentFormat": ["markdown"]}},
}
PAUSE_S = 0.005
TARGET_MS = 50.0


def kernels(count: int) -> str:
    """A text with many kernels, so that a check takes a while."""
    return "".join(
        f"""
void scale_{number}_cpu(const float* x, float* y, int n) {{
    for (int i = 0; i < n; ++i) y[i] = {number}.0f * x[i];
}}
__global__ void scale_{number}(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = {number}.0f * x[i];
}}
"""
        for number in range(1, count + 1)
    )


class Bench:
    def __init__(self, client: RawClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.rows: list[dict[str, Any]] = []

    async def measure(self, situation: str, uri: str, line: int, goes_on: Callable[[], bool], most_s: float) -> None:
        """Ask every kind of request in turn while `goes_on()`."""
        document = {"textDocument": {"uri": uri}}
        place = {"line": line, "character": 18}
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 100_000, "character": 0}}
        inside = {"start": {"line": line + 1, "character": 0}, "end": {"line": line + 2, "character": 9}}
        kinds: dict[str, dict[str, Any]] = {
            "textDocument/hover": {**document, "position": place},
            "textDocument/inlayHint": {**document, "range": whole},
            "textDocument/codeAction": {**document, "range": inside, "context": {"diagnostics": []}},
            "textDocument/codeLens": document,
            "dice/candidates": {"uri": uri},
        }
        times_ms: dict[str, list[float]] = {kind: [] for kind in kinds}
        version, started = 1, time.monotonic()
        while goes_on() and time.monotonic() - started < most_s:
            for kind, params in kinds.items():
                number = self.client.request(kind, params)
                await self.client.response(number)
                times_ms[kind].append(1000 * self.client.latency_s[number])
                await asyncio.sleep(PAUSE_S)
            # A developer types meanwhile, at the end of the file.
            version += 1
            change = {"range": {"start": whole["end"], "end": whole["end"]}, "text": " "}
            self.client.notify(
                "textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]}
            )
        for kind, values in times_ms.items():
            ordered = sorted(values)
            self.rows.append(
                {
                    "situation": situation,
                    "request": kind,
                    "count": len(ordered),
                    "median_ms": statistics.median(ordered),
                    "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
                    "worst_ms": ordered[-1],
                }
            )

    def open(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        self.client.open(path.as_uri(), text)
        return path.as_uri()

    def command(self, command: str, **arguments: Any) -> tuple[int, Callable[[], bool]]:
        """Start a command; returns its number and whether it still runs."""
        number = self.client.request("workspace/executeCommand", {"command": command, "arguments": [arguments]})
        return number, lambda: number not in self.client.responses


async def bench(most_s: float) -> list[dict[str, Any]]:
    client = await RawClient.start()
    with tempfile.TemporaryDirectory() as folder:
        run = Bench(client, Path(folder))
        try:
            await client.initialize(CAPABILITIES, initializationOptions={"checkOnOpen": False})
            saxpy = (ROOT / "tests/data/saxpy.cu").read_text()
            uri = run.open("saxpy.cu", saxpy)
            line = saxpy[: saxpy.index("__global__")].count("\n")
            number, _ = run.command("dice.fill", uri=uri, kernel="saxpy", candidates=1)
            filled = (await client.response(number, 300))["result"]
            assert filled["candidates"], f"no fill can be had: {filled['reason']}"
            await run.measure("idle", uri, line, lambda: True, min(most_s, 5.0))
            many = run.open("many.cu", kernels(40))
            number, goes_on = run.command("dice.check", uri=many)
            await run.measure("check of 40 kernels", many, 4, goes_on, most_s)
            client.notify("$/cancelRequest", {"id": number})
            number, goes_on = run.command("dice.fill", uri=uri, kernel="saxpy", candidates=64)
            await run.measure("fill of 64 candidates", uri, line, goes_on, most_s)
            client.notify("$/cancelRequest", {"id": number})
            await client.stop()
        finally:
            await client.close()
    return run.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0, help="most seconds per situation")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    # A collection in this process would be counted as the server's: the client keeps every message that it reads.
    gc.disable()
    rows = asyncio.run(bench(arguments.seconds))
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'situation':<24}{'request':<26}{'count':>6}{'median ms':>11}{'p99 ms':>9}{'worst ms':>10}")
    for row in rows:
        figures = f"{row['count']:>6}{row['median_ms']:>11.1f}{row['p99_ms']:>9.1f}{row['worst_ms']:>10.1f}"
        print(f"{row['situation']:<24}{row['request']:<26}{figures}")
    worst = max(row["worst_ms"] for row in rows)
    print(f"worst of all: {worst:.1f} ms; the target is {TARGET_MS:.0f} ms")


if __name__ == "__main__":
    main()
