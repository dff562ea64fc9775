"""Regions cut out of kernels, and the layout that training and inference share."""

import random
import re

import pytest
from tokenizers import Tokenizer

from dice_lsp.diffusion import layout_psm
from dice_lsp.diffusion.layout_psm import (
    MID,
    PRE,
    SUF,
    compose,
    decode_middle,
    encode,
    middle_words,
    spell,
    vocabulary,
    with_braces,
    words_of,
)
from dice_lsp.diffusion.registry import shipped_path
from dice_lsp.pipeline import fill_request
from dice_lsp.records import Document, FillRequest
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.selection import body_region
from dice_lsp.training.examples import choose_span, directive, kernel_text, make_example, reference_text
from dice_lsp.training.real_code import allowed, functions_of, real_example
from dice_lsp.training.tasks import make_task


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(shipped_path() / "tokenizer.json"))


def request(prefix: str, suffix: str, **fields: str | None) -> FillRequest:
    values: dict[str, str | None] = {
        "file_prefix": "", "file_suffix": "", "reference_text": None, "torch_expression": None, "middle": "\n", "indent": "",
    } | fields  # fmt: skip
    return FillRequest(kernel_prefix=prefix, kernel_suffix=suffix, candidates=1, **values)  # type: ignore[arg-type]


SAXPY = "__global__ void saxpy(int n, float alpha, const float* xs, float* ys) {"


def test_spans_cut_the_text_and_nothing_else() -> None:
    kinds = set()
    for seed in range(600):
        text = kernel_text(make_task(seed))
        start, end, kind = choose_span(text, text.index("{\n") + 1, text.rindex("}"), random.Random(seed))
        prefix, middle, suffix = text[:start], text[start:end], text[end:]
        assert prefix + middle + suffix == text and middle.strip()
        kinds.add(kind)
        if kind == "body":
            assert middle.startswith("\n") and middle.endswith("\n") and prefix.endswith("{") and suffix == "}"
        elif kind in ("lines", "rhs", "tail"):
            assert middle == middle.strip()
        if kind in ("body", "block", "lines", "rhs"):
            assert middle.count("{") == middle.count("}") and middle.count("(") == middle.count(")")
    assert kinds == {"body", "block", "lines", "tail", "rhs", "tokens"}


def test_a_fill_comes_back_with_the_documents_names() -> None:
    compared = 0
    for seed in range(300):
        example = make_example(seed)
        prompt = example.prompt
        words = example.words(prompt)
        # A name that the prompt lacks cannot come back; and a local that was renamed is another name from then on.
        renamed = any(shown != name for name, shown in prompt.names.backward.items() if shown.endswith("_"))
        if renamed or any(
            re.match(r"[VK]\d", word) and not prompt.names.backward.get(word.rstrip("f")) for word in words
        ):
            continue
        assert middle_words(decode_middle(spell(words), example.request), prompt) == words
        compared += 1
    assert compared > 150


def test_training_composes_what_a_server_would(tokenizer: Tokenizer) -> None:
    """A task written out as a file and read back through the source model gives the prompt that training made."""
    compared = 0
    for seed in range(120):
        task = make_task(seed)
        if task.template or task.declarations:
            continue
        above = directive(task, random.Random(seed), True, True, f"ref {task.name}_cpu")
        kernel = kernel_text(task)
        reference = reference_text(task)
        text = f"{reference}\n\n{above}{kernel}\n"
        model = parse(text)
        found = model.kernels[0]
        document = Document("file:///t.cu", 0, text[: found.body_start] + "\n" + text[found.body_end :])
        region = body_region(document, parse(document.text).kernels[0])
        assert not isinstance(region, str)
        model = parse(document.text)
        spec = launch_spec(document.text, model.kernels[0], model)
        served = fill_request(region, model, spec, 1, 0)
        at = kernel.index("{\n") + 1
        trained = request(above + kernel[:at], "}", reference_text=reference, middle="")
        assert compose(served).text == compose(trained).text
        assert encode(served, tokenizer, 448) == tokenizer.encode(compose(trained).text).ids
        compared += 1
    assert compared > 80


def test_the_vocabulary_is_one_token_a_word(tokenizer: Tokenizer) -> None:
    for word in vocabulary():
        assert len(tokenizer.encode(spell([word])).ids) == 1, word
    prompt = compose(
        request(SAXPY, "}", reference_text="void f(int n, float a, const float* x, float* y) { y[0] = a; }")
    )
    ids = tokenizer.encode(prompt.text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == prompt.text
    assert [ids.index(tokenizer.token_to_id(special)) for special in (PRE, SUF, MID)] == sorted(
        ids.index(tokenizer.token_to_id(special)) for special in (PRE, SUF, MID)
    )


def test_the_reference_takes_the_kernels_names() -> None:
    reference = "static void ref(int count, float a, const float *x, float *y) { for (int q = 0; q < count; ++q) y[q] = a*x[q] + y[q]; }"
    same = "void ref(int n, float alpha, const float* xs, float* ys) { for (int i = 0; i < n; i++) { ys[i] = alpha * xs[i] + ys[i]; } }"
    assert (
        compose(request(SAXPY, "}", reference_text=reference)).text
        == compose(request(SAXPY, "}", reference_text=same)).text
    )


def test_long_prompts_keep_reference_directive_and_head(tokenizer: Tokenizer) -> None:
    filler = "".join(f"    float t{at} = xs[{at}] * alpha;\n" for at in range(200))
    long = request(
        f"//dice: in xs[n]; io ys[n]; launch <<<cdiv(n, 256), 256>>>\n{SAXPY}\n{filler}    ",
        f"\n{filler}}}",
        reference_text="void f(int n, float a, const float* x, float* y) { for (int i = 0; i < n; i++) y[i] = a * x[i]; }",
        middle="",
    )
    ids = encode(long, tokenizer, 448)
    assert len(ids) <= 448
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert " ref {" in text and " launch <<<" in text and " __global__ void saxpy (" in text and text.endswith(MID)
    assert encode(long, tokenizer, 448) == ids


@pytest.mark.parametrize("limit", [40, 64, 100])
def test_small_budgets_hold(tokenizer: Tokenizer, limit: int) -> None:
    for seed in range(40):
        assert len(encode(make_example(seed).request, tokenizer, limit)) <= limit


def test_a_body_is_laid_out_like_its_document() -> None:
    words = words_of("int i = 0; if (i < n) { ys[i] = -alpha; } else { return; }")
    spaced = decode_middle(spell(middle_words(" ".join(words), compose(request(SAXPY, "}")))), request(SAXPY, "}"))
    assert (
        spaced == "\n    int i = 0;\n    if (i < n) {\n        ys[i] = -alpha;\n    } else {\n        return;\n    }\n"
    )
    tabs = request("\t" + SAXPY, "\t}", middle="\n", file_prefix="void f() {\n\tg();\n}\n")
    assert decode_middle(" return ;", tabs) == "\n\t\treturn;\n\t"
    inside = request(SAXPY + "\n  int i = threadIdx.x;\n  ", "\n}", middle="ys[i] = 0;", indent="  ")
    assert decode_middle(" ys [ i ] = 1.0f ; xs ++ ;", inside) == "ys[i] = 1.0f;\n  xs++;"
    windows = request("// a\r\n" + SAXPY, "}", middle="\r\n    return;\r\n")
    assert decode_middle(" xs ++ ; ys ++ ;", windows) == "\r\n    xs++;\r\n    ys++;\r\n"
    right = request(SAXPY + "\n  ys[0] = ", ";\n}", middle="0.0f")
    assert decode_middle(" ( float ) n / ( n - 1 )<eom> junk", right) == "(float)n / (n - 1)"


def test_partial_replies_can_be_shown() -> None:
    whole = " int i = 0 ; for ( int k = 0 ; k < n ; k ++ ) { ys [ k ] += ( i"
    for length in range(len(whole)):
        decode_middle(whole[:length], request(SAXPY, "}"))


@pytest.mark.parametrize(
    ("code", "braced"),
    [
        ("if (a) x = 1; else y = 2;", "if ( a ) { x = 1 ; } else { y = 2 ; }"),
        ("for (;;) for (;;) if (a) return; b;", "for ( ; ; ) { for ( ; ; ) { if ( a ) return ; } } b ;"),
        ("if (a) x; else if (b) y; else z;", "if ( a ) { x ; } else if ( b ) { y ; } else { z ; }"),
        ("x; } } y;", "x ; } } y ;"),
        ("x + ", "x +"),
        ("if (a) x = ", "if ( a ) x ="),
        ("} if (", "} if ("),
    ],
)
def test_braces_are_added_and_fragments_survive(code: str, braced: str) -> None:
    assert " ".join(with_braces(words_of(code))) == braced


def test_any_text_can_be_composed() -> None:
    rng = random.Random(5)
    pieces = [
        "{",
        "}",
        "(",
        ")",
        "if",
        "else",
        "for",
        ";",
        "x",
        "//dice: in x[",
        "\n",
        "/*",
        "__global__",
        "<<<",
        "1.5f",
        "'a",
        '"',
        "\udc80",
        "template",
    ]
    for _ in range(400):
        text = " ".join(rng.choice(pieces) for _ in range(rng.randrange(30)))
        other = " ".join(rng.choice(pieces) for _ in range(rng.randrange(30)))
        broken = request(text, other, reference_text=other, file_prefix=text, file_suffix=other)
        compose(broken)
        decode_middle(" " + text.replace("\udc80", ""), broken)


def test_locals_of_a_reference_do_not_collide_with_the_kernels_own() -> None:
    reference = (
        "void f(int n, float a, const float* x, float* y) {"
        " for (int i = 0; i < n; i++) { const float* row = x + i; y[i] = row[0]; } }"
    )
    prompt = compose(request(SAXPY, "}", reference_text=reference))
    assert "row_" in prompt.names.backward.values() and "row" not in prompt.names.backward.values()


REDUCE = """__global__ void reduce(const float* x, float* out, int n) {
    __shared__ float cache[256];
    float total = 0.0f;
    """


def test_part_of_a_kernel_keeps_the_names_around_it() -> None:
    """The model's own names for a shared array, the thread and an accumulator become those of the text around."""
    inside = request(REDUCE, "\n    out[blockIdx.x] = cache[0];\n}", middle="total += 1;", indent="    ")
    assert decode_middle(" smem [ tid ] = total ;", inside) == "cache[threadIdx.x] = total;"
    assert decode_middle(" int tid = threadIdx . x ; smem [ tid ] = 0.0f ;", inside) == (
        "int tid = threadIdx.x;\n    cache[tid] = 0.0f;"
    )
    reference = (
        "void f(int n, float a, const float* x, float* y) {"
        " float sum = 0.0f; for (int i = 0; i < n; i++) sum += x[i]; y[0] = sum; }"
    )
    prompt = compose(request(SAXPY, "ys[0] = acc;\n}", reference_text=reference, middle=""))
    assert "acc" in prompt.names.backward.values() and "sum" not in prompt.names.backward.values()


def test_real_code_needs_a_permissive_header() -> None:
    kernel = (
        "__global__ void k(float* x, int n) {\n  // note\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) { x[i] = x[i] * 2.0f + 1.0f; }\n}\n"
    )
    assert allowed(kernel) and allowed("// Copyright (c) A. Licensed under the MIT license\n" + kernel)
    assert not allowed("// Copyright (c) A. All rights reserved.\n" + kernel)
    assert not allowed("/* GNU General Public License */\n" + kernel)
    (function,) = functions_of(kernel)
    assert "note" not in function
    example = real_example(function, random.Random(1))
    assert example is not None and example.words(example.prompt)


def test_every_placeholder_is_used_about_as_often() -> None:
    counts = dict.fromkeys((f"V{at}" for at in range(layout_psm.NAME_PLACEHOLDERS)), 0)
    for seed in range(400):
        for name in make_example(seed).prompt.names.backward:
            if name in counts:
                counts[name] += 1
    assert min(counts.values()) * 3 > max(counts.values())
