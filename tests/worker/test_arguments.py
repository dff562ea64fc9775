"""Launch specs become buffers, scalars and sizes; what cannot be launched is one sentence."""

from pathlib import Path

import numpy as np
import pytest

from dice_lsp.records import BufferSpec, Dim, Kernel, LaunchSpec, Origin, Parameter, Role
from dice_lsp.worker.arguments import BadSpec, Bound, Distribution, bind
from dice_lsp.worker.cases import DEVICE_BUDGET, HOST_BUDGET, choose_cases, given_dims
from dice_lsp.worker.elements import element_of
from dice_lsp.worker.launch import BufferArgument, ScalarArgument

D = Origin.DIRECTIVE


def parameter(text: str) -> Parameter:
    spelling, name = text.rsplit(" ", 1)
    element = spelling.replace("const ", "").rstrip("*").strip()
    return Parameter(name, spelling, element, "*" in spelling, "const" in spelling, spelling.count("*"))


def kernel(*parameters: str, template: tuple[str, ...] = ()) -> Kernel:
    return Kernel("k", "k", tuple(map(parameter, parameters)), 0, 0, 0, 0, 0, template)


def spec(
    buffers: str, grid: str = "cdiv(n, 256)", block: str = "256", dims: str = "n=1000", **changes: object
) -> LaunchSpec:
    """`in x[n]: iota, out y[n]` in a short form: `in x n iota;out y n`, more extents after colons."""
    specs = []
    for part in filter(None, buffers.split(";")):
        role, name, extents, *init = part.split()
        specs.append(BufferSpec(name, Role(role), tuple(extents.split(":")), init[0] if init else "normal", D))
    sizes = []
    for part in filter(None, dims.split(";")):
        name, values = part.split("=")
        sizes.append(Dim(name, tuple(map(int, values.split("|"))), D))
    return LaunchSpec("k", tuple(sizes), tuple(specs), grid=(grid, "1", "1"), block=(block, "1", "1"), **changes)  # type: ignore[arg-type]


SAXPY = kernel("const float* x", "float* y", "float a", "int n")


def bound(launch_spec: LaunchSpec, of: Kernel = SAXPY, seed: int = 1, **rest: object) -> Bound:
    made = bind(launch_spec, of, given_dims(launch_spec)[0], seed, **rest)  # type: ignore[arg-type]
    assert isinstance(made, Bound), made
    return made


def refused(launch_spec: LaunchSpec, of: Kernel = SAXPY, **rest: object) -> str:
    made = bind(launch_spec, of, given_dims(launch_spec)[0], 1, **rest)  # type: ignore[arg-type]
    assert isinstance(made, BadSpec), made
    assert made.reason and not made.reason.endswith(".")
    return made.reason


def test_a_launch_has_the_kernels_order_and_bytes() -> None:
    launch = bound(spec("in x n;io y n", scalars={"a": "2.5f"})).launch(poison=1)
    assert launch.grid == (4, 1, 1) and launch.block == (256, 1, 1)
    x, y, a, n = launch.arguments
    assert isinstance(x, BufferArgument) and not x.writable and x.initial.dtype == np.float32 and x.initial.size == 1000
    assert isinstance(y, BufferArgument) and y.writable
    assert isinstance(a, ScalarArgument) and a.data == np.float32(2.5).tobytes()
    assert isinstance(n, ScalarArgument) and n.data == np.int32(1000).tobytes()


def test_outputs_hold_one_poison_and_then_another() -> None:
    case = bound(spec("in x n;out y n"))
    first, second = (case.launch(poison=p).arguments[1].initial for p in (0, 1))  # type: ignore[union-attr]
    assert np.isnan(first).all() and np.isfinite(second).all()
    assert not np.any(first.view(np.uint8) == second.view(np.uint8))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    a, b, c = (bound(spec("in x n;out y n"), seed=s).buffers["x"].data for s in (1, 1, 2))
    assert a is not None and b is not None and c is not None
    assert a.tobytes() == b.tobytes() != c.tobytes()


@pytest.mark.parametrize(
    "name, dtype, itemsize, lanes",
    [
        ("float", "f4", 4, 1), ("double", "f8", 8, 1), ("__half", "f2", 2, 1), ("half2", "f2", 4, 2),
        ("__nv_bfloat16", "u2", 2, 1), ("int", "i4", 4, 1), ("unsigned", "u4", 4, 1), ("unsigned int", "u4", 4, 1),
        ("unsigned char", "u1", 1, 1), ("char", "i1", 1, 1), ("signed char", "i1", 1, 1), ("bool", "u1", 1, 1),
        ("short", "i2", 2, 1), ("unsigned short int", "u2", 2, 1), ("long long int", "i8", 8, 1),
        ("unsigned long long", "u8", 8, 1), ("size_t", "u8", 8, 1), ("std::uint32_t", "u4", 4, 1), ("int64_t", "i8", 8, 1),
        ("float2", "f4", 8, 2), ("float3", "f4", 12, 3), ("float4", "f4", 16, 4), ("double2", "f8", 16, 2),
        ("uchar4", "u1", 4, 4), ("int4", "i4", 16, 4), ("const volatile long unsigned", "u8", 8, 1),
    ],
)  # fmt: skip
def test_element_types(name: str, dtype: str, itemsize: int, lanes: int) -> None:
    element = element_of(name)
    assert element is not None
    assert (element.storage, element.itemsize, element.lanes) == (np.dtype(dtype), itemsize, lanes)


@pytest.mark.parametrize("name", ["Particle", "float5", "void", "", "cudaTextureObject_t", "unsigned float"])
def test_other_types_are_not_known(name: str) -> None:
    assert element_of(name) is None


@pytest.mark.parametrize(
    "init, low, high",
    [("uniform(2,3)", 2, 3), ("int(-4,5)", -4, 4), ("int(0,n/2)", 0, 499), ("iota", 0, 999), ("zeros", 0, 0), ("ones", 1, 1),
     ("uniform(-0.5,1e-3)", -0.5, 1e-3)],
)  # fmt: skip
def test_inits_stay_in_their_range(init: str, low: float, high: float) -> None:
    data = bound(spec(f"in x n {init};out y n")).buffers["x"].data
    assert data is not None and data.min() >= np.float32(low) and data.max() <= np.float32(high)
    if init.startswith("int"):
        assert data.min() < low + 0.2 * (high - low) and data.max() > high - 0.2 * (high - low)


def test_permutations_and_sorted_keys() -> None:
    ints = kernel("const int* x", "int* y", "int n")
    data = bound(spec("in x n perm(n);out y n"), ints).buffers["x"].data
    assert data is not None and sorted(data.tolist()) == list(range(1000))
    data = bound(spec("in x n sorted;out y n"), ints).buffers["x"].data
    assert data is not None and (np.diff(data) >= 0).all() and data.min() < data.max()
    assert "whole permutations" in refused(spec("in x n perm(n-1);out y n"), ints)


def test_a_file_is_read_from_the_documents_folder_only(tmp_path: Path) -> None:
    inside = tmp_path / "project"
    inside.mkdir()
    np.save(inside / "x.npy", np.arange(1000.0))
    np.save(tmp_path / "secret.npy", np.arange(1000.0))
    (inside / "link.npy").symlink_to(tmp_path / "secret.npy")
    np.save(inside / "objects.npy", np.array([{}] * 1000), allow_pickle=True)
    np.save(inside / "short.npy", np.arange(9.0))
    folder = str(inside)
    data = bound(spec('in x n file("x.npy");out y n'), folder=folder).buffers["x"].data
    assert data is not None and data[999] == 999
    for name, said in [("../secret.npy", "outside"), ("link.npy", "outside"), ("objects.npy", "cannot be read"),
                       ("short.npy", "holds 9 numbers"), ("none.npy", "cannot be read"), ("/etc/passwd", "outside")]:  # fmt: skip
        assert said in refused(spec(f'in x n file("{name}");out y n'), folder=folder)
    assert "no folder" in refused(spec('in x n file("x.npy");out y n'))


def test_distributions_touch_free_inputs_only() -> None:
    launch_spec = spec("in x n;io y n zeros")
    for distribution in Distribution:
        case = bound(launch_spec, distribution=distribution)
        x, y = case.buffers["x"].data, case.buffers["y"].data
        assert x is not None and y is not None and not y.any()
        match distribution:
            case Distribution.LARGE:
                assert np.abs(x).max() > 1e4
            case Distribution.EQUAL:
                assert np.unique(x).size == 1
            case Distribution.INTEGER:
                assert np.array_equal(x, np.rint(x)) and np.unique(x).size > 3
            case Distribution.ZEROS:
                assert not x.any() and np.signbit(x).any() and not np.signbit(x).all()
            case Distribution.NAN:
                assert np.array_equal(np.flatnonzero(np.isnan(x)), case_indices(launch_spec, distribution))
            case Distribution.INF:
                assert np.isinf(x).any() and (x[np.isinf(x)] < 0).any() and not np.isnan(x).any()
    assert bound(launch_spec, distribution=Distribution.NAN).label == "n=1000, NaN in the input"


def case_indices(launch_spec: LaunchSpec, distribution: Distribution) -> np.ndarray:
    return bound(launch_spec, distribution=distribution).special["x"]


def test_unknown_integers_are_never_guessed() -> None:
    of = kernel("const float* x", "float* y", "float alpha", "float eps", "int n", "int stride")
    assert "`stride` is not known" in refused(spec("in x n;out y n"), of)
    case = bound(spec("in x n;out y n", scalars={"stride": "n / 4"}), of)
    assert case.scalars["stride"].value == 250
    assert 0.5 <= case.scalars["alpha"].value <= 2 and case.scalars["eps"].value == np.float32(1e-5)


@pytest.mark.parametrize(
    "text, value", [("2", 2.0), ("-1.5f", -1.5), ("1.0f / 4", 0.25), ("1e-3f", 1e-3), ("n * 0.5", 500.0), ("sqrtf(4.0f)", 2.0)]
)  # fmt: skip
def test_float_scalars_are_read(text: str, value: float) -> None:
    assert bound(spec("in x n;io y n", scalars={"a": text})).scalars["a"].value == np.float32(value)


@pytest.mark.parametrize(
    "launch_spec, said",
    [
        (spec("in x n;out y n", grid="n / 4 / 256", dims="n=3"), "0 blocks"),
        (spec("in x n-1;out y n", dims="n=1"), "`x` has 0 elements"),
        (spec("in x n;out y n", block="2048"), "block.x is 2048, over the limit"),
        (spec("in x n;out y n", smem_bytes="1 << 20"), "dynamic shared memory"),
        (spec("in x n;out y n", grid="m"), "m"),
        (spec("in x n;out y n", grid="n / 0"), "grid"),
        (spec("in x n"), "the size of `y` is not known"),
        (spec("in x n;out y n", dims="n=4000000000"), "4000000000"),
        (spec("in x n gaussian;out y n"), "is no init"),
        (spec("in x n int(5,5);out y n"), "empty range"),
        (spec("in x n uniform(1,0);out y n"), "is no range"),
        (spec("in x n uniform(0,1e400);out y n"), "is no range"),
        (spec("in x n;out y n", unknown=("the launch is not known",)), "the launch is not known"),
        (spec("in x n;io y n", scalars={"a": "__import__('os')"}), "no number"),
        (spec("in x n*n*n;out y n", dims="n=100000"), "bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_launched_is_said(launch_spec: LaunchSpec, said: str) -> None:
    assert said in refused(launch_spec)


def test_other_types_of_parameters_are_refused() -> None:
    assert "`Particle`" in refused(spec("in x n;out y n"), kernel("const Particle* x", "float* y", "int n"))
    assert "pointer to pointers" in refused(spec("in x n;out y n"), kernel("float** x", "float* y", "int n"))
    assert "`b` of type `Box`" in refused(
        spec("in x n;out y n"), kernel("const float* x", "float* y", "Box b", "int n")
    )


def test_template_arguments_give_types_and_sizes() -> None:
    of = kernel("const T* x", "T* y", "int n", template=("T", "TILE"))
    case = bound(
        spec("in x n*TILE;out y n", grid="cdiv(n, TILE)", block="TILE", template={"T": "double", "TILE": "32"}), of
    )
    assert case.buffers["x"].element.storage == np.float64 and case.buffers["x"].count == 32_000
    assert case.block == (32, 1, 1)


def sizes(launch_spec: LaunchSpec, of: Kernel = SAXPY, budget: object = HOST_BUDGET) -> list[tuple[int, ...]]:
    cases = choose_cases(launch_spec, of, budget)  # type: ignore[arg-type]
    assert not isinstance(cases, BadSpec), cases
    return [tuple(case.dims.values()) for case in cases]


def test_odd_sizes_are_tried_small_ones_first() -> None:
    tried = [n for (n,) in sizes(spec("in x n;io y n", dims="n=16777216|1000003"))]
    assert tried == sorted(tried)
    assert {1, 31, 33, 255, 256, 257, 513, 1000, 1009, 4097} <= set(tried) and 16777216 not in tried
    assert 16777216 // 4 in [n for (n,) in sizes(spec("in x n;io y n", dims="n=4194304"), budget=DEVICE_BUDGET)]


def test_sizes_never_exceed_the_given_ones() -> None:
    assert max(sizes(spec("in x n;io y n", dims="n=100"))) == (100,)
    tried = sizes(spec("in x n*c;io y n*c", dims="n=4096|7;c=3|3"))
    assert len(tried) >= 5 and all(c == 3 for _, c in tried)


def test_sizes_that_do_not_divide_are_left_out() -> None:
    of = kernel("const float4* x", "float4* y", "int n")
    tried = [n for (n,) in sizes(spec("in x n/4;out y n/4", grid="cdiv(n/4, 256)", dims="n=65536|1024"), of)]
    assert tried and all(n % 4 == 0 for n in tried) and len(tried) >= 5
    rounded = [n for (n,) in sizes(spec("in x n;out y (n+255)/256", dims="n=65536"))]
    assert 33 in rounded


def test_a_dim_that_shapes_the_block_keeps_its_values() -> None:
    tried = sizes(spec("in x n*d;out y n", grid="n", block="d", dims="n=512|3;d=128|64"))
    assert {d for _, d in tried} <= {128, 64} and len(tried) >= 5


def test_a_row_length_that_shapes_the_block_is_tried_with_many_rows() -> None:
    tried = sizes(spec("in x n*d;out y n", grid="n", block="d", dims="n=512|1;d=128|33"))
    assert (1, 33) in tried and (256, 33) in tried


def test_a_given_case_without_blocks_is_told() -> None:
    # leetgpu #134: float4 ReLU with a grid from N / 4 launches nothing for N = 3.
    answer = choose_cases(spec("in x n;out y n", grid="n / 4", dims="n=1024|3"), SAXPY, HOST_BUDGET)
    assert isinstance(answer, BadSpec) and "0 blocks" in answer.reason and "n=3" in answer.reason


def test_a_matrix_product_is_kept_small_on_the_host() -> None:
    gemm = kernel("const float* A", "const float* B", "float* C", "int M", "int N", "int K")
    launch_spec = spec("in A M*K;in B K*N;out C M*N", grid="cdiv(M*N, 256)", dims="M=4096|200;N=4096|150;K=4096|170")
    tried = sizes(launch_spec, gemm)
    assert len(tried) >= 5 and all(m * n * k <= HOST_BUDGET.products for m, n, k in tried)
    square = sizes(
        spec("in A n*n;in B n*n;out C n*n", grid="n", dims="n=4096"),
        kernel("const float* A", "const float* B", "float* C", "int n"),
    )
    assert all(n**3 <= HOST_BUDGET.products for (n,) in square) and len(square) >= 4


def test_a_kernel_without_sizes_has_one_case() -> None:
    assert sizes(spec("in x 100;io y 100", grid="1", dims="n=100")) != []
    fixed = spec("in x 64;out y 64", grid="1", block="64", dims="")
    assert sizes(fixed, kernel("const float* x", "float* y")) == [()]


def test_too_large_everywhere_is_told_with_a_suggestion() -> None:
    answer = choose_cases(spec("in x n;out y n", dims="n=16777217"), SAXPY, HOST_BUDGET)
    assert not isinstance(answer, BadSpec)
    huge = choose_cases(spec("in x n*d;out y n*d", block="d", dims="n=3;d=999999999"), SAXPY, HOST_BUDGET)
    assert isinstance(huge, BadSpec)


def test_a_benchmark_that_is_too_large_has_a_stand_in_that_divides_as_it_does() -> None:
    tried = [n for (n,) in sizes(spec("in x n;io y n", dims="n=16777216"))]
    assert max(tried) == 1 << 19 and 1 << 19 <= HOST_BUDGET.elements
    both = sizes(spec("in x n*d;out y n*d", grid="n", block="128", dims="n=8192;d=4096"))
    assert any(n % 256 == 0 and d % 256 == 0 and n * d >= 1 << 18 for n, d in both)


@pytest.mark.parametrize("blocks", [128, 1024, 1300])
def test_a_grid_that_does_not_grow_gets_more_elements_than_threads(blocks: int) -> None:
    tried = [n for (n,) in sizes(spec("in x n;io y n", grid=str(blocks), block="256", dims="n=16777216"))]
    assert max(tried) > blocks * 256


def test_a_free_scalar_is_what_its_name_says() -> None:
    of = kernel("const float* x", "float* y", *(f"float {n}" for n in ("lo", "hi", "minVal", "minus", "slope", "a")))
    values = {name: s.value for name, s in bound(spec("in x n;out y n"), of).scalars.items()}
    assert -2 <= values["lo"] <= -0.5 and -2 <= values["minVal"] <= -0.5 and 0 < values["slope"] <= 0.5
    assert all(0.5 <= values[name] <= 2 for name in ("hi", "minus", "a"))


def test_large_integers_need_their_whole_type() -> None:
    of = kernel("const int* a", "const unsigned char* b", "const long long* c", "int* y", "int n")
    case = bound(spec("in a n;in b n;in c n;out y n"), of, distribution=Distribution.LARGE)
    a, b, c = (np.asarray(case.buffers[name].data) for name in "abc")
    assert np.abs(a).max() > 2**28 and np.abs(a.astype(np.int64)).sum() > 2**31 and np.abs(a).max() <= 2**29
    assert b.max() == 255 and np.abs(c).max() > 2**59
    ranged = bound(spec("in a n int(0,n);in b n;in c n;out y n"), of, distribution=Distribution.LARGE)
    assert np.asarray(ranged.buffers["a"].data).max() < 1000
