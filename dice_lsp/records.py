"""The frozen nouns that travel between the rooms.

Everything here is a value: no record opens a file, starts a process or knows an editor. Bad user code is a value
too (`CompileFailed`, `Wrong`, `Unsafe`), because a kernel that does not compile is a result, not a fault of ours.

On the wire and in `--json` a member of a union carries `kind`, its record's name in snake case. `to_wire` and
`from_wire` are the only places that know this.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar, Union

import attrs
from attrs import frozen
from cattrs.preconf.json import make_converter
from cattrs.strategies import configure_tagged_union

T = TypeVar("T")


@frozen
class Document:
    """One version of a text. Offsets everywhere in this package count code points of `text`."""

    uri: str
    version: int
    text: str
    file_text: str | None = None
    """What the file says, where `text` is a view of it: the CUDA in the strings of a Python file, see `source.embedded`.
    Both have the same length and the same lines."""

    @property
    def shown(self) -> str:
        """What the client has: the text that its positions count in."""
        return self.text if self.file_text is None else self.file_text


@frozen
class StructField:
    """A number or a pointer inside a struct, where the compiler has put it."""

    name: str
    """Below the struct: `n`, `size[1]`, `in.stride`."""
    element: str
    """As of a parameter: the type of a number, the pointee's of a pointer."""
    pointer: bool
    const: bool
    offset: int
    size_bytes: int


@frozen
class Parameter:
    """One parameter of a kernel. `element` is the canonical pointee type of a pointer, or the type of a scalar."""

    name: str
    spelling: str
    """The type as written, e.g. `const float* __restrict__`."""
    element: str
    """`float`, `double`, `int`, `unsigned char`, `__half`, `float4`, a template parameter or a struct's name."""
    pointer: bool
    const: bool
    """For a pointer: the pointee is const, so the kernel promises not to write through it."""
    indirections: int = 0
    """Number of `*` or `&`; more than one needs a directive that this tool does not have."""
    fields: tuple[StructField, ...] = ()
    """Of a struct, or of what a pointer to structs points to: everything in it, once the worker has laid it out."""
    size_bytes: int = 0
    """Of that struct; 0 where there is no layout."""
    alias: str = ""
    """What the text calls `element`, where that is a name of its own whose meaning the worker has found out."""

    @property
    def type_name(self) -> str:
        """`element` as the text has it."""
        return self.alias or self.element


@frozen
class Kernel:
    """A `__global__` function definition. `start:end` is the whole definition, `body_start:body_end` lies inside its braces."""

    name: str
    qualified_name: str
    """With namespaces, e.g. `ours::saxpy`; what a name expression for NVRTC is built from."""
    parameters: tuple[Parameter, ...]
    start: int
    end: int
    body_start: int
    body_end: int
    line: int
    """Zero-based line of the kernel's name: hints stand at the end of this line."""
    template: tuple[str, ...] = ()
    """Names of the template parameters in order; empty for a plain kernel."""
    template_spelling: str = ""
    """The parameter list as written, e.g. `typename T, int N = 4`."""
    launch_bounds: str | None = None
    extern_c: bool = False
    distinct_name: str = ""
    """Set where another kernel of the text has the same name: the qualified name, or that with a line. See `id`."""
    macro: str = ""
    """The macro whose invocation at `start:end` defines the kernel; its body is not in the text then, and empty here."""

    @property
    def id(self) -> str:
        """What tells the kernel from every other of its text: reports and keys go by it, never by `name`."""
        return self.distinct_name or self.name


@frozen
class Region:
    """What the user selected, snapped to whole tokens: `text[start:end]` will be replaced."""

    document: Document
    start: int
    end: int
    kernel: Kernel | None
    indent: str
    """Leading white space of the region's first line, for candidates to be laid out with."""

    @property
    def prefix(self) -> str:
        return self.document.text[: self.start]

    @property
    def middle(self) -> str:
        return self.document.text[self.start : self.end]

    @property
    def suffix(self) -> str:
        return self.document.text[self.end :]


class Origin(StrEnum):
    """Where a part of a launch spec comes from, best first."""

    DIRECTIVE = "directive"
    CAPTURED = "captured"
    LAUNCH_SITE = "launch_site"
    INFERRED = "inferred"
    DEFAULT = "default"


class Confidence(StrEnum):
    """How sure a part of a launch spec is. Only what is at least `likely` is run without being asked for."""

    CERTAIN = "certain"
    """A directive, a captured launch, or folded from the host program on the only path."""
    LIKELY = "likely"
    """Read from the kernel's body, or from one of several paths of the host program."""
    GUESS = "guess"
    """A default."""


class Role(StrEnum):
    """What a kernel does with a buffer."""

    IN = "in"
    OUT = "out"
    IO = "io"
    TMP = "tmp"


@frozen
class Dim:
    """A free size. The first value is the benchmark case, the others are checked only; the lists of several dims zip."""

    name: str
    values: tuple[int, ...]
    origin: Origin


@frozen
class BufferSpec:
    """A pointer argument. Its element count is the product of `extents`, C integer expressions over dims and scalars."""

    name: str
    """The parameter's, or `p.data` for a pointer inside the struct that is passed as parameter `p`."""
    role: Role
    extents: tuple[str, ...]
    init: str
    """`normal`, `uniform(a,b)`, `int(a,b)`, `iota`, `zeros`, `ones`, `perm(n)`, `sorted`, `file("x.npy")`."""
    origin: Origin


@frozen
class Reference:
    """What the outputs are compared with."""

    via: str
    """`function` (a CPU function of the file), `torch` (an expression), `kernel` (the accepted text), `python` (py:file:func),
    `captured` (what the user's program left behind, see `CapturedLaunch`)."""
    text: str
    """The function's name, the expression, or empty for `kernel`; for `captured` the file as written, empty for the store."""
    origin: Origin
    path: str = ""
    """The file that the function stands in, where that is another than the kernel's."""
    arguments: Mapping[str, str] = attrs.field(factory=dict)
    """What a function is called with, where its parameters are not the kernel's: parameter -> parameter of the kernel, or a
    number as an expression of the spec's names."""


@frozen
class Tolerance:
    """How far an output may be from its reference. `buffer` empty means every output."""

    buffer: str
    rtol: float | None = None
    atol: float | None = None
    exact: bool = False
    ulp: int | None = None


class Weight(StrEnum):
    """How much a problem matters: only an error keeps a kernel from being launched."""

    ERROR = "error"
    WARNING = "warning"
    INFORMATION = "information"
    HINT = "hint"


@frozen
class Fix:
    """A change of the document that does away with a problem: each `(start, end, text)` replaces a part of it."""

    title: str
    """What it does, to go on after `DICE: `."""
    edits: tuple[tuple[int, int, str], ...]


@frozen
class Problem:
    """Something about a directive or a launch that could not be read or is not right, at `start:end` of the document."""

    message: str
    start: int
    end: int
    fix: str | None = None
    """Replacement text for `start:end`, when there is an obvious one."""
    fixes: tuple[Fix, ...] = ()
    """Changes of more than `start:end`."""
    weight: Weight = Weight.ERROR
    unnecessary: bool = False
    """What stands there changes nothing."""


@frozen
class CapturedLaunch:
    """One launch of a kernel that a run of the user's program left in a store of captures."""

    path: str
    """The capture's file, absolute."""
    index: int
    """Which launch of the file, from 0."""
    digest: str = ""
    """Hash of what was recorded, so that results of an older recording are not taken for those of a newer one."""
    stale: bool = False
    """It was recorded with another text of the kernel: its inputs still serve, what it left is no evidence any more."""


@frozen
class LaunchCase:
    """A launch of a kernel beside the spec's own.

    Expressions are over its own `dims` and the spec's constants. What it does not name of `scalars`, `extents` and
    `template` is the spec's.
    """

    label: str
    """What a verdict calls it: `launch at line 210`, `captured 3`."""
    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    smem_bytes: str = "0"
    dims: Mapping[str, int] = attrs.field(factory=dict)
    scalars: Mapping[str, str] = attrs.field(factory=dict)
    """As `LaunchSpec.scalars`; those that it names replace the spec's, one by one."""
    extents: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Buffer name -> extents; those that it names replace the spec's, one by one."""
    template: Mapping[str, str] = attrs.field(factory=dict)
    """Template parameter -> type or value; another instantiation than the spec's is compiled as a build of its own."""
    captured: CapturedLaunch | None = None
    """Set: everything about the launch, data included, is what was recorded; `dims`, `scalars` and `extents` are empty."""


@frozen
class LaunchSpec:
    """How to launch and judge one kernel. Expressions are C integer expressions, see `source.expressions`."""

    kernel: str
    dims: tuple[Dim, ...] = ()
    buffers: tuple[BufferSpec, ...] = ()
    scalars: Mapping[str, str] = attrs.field(factory=dict)
    """Parameter name -> expression, for scalars that are not dims themselves. `p.n` and `p.size[1]` are fields of the struct
    that is passed by value as parameter `p`."""
    grid: tuple[str, str, str] | None = None
    block: tuple[str, str, str] | None = None
    smem_bytes: str = "0"
    template: Mapping[str, str] = attrs.field(factory=dict)
    """Template parameter -> type or value as written."""
    reference: Reference | None = None
    tolerances: tuple[Tolerance, ...] = ()
    bytes: str | None = None
    flops: str | None = None
    peak: str | None = None
    cache: str | None = None
    """`hot`, `cold` or None for both."""
    skip: bool = False
    constants: Mapping[str, int] = attrs.field(factory=dict)
    """Values of macros and constexprs of the file that the expressions use."""
    origins: Mapping[str, Origin] = attrs.field(factory=dict)
    """Field name -> origin, for `grid`, `block`, `smem_bytes`, `template`, `reference`, `tolerances`, ..."""
    unknown: tuple[str, ...] = ()
    """One sentence per part that could not be found; a spec with any is not launched."""
    confidence: Mapping[str, Confidence] = attrs.field(factory=dict)
    """Field name -> how sure it is, with the names of `origins`, and `buffers.x`, `dims.n`, `scalars.a` for one of several.
    A field that is not named is certain."""
    label: str = ""
    """What a verdict calls the spec's own launch, where that is more than its dims: `launch at line 210`."""
    cases: tuple[LaunchCase, ...] = ()
    """The kernel's other launches, which are checked and not timed. The spec's own is the largest."""
    captured: CapturedLaunch | None = None
    """Set: the spec's own launch is this one, with the data that were recorded."""

    @property
    def launchable(self) -> bool:
        return not self.unknown and not self.skip and self.grid is not None and self.block is not None


@frozen
class CompileMessage:
    """A compiler's message at a place of the document (zero-based line and column, code points)."""

    line: int
    column: int
    severity: str
    """`error`, `warning` or `note`."""
    text: str


@frozen
class Compiled:
    """Device code of one kernel, with the figures of `ptxas -v` and the occupancy that follows from them."""

    arch: str
    """`sm_90` and the like."""
    compiler: str
    """`nvrtc 13.5` or `nvcc 13.0`: which way was taken."""
    symbol: str
    """The kernel's lowered (mangled) name in `cubin`."""
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    smem_bytes: int
    """Static shared memory."""
    block_threads: int
    """Threads of a block that `occupancy` was computed for."""
    occupancy: float
    """Active warps over the maximum of a multiprocessor, 0 to 1."""
    limiter: str
    """`registers`, `shared memory`, `blocks`, `threads`, or `none` when full."""
    elapsed_ms: float
    messages: tuple[CompileMessage, ...] = ()
    cubin: bytes = b""
    notes: tuple[str, ...] = ()
    """One sentence for each way in which this is not quite what the text says, such as an instance that was picked."""


@frozen
class CompileFailed:
    """The text does not compile; `messages` holds at least one error."""

    compiler: str
    messages: tuple[CompileMessage, ...]

    @property
    def errors(self) -> tuple[CompileMessage, ...]:
        return tuple(message for message in self.messages if message.severity == "error")


@frozen
class NotCompiled:
    """Nothing was said about the text: no compiler is there, it was killed, or a flag is not allowed."""

    reason: str


Build = Union[Compiled, CompileFailed, NotCompiled]


@frozen
class Verified:
    """Every case agreed with the reference. `max_error` is in units of the tolerance: 1.0 would be at its edge."""

    cases: int
    max_error: float
    device: str
    """`host` or the GPU's name."""
    reference: str
    """What it was compared with, in words: `saxpy_cpu`, `torch: a * x + y`, `accepted kernel`."""
    checks: tuple[str, ...]
    """Names of the checks this verdict has had, e.g. `poison`, `bounds`, `block_order`."""
    notes: tuple[str, ...] = ()
    """What a user should know although every check passed: `assumes pointers aligned to 16 bytes`, `uses printf`."""


@frozen
class Wrong:
    """An output differs from the reference."""

    buffer: str
    index: int
    got: str
    expected: str
    case: str
    """The dims of the case, e.g. `n=33`."""
    wrong_elements: int
    total_elements: int


@frozen
class Unsafe:
    """The kernel broke a rule whatever its outputs are."""

    hazard: str
    """`out_of_bounds`, `unwritten_output`, `mutated_input`, `race`, `divergent_barrier`, `deadlock`, `timeout`, `fault`,
    `shared_memory`, `non_deterministic`, `uninitialized`, `never_launched`, `address_dependent`, `occupancy_dependent`,
    `precision_dropped`."""
    where: str
    """For a person: `x[1000] of 1000`, `line 14`."""
    case: str


@frozen
class Cheating:
    """The kernel passes without doing the work."""

    trick: str
    where: str


@frozen
class Unverified:
    """Neither right nor wrong is known; `reason` says what is missing. `checks` are those that did pass."""

    reason: str
    checks: tuple[str, ...] = ()


Verdict = Union[Verified, Wrong, Unsafe, Cheating, Unverified]


@frozen
class Timing:
    """Times of one kernel in one case. Cold: nothing of its data is in the cache; hot: the same buffers again and again."""

    median_us: float
    q1_us: float
    q3_us: float
    samples: int
    cold: bool
    sm_clock_mhz: float
    gap_us: float
    """Time of an empty kernel of the same shape, included in `median_us`."""
    case: str
    bytes: int | None = None
    flops: int | None = None
    roof: str | None = None
    """Which limit binds: `memory`, `compute` or `launch`."""
    roof_fraction: float | None = None
    hot_median_us: float | None = None
    """The same with its data in the cache, when `cold` and the kernel may be run again and again on one set."""
    method: str = "graph"
    """How it was timed: `graph` (launches back to back in a CUDA graph) or `single` (one launch at a time)."""
    notes: tuple[str, ...] = ()
    """What qualifies the figure: `2 samples left out while the GPU slowed itself down`."""


@frozen
class NotTimed:
    """No timing, and why: no GPU, the device is busy, the launch is unknown, the verdict forbids it."""

    reason: str


TimingResult = Union[Timing, NotTimed]


@frozen
class Faster:
    """`ratio` = time of the baseline over time of the candidate, with a 95 % interval of paired ratios."""

    ratio: float
    low: float
    high: float


@frozen
class Slower:
    ratio: float
    low: float
    high: float


@frozen
class Same:
    ratio: float
    low: float
    high: float
    note: str = ""
    """How that is known, where it was not measured: `the machine code is the same`."""


@frozen
class Ambiguous:
    """The samples do not settle it; `reason` says why."""

    reason: str
    ratio: float | None = None


@frozen
class NotCompared:
    reason: str
    label: str = ""
    """One or two words for the hint, where the reason is worth saying there: `other device`."""


Comparison = Union[Faster, Slower, Same, Ambiguous, NotCompared]


@frozen
class Evidence:
    """What a result was measured on. A result is shown as current only while `key` matches."""

    key: str
    """Hash of device slice, flags, launch, cases, device, driver and toolkit."""
    slice_key: str
    """Hash of the kernel's device slice alone: the part that the text decides."""
    device: str
    driver: str
    toolkit: str
    when: str
    """ISO 8601, UTC."""
    isolation: str = ""
    """How the process that ran the kernel was confined: `landlock, seccomp, limits`. Not part of the key."""


@frozen
class Finding:
    """One complaint of a sanitizer's tool about a kernel."""

    tool: str
    """`memcheck`, `racecheck`, `initcheck` or `synccheck`."""
    hazard: str
    """As in `Unsafe`."""
    text: str
    """One sentence for a person."""
    line: int | None
    """Zero-based line of the document, where the tool told it."""
    case: str


@frozen
class Sanitized:
    """What `compute-sanitizer` said about a kernel's small cases, in the background. It can only downgrade a verdict."""

    tools: tuple[str, ...]
    """Those that ran to their end."""
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    """Why a tool did not run, in one sentence; empty when all did."""


@frozen
class JudgeJob:
    """One kernel of one text, to be compiled, compared and timed by the worker."""

    text: str
    """The whole document, a candidate already spliced in."""
    path: str
    """Where the document lies or would lie: quoted includes are found from here."""
    kernel: Kernel
    """The kernel as it stands in `text`."""
    spec: LaunchSpec
    baseline_text: str | None = None
    """The document with the accepted kernel: the reference when there is no better one, and the rival of the timing."""
    baseline_kernel: Kernel | None = None
    baseline_build: Compiled | None = None
    """The accepted kernel's machine code, with its `cubin`: the rival of the timing where there is no `baseline_text`.
    `baseline_kernel` has its parameters. It is never a reference."""
    keep_code: bool = False
    """Answer with the device code in the build, to be kept as a baseline."""
    reference_text: str | None = None
    """The document before a model wrote into it: reference functions are read from here, so that all candidates of a fill
    share one, and none can bring its own."""
    arch: str = "auto"
    flags: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    pre_includes: tuple[str, ...] = ()
    """Headers that are included before the text, by their absolute paths."""
    includer: str = ""
    """For a header: a file that includes it, in whose text it is compiled when it does not compile alone."""
    architectures: tuple[str, ...] = ()
    """Those that the project builds for; where `arch` is `auto`, the one that fits the GPU and the compiler is taken."""
    seed: int = 0
    verify: bool = True
    benchmark: bool = True
    compile_deadline_s: float = 60.0
    run_deadline_s: float = 10.0


@frozen
class Judged:
    """The worker's answer to a `JudgeJob`."""

    build: Build
    verdict: Verdict
    timing: TimingResult
    comparison: Comparison
    evidence: Evidence
    spec: LaunchSpec | None = None
    """How the kernel was launched, where captures that the worker found made that another spec than the job's."""
    notes: tuple[str, ...] = ()
    """One sentence for each way in which the kernel was compiled otherwise than the job asked for."""


@frozen
class Candidate:
    """One fill of a region, laid out for its place."""

    text: str
    logprob: float
    """Mean log-probability of its tokens under the model."""
    tokens: int
    forwards: int


@frozen
class FillRequest:
    """What the model is told. All texts are exact slices of the document; the prompt's layout belongs to the checkpoint."""

    kernel_prefix: str
    """From the kernel's comments and directives above it up to the region."""
    kernel_suffix: str
    """From the region to the end of the kernel."""
    file_prefix: str
    """The document before `kernel_prefix`."""
    file_suffix: str
    """The document after `kernel_suffix`."""
    reference_text: str | None
    """The CPU reference function as written, when there is one."""
    torch_expression: str | None
    """The expression of a `ref torch:` clause."""
    middle: str
    """What the region holds now."""
    indent: str
    candidates: int
    seed: int = 0
    budget_s: float | None = None
    """Write candidates for this long; `candidates` is the most there may be then."""


@frozen
class DecodeSettings:
    """How to denoise; the names are the field's. `None` means the checkpoint's own default."""

    strategy: str | None = None
    """`sequential`, `low_confidence_static`, `low_confidence_dynamic` or `entropy_bounded`."""
    block_size: int | None = None
    denoising_steps: int | None = None
    threshold: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None


@frozen
class DecodeStats:
    elapsed_ms: float
    forwards: int
    tokens: int
    checkpoint: str
    device: str


@frozen
class CandidateReport:
    """A candidate and what it is worth."""

    label: str
    """`A`, `B`, ... in the order shown: best first once all are judged."""
    candidate: Candidate
    build: Build
    verdict: Verdict
    timing: TimingResult
    comparison: Comparison


@frozen
class FillReport:
    """The outcome of one fill. `reason` is set when there is nothing to show."""

    decode: DecodeStats | None
    candidates: tuple[CandidateReport, ...]
    reason: str | None = None


@frozen
class Baseline:
    """The version of a kernel that later ones are held against.

    Its time is not compared with theirs: its device code is kept, and timed again beside them in one run.
    """

    kernel: Kernel
    origin: str
    """`accepted` by the user, or `first`: the first verified version that was seen."""
    when: str
    """ISO 8601, UTC."""
    evidence: Evidence
    launch_key: str
    """Hash of how the kernel was launched for its timing, see `baseline.launch_key`."""
    build: Compiled
    verdict: Verdict
    timing: TimingResult


@frozen
class KernelReport:
    """The outcome of one check of one kernel. `comparison` is with `baseline`."""

    name: str
    line: int
    spec: LaunchSpec
    build: Build
    verdict: Verdict
    timing: TimingResult
    comparison: Comparison
    evidence: Evidence
    baseline: Baseline | None = None
    sanitized: Sanitized | None = None
    """None until the background check of a verified kernel on a GPU has ended."""
    flags_origin: str = ""
    """Whose flags of the project it was compiled with, as `FoundFlags` says; empty without any."""
    notes: tuple[str, ...] = ()
    """One sentence for each thing about its flags and architecture that a person should know."""


@frozen
class Measurement:
    """One check of one kernel, as the history keeps it."""

    when: str
    """ISO 8601, UTC."""
    key: str
    slice_key: str
    device: str
    driver: str
    toolkit: str
    arch: str
    launch_key: str
    registers: int
    spill_bytes: int
    smem_bytes: int
    occupancy: float
    verdict: str
    """The verdict's kind: `verified`, `wrong`, ..."""
    median_us: float | None
    q1_us: float | None
    q3_us: float | None
    cold: bool | None
    case: str
    comparison: str
    """The comparison's kind: `faster`, `slower`, `same`, `ambiguous`, `not_compared`."""
    ratio: float | None


@frozen
class Hint:
    """One line of the editor: at most 40 characters, plain words; the rest is in `tooltip` (markdown)."""

    line: int
    label: str
    tooltip: str


def kind_of(record: type[Any]) -> str:
    """`CompileFailed` -> `compile_failed`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", record.__name__).lower()


_converter = make_converter()
for _union in (Build, Verdict, TimingResult, Comparison):
    configure_tagged_union(_union, _converter, tag_name="kind", tag_generator=kind_of)


def to_wire(record: Any, kind: Any = None) -> Any:
    """A record as JSON-ready dicts and lists; `kind` is its static type where that is a union."""
    return _converter.unstructure(record, unstructure_as=kind or type(record))


def from_wire(data: Any, kind: type[T]) -> T:
    """The inverse of `to_wire`. Raises cattrs' errors on data of another shape: that is a bug, not user input."""
    return _converter.structure(data, kind)
