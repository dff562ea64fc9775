"""One key per kernel of everything in a text that decides its evidence: when it differs, what was measured is stale.

The key covers the device code, the launch spec and the CPU reference, and the settings and headers by the context that
is passed in. White space, comments and host code that is none of these do not change it.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache

import attrs

from dice_lsp.config import Settings
from dice_lsp.records import Kernel, LaunchSpec
from dice_lsp.source.kernels import SourceModel
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.project import ProjectTexts
from dice_lsp.source.python_calls import PythonCalls
from dice_lsp.source.slice import blank, device_slice
from dice_lsp.source.tokens import code

LONG_TEXT = 1_000_000
"""Characters above which a text is not sliced: all of it outside kernels counts as device code then."""
SPECS_KEPT = 4096
_WORD = re.compile(r"[A-Za-z_]\w*")
_LINE = re.compile(r"\bline \d+")


def settings_context(settings: Settings) -> str:
    """The settings that change what a check would find."""
    deciding = (
        "backend",
        "device",
        "arch",
        "compile_flags",
        "compile_commands",
        "nvcc",
        "cxx",
        "seed",
        "verify",
        "benchmark",
    )
    return repr([getattr(settings, name) for name in deciding])


class KernelKeys:
    """Computes keys, and keeps what it found out about each kernel: an edit of one kernel concerns that one alone."""

    def __init__(self) -> None:
        self._specs: OrderedDict[str, str] = OrderedDict()

    def of(
        self,
        model: SourceModel,
        context: str,
        calls: PythonCalls | None = None,
        project: ProjectTexts | None = None,
        path: str = "",
    ) -> Mapping[str, str]:
        """Kernel id -> key. Linear in the text, so it runs beside the loop. The last three are as for `launch_spec`."""
        text, kernels = model.text, model.kernels
        if not kernels:
            return {}
        spans = [(kernel.start, kernel.end) for kernel in kernels]
        device_text = text if len(text) > LONG_TEXT else device_slice(text).text
        shared = _hash(context, _words_of(blank(device_text, spans)))
        generation = project.generation if project is not None else 0
        surroundings = _hash(" ".join(blank(text, spans).split()), repr(calls), path, str(generation))

        def read(kernel: Kernel) -> LaunchSpec:
            return launch_spec(text, kernel, model, calls=calls, project=project, path=path)

        bodies = {kernel.id: _body_words(text[kernel.start : kernel.end]) for kernel in kernels}
        by_name: dict[str, list[str]] = {}
        for kernel in kernels:
            by_name.setdefault(kernel.name, []).append(kernel.id)
        keys = {}
        for kernel in kernels:
            body = bodies[kernel.id]
            # A kernel that names another one may launch it, so that one's text counts too.
            named = sorted(
                other
                for name in set(_WORD.findall(body)) & by_name.keys()
                for other in by_name[name]
                if other != kernel.id
            )
            spec = self._spec(model, kernel, _hash(surroundings, text[kernel.start : kernel.end]), read)
            keys[kernel.id] = _hash(kernel.qualified_name, shared, body, *(bodies[name] for name in named), spec)
        return keys

    def _spec(self, model: SourceModel, kernel: Kernel, inputs: str, read: Callable[[Kernel], LaunchSpec]) -> str:
        """All of a kernel's launch spec and its reference's text as one string, computed once for the same `inputs`."""
        known = self._specs.pop(inputs, None)
        if known is None:
            spec = read(kernel)
            known = repr(_without_lines(spec))
            if spec.reference is not None and spec.reference.via == "function":
                found = (function for function in model.functions if function.name == spec.reference.text)
                known += "".join(_words_of(model.text[function.start : function.end]) for function in found)
        self._specs[inputs] = known
        while len(self._specs) > SPECS_KEPT:
            self._specs.popitem(last=False)
        return known


def _without_lines(spec: LaunchSpec) -> LaunchSpec:
    """A spec without the lines at which its launches stand: lines above them come and go."""
    return attrs.evolve(
        spec,
        label="",
        cases=tuple(attrs.evolve(case, label="") for case in spec.cases),
        unknown=tuple(_LINE.sub("line", sentence) for sentence in spec.unknown),
    )


@lru_cache(maxsize=1024)
def _body_words(body: str) -> str:
    return _words_of(body)


def _words_of(text: str) -> str:
    return " ".join(text[token.start : token.end] for token in code(text))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
