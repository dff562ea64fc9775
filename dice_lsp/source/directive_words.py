"""What each word of a `//dice:` comment means, for completion, hovers and the manual, which all say the same."""

from collections.abc import Iterable

from attrs import frozen

MANUAL = "docs/directives.md"


@frozen
class Word:
    """One clause, or one kind of initial values."""

    word: str
    form: str
    meaning: str
    """One sentence or two, the last without its full stop."""
    example: str
    section: str
    """The heading of the manual that tells more."""


SIZES = Word(
    "",
    "NAME = e | e | ..",
    "A size. The first value is the case that is timed, the others are only checked; the lists of several sizes go"
    " together place by place. A size with the name of a parameter is that argument's value",
    "n = 16M | 1000003",
    "Sizes",
)
WORDS = {
    item.word: item
    for item in (
        Word(
            "in",
            "in NAME[e, ..]: init, ..",
            "Buffers that the kernel only reads, with their sizes in elements. They are filled before each run, and a"
            " kernel that writes to one is unsafe",
            "in x[rows, cols]: uniform(0, 1)",
            "Buffers",
        ),
        Word(
            "out",
            "out NAME[e, ..], ..",
            "Buffers that the kernel writes without having read them. They hold poison before each run, so an element"
            " that is not written is found",
            "out y[n]",
            "Buffers",
        ),
        Word(
            "io",
            "io NAME[e, ..]: init, ..",
            "Buffers that the kernel reads and writes: their first values are inputs, their last ones are compared",
            "io histogram[256]: zeros",
            "Buffers",
        ),
        Word(
            "tmp",
            "tmp NAME[e, ..]: init, ..",
            "Scratch memory, zeros at first. What is left in it is not compared with anything",
            "tmp counter[1]",
            "Buffers",
        ),
        Word(
            "launch",
            "launch <<<grid, block, bytes>>>",
            "Grid, block and dynamic shared memory of a launch, as expressions over the sizes. `{x, y, z}` has more than"
            " one dimension",
            "launch <<<{cdiv(w, 16), cdiv(h, 16)}, {16, 16}>>>",
            "Launch",
        ),
        Word(
            "with",
            "with NAME = type, ..",
            "Template arguments of the instantiation that is compiled and run",
            "with T = float, TILE = 16",
            "Template arguments and scalars",
        ),
        Word(
            "set",
            "set NAME = e, ..",
            "Values of scalar arguments, also of a field of a struct that is passed by value",
            "set alpha = 2.5f, p.stride = n",
            "Template arguments and scalars",
        ),
        Word(
            "ref",
            "ref NAME | torch: expression | py: FILE:FUNCTION | accepted | captured FILE",
            "What the outputs are compared with: a CPU function of the file, an expression, the kernel as it was, or what"
            " a run of your program left",
            "ref torch: torch.softmax(x, dim=1)",
            "References",
        ),
        Word(
            "tol",
            "tol [NAME] rtol [atol] | ulp n | exact",
            "How far an output may be from its reference, for all outputs or for one",
            "tol y 1e-4 1e-6",
            "Tolerances",
        ),
        Word("exact", "exact", "Every output must equal its reference bit for bit", "exact", "Tolerances"),
        Word(
            "bytes",
            "bytes e",
            "Bytes that the kernel must move at least, for the roofline; without it the buffers' sizes are taken",
            "bytes 12 * n",
            "Timing",
        ),
        Word("flops", "flops e", "Floating-point operations, for the roofline", "flops 2 * m * n * k", "Timing"),
        Word("peak", "peak WORD", "Which peak of the GPU the roofline is drawn against", "peak f16tc", "Timing"),
        Word("hot", "hot", "Time it with its data in the cache only", "hot", "Timing"),
        Word("cold", "cold", "Time it with cold caches only", "cold", "Timing"),
        Word("skip", "skip", "Leave this kernel alone: it is compiled and not run", "skip", "Timing"),
        Word(
            "run",
            'run "command"',
            "The command that runs your own program. It is started only by the capture command, never by itself",
            'run "./build/bench 1024"',
            "Captures",
        ),
    )
}
INITS = {
    item.word: item
    for item in (
        Word("normal", "normal", "Numbers of the normal distribution; integers get small numbers of both signs",
             "in x[n]: normal", "Initial values"),
        Word("uniform", "uniform(a, b)", "Floating-point numbers between two others", "in x[n]: uniform(-1, 1)",
             "Initial values"),
        Word("int", "int(a, b)", "Whole numbers from a to b - 1; for indices", "in index[n]: int(0, m)",
             "Initial values"),
        Word("iota", "iota", "0, 1, 2, ..", "in x[n]: iota", "Initial values"),
        Word("zeros", "zeros", "Zeros", "io sum[1]: zeros", "Initial values"),
        Word("ones", "ones", "Ones", "in mask[n]: ones", "Initial values"),
        Word("perm", "perm(n)", "A permutation of 0 to n - 1, again and again", "in order[n]: perm(n)",
             "Initial values"),
        Word("sorted", "sorted", "Random numbers in ascending order", "in keys[n]: sorted", "Initial values"),
        Word("file", 'file("x.npy")', "An array of a .npy file beside the source", 'in x[n]: file("x.npy")',
             "Initial values"),
    )
}  # fmt: skip


def manual_table(words: Iterable[Word]) -> str:
    """The words as the manual's table: how each is written and what it means."""
    rows = [
        (f"`{word.form}`".replace("|", "\\|"), f"{word.meaning}", f"`{word.example}`".replace("|", "\\|"))
        for word in words
    ]
    return "\n".join(
        ["| clause | meaning | example |", "| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
    )
