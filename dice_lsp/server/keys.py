"""One key per kernel of everything in a text that decides its evidence: when it differs, what was measured is stale.

The key covers the device code, the launch spec and the CPU reference, and the settings and headers by the context that
is passed in. White space, comments and host code that is none of these do not change it.
"""

import hashlib
import re
from collections.abc import Mapping

from dice_lsp.config import Settings
from dice_lsp.records import LaunchSpec
from dice_lsp.source.kernels import SourceModel
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.slice import blank, device_slice
from dice_lsp.source.tokens import without_comments

LONG_TEXT = 1_000_000
"""Characters above which a text is not sliced: all of it outside kernels counts as device code then."""
_WORD = re.compile(r"[A-Za-z_]\w*")


def settings_context(settings: Settings) -> str:
    """The settings that change what a check would find."""
    deciding = ("backend", "device", "arch", "compile_flags", "nvcc", "cxx", "seed", "verify", "benchmark")
    return repr([getattr(settings, name) for name in deciding])


def kernel_keys(model: SourceModel, context: str) -> Mapping[str, str]:
    """Kernel name -> key. Linear in the text, so it runs beside the loop."""
    text, kernels = model.text, model.kernels
    if not kernels:
        return {}
    code = text if len(text) > LONG_TEXT else device_slice(text).text
    bodies = {kernel.name: _words_of(text[kernel.start : kernel.end]) for kernel in kernels}
    outside = _words_of(blank(code, [(kernel.start, kernel.end) for kernel in kernels]))
    shared = hashlib.sha256(f"{context}\0{outside}".encode("utf-8", "replace")).hexdigest()
    references = {function.name: text[function.start : function.end] for function in model.functions}
    keys = {}
    for kernel in kernels:
        spec = launch_spec(text, kernel, model)
        # A kernel that names another one may launch it, so that one's text counts too.
        named = sorted((set(_WORD.findall(bodies[kernel.name])) & bodies.keys()) - {kernel.name})
        parts = [shared, bodies[kernel.name], *(bodies[name] for name in named), *_spec_parts(spec, references)]
        keys[kernel.name] = hashlib.sha256(
            "\0".join([kernel.qualified_name, *parts]).encode("utf-8", "replace")
        ).hexdigest()
    return keys


def _spec_parts(spec: LaunchSpec, references: Mapping[str, str]) -> list[str]:
    parts = [repr(spec)]
    if spec.reference is not None and spec.reference.via == "function":
        parts.append(_words_of(references.get(spec.reference.text, "")))
    return parts


def _words_of(text: str) -> str:
    return " ".join(without_comments(text).split())
