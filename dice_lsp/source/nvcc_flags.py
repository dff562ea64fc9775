"""Every option of nvcc, and what becomes of it when a kernel is compiled on its own: passed on, translated or left out.

The table follows `nvcc --help` of CUDA 13.0; a test holds it against the nvcc of the machine. The options of clang and
GCC that a build of CUDA files uses are read too. What is in neither table is left out: a list of what is allowed cannot
be got around by an option that is not known yet.

How nvcc reads its command line: an option's value follows as the next word or behind `=`, that of a one-letter option
also at once; options with a list take it apart at commas, and `\\,` is a comma within a value.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import PurePath
from typing import Literal

from attrs import evolve, frozen


class Kind(StrEnum):
    """What an option is about, which decides what becomes of it."""

    DEVICE = "changes device code: passed on"
    MACRO = "a macro: passed on"
    FOLDER = "an include folder: headers are looked for there"
    HEADER = "a header that is included first: passed on as text"
    ARCHITECTURE = "decides for which GPUs is compiled"
    FILE = "a file with more options: read"
    HOST = "concerns the host compiler only: left out"
    LINK = "concerns linking: left out"
    OUTPUT = "says what is written, and where: left out, nothing is written"
    TOOL = "a program or where programs are: left out, a project never chooses one"
    REPORT = "says what the compiler tells: left out"
    SPEED = "makes the compiler faster, not the code: left out"
    INPUT = "a file that is compiled: left out"
    BAD = "has a value that is not allowed: left out"
    OUTSIDE = "a place outside of the workspace: left out; name its folder in dice.compile_flags with -I if it is yours"
    TOOLKIT = "headers of CUDA or of the system, which are found anyway"
    UNKNOWN = "not known: left out"


PASSED_ON = frozenset({Kind.DEVICE, Kind.MACRO, Kind.FOLDER, Kind.HEADER})
"""The kinds of which something reaches a compiler."""


@frozen
class Option:
    """One option of nvcc, as its help lists it."""

    name: str
    short: str
    values: int
    """0 for none, 1 for one value, 2 for a list with commas."""
    kind: Kind
    spelling: str = ""
    """How NVRTC and nvcc are both given it; empty for kinds that are not passed on."""
    value: str = ""
    """A regular expression for the whole value."""
    fixed: str = ""
    """The value of an option that is given without one, where `spelling` needs it."""


_SWITCH, _COUNT = "true|false", r"\d{1,4}"
STANDARD = r"(?:c|gnu)\+\+(?:03|11|14|17|20|23)"
_NUMBERS = r"\d{1,6}(?:,\d{1,6})*"
_GROUPS: tuple[tuple[Kind, str], ...] = (
    (Kind.OUTPUT, """
        --cuda -cuda 0 | --cubin -cubin 0 | --fatbin -fatbin 0 | --ptx -ptx 0 | --optix-ir -optix-ir 0 | --ltoir -ltoir 0
        --preprocess -E 0 | --generate-dependencies -M 0 | --generate-nonsystem-dependencies -MM 0
        --generate-dependencies-with-compile -MD 0 | --generate-nonsystem-dependencies-with-compile -MMD 0
        --dependency-output -MF 1 | --generate-dependency-targets -MP 0 | --dependency-target-name -MT 1
        --compile -c 0 | --device-w -dw 0 | --run -run 0 | --run-args -run-args 2 | --output-file -o 1
        --objdir-as-tempdir -objtemp 0 | --output-directory -odir 1 | --keep -keep 0 | --keep-dir -keep-dir 1
        --save-temps -save-temps 0 | --clean-targets -clean 0 | --dryrun -dryrun 0 | --time -time 1
        --fdevice-time-trace -fdevice-time-trace 1 | --fdevice-syntax-only -fdevice-syntax-only 0 | --entries -e 2
        --keep-device-functions -keep-device-functions 0 | --source-in-ptx -src-in-ptx 0
        --list-gpu-code -code-ls 0 | --list-gpu-arch -arch-ls 0 | --no-compress -no-compress 0
        --compress-mode -compress-mode 1 | --frandom-seed -frandom-seed 1 | --help -h 0 | --version -V 0
    """),
    (Kind.TOOL, """
        --compiler-bindir -ccbin 1 | --allow-unsupported-compiler -allow-unsupported-compiler 0 | --archiver-binary -arbin 1
        --libdevice-directory -ldir 1 | --target-directory -target-dir 1 | --use-local-env -use-local-env 0
        --force-cl-env-setup -force-cl-env-setup 0 | --dont-use-profile -noprof 0 | --qpp-config -qpp-config 1
        --compile-as-tools-patch -astoolspatch 0 | --sanitize -sanitize 1 | --jobserver -jobserver 0
        --input-drive-prefix -idp 1 | --dependency-drive-prefix -ddp 1 | --drive-prefix -dp 1
    """),
    (Kind.LINK, """
        --device-link -dlink 0 | --link -link 0 | --lib -lib 0 | --library -l 2 | --library-path -L 2 | --cudart -cudart 1
        --cudadevrt -cudadevrt 1 | --dlink-time-opt -dlto 0 | --lto -lto 0 | --gen-opt-lto -gen-opt-lto 0
        --shared -shared 0 | --linker-options -Xlinker 2 | --archive-options -Xarchive 2 | --nvlink-options -Xnvlink 2
        --forward-unknown-to-host-linker -forward-unknown-to-host-linker 0 | --no-device-link -nodlink 0
        --host-linker-script -hls 1 | --augment-host-linker-script -aug-hls 0 | --relocatable-link -r 0
        --relocatable-ptx -reloc-ptx 0 | --extensible-whole-program -ewp 0
    """),
    (Kind.HOST, """
        --profile -pg 0 | --debug -g 0 | --optimize -O 1 | --no-exceptions -noeh 0 | --x -x 1 | --machine -m 1 | --m64 -m64 0
        --compiler-options -Xcompiler 2 | --forward-unknown-to-host-compiler -forward-unknown-to-host-compiler 0
        --forward-unknown-opts -forward-unknown-opts 0 | --no-align-double --no-align-double 0
        --default-stream -default-stream 1 | --static-global-template-stub -static-global-template-stub 1
        --device-entity-has-hidden-visibility -device-entity-has-hidden-visibility 1
        --no-host-device-initializer-list -nohdinitlist 0 | --no-host-device-move-forward -nohdmoveforward 0
    """),
    (Kind.REPORT, """
        --optimization-info -opt-info 2 | --ftemplate-backtrace-limit -ftemplate-backtrace-limit 1
        --ftemplate-depth -ftemplate-depth 1 | --verbose -v 0 | --Wreorder -Wreorder 0
        --Wdefault-stream-launch -Wdefault-stream-launch 0 | --Wmissing-launch-bounds -Wmissing-launch-bounds 0
        --Wext-lambda-captures-this -Wext-lambda-captures-this 0
        --Wno-deprecated-declarations -Wno-deprecated-declarations 0
        --Wno-deprecated-gpu-targets -Wno-deprecated-gpu-targets 0 | --Werror -Werror 2 | --resource-usage -res-usage 0
        --display-error-number -err-no 0 | --no-display-error-number -no-err-no 0 | --brief-diagnostics -brief-diag 1
    """),
    (Kind.SPEED, """
        --Ofast-compile -Ofc 1 | --threads -t 1 | --split-compile -split-compile 1
        --split-compile-extended -split-compile-extended 1
    """),
    (Kind.ARCHITECTURE, """
        --gpu-architecture -arch 1 | --gpu-code -code 2 | --generate-code -gencode 1
    """),
    (Kind.FOLDER, "--include-path -I 2 | --system-include -isystem 2"),
    (Kind.HEADER, "--pre-include -include 2"),
    (Kind.FILE, "--options-file -optf 2"),
)  # fmt: skip
_DEVICE = (
    Option("--std", "-std", 1, Kind.DEVICE, "-std", STANDARD),
    Option("--maxrregcount", "-maxrregcount", 1, Kind.DEVICE, "-maxrregcount", r"\d{1,3}"),
    Option("--use_fast_math", "-use_fast_math", 0, Kind.DEVICE, "--use_fast_math"),
    Option("--ftz", "-ftz", 1, Kind.DEVICE, "-ftz", _SWITCH),
    Option("--prec-div", "-prec-div", 1, Kind.DEVICE, "-prec-div", _SWITCH),
    Option("--prec-sqrt", "-prec-sqrt", 1, Kind.DEVICE, "-prec-sqrt", _SWITCH),
    Option("--fmad", "-fmad", 1, Kind.DEVICE, "-fmad", _SWITCH),
    Option("--extra-device-vectorization", "-extra-device-vectorization", 0, Kind.DEVICE, "--extra-device-vectorization"),
    Option("--device-debug", "-G", 0, Kind.DEVICE, "-G"),
    Option("--dopt", "-dopt", 1, Kind.DEVICE, "-dopt", "on"),
    Option("--generate-line-info", "-lineinfo", 0, Kind.DEVICE, "-lineinfo"),
    Option("--disable-warnings", "-w", 0, Kind.DEVICE, "-w"),
    Option("--expt-relaxed-constexpr", "-expt-relaxed-constexpr", 0, Kind.DEVICE, "--expt-relaxed-constexpr"),
    Option("--extended-lambda", "-extended-lambda", 0, Kind.DEVICE, "--extended-lambda"),
    Option("--expt-extended-lambda", "-expt-extended-lambda", 0, Kind.DEVICE, "--extended-lambda"),
    Option("--relocatable-device-code", "-rdc", 1, Kind.DEVICE, "-rdc", _SWITCH),
    Option("--device-c", "-dc", 0, Kind.DEVICE, "-rdc", fixed="true"),
    Option("--restrict", "-restrict", 0, Kind.DEVICE, "-restrict"),
    Option("--jump-table-density", "-jtd", 1, Kind.DEVICE, "-jtd", r"\d{1,3}"),
    Option("--device-stack-protector", "-device-stack-protector", 1, Kind.DEVICE, "-device-stack-protector", _SWITCH),
    Option("--diag-suppress", "-diag-suppress", 1, Kind.DEVICE, "-diag-suppress", _NUMBERS),
    Option("--diag-warn", "-diag-warn", 1, Kind.DEVICE, "-diag-warn", _NUMBERS),
    Option("--diag-error", "-diag-error", 1, Kind.DEVICE, "-diag-error", _NUMBERS),
    Option("--ptxas-options", "-Xptxas", 2, Kind.DEVICE, "-Xptxas"),
    Option("--define-macro", "-D", 2, Kind.MACRO, "-D", r"[A-Za-z_]\w*(?:\([\w, .]*\))?(?:=[^\x00\r\n]*)?"),
    Option("--undefine-macro", "-U", 2, Kind.MACRO, "-U", r"[A-Za-z_]\w*"),
)  # fmt: skip


def _from(kind: Kind, text: str) -> Iterator[Option]:
    for line in text.replace("|", "\n").split("\n"):
        if line.strip():
            name, short, values = line.split()
            yield Option(name, short, int(values), kind)


OPTIONS: tuple[Option, ...] = (*(each for kind, text in _GROUPS for each in _from(kind, text)), *_DEVICE)
"""All options of nvcc 13.0."""

_OTHER_COMPILERS = (
    # Clang's options for CUDA.
    Option("--cuda-gpu-arch", "--cuda-gpu-arch", 1, Kind.ARCHITECTURE),
    Option("--offload-arch", "--offload-arch", 1, Kind.ARCHITECTURE),
    Option("--no-cuda-gpu-arch", "--no-cuda-gpu-arch", 1, Kind.ARCHITECTURE),
    Option("--no-offload-arch", "--no-offload-arch", 1, Kind.ARCHITECTURE),
    Option("--cuda-include-ptx", "--no-cuda-include-ptx", 1, Kind.OUTPUT),
    Option("--cuda-path", "--cuda-path", 1, Kind.TOOL),
    Option("--ptxas-path", "--ptxas-path", 1, Kind.TOOL),
    Option("-fcuda-rdc", "-fgpu-rdc", 0, Kind.DEVICE, "-rdc", fixed="true"),
    Option("-fcuda-flush-denormals-to-zero", "-fgpu-flush-denormals-to-zero", 0, Kind.DEVICE, "-ftz", fixed="true"),
    Option("-fcuda-approx-transcendentals", "-fgpu-approx-transcendentals", 0, Kind.DEVICE, "--use_fast_math"),
    Option("-Xcuda-ptxas", "-Xcuda-ptxas", 1, Kind.DEVICE, "-Xptxas"),
    # The wrapper that Bazel's rules of TensorFlow put before both compilers.
    Option("-nvcc_options", "--nvcc_options", 2, Kind.DEVICE, "-nvcc_options"),
    # Folders and headers of GCC and clang.
    Option("-iquote", "--include-directory", 1, Kind.FOLDER), Option("-idirafter", "-cxx-isystem", 1, Kind.FOLDER),
    Option("-imacros", "--imacros", 1, Kind.HEADER), Option("--include", "--include", 1, Kind.HEADER),
    Option("-isystem-after", "--include-directory-after", 1, Kind.FOLDER),
    # What takes a value as the next word, which must not be read as an option.
    *(Option(name, name, 1, Kind.HOST) for name in (
        "-Xclang", "-Xpreprocessor", "-Xassembler", "-target", "--target", "-isysroot", "--sysroot", "-iprefix",
        "-iwithprefix", "-iwithprefixbefore", "-mllvm", "-aux-info", "-Xopenmp-target", "-Xarch_device", "-Xarch_host",
        "-imultilib", "-iframework", "-include-pch", "-wrapper", "-specs", "--gcc-toolchain", "-fplugin", "-B", "-ivfsoverlay",
    )),
    *(Option(name, name, 1, Kind.LINK) for name in ("-u", "-z", "-T", "-framework", "-rpath")),
    *(Option(name, name, 1, Kind.OUTPUT) for name in ("-MQ", "-MJ", "-dumpbase", "-dumpdir", "-dumpbase-ext")),
)  # fmt: skip

_BY_NAME: dict[str, Option] = {}
for _option in (*_OTHER_COMPILERS, *OPTIONS):
    _BY_NAME[_option.name] = _BY_NAME[_option.short] = _option
_ATTACHED = (
    "-isystem",
    "-iquote",
    "-idirafter",
    "-include",
    "-imacros",
    "-D",
    "-U",
    "-I",
    "-L",
    "-l",
    "-O",
    "-x",
    "-B",
    "-o",
    "-MF",
)
"""Options whose value may follow at once, longer names first."""
_HOST_WORDS = re.compile(r"-(?:[fmWOgpds]|std|ansi|nostd|no-canonical|no-pie|rdynamic|EHsc|MD)|--(?:driver-mode|param)")

# What may be said to the assembler: what changes the code, and nothing that names a file.
PTXAS = re.compile(
    r"-O[0-4]|--?opt-level=[0-4]|-(?:dlcm|flcm)=(?:ca|cg|cs|lu|cv)|-(?:dscm|fscm)=(?:wb|cg|cs|wt)"
    r"|--(?:def|force)-load-cache=(?:ca|cg|cs|lu|cv)|--(?:def|force)-store-cache=(?:wb|cg|cs|wt)"
    r"|--?allow-expensive-optimizations=(?:true|false)|--?fmad=(?:true|false)|--?maxrregcount=\d{1,3}"
    r"|--register-usage-level=\d{1,2}|-regUsageLevel=\d{1,2}|--disable-optimizer-constants|-disable-optimizer-consts"
    r"|--optimize-float-atomics|-opt-fp-atomics|--dont-merge-basicblocks|-no-bb-merge|--return-at-end|-ret-end"
)
_RELAXED = {"relaxed-constexpr": "--expt-relaxed-constexpr", "extended-lambda": "--extended-lambda",
            "ftz=true": "-ftz=true", "ftz=false": "-ftz=false", "use_fast_math": "--use_fast_math",
            "fmad=false": "-fmad=false", "expt-relaxed-constexpr": "--expt-relaxed-constexpr"}  # fmt: skip
_CLANG_ARITHMETIC = {"-ffast-math": "--use_fast_math", "-Ofast": "--use_fast_math", "-ffp-contract=off": "-fmad=false",
                     "-ffp-contract=on": "-fmad=true", "-ffp-contract=fast": "-fmad=true"}  # fmt: skip
_EARLY_STANDARDS = {"0x": "11", "1y": "14", "1z": "17", "2a": "20", "2b": "23"}
_CODE = re.compile(r"(?:sm|compute|lto)_(\d{2,3}[af]?)$")
_WHOLE_SETS = frozenset({"native", "all", "all-major"})


@frozen
class Flag:
    """One option as it was written, and what it means."""

    written: str
    kind: Kind
    name: str = ""
    """As `Option.spelling`; for folders, headers and files the option's own short name."""
    value: str = ""

    @property
    def text(self) -> str:
        """As a compiler is given it, for flags of the kinds `DEVICE` and `MACRO`."""
        if self.kind is Kind.MACRO:
            return self.name + self.value
        return f"{self.name}={self.value}" if self.value else self.name


Dialect = Literal["nvcc", "clang", "host"]
"""Whose command line it is: nvcc takes values apart at commas; what clang is told of arithmetic holds for kernels too."""


def read_flags(arguments: Sequence[str], dialect: Dialect = "nvcc") -> tuple[Flag, ...]:
    """What the words of a command line say, the name of the program among them."""
    return tuple(_read(list(arguments), dialect, 0))


def is_nvcc(arguments: Iterable[str]) -> bool:
    """Whether a command line starts nvcc, maybe through a wrapper such as ccache."""
    for word in arguments:
        if word.startswith("-"):
            return False
        if PurePath(word.replace("\\", "/")).name.lower().startswith("nvcc"):
            return True
    return False


def compiles_cuda(arguments: Sequence[str], file: str) -> bool:
    """Whether a command line compiles CUDA: by its program, its language or the file's name."""
    if is_nvcc(arguments) or file.endswith((".cu", ".cuh")):
        return True
    words = set(arguments)
    joined = words & {"-xcuda", "-xcu", "--x=cu", "-x=cu", "-xhip"} or any(
        word.startswith(("--cuda-gpu-arch", "--offload-arch", "--cuda-path")) for word in words
    )
    return bool(joined) or any(
        word in ("-x", "--x", "--language") and following in ("cu", "cuda") for word, following in pairwise(arguments)
    )


def architectures(flags: Iterable[Flag]) -> tuple[str, ...]:
    """The architectures that flags ask for: `sm_90a` and the like, or `native`, `all`, `all-major`; each once.

    `-code` decides where both it and `-arch` are there, as for nvcc; `-gencode` adds to either.
    """
    arch: list[str] = []
    code: list[str] = []
    others: list[str] = []
    without: set[str] = set()
    for flag in flags:
        if flag.kind is not Kind.ARCHITECTURE:
            continue
        if flag.name == "-arch":
            arch = _codes(flag.value)
        elif flag.name == "-code":
            code += _codes(flag.value)
        elif flag.name.startswith("--no-"):
            without |= set(_codes(flag.value)) if flag.value != "all" else set(others)
        else:
            wanted = _after(flag.value, "code") or _after(flag.value, "arch") if "=" in flag.value else flag.value
            others += _codes(wanted)
    found = dict.fromkeys([*(code or arch), *others])
    return tuple(name for name in found if name not in without)


def _after(specification: str, word: str) -> str:
    """`[compute_52,sm_52]` of `arch=compute_52,code=[compute_52,sm_52]`."""
    parts = re.split(r",(?=\w+=)", specification)
    return next((part.strip().removeprefix(f"{word}=") for part in parts if part.strip().startswith(f"{word}=")), "")


def _codes(value: str) -> list[str]:
    """The architectures of a list, as real ones."""
    found = []
    for word in re.split(r"[,\s]+", value.strip("[]\"' ")):
        if (match := _CODE.match(word)) is not None:
            found.append(f"sm_{match[1]}")
        elif word in _WHOLE_SETS:
            found.append(word)
    return found


def _read(words: list[str], dialect: Dialect, depth: int) -> Iterator[Flag]:
    at, program = 0, depth == 0
    while at < len(words):
        word = words[at].strip()
        following = words[at + 1] if at + 1 < len(words) else None
        at += 1
        if not word:
            continue
        if word.startswith("@") and len(word) > 1:
            yield Flag(word, Kind.FILE, "@", word[1:])
            continue
        if not word.startswith("-") or word == "-":
            yield Flag(word, Kind.TOOL if program else Kind.INPUT)
            continue
        program = False
        if dialect == "clang" and word in _CLANG_ARITHMETIC:
            yield from (evolve(flag, written=word) for flag in _read([_CLANG_ARITHMETIC[word]], "host", 1))
            continue
        option, value = _split(word)
        written = word
        if option is not None and option.values and value is None:
            if following is None:
                yield Flag(written, Kind.UNKNOWN)
                continue
            value, written, at = following.strip(), f"{word} {following}", at + 1
        if option is None:
            yield Flag(word, Kind.HOST if _HOST_WORDS.match(word) else Kind.UNKNOWN)
        else:
            yield from _meaning(option, written, value or "", dialect, depth)


def _split(word: str) -> tuple[Option | None, str | None]:
    """The option of a word and the value that is in it."""
    if word in _BY_NAME:
        return _BY_NAME[word], None
    name, equals, value = word.partition("=")
    if equals and (option := _BY_NAME.get(name)) is not None and option.values:
        return option, value
    head, space, rest = word.partition(" ")
    if space and (option := _BY_NAME.get(head)) is not None and option.values:
        # One word with a blank, as Meson writes `-gencode arch=...`.
        return option, rest.strip()
    for short in _ATTACHED:
        if word.startswith(short) and not word.startswith("--"):
            return _BY_NAME[short], word[len(short) :].strip()
    return None, None


def _meaning(option: Option, written: str, value: str, dialect: Dialect, depth: int) -> Iterator[Flag]:
    kind, lists = option.kind, dialect == "nvcc"
    if option.short == "-Xcompiler" and depth == 0:
        inner = [word for part in _parts(value) for word in part.split()]
        found = [flag for flag in _read(inner, "host", 1) if flag.kind in (Kind.MACRO, Kind.FOLDER, Kind.HEADER)]
        yield from (evolve(flag, written=f"{written} ({flag.written})") for flag in found)
        if not found:
            yield Flag(written, Kind.HOST)
    elif option.spelling == "-nvcc_options":
        known = [_RELAXED[part] for part in _parts(value) if part in _RELAXED]
        yield from (evolve(flag, written=written) for flag in _read(known, "host", 1))
        if not known:
            yield Flag(written, Kind.UNKNOWN)
    elif option.spelling == "-Xptxas":
        for part in _ptxas_words(value):
            allowed = PTXAS.fullmatch(part) is not None
            yield Flag(
                f"{option.short} {part}", Kind.DEVICE if allowed else Kind.REPORT, "-Xptxas" if allowed else "", part
            )
    elif kind in (Kind.FOLDER, Kind.HEADER, Kind.FILE):
        for part in _parts(value) if lists and option.values == 2 else [value]:
            # A header's name comes to stand between quotes.
            good = bool(part) and not re.search(r'[\x00\r\n"]' if kind is Kind.HEADER else r"[\x00\r\n]", part)
            yield Flag(written, kind if good else Kind.BAD, option.short, part)
    elif kind is Kind.MACRO:
        for part in _parts(value) if lists else [value]:
            good = re.fullmatch(option.value, part) is not None
            yield Flag(written, kind if good else Kind.BAD, option.spelling, part)
    elif kind is Kind.DEVICE:
        taken = value or option.fixed
        if option.spelling == "-std":
            # What GCC and clang called the standards before they had their numbers.
            taken = re.sub(r"(?<=\+\+)(?:0x|1y|1z|2a|2b)$", lambda early: _EARLY_STANDARDS[early[0]], taken)
        good = re.fullmatch(option.value, taken) is not None if option.value else True
        yield Flag(written, kind if good else Kind.BAD, option.spelling, taken)
    else:
        yield Flag(written, kind, option.short, value)


def _parts(value: str) -> list[str]:
    """A list at its commas; `\\,` is a comma within a part."""
    return [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", value) if part.strip()]


def _ptxas_words(value: str) -> list[str]:
    """The assembler's options of one list, each with its value: `-dlcm ca` and `-dlcm=ca` are the same."""
    words = [word for part in _parts(value) for word in part.split()]
    joined: list[str] = []
    for word in words:
        if joined and not word.startswith("-") and "=" not in joined[-1]:
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    return joined
