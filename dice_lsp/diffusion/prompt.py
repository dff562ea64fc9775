"""From a masked kernel to the tokens of a prompt, and from a reply to the text of the region.

The layout belongs to the checkpoint. `psm` (our own: prefix, suffix, middle) is in `layout_psm`. `dice` follows the
infilling prompt that DICE was trained with: a task, a worked example, the architecture, what stands before and after
the gap, and the order to write the whole file. We begin the reply ourselves with all that stands before the region, and
stop where the text after it begins, so only the middle is ever sampled.
"""

import ast
import re
import string
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from attrs import frozen

from dice_lsp.diffusion import layout_psm
from dice_lsp.diffusion.checkpoint import CheckpointError, CheckpointInfo, Tokenizer
from dice_lsp.records import FillRequest

PSM_PROMPT_TOKENS = 448
"""The longest prompt that our own checkpoint saw in training."""

CONTEXT_CHARACTERS = 3000
"""How much of the file around the kernel a DICE prompt shows: its own training prompts had under 2000 tokens in all."""

PLACEHOLDERS = ("architecture", "prefix", "suffix")

DICE_TEMPLATE = '''\
Your task is to make PyTorch operators faster by writing CUDA kernels for them. You decide which operators get a kernel, \
whether several are fused into one, and which algorithm is used.

You get a reference implementation and an unfinished CUDA source: the part before a gap (prefix) and the part after it \
(suffix). Write the code that belongs into the gap. Keep the given kernel signature, launch configuration and names \
exactly as they are.

Here is a finished example. The architecture:
```
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return a + b
```
The CUDA kernel prefix:
```
import torch
from torch.utils.cpp_extension import load_inline

source = """
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
```
The CUDA kernel suffix:
```
}
"""
```
The complete file:
```python
import torch
from torch.utils.cpp_extension import load_inline

source = """
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = a[i] + b[i];
    }
}
"""
```

Now it is your turn. The architecture:
```
$architecture
```
The CUDA kernel prefix:
```
$prefix
```
The CUDA kernel suffix:
```
$suffix
```
Fill the gap so that the CUDA source is complete and correct. Answer with the whole file in one code block, and with \
nothing else: no explanation and no test code.
'''

SOURCE_HEAD = 'import torch\nfrom torch.utils.cpp_extension import load_inline\n\nsource = """\n'
SOURCE_TAIL = '\n"""\n'


class Layout(Protocol):
    """How one checkpoint is asked and how its reply is read."""

    def prompt(self, request: FillRequest, budget: int) -> list[int]:
        """Token ids, at most `budget`. Raises `CheckpointError` when the kernel alone is longer."""

    def middle(self, request: FillRequest, tokens: Sequence[int]) -> str:
        """The text for the region, laid out for its place; also for a reply that is still being written."""

    def reached_suffix(self, request: FillRequest) -> Callable[[list[int]], bool] | None:
        """A test whether the reply has come to the text after the region, or None when an end token says so."""

    def answer(self, request: FillRequest, middle: str) -> list[int]:
        """What a model that was trained well replies to the prompt of `request`, its first end token included."""

    @property
    def fill_id(self) -> int:
        """The token behind the end token, up to the end of the last block."""


@frozen
class PsmLayout:
    """The shipped checkpoint's layout: it ends a middle with a token of its own."""

    tokenizer: Tokenizer

    def prompt(self, request: FillRequest, budget: int) -> list[int]:
        inner = getattr(self.tokenizer, "inner", self.tokenizer)
        return layout_psm.encode(_with_newlines(request), inner, min(budget, PSM_PROMPT_TOKENS))

    def middle(self, request: FillRequest, tokens: Sequence[int]) -> str:
        text = layout_psm.decode_middle(self.tokenizer.decode(tokens), _with_newlines(request))
        return _document_line_ends(text, request)

    def reached_suffix(self, request: FillRequest) -> None:
        return None

    def answer(self, request: FillRequest, middle: str) -> list[int]:
        request = _with_newlines(request)
        words = layout_psm.middle_words(middle.replace("\r\n", "\n"), layout_psm.compose(request))
        return [*self.tokenizer.encode(layout_psm.spell(words)), self.fill_id]

    @property
    def fill_id(self) -> int:
        return _known(self.tokenizer, layout_psm.EOM)


@frozen
class DiceLayout:
    """The published infilling prompt's structure around a `.cu` file's kernel, which is shown as a Python file's source."""

    tokenizer: Tokenizer
    template: string.Template

    def prompt(self, request: FillRequest, budget: int) -> list[int]:
        request = _with_newlines(request)
        context = CONTEXT_CHARACTERS
        while True:
            tokens = self.tokenizer.encode(self._text(request, context))
            if len(tokens) <= budget:
                return tokens
            if context == 0:
                raise CheckpointError(
                    f"the kernel needs a prompt of {len(tokens)} tokens, but only {budget} fit: select a smaller kernel"
                )
            context = context // 2 if context > 200 else 0

    def _text(self, request: FillRequest, context: int) -> str:
        before = _tail_lines(request.file_prefix, context) + request.kernel_prefix
        after = request.kernel_suffix + _head_lines(request.file_suffix, context // 4)
        # The white space before the gap is left to the model: a prompt that ends in the middle of an indent splits a
        # token that it has only ever seen whole.
        head = (SOURCE_HEAD + before).rstrip()
        user = self.template.substitute(
            architecture=_harmless(architecture(request)),
            prefix=_harmless(head),
            suffix=_harmless((after + SOURCE_TAIL).strip("\n")),
        )
        return f"<|im_start|>user\n{user.rstrip()}<|im_end|>\n<|im_start|>assistant\n\n```python\n{_harmless(head)}"

    def middle(self, request: FillRequest, tokens: Sequence[int]) -> str:
        plain = _with_newlines(request)
        reply = _unwrapped(self.tokenizer.decode(tokens))
        cut = suffix_start(reply, _suffix(plain))
        return _document_line_ends(lay_out(reply if cut is None else reply[:cut], plain), request)

    def reached_suffix(self, request: FillRequest) -> Callable[[list[int]], bool]:
        suffix = _suffix(_with_newlines(request))

        def reached(tokens: list[int]) -> bool:
            return suffix_start(_unwrapped(self.tokenizer.decode(tokens)), suffix) is not None

        return reached

    def answer(self, request: FillRequest, middle: str) -> list[int]:
        """The file from the region on, and the end of the code block, as the published responses are.

        The prompt ends without the white space before the region, so the reply begins with it.
        """
        request = _with_newlines(request)
        before = _tail_lines(request.file_prefix, CONTEXT_CHARACTERS) + request.kernel_prefix
        after = request.kernel_suffix + _head_lines(request.file_suffix, CONTEXT_CHARACTERS // 4)
        space = before[len(before.rstrip()) :]
        text = (space + middle.replace("\r\n", "\n") + after).rstrip() + SOURCE_TAIL + "```"
        return [*self.tokenizer.encode(_harmless(text)), _known(self.tokenizer, "<|im_end|>")]

    def conversation(self, prompt: str, response: str) -> tuple[list[int], list[int]]:
        """Prompt and reply of a whole exchange, as the published records hold them."""
        asked = f"<|im_start|>user\n{_harmless(prompt).rstrip()}<|im_end|>\n<|im_start|>assistant\n\n"
        reply = self.tokenizer.encode(_harmless(response).strip())
        return self.tokenizer.encode(asked), [*reply, _known(self.tokenizer, "<|im_end|>")]

    @property
    def fill_id(self) -> int:
        return _known(self.tokenizer, "<|endoftext|>")


def _known(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.id(token)
    if found is None:
        raise CheckpointError(f"the tokenizer has no {token}, which its layout needs: take the checkpoint's own")
    return found


def layout_for(info: CheckpointInfo, tokenizer: Tokenizer, template_file: str | None = None) -> Layout:
    """The layout that a checkpoint was trained with. `template_file` replaces the user turn of a DICE prompt.

    The file is a `string.Template`: `$architecture`, `$prefix` and `$suffix` stand for the reference, the text before
    and the text after the region; `$$` is a dollar sign. Raises `CheckpointError` for a file that cannot be used.
    """
    if info.layout == "psm":
        return PsmLayout(tokenizer)
    return DiceLayout(tokenizer, read_template(template_file) if template_file else string.Template(DICE_TEMPLATE))


def read_template(file: str) -> string.Template:
    """A prompt template of the user. Raises `CheckpointError` saying what is wrong with it."""
    try:
        template = string.Template(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"the prompt template {file} cannot be read: {error}") from error
    try:
        template.substitute(dict.fromkeys(PLACEHOLDERS, ""))
    except KeyError as error:
        raise CheckpointError(
            f"the prompt template {file} has the unknown placeholder ${error.args[0]}: "
            "$architecture, $prefix and $suffix are known"
        ) from error
    except ValueError as error:
        raise CheckpointError(
            f"the prompt template {file} has a $ that begins no placeholder: write $$ for a dollar sign"
        ) from error
    named = {match["named"] or match["braced"] for match in template.pattern.finditer(template.template)}
    if "prefix" not in named:
        raise CheckpointError(f"the prompt template {file} has no $prefix: the model would not see the kernel")
    return template


def architecture(request: FillRequest) -> str:
    """What the kernel must compute, in the best form at hand: a torch module, the CPU reference, or the present kernel."""
    if request.torch_expression:
        return _torch_module(request.torch_expression)
    if request.reference_text:
        return textwrap.dedent(request.reference_text).strip()
    if request.middle.strip():
        return textwrap.dedent(request.kernel_prefix + request.middle + request.kernel_suffix).strip()
    return "# There is no reference: the kernel's name, parameters and comments say what it computes."


def suffix_start(reply: str, suffix: str) -> int | None:
    """Where the reply has come to the text after the region, or None when it has not.

    That is the first bracket that closes more than the reply opened; the end of the code block; or the suffix itself:
    its first line where the region ends inside a line, else a first line that says something at the start of a line, or
    its first two lines. Brackets in strings and comments do not count.
    """
    ends = [match.start() for match in re.finditer(r'```|"""', reply)][:1]
    lines = [line.strip() for line in suffix.splitlines() if line.strip()]
    inside_line = bool(lines) and "\n" not in suffix[: len(suffix) - len(suffix.lstrip())]
    code = _without_text(reply)
    depths, depth = [], 0
    for at, character in enumerate(code):
        depths.append(depth)
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth < 0:
                ends.append(at)
                break
    # A closing bracket at the suffix's head was found by counting, which a bracket of the reply's own cannot deceive.
    if lines and lines[0][0] not in ")]}":
        found: Iterator[re.Match[str]] = iter(())
        if inside_line:
            found = re.finditer(re.escape(lines[0]), reply)
        elif len(lines) > 1 or _telling(lines[0]):
            wanted = lines[:1] if _telling(lines[0]) else lines[:2]
            found = re.finditer(r"^[ \t]*" + r"[ \t]*\n\s*".join(map(re.escape, wanted)), reply, re.MULTILINE)
        places = (match.start() for match in found)
        # Inside a block of the reply the same words are the reply's own.
        first = next((at for at in places if at < len(depths) and depths[at] == 0 and code[:at].strip()), None)
        ends += [] if first is None else [first]
    return min(ends, default=None)


def _telling(line: str) -> bool:
    """Whether a line alone is unlike what a fill would hold by chance."""
    return len(line) >= 12 and re.search(r"\w{3}", line) is not None


def lay_out(reply: str, request: FillRequest) -> str:
    """The reply with the region's own white space around it and its indent before each line."""
    body = reply.rstrip()
    starts_on_new_line = "\n" in body[: len(body) - len(body.lstrip())]
    first, *rest = body.lstrip("\n").split("\n") if starts_on_new_line else body.lstrip().split("\n")
    if starts_on_new_line:
        first, *rest = textwrap.dedent("\n".join([first, *rest])).split("\n")
    else:
        rest = textwrap.dedent("\n".join(rest)).split("\n") if rest else []
    if not any(line.strip() for line in (first, *rest)):
        return ""
    middle = request.middle
    last_line = request.kernel_prefix.rsplit("\n", 1)[-1]
    before_indent = last_line[: len(last_line) - len(last_line.lstrip())]
    base = request.indent
    if middle.strip():
        lead = middle[: len(middle) - len(middle.lstrip())]
        tail = middle[len(middle.rstrip()) :]
        if "\n" in lead:
            base = lead.rsplit("\n", 1)[1]
    elif last_line.rstrip().endswith("{") and not request.kernel_suffix.startswith("\n"):
        base = request.indent or before_indent + "    "
        lead, tail = "\n" + base, "\n" + before_indent
    elif last_line.rstrip().endswith("{"):
        base = request.indent or before_indent + "    "
        lead, tail = "\n" + base, ""
    else:
        lead = tail = ""
        if not last_line.strip():
            base = last_line
    lines = [first.lstrip(), *(base + line if line.strip() else "" for line in rest)]
    return lead + "\n".join(line.rstrip() for line in lines) + tail


def _torch_module(expression: str) -> str:
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError:
        return f"# {expression}"
    names = sorted(
        {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        - {"torch", "F", "nn", "math", "True", "False"}
    )
    return (
        "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n"
        f"    def forward({', '.join(['self', *names])}):\n        return {expression.strip()}"
    )


def _unwrapped(reply: str) -> str:
    """The reply without what may stand before the code all the same: a think block, or a fence opened a second time."""
    reply = reply.replace("\r\n", "\n")
    thought = re.match(r"\s*<think>.*?</think>", reply, re.DOTALL)
    if thought is not None:
        reply = reply[thought.end() :]
    fence = re.match(r"\s*```(?:python|cpp|cuda|c\+\+|c)?[ \t]*\n", reply)
    return reply[fence.end() :] if fence is not None else reply


def _without_text(code: str) -> str:
    """The code with comments and literals blanked, the same length."""
    pattern = r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])'"
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match.group()), code, flags=re.DOTALL)


def _harmless(text: str) -> str:
    """A document must not be able to close the user's turn: names of control tokens are taken apart."""
    return text.replace("<|", "< |")


def _suffix(request: FillRequest) -> str:
    """The text after the region, with the line break before it that is part of the region's end."""
    before = (request.kernel_prefix + request.middle).rsplit("\n", 1)[-1]
    return request.kernel_suffix if before.strip() else "\n" + request.kernel_suffix


def _tail_lines(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    kept = text[len(text) - limit :]
    return kept.partition("\n")[2]


def _head_lines(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return text[:limit].rpartition("\n")[0]


def _with_newlines(request: FillRequest) -> FillRequest:
    """The request with `\\n` at every line's end: what the models saw in training."""
    import attrs

    changes = {
        name: value.replace("\r\n", "\n")
        for name in ("kernel_prefix", "kernel_suffix", "file_prefix", "file_suffix", "middle", "reference_text")
        if (value := getattr(request, name)) and "\r\n" in value
    }
    return attrs.evolve(request, **changes) if changes else request


def _document_line_ends(text: str, request: FillRequest) -> str:
    whole = request.file_prefix + request.kernel_prefix + request.middle + request.kernel_suffix
    crlf = whole.count("\r\n") * 2 > whole.count("\n")
    return text.replace("\n", "\r\n") if crlf else text
