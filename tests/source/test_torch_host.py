"""Launches from functions on torch tensors: sizes, memory, dispatch by type, checks, wrappers that a macro writes."""

import pytest

from dice_lsp.records import Confidence, LaunchSpec, Origin
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

HEAD = "#include <torch/extension.h>\n"
ADD = """
template <typename scalar_t>
__global__ void add_kernel(const scalar_t* a, const scalar_t* b, scalar_t* out, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
"""
COPY = """
__global__ void copy_kernel(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && col < cols) y[row * cols + col] = x[row * cols + col];
}
"""


def spec_of(text: str, name: str) -> LaunchSpec:
    text = HEAD + text
    model = parse(text)
    kernel = next(kernel for kernel in model.kernels if kernel.name == name)
    return launch_spec(text, kernel, model)


def sizes(spec: LaunchSpec) -> dict[str, str]:
    return {buffer.name: " * ".join(buffer.extents) for buffer in spec.buffers}


def copied(host: str, launch: str = "copy_kernel<<<dim3((cols + 63) / 64, rows), 64>>>") -> LaunchSpec:
    arguments = "x.data_ptr<float>(), y.data_ptr<float>(), rows, cols"
    body = host.replace("LAUNCH", f"{launch}({arguments})")
    return spec_of(COPY + f"torch::Tensor copy(torch::Tensor x) {{\n{body}\n}}\n", "copy_kernel")


def test_sizes_and_memory_of_tensors() -> None:
    spec = copied("""
        TORCH_CHECK(x.is_cuda() && x.dim() == 2, "a matrix");
        const int rows = x.size(0), cols = x.size(-1);
        auto y = torch::empty_like(x);
        LAUNCH; C10_CUDA_KERNEL_LAUNCH_CHECK(); return y;""")
    assert spec.grid == ("cdiv(cols, 64)", "rows", "1") and spec.block == ("64", "1", "1")
    assert sizes(spec) == {"x": "rows * cols", "y": "rows * cols"}
    assert not spec.unknown and {buffer.origin for buffer in spec.buffers} == {Origin.LAUNCH_SITE}
    assert Confidence.CERTAIN not in spec.confidence.values(), "no program was seen to call it"


@pytest.mark.parametrize(
    "made",
    [
        "torch::zeros({rows, cols}, x.options())",
        "at::empty(x.sizes(), x.options().dtype(torch::kFloat32))",
        "torch::empty({rows, cols}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()))",
        "x.clone()",
        "torch::zeros_like(x.contiguous())",
    ],
)
def test_tensors_that_a_function_makes(made: str) -> None:
    spec = copied(f"int rows = x.size(0); int cols = x.size(1); auto y = {made}; LAUNCH; return y;")
    assert sizes(spec) == {"x": "rows * cols", "y": "rows * cols"} and not spec.unknown


@pytest.mark.parametrize("change", ["s.insert(s.begin(), 2);", "s.pop_back();", "s.back() = 4;", "s[1] = 8;", ""])
def test_a_list_of_sizes_that_may_be_changed_is_no_shape(change: str) -> None:
    spec = copied(
        f"int rows = x.size(0), cols = x.size(1); auto s = x.sizes().vec(); {change}"
        " auto y = torch::empty(s, x.options()); LAUNCH; return y;"
    )
    origins = {buffer.name: buffer.origin for buffer in spec.buffers}
    assert origins == {"x": Origin.LAUNCH_SITE, "y": Origin.INFERRED}


def test_sizes_by_their_list_and_by_stride() -> None:
    host = "TORCH_CHECK(x.dim() == 2); auto s = x.sizes(); int rows = s[0]; int cols = x.stride(0); auto y = x.clone(); LAUNCH;"
    assert sizes(copied(host + "return y;")) == {"x": "rows * cols", "y": "rows * cols"}


def test_a_view_has_the_same_memory() -> None:
    host = "auto flat = x.view(-1); int rows = 1; int cols = flat.size(0); auto y = torch::empty_like(flat); LAUNCH; return y;"
    assert sizes(copied(host)) == {"x": "cols", "y": "cols"}


def test_one_case_for_each_type_of_a_dispatch() -> None:
    spec = spec_of(
        ADD
        + """
at::Tensor add(const at::Tensor& a, const at::Tensor& b) {
    auto out = at::zeros(a.sizes(), a.options());
    const auto n = a.numel();
    AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "add", ([&] {
        add_kernel<scalar_t><<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            a.data_ptr<scalar_t>(), b.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>(), n);
    }));
    return out;
}
""",
        "add_kernel",
    )
    assert spec.template == {"scalar_t": "float"} and spec.grid == ("cdiv(n, 256)", "1", "1")
    assert sizes(spec)["a"] == "n" and not spec.unknown
    (other,) = spec.cases
    assert other.template == {"scalar_t": "double"} and other.extents["out"] == ("n",)


def test_a_wrapper_that_a_macro_writes() -> None:
    spec = spec_of(
        """
__global__ void scale_f32_kernel(float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
#define CHECK_TYPE(T, type) if (((T).options().dtype() != (type))) { throw std::runtime_error("must be " #type); }
#define WRAPPER(tag, th_type, element) \\
    void scale_##tag(torch::Tensor x, torch::Tensor y) { \\
        CHECK_TYPE(x, (th_type)) \\
        const int n = x.numel(); \\
        scale_##tag##_kernel<<<(n + 127) / 128, 128>>>(reinterpret_cast<element*>(x.data_ptr()), \\
                                                       reinterpret_cast<element*>(y.data_ptr()), n); \\
    }
WRAPPER(f32, torch::kFloat32, float)
""",
        "scale_f32_kernel",
    )
    assert spec.grid == ("cdiv(n, 128)", "1", "1") and sizes(spec) == {"x": "n", "y": "n"} and not spec.unknown


def test_sizes_that_a_check_makes_equal_are_one() -> None:
    text = """
__global__ void scale(const float* x, const float* s, float* y, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col < cols) for (int r = 0; r < rows; ++r) y[r * cols + col] = x[r * cols + col] * s[col];
}
torch::Tensor scale_cuda(torch::Tensor x, torch::Tensor s) {
    TORCH_CHECK(x.size(1) == s.size(0), "sizes");
    int rows = x.size(0), cols = s.size(0);
    auto y = torch::empty_like(x);
    scale<<<(cols + 127) / 128, 128>>>(x.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
    return y;
}
"""
    spec = spec_of(text, "scale")
    assert sizes(spec) == {"x": "rows * cols", "s": "cols", "y": "rows * cols"} and not spec.unknown


@pytest.mark.parametrize(
    "host",
    [
        # How many dimensions there are is not said: the last size may be any, and the memory may be larger.
        "int cols = x.size(-1); int rows = x.size(0); auto y = torch::empty_like(x); LAUNCH; return y;",
        # A size of what was counted before.
        "int n = x.numel(); int rows = x.size(0); int cols = n / rows; auto y = torch::empty_like(x); LAUNCH; return y;",
        # Which of its sizes it is depends on a number that is not known.
        "int d = rand(); int rows = x.size(0), cols = x.size(d); auto y = torch::empty_like(x); LAUNCH; return y;",
        "auto z = x.transpose(0, 1); int rows = z.size(0), cols = z.size(1); auto y = torch::empty_like(x); LAUNCH; return y;",
        "auto z = torch::matmul(x, x); int rows = z.size(0), cols = z.size(1); auto y = torch::empty_like(x); LAUNCH; return y;",
    ],
)
def test_memory_of_which_too_little_is_said_is_not_claimed(host: str) -> None:
    spec = copied(host)
    assert spec.buffers and not any(buffer.origin is Origin.LAUNCH_SITE for buffer in spec.buffers)
    assert sizes(spec) == {"x": "rows * cols", "y": "rows * cols"}, "the kernel's body says it"
    assert Confidence.CERTAIN not in spec.confidence.values()


def test_ways_that_part_do_not_mix_what_they_know() -> None:
    spec = copied("""
        if (x.dim() != 2) { int n = 1; for (int i = 0; i < x.dim(); ++i) n *= x.size(i); throw 1; }
        const int rows = x.size(0), cols = x.size(1);
        auto y = torch::empty_like(x);
        LAUNCH; return y;""")
    assert sizes(spec) == {"x": "rows * cols", "y": "rows * cols"} and not spec.unknown


def test_an_accessor_by_value_needs_a_directive() -> None:
    text = """
__global__ void k(torch::PackedTensorAccessor32<float, 2> x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[0][i];
}
void run(torch::Tensor x, torch::Tensor y) {
    int n = x.size(1);
    k<<<(n + 63) / 64, 64>>>(x.packed_accessor32<float, 2>(), y.data_ptr<float>(), n);
}
"""
    assert any("x" in sentence for sentence in spec_of(text, "k").unknown)
