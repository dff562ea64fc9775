"""The nouns of the generator, and the state of one task in the making: names taken, parameters, sizes."""

import random

from attrs import field, frozen, mutable

from dice_lsp.training.expressions import Grammar

# ruff: noqa: E501 - pools of names stay one line each


@frozen
class Argument:
    """One kernel parameter. `extent` is a C expression for a buffer's length, empty for a scalar."""

    name: str
    type: str
    role: str
    """`in`, `out`, `io`, or `scalar`."""
    extents: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    """Range of an index-like input, used by the numeric check; equal means ordinary values."""


@frozen
class Task:
    """A kernel to fill, with everything that its file says about it."""

    shape: str
    name: str
    arguments: tuple[Argument, ...]
    body: str
    """Statements of the kernel, between its braces."""
    cpu: str
    """Statements of the CPU reference."""
    torch: str | None
    formula: str | None
    launch: str
    """Grid and block as in a directive, e.g. `cdiv(n, 256), 256`."""
    sizes: dict[str, int]
    """Small values of the size parameters, for the numeric check."""
    scalars: dict[str, str] = field(factory=dict)
    declarations: str = ""
    topic: str = ""
    element: str = "float"
    template: bool = False
    whole_body_only: bool = False
    needs_launch: bool = False
    """The body fits this launch only, so the task must show it."""


_SYLLABLES = "ba be bo ca co da de di do fa fe fi ga go ha he ka ki la le lo ma me mi mo na ne no pa pe po ra re ri ro sa se si so ta te ti to va ve vi za zo".split()
_WORDS = """signal noise energy force mass charge price volume speed rate depth field grid cell node edge graph user item
score grad delta momentum velocity pressure density temp heat light color red green blue image frame sample audio wave
phase gain level state action reward query token head layer unit point plane sphere ray hit path time day year count
total mean avg old new raw clean host dev buffer array data values table list map mask valid active dead live prior post
hidden gate up down left right first second last inner outer upper lower pos neg abs rel lin log inv adj""".split()

_IN_NAMES = "x y a b in input src A B u v p q d_in X data idata img w in1 in2 x1 vec inp lhs rhs".split()
_OUT_NAMES = "out y z c output dst C r res result o d_out odata outp Y dest".split()
_SIZE_NAMES = "n N size len count num total length numElements n_elem M".split()
_SCALAR_NAMES = (
    "alpha beta a b scale bias s t k gamma eps lambda factor w0 w1 c0 c1 lo hi threshold thr lr weight base".split()
)
_LOCAL_NAMES = (
    "t v val tmp s acc sum d r u q e h f m p0 p1 t0 t1 v0 v1 res diff a0 b0 xi yi xv yv av bv cur best g c1 c2".split()
)

COUNT_NAMES = "iters steps max_iter num_iter order terms degree K rounds limit_n n_steps max_steps".split()

_KERNEL_WORDS = "kernel apply compute fused step update process run calc transform eval op map combine mix pass stage core do_it work k my".split()


@mutable
class Maker:
    """State of one task in the making: names taken so far, the grammar, the parameters."""

    rng: random.Random
    element: str
    grammar: Grammar
    taken: set[str] = field(factory=set)
    arguments: list[Argument] = field(factory=list)
    scalars: dict[str, str] = field(factory=dict)
    sizes: dict[str, int] = field(factory=dict)
    declarations: str = ""
    rare: float = 0.45

    @classmethod
    def new(cls, rng: random.Random, element: str | None = None) -> "Maker":
        if element is None:
            element = rng.choices(["float", "double", "int", "unsigned"], [80, 7, 8, 5])[0]
        maker = cls(rng, element, Grammar(rng, element), rare=rng.choice([0.0, 0.3, 0.6, 1.0]))
        return maker

    @property
    def f(self) -> str:
        """Suffix of a literal of the element type."""
        return "f" if self.element == "float" else ""

    @property
    def zero(self) -> str:
        return {"float": "0.0f", "double": "0.0", "unsigned": "0u"}.get(self.element, "0")

    def random_name(self) -> str:
        rng = self.rng
        roll = rng.random()
        if roll < 0.4:
            parts = [rng.choice(_WORDS) for _ in range(rng.choice([1, 2, 2, 3]))]
        elif roll < 0.8:
            parts = ["".join(rng.choice(_SYLLABLES) for _ in range(rng.choice([1, 2, 2, 3])))]
            if rng.random() < 0.3:
                parts.append(rng.choice(_WORDS))
        else:
            parts = [rng.choice(["d", "h", "g", "p", "m", "in", "out", "dev"]), rng.choice(_WORDS)]
        if rng.random() < 0.35:
            name = parts[0] + "".join(part.capitalize() for part in parts[1:])
        else:
            name = "_".join(parts)
        return name + (str(rng.randrange(10)) if rng.random() < 0.15 else "")

    def name(self, pool: list[str]) -> str:
        """A fresh name, from the usual ones of its role or any at all."""
        for _ in range(60):
            name = self.random_name() if self.rng.random() < self.rare else self.rng.choice(pool)
            if name not in self.taken and name not in _FORBIDDEN:
                self.taken.add(name)
                return name
        return self.name([f"v{self.rng.randrange(10**6)}"])

    def local(self) -> str:
        rare, self.rare = self.rare, self.rare * 0.3
        name = self.name(_LOCAL_NAMES)
        self.rare = rare
        return name

    def buffer(
        self,
        role: str,
        *extents: str,
        type_: str | None = None,
        low: int = 0,
        high: int = 0,
        pool: list[str] | None = None,
    ) -> str:
        name = self.name(pool or (_IN_NAMES if role == "in" else _OUT_NAMES))
        self.arguments.append(Argument(name, type_ or self.element, role, extents, low, high))
        return name

    def size(self, low: int, high: int, pool: list[str] | None = None) -> str:
        name = self.name(pool or _SIZE_NAMES)
        self.arguments.append(Argument(name, "int", "scalar"))
        self.sizes[name] = self.rng.randrange(low, high)
        return name

    def scalar(self, type_: str | None = None, value: str | None = None, pool: list[str] | None = None) -> str:
        name = self.name(pool or _SCALAR_NAMES)
        type_ = type_ or self.element
        self.arguments.append(Argument(name, type_, "scalar"))
        if value is None:
            value = (
                f"{self.rng.uniform(-2, 2):.3f}" if type_ in ("float", "double", "T") else str(self.rng.randrange(1, 9))
            )
        self.scalars[name] = value
        return name

    def expr(self, atoms: list[str], terms: int | None = None, integers: list[str] | None = None) -> str:
        return self.grammar.text(self.grammar.expression(atoms, terms, integers))

    def cond(self, atoms: list[str]) -> str:
        grammar = self.grammar
        a = grammar.leaf(atoms) if self.rng.random() < 0.6 else grammar.expression(atoms, 2)
        return grammar.text(
            grammar.condition(a, grammar.leaf(atoms) if len(atoms) > 1 and self.rng.random() < 0.3 else None)
        )


_FORBIDDEN = {
    "if", "do", "for", "int", "abs", "log", "exp", "new", "list", "in", "time", "auto", "lambda", "pow", "sin", "cos",
    "max", "min", "goto", "void", "using", "this", "near", "far", "gamma", "y0", "y1", "j0", "j1", "index", "lerp", "double", "float", "char", "signed", "op", "or", "and", "not", "xor",
    "launch", "ref", "tol", "with", "set", "bytes", "flops", "peak", "hot", "cold", "skip", "out", "io", "tmp",
} - {"in", "out"}  # fmt: skip


def finish(maker: Maker, shape: str, body: str, cpu: str, launch: str, **more: object) -> Task:
    rng = maker.rng
    arguments = list(maker.arguments)
    buffers = [argument for argument in arguments if argument.extents]
    scalars = [argument for argument in arguments if not argument.extents and argument.name not in maker.sizes]
    sizes = [argument for argument in arguments if argument.name in maker.sizes]
    inputs = [argument for argument in buffers if argument.role == "in"]
    outputs = [argument for argument in buffers if argument.role != "in"]
    order = rng.choices(
        [[*inputs, *outputs, *scalars, *sizes], [*inputs, *outputs, *sizes, *scalars], [*outputs, *inputs, *scalars, *sizes],
         [*sizes, *scalars, *inputs, *outputs], [*scalars, *inputs, *outputs, *sizes], [*outputs, *inputs, *sizes, *scalars]],
        [40, 20, 15, 10, 10, 5],
    )[0]  # fmt: skip
    topic = str(more.pop("topic", ""))
    words = topic.split() if topic and rng.random() < 0.8 else [rng.choice(_KERNEL_WORDS + _WORDS)]
    if rng.random() < 0.4:
        words.append(rng.choice(["kernel", "op", "v1", "naive", "gpu", "cuda", "k"]))
    name = "_".join(words) if rng.random() < 0.6 else words[0] + "".join(word.capitalize() for word in words[1:])
    if name in maker.taken or name in _FORBIDDEN:
        name += "_kernel"
    return Task(
        shape=shape, name=name, arguments=tuple(order), body=" ".join(body.split()), cpu=" ".join(cpu.split()),
        launch=launch, sizes=dict(maker.sizes), scalars=dict(maker.scalars), declarations=maker.declarations,
        topic=topic, element=maker.element,
        **{"torch": None, "formula": None, **more},  # type: ignore[arg-type]
    )  # fmt: skip


def named_constant(maker: Maker) -> None:
    """Perhaps a named constant that expressions may use."""
    if maker.rng.random() < 0.1 and maker.grammar.floating:
        name = maker.rng.choice(["EPS", "SCALE", "PI", "ALPHA", "KAPPA", "LIMIT", "GAIN", "C0", "SOFTENING"])
        value = maker.grammar.number_above_zero()[1]
        maker.grammar.constants.append(name)
        maker.declarations += maker.rng.choice(
            [f"#define {name} {value}\n", f"constexpr {maker.element} {name} = {value};\n"]
        )


def host_device_function(maker: Maker) -> str | None:
    """Perhaps a small function for host and device; returns its name."""
    if maker.rng.random() > 0.06 or not maker.grammar.floating:
        return None
    name = maker.name([f"{maker.rng.choice(_WORDS)}_{maker.rng.choice(['fn', 'of', 'op', 'fun'])}"])
    parameter = maker.rng.choice(["v", "t", "q"])
    body = maker.grammar.text(maker.grammar.expression([parameter], 3))
    maker.declarations += (
        f"__host__ __device__ inline {maker.element} {name}({maker.element} {parameter}) {{ return {body}; }}\n"
    )
    return name
