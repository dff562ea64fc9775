"""A CPU function that stands in another file than its kernel is a reference like one of the same file."""

from pathlib import Path

import attrs

from dice_lsp.records import Compiled, JudgeJob, Origin, Reference, Unverified, Verdict, Verified, Wrong
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.compile import Compiler
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Source
from dice_lsp.worker.program import CompileJob
from dice_lsp.worker.verify import verify

KERNEL = """__global__ void add_kernel2(const float* d_x, float* d_y, int n, int spare) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) d_y[i] = d_x[i] + 1;
}
"""


def judged(text: str, reference: Reference) -> Verdict:
    model = parse(text)
    spec = attrs.evolve(launch_spec(text, model.kernels[0], model), reference=reference)
    compiler, host = Compiler(), HostBackend()
    try:
        order = CompileJob(text, "/nowhere/text.cu", model.kernels)
        (build,) = compiler.compile(order).values()
        assert isinstance(build, Compiled), build
        source = Source(compiler.program(order).device_text, order.path, model.kernels[0], spec.template, build)
        return verify(JudgeJob(text, order.path, model.kernels[0], spec), source, host, host)
    finally:
        compiler.close()
        host.close()


def test_a_function_of_another_file_judges_a_kernel(tmp_path: Path) -> None:
    """Its parameters have the names of the host's memory, and it is told less than the kernel."""
    gold = tmp_path / "gold.cpp"
    gold.write_text(
        '#include <cmath>\nextern "C" void add_cpu(const float* h_x, float* h_y, int n) {\n'
        "    for (int i = 0; i < n; i++) h_y[i] = h_x[i] + 1;\n}\n"
    )
    reference = Reference("function", "add_cpu", Origin.INFERRED, str(gold))
    right = judged(KERNEL, reference)
    assert isinstance(right, Verified) and "add_cpu" in right.reference, right
    assert isinstance(judged(KERNEL.replace("+ 1", "+ 2"), reference), Wrong)
    gone = judged(KERNEL, attrs.evolve(reference, path=str(tmp_path / "none.cpp")))
    assert isinstance(gone, Unverified) and "cannot be read" in gone.reason


PROGRAM = """#include <cstdlib>
void scale_rows(float* out, const float* in, int B, int T) {
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) out[b * T + t] = 3 * in[b * T + t];
}
__global__ void times(float* y, const float* x, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) y[i] = 3 * x[i];
}
int main() {
    int B = 8, T = 64, N = B * T;
    float *out = (float*)malloc(N * 4), *in = (float*)malloc(N * 4), *d_out, *d_in;
    cudaMalloc(&d_out, N * 4);
    cudaMalloc(&d_in, N * 4);
    cudaMemcpy(d_in, in, N * 4, cudaMemcpyHostToDevice);
    scale_rows(out, in, B, T);
    times<<<(N + 127) / 128, 128>>>(d_out, d_in, N);
    validate_result(d_out, out, N);
}
"""


def test_a_function_that_the_program_compares_judges_a_kernel_at_every_size() -> None:
    """It is told B and T, of which the kernel knows the product alone."""
    model = parse(PROGRAM)
    reference = launch_spec(PROGRAM, model.kernels[0], model).reference
    assert reference is not None and reference.text == "scale_rows"
    right = judged(PROGRAM, reference)
    assert isinstance(right, Verified) and "scale_rows" in right.reference, right
    assert isinstance(judged(PROGRAM.replace("y[i] = 3", "y[i] = 4"), reference), Wrong)
    partly = PROGRAM.replace("y[i] = 3 * x[i]", "y[i] = i < N - 1 ? 3 * x[i] : 0")
    assert isinstance(judged(partly, reference), Wrong)
    lost = judged(PROGRAM, attrs.evolve(reference, arguments={**reference.arguments, "T": "unheard"}))
    assert isinstance(lost, Unverified) and "`T` of the reference scale_rows" in lost.reason
