# ruff: noqa: E501 - lines of C++ stay whole
"""Runs a generated task's kernel and its CPU reference in one host program and compares what they leave behind.

This is the generator's own referee: block after block, one fiber for each thread of a block, so that barriers, shared
memory, shuffles and atomics mean what they say. The outputs start from the same poison on both sides.
"""

import re
import subprocess
from pathlib import Path

from dice_lsp.training.examples import grid_and_block, kernel_text, reference_text
from dice_lsp.training.maker import Argument, Task

PRELUDE = r"""
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>
using std::max; using std::min;
struct Dim { unsigned x, y, z; Dim(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
static Dim threadIdx, blockIdx;
static Dim blockDim, gridDim;
static ucontext_t scheduler, fibers[1024];
static std::vector<char> stacks[1024];
static bool done[1024];
static unsigned current;
static std::function<void()> entry;
static double lanes[64][32];
static void pass();
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __restrict__
static void pass() {
    Dim mine = threadIdx; unsigned me = current;
    swapcontext(&fibers[me], &scheduler);
    threadIdx = mine; current = me;
}
static void __syncthreads() { pass(); }
template <class T> T __shfl_down_sync(unsigned, T value, int delta) {
    unsigned warp = current / 32, lane = current % 32;
    lanes[warp][lane] = (double)value; pass();
    T got = (T)(lane + delta < 32 ? lanes[warp][lane + delta] : value); pass();
    return got;
}
template <class T, class U> T atomicAdd(T* p, U v) { T old = *p; *p += v; return old; }
static int cdiv(int a, int b) { return (a + b - 1) / b; }
static uint64_t state = 88172645463325252ull;
static uint64_t draw() { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }
static double normal() { double s = 0; for (int i = 0; i < 12; i++) s += (draw() >> 11) * 0x1p-53; return s - 6; }
static void begin() { entry(); done[current] = true; swapcontext(&fibers[current], &scheduler); }
template <class F> void launch(Dim grid, Dim block, F kernel) {
    gridDim = grid; blockDim = block; unsigned count = block.x * block.y * block.z;
    entry = kernel;
    for (unsigned z = 0; z < grid.z; z++) for (unsigned y = 0; y < grid.y; y++) for (unsigned x = 0; x < grid.x; x++) {
        blockIdx = Dim(x, y, z);
        for (unsigned t = 0; t < count; t++) {
            stacks[t].resize(65536); done[t] = false; getcontext(&fibers[t]);
            fibers[t].uc_stack.ss_sp = stacks[t].data(); fibers[t].uc_stack.ss_size = stacks[t].size();
            fibers[t].uc_link = nullptr; makecontext(&fibers[t], begin, 0);
        }
        // Every pass runs each thread to its next barrier or shuffle, so all threads meet there.
        for (int left = 200000 / (int)count, alive = 1; alive && left > 0; left--) {
            alive = 0;
            for (unsigned t = 0; t < count; t++) if (!done[t]) {
                current = t; threadIdx = Dim(t % block.x, t / block.x % block.y, t / (block.x * block.y));
                swapcontext(&scheduler, &fibers[t]); alive = 1;
            }
        }
    }
}
template <class T> bool same(T a, T b, double scale) {
    double x = (double)a, y = (double)b;
    if (std::isnan(x) && std::isnan(y)) return true;
    if (x == y) return true;
    return std::fabs(x - y) <= 1e-3 * scale + 1e-3 * std::fabs(y);
}
"""


def program(tasks: list[Task]) -> str:
    """One C++ program that runs every task and prints `index ok` or `index what went wrong`."""
    parts = [PRELUDE]
    mains = []
    for index, task in enumerate(tasks):
        parts.append(
            f"namespace t{index} {{\n{task.declarations}{kernel_text(task)}\n{reference_text(task, None, 'cpu_reference')}\nstatic void run() {{"
        )
        names = []
        for name, value in task.sizes.items():
            parts.append(f"int {name} = {value};")
        for argument in task.arguments:
            names.append(_declare(parts, argument, task))
        grid, block = _launch(task)
        actual = ", ".join(
            f"{name}_g.data()" if argument.extents else name
            for name, argument in zip(names, task.arguments, strict=True)
        )
        expected = ", ".join(
            f"{name}_c.data()" if argument.extents else name
            for name, argument in zip(names, task.arguments, strict=True)
        )
        parts.append(f"launch(Dim({grid}), Dim({block}), [&] {{ {task.name}({actual}); }});")
        parts.append(f"cpu_reference({expected}); const char* bad = nullptr; size_t where = 0;")
        for name, argument in zip(names, task.arguments, strict=True):
            if not argument.extents:
                continue
            if argument.type[0].isupper():
                parts.append(
                    f'if (memcmp({name}_g.data(), {name}_c.data(), {name}_g.size() * sizeof({name}_g[0]))) bad = "{name}";'
                )
                continue
            parts.append(
                f"{{ double scale = 0; for (auto v : {name}_c) if (std::isfinite((double)v)) scale = std::max(scale, std::min(std::fabs((double)v), 1e3)); "
                f'for (size_t at = 0; at < {name}_c.size(); at++) if (!same({name}_g[at], {name}_c[at], scale)) {{ bad = "{name}"; where = at; break; }} }}'
            )
        parts.append(
            f'if (bad) printf("{index} %s[%zu]\\n", bad, where); else printf("{index} ok\\n"); fflush(stdout); }} }}'
        )
        parts += [f"#undef {name}" for name in re.findall(r"#define (\w+)", task.declarations)]
        mains.append(f"t{index}::run();")
    parts.append("int main() {" + "\n".join(mains) + "}")
    return "\n".join(parts)


def _declare(parts: list[str], argument: Argument, task: Task) -> str:
    kind = {"unsigned": "unsigned int"}.get(argument.type, argument.type)
    if not argument.extents:
        if argument.name in task.scalars:
            parts.append(f"{kind} {argument.name} = ({kind}){task.scalars[argument.name]};")
        return argument.name
    name = f"buf_{argument.name}"
    extent = " * ".join(f"({extent})" for extent in argument.extents)
    parts.append(f"std::vector<{kind}> {name}_g({extent});")
    if argument.type[0].isupper():
        element = "int" if re.search(r"struct \w+ \{ int", task.declarations) else "float"
        parts.append(
            f"{{ auto* q = ({element}*){name}_g.data(); for (size_t at = 0; at < {name}_g.size() * sizeof({name}_g[0]) / sizeof({element}); at++) q[at] = ({element})(normal() * {'9' if element == 'int' else '1'}); }}"
        )
    elif argument.role == "out":
        parts.append(f"for (auto& v : {name}_g) v = ({kind})77;")
    elif argument.low == -1:
        parts.append(f"for (size_t at = 0; at < {name}_g.size(); at++) {name}_g[at] = at * 3 - (at % 3);")
    elif argument.low == -2:
        parts.append(f"for (size_t at = 0; at < {name}_g.size(); at++) {name}_g[at] = {name}_g.size() - 1 - at;")
    elif argument.high > argument.low:
        parts.append(f"for (auto& v : {name}_g) v = {argument.low} + draw() % {argument.high - argument.low};")
    elif kind in ("float", "double"):
        parts.append(f"for (auto& v : {name}_g) v = ({kind})normal();")
    elif argument.role == "io":
        parts.append(f"for (auto& v : {name}_g) v = 0;")
    else:
        parts.append(f"for (auto& v : {name}_g) v = ({kind})(draw() >> {8 if kind == 'unsigned int' else 52});")
    if argument.role == "io" and argument.extents == ("1",):
        parts.append(f"for (auto& v : {name}_g) v = 0;")
    parts.append(f"auto {name}_c = {name}_g;")
    return name


def _launch(task: Task) -> tuple[str, str]:
    grid, block = grid_and_block(task.launch)
    if block.isdigit() and int(block) > 64 and not re.search(rf"\b{block}\b", grid + task.cpu):
        block = "64"
    return grid.strip("{}"), block.strip("{}")


def check(tasks: list[Task], folder: Path) -> dict[int, str]:
    """Index of each task that is not right -> what is wrong with it. `g++` with C++20 is needed."""
    source = folder / "tasks.cpp"
    binary = folder / "tasks"
    source.write_text(program(tasks))
    built = subprocess.run(
        ["g++", "-std=c++17", "-O0", "-fwrapv", "-w", str(source), "-o", str(binary)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if built.returncode:
        found = {
            int(match)
            for match in re.findall(r"namespace 't(\d+)'|\bt(\d+)::", built.stderr)
            for match in match
            if match
        }
        return dict.fromkeys(found or {-1}, built.stderr[:1500])
    ran = subprocess.run([str(binary)], capture_output=True, text=True, timeout=90)
    verdicts = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    wrong = {index: verdicts.get(str(index), f"no answer, exit {ran.returncode}") for index in range(len(tasks))}
    return {index: verdict for index, verdict in wrong.items() if verdict != "ok"}
