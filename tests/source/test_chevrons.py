"""llvm/llvm-project#52881: a formatter tears `<<<` apart, and half a launch is selected. What is filled stays whole.

With `SpacesInAngles: Always` clang-format writes `foo< < < 1, 1 > > >();`, which no compiler takes. Our part is that a
selection which ends in a launch is widened to all of it or refused with a sentence, that nothing outside of it changes,
and that a launch in a directive, which no formatter reads as code, is read however it is spaced.
"""

import itertools

import pytest

from dice_lsp.records import Document, Region
from dice_lsp.source.directives import parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.source.selection import region

FILE = """__global__ void foo(int n) {}
__global__ void parent(int n) {
    if (threadIdx.x == 0) {
        foo%s(n);
    }
    __syncthreads();
}
int main() {
    foo%s(8);
}
"""
SPELLINGS = ["<<<1, 1>>>", "< < < 1, 1 > > >", "<<< 1, 1 >>>", "< <<1, 1>> >", "<\t<\t<1, {1, 2}>\t>\t>"]


def select(text: str, start: int, end: int) -> Region | str:
    return region(Document("file:///a.cu", 1, text), start, end)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_selection_around_a_launch_keeps_both_its_brackets(spelling: str) -> None:
    text = FILE % (spelling, spelling)
    begin = text.index("foo" + spelling)
    launch = begin + len("foo"), begin + len("foo" + spelling)
    places = range(begin - 2, begin + len(f"foo{spelling}(n);") + 2)
    inner = text[launch[0] : launch[1]].strip("<> \t")
    for start, end in itertools.combinations(places, 2):
        found = select(text, start, end)
        if isinstance(found, str):
            assert not found.endswith("."), found
            continue
        assert found.prefix + found.middle + found.suffix == text
        opening, closing = (sum(found.middle.count(mark) for mark in marks) for marks in ("<", ">"))
        assert (opening, closing) in ((0, 0), (3, 3)), (text[start:end], found.middle)
        if opening == 0 and launch[0] < found.end and found.start < launch[1]:
            assert found.middle in inner, "only what stands within the brackets"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_half_a_launch_of_host_code_is_refused(spelling: str) -> None:
    text = FILE % (spelling, spelling)
    begin = text.rindex("foo" + spelling)
    for end in range(begin + 4, begin + len("foo" + spelling)):
        found = select(text, begin + 3, end)
        assert found == "main is a host function: select lines inside a kernel's body"
    # A region that begins in a kernel and ends in that launch belongs to no one.
    found = select(text, text.index("__syncthreads"), begin + 6)
    assert isinstance(found, str) and "parent and main" in found


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_was_widened_can_be_replaced_without_leaving_half_a_launch(spelling: str) -> None:
    text = FILE % (spelling, spelling)
    begin = text.index("foo" + spelling)
    found = select(text, begin + 3, begin + 5)
    assert isinstance(found, Region) and found.middle == spelling
    after = found.prefix + "<<<2, 64>>>" + found.suffix
    sites = parse(after).launches
    assert [(site.name, site.grid, site.block, site.complete) for site in sites][0] == ("foo", "2", "64", True)
    assert len(sites) == 2 and after.count("<") == text.count("<")


@pytest.mark.parametrize("spelling", ["<<<n, 32>>>", "< < < n, 32 > > >", "<<< n , 32 >>>", "<\t<< n, 32>> >"])
def test_a_directive_is_read_however_its_launch_is_spaced(spelling: str) -> None:
    text = f"//dice: n = 4; launch {spelling}\n__global__ void foo(int n) {{}}\n"
    directive = parse_directives(text, parse(text).kernels[0])
    assert not directive.problems and directive.grid == ("n", "1", "1") and directive.block == ("32", "1", "1")
