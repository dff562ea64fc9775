"""What a whole Python file that should hold a kernel must not do, read from its syntax before it is run.

The classes of cheating are those of KernelBench's static checker (its EVAL.md and kernel_static_checker.py): falling back
to the reference, patching the clock, other threads, tensors that compute later, no kernel at all. Reading syntax is no
proof: a file that passes here is still run confined, and figures that are too good are marked.
"""

import ast
from collections.abc import Iterator

from attrs import frozen

_MODULES = {
    "threading": "other threads", "multiprocessing": "other processes", "concurrent": "other threads",
    "asyncio": "other tasks", "subprocess": "other programs", "socket": "the network", "ctypes": "foreign memory",
    "inspect": "the harness's frames", "gc": "the harness's objects", "importlib": "modules by name", "pickle": "pickles",
    "signal": "signals", "builtins": "the builtins", "unittest": "patches", "sys": "the interpreter",
}  # fmt: skip
_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "globals",
    "locals",
    "vars",
    "setattr",
    "delattr",
    "open",
    "breakpoint",
}
_LAZY = {"__torch_function__", "__torch_dispatch__", "_make_subclass", "_make_wrapper_subclass"}
_CLOCKS = {"Event", "elapsed_time", "synchronize", "perf_counter", "time_ns", "monotonic"}
_STREAMS = ("cudaStreamCreate", "cudaStreamNonBlocking", "getStreamFromPool", "cuda.Stream", "StreamContext")
_COMPUTING = {
    "matmul", "mm", "bmm", "einsum", "addmm", "conv1d", "conv2d", "conv3d", "softmax", "log_softmax", "relu", "gelu",
    "sigmoid", "tanh", "layer_norm", "batch_norm", "group_norm", "linear", "cross_entropy", "max_pool2d", "avg_pool2d",
    "logsumexp", "cumsum", "sum", "mean", "scaled_dot_product_attention",
}  # fmt: skip


@frozen
class Screened:
    """What a file's syntax says. `refused` is the reason why it is not run, `remarks` what a reader should know."""

    refused: str | None
    remarks: tuple[str, ...] = ()


def screen_file(source: str) -> Screened:
    """Whether a file may be run as an answer to a problem."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return Screened(f"it is no Python: {error}")
    reason = next(_faults(tree), None)
    if reason is None:
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
        }
        if not any("__global__" in text for text in texts):
            reason = "it holds no kernel"
        elif "load_inline" not in names and "load" not in names:
            reason = "it compiles no kernel"
        elif any(word in text for text in texts for word in _STREAMS):
            reason = "it makes a stream of its own, whose work no clock sees"
    return Screened(reason, tuple(sorted(set(_remarks(tree)))))


def computes(remark: str) -> bool:
    """Whether a remark says that torch computes a part of the answer."""
    return remark.startswith(("computes with", "uses the layer"))


def _faults(tree: ast.Module) -> Iterator[str]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if not any(node.name == "ModelNew" for node in classes):
        yield "it defines no class ModelNew"
    for defined in classes:
        bases = {ast.unparse(base) for base in defined.bases}
        if bases & {"Model", "torch.Tensor", "Tensor"}:
            yield f"the class {defined.name} inherits from {sorted(bases)[0]}"
    for node in ast.walk(tree):
        where = f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, (ast.Try, ast.TryStar)):
            yield f"{where} has a try, which may fall back to the reference"
        elif isinstance(node, ast.Pass):
            yield f"{where} has a pass, a body that does nothing"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for module in modules:
                if (root := module.partition(".")[0]) in _MODULES:
                    yield f"{where} imports {root}: {_MODULES[root]}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            yield f"{where} calls {node.func.id}"
        elif isinstance(node, ast.Attribute):
            if node.attr in _LAZY:
                yield f"{where} uses {node.attr}, a tensor that computes later"
            elif node.attr.startswith("__") and node.attr.endswith("__") and node.attr not in ("__init__", "__name__"):
                yield f"{where} reaches for {node.attr}"
            elif node.attr in ("Stream", "ExternalStream"):
                yield f"{where} makes a stream of its own, whose work no clock sees"
        elif isinstance(node, ast.FunctionDef) and node.name in _LAZY:
            yield f"{where} defines {node.name}, a tensor that computes later"
        for target in _targets(node):
            if isinstance(target, ast.Attribute) and (_root(target) != "self" or target.attr in _CLOCKS):
                yield f"{where} changes {ast.unparse(target)}"


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [leaf for target in node.targets for leaf in _leaves(target)]
    return [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []


def _leaves(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [leaf for item in target.elts for leaf in _leaves(item)]
    return [target]


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _remarks(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, root = node.func.attr, _root(node.func)
            if root in ("torch", "F") and name in _COMPUTING:
                yield f"computes with {root}'s {name}"
            elif root == "nn" and name[:1].isupper() and name not in ("Parameter", "ModuleList", "ParameterList"):
                yield f"uses the layer nn.{name}"
