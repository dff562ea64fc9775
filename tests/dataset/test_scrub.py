"""What identifies people or opens doors does not get into a record, and ordinary code is left alone."""

import random
import string
from pathlib import Path

import pytest

from dice_lsp.dataset.scrub import MAX_CHARACTERS, scrubbed, scrubbed_prose
from tests.dataset.making import made, record

ROOT = Path(__file__).parents[2]
LETTERS = string.ascii_letters + string.digits


def token(length: int, letters: str = LETTERS) -> str:
    """Made here, so that no scanner takes this file for one that holds secrets."""
    rng = random.Random(length)
    return "aB3dE5" + "".join(rng.choice(letters) for _ in range(length - 6))


SECRETS = {
    "AWS": "AKIA" + "Q3EGRK2WLP7TZX5M",
    "GitHub": "ghp_" + token(36),
    "fine-grained GitHub": "github_pat_" + token(60),
    "GitLab": "glpat-" + token(20),
    "Hugging Face": "hf_" + token(34),
    "Slack": "xoxb-" + "123456789012-" + token(24),
    "Google": "AIza" + token(35),
    "an API": "sk-" + "proj-" + token(40),
    "PyPI": "pypi-" + token(60),
    "npm": "npm_" + token(36),
    "NGC": "nvapi-" + token(64),
    "a JWT": "eyJ" + token(30) + ".eyJ" + token(40) + "." + token(40),
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "an address": "https://bob:" + "hunter22@example.com/data",
    "a password": "password = " + "hunter22x",
    "a quoted password": "api_key: '" + "zz81kkq0aa'",
    "an unknown key": token(40),
    "a hexadecimal key": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c",
}


@pytest.mark.parametrize("what", SECRETS)
@pytest.mark.parametrize(
    "shape",
    [
        "// {}\nint x;",
        '#define KEY "{}"\n',
        "#define N 4 // {}\n",
        "/* a\n {} */ int x;",
        'int f() {{ return g("{}"); }}',
    ],
)
def test_a_secret_makes_a_text_refused(what: str, shape: str) -> None:
    text = shape.format(SECRETS[what])
    refused = scrubbed(("int before;\n", text, ""))
    assert isinstance(refused, str) and "line " in refused
    assert SECRETS[what] not in refused, "the reason is shown and logged"


@pytest.mark.parametrize(
    "what", [name for name in SECRETS if name not in ("a password", "an unknown key", "a hexadecimal key")]
)
def test_a_secret_in_a_prompt_makes_it_refused(what: str) -> None:
    assert isinstance(scrubbed_prose(("Write a kernel.", SECRETS[what])), str)


def test_a_secret_in_code_that_is_split_over_the_pieces_is_seen() -> None:
    secret = SECRETS["GitHub"]
    assert isinstance(scrubbed((f"// {secret[:10]}", secret[10:], "\n")), str)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("// ask jane.doe@example.co.uk", "// ask <email>"),
        ("// author: Jane Doe <jane@example.com>", "// author: <name> <<email>>"),
        ("/* @author Jane Doe\n * more */", "/* @author <name>\n * more */"),
        ("// see /home/jane/src/a.cu:12", "// see /home/user/src/a.cu:12"),
        ("// see /Users/jane/a", "// see /Users/user/a"),
        (r"// C:\Users\jane\a", r"// C:\Users\user\a"),
        ("#define N 4 // jane@example.com", "#define N 4 // <email>"),
        ('#define F "/home/jane/x.bin"', '#define F "/home/user/x.bin"'),
        ('auto f = "/home/jane/x.bin";', 'auto f = "/home/user/x.bin";'),
    ],
)  # fmt: skip
def test_people_are_taken_out_of_comments_and_strings(before: str, after: str) -> None:
    assert scrubbed((before, "\nint x;", "")) == (after, "\nint x;", "")
    assert scrubbed(("int x;\n", before, "\n")) == ("int x;\n", after, "\n")


@pytest.mark.parametrize(
    "text",
    [
        "int token = tokens[i]; // token: index of the token in its row",
        "// written by one thread, authors of warps",
        "float a = 3.14159265358979323846f; unsigned long long k = 0x9f86d081884c7d659a2feaa0c55ad015ull;",
        "// from commit 9f86d081884c7d659a2feaa0c55ad0159f86d081",
        "using T = SM80_16x8x16_F32BF16BF16F32_TN; // SM80_16x8x16_F32BF16BF16F32_TN",
        "// cudaMemcpyDeviceToHostAsyncWithStream2 and aVeryLongNameOfAFunctionThatSaysAll",
        "// ----------------------------------------------------------------",
        "// https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#warp-shuffle-functions",
        "// secret = the key idea; password is needed",
        "// 00000000000000000000000000000000 and 11111111111111111111111111111111",
        "#include <cuda_runtime.h>\n#include \"home/a.h\"",
        "x@y; // a @ b",
    ],
)  # fmt: skip
def test_ordinary_code_stays_as_it_is(text: str) -> None:
    assert scrubbed((text, "\n", "")) == (text, "\n", "")


def test_the_kernels_of_this_repository_stay_as_they_are() -> None:
    files = sorted((ROOT / "tests").rglob("*.cu"))
    assert len(files) > 150
    for path in files:
        text = path.read_text()
        if len(text) <= MAX_CHARACTERS:
            assert scrubbed((text,)) == (text,), path


def test_a_home_folder_in_an_include_cannot_be_replaced() -> None:
    for line in ('#include "/home/jane/a.cuh"', "#  include </home/jane/a.cuh> // a"):
        refused = scrubbed((f"int x;\n{line}\n",))
        assert isinstance(refused, str) and "home folder in line 2" in refused
    assert scrubbed(('#include "a.cuh" // of /home/jane\n',)) == ('#include "a.cuh" // of /home/user\n',)


def test_a_name_across_the_edge_of_a_fill_is_refused() -> None:
    refused = scrubbed(("// jane@exam", "ple.com\n", ""))
    assert isinstance(refused, str) and "edge" in refused


def test_a_very_long_file_is_refused() -> None:
    assert isinstance(scrubbed(("x" * MAX_CHARACTERS, "y")), str)


def test_a_record_is_scrubbed_in_every_part() -> None:
    clean = record(top="// jane@example.com\n", rival="\n    // bob@example.com\n    y[0] = 0;\n")
    assert "@" not in clean.prefix + clean.rival and clean.prefix.startswith("// <email>\n")
    body = f"\n    // {SECRETS['Hugging Face']}\n"
    for refused in (made(body), made(rival=body), made(top=body)):
        assert isinstance(refused, str) and "holds a token of Hugging Face" in refused
