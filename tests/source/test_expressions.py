"""C integer expressions, compared with what C says; bad ones name their bad part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp.source.expressions import ExpressionError, canonical_type, evaluate, names_in

NAMES = {"n": 1000, "m": 7, "BLOCK": 256, "zero": 0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("1 - 2 - 3", -4),
        ("100 / 10 / 5", 2),
        ("2 + 3 << 1", 10),
        ("1 | 2 ^ 3 & 2", 1),
        ("5 & 3 == 3", 1),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 / -2", -3),
        ("7 % -3", 1),
        ("~0", -1),
        ("!5", 0),
        ("!zero", 1),
        ("- -3", 3),
        ("+n", 1000),
        ("0x10", 16),
        ("0X1F", 31),
        ("017", 15),
        ("0b101", 5),
        ("10u", 10),
        ("10UL", 10),
        ("10ull", 10),
        ("10LLU", 10),
        ("1'000'000", 1000000),
        ("64K", 65536),
        ("16M", 16 << 20),
        ("1G", 1 << 30),
        ("2k", 2048),
        ("cdiv(n, 256)", 4),
        ("cdiv(-1, 2)", 0),
        ("min(n, 3)", 3),
        ("max(n, 3, 2000)", 2000),
        ("std::min(n, m)", 7),
        ("std::max<int>(n, m)", 1000),
        ("(n + BLOCK - 1) / BLOCK", 4),
        ("n > 5 ? 1 : 2", 1),
        ("n < 5 ? 1 / zero : 2", 2),
        ("0 && 1 / 0", 0),
        ("1 || 1 / 0", 1),
        ("1 ? 2 : 3 ? 4 : 5", 2),
        ("0 ? 2 : 0 ? 4 : 5", 5),
        ("n && m", 1),
        ("zero || zero", 0),
        ("sizeof(float)", 4),
        ("n * sizeof(double)", 8000),
        ("sizeof(unsigned char)", 1),
        ("sizeof(float4)", 16),
        ("sizeof(float *)", 8),
        ("sizeof(long long int)", 8),
        ("(int)n / 3", 333),
        ("(size_t)n * 4", 4000),
        ("(unsigned long)(n + 1)", 1001),
        ("static_cast<int>(n) / 3", 333),
        ("static_cast<std::size_t>(n)", 1000),
        ("size_t(n) * 2", 2000),
        ("int(n)", 1000),
        ("true + false", 1),
        ("'a'", 97),
        ("1 << 10", 1024),
        ("1 <= 2 != 0", 1),
        ("((((((((((1))))))))))", 1),
        ("n /* length */ + 1", 1001),
        ("-n * -1", 1000),
        ("1 << 2 + 1", 8),
        ("10 - 2 * 3 + 4", 8),
        ("1 == 1 == 1", 1),
        ("2 * 3 % 4", 2),
        ("a::b + 1", 43),
    ],
)
def test_values(text, value):
    assert evaluate(text, {**NAMES, "a::b": 42}) == value


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("1 +", "ends too early"),
        ("(1", "expected `)`"),
        ("1 2", "unexpected `2`"),
        ("foo", "`foo`"),
        ("n / zero", "division by zero"),
        ("n % 0", "division by zero"),
        ("cdiv(n, 0)", "division by zero"),
        ("2.5", "floating-point"),
        ("1e3", "floating-point"),
        ("089", "octal"),
        ("1 << 300", "shift"),
        ("1 << -1", "shift"),
        ("1 << 255 << 255", "bits"),
        ("9" * 500, "bits"),
        ("(" * 5000 + "1" + ")" * 5000, "longer"),
        ("(" * 300 + "1" + ")" * 300, "nested"),
        ("f(1)", "unknown function `f`"),
        ("cdiv(1)", "2 arguments"),
        ("sizeof(Foo)", "size of `Foo`"),
        ("n = 3", "`=`"),
        ("n ? 1", "expected `:`"),
        ("__import__('os')", "unknown function"),
        ("n.x", "`.`"),
        ("x[1]", "`x`"),
        ('"a"', "unexpected"),
        ("0x", "number"),
        ("1 +" * 3000 + "1", "longer"),
    ],
)
def test_errors_name_the_bad_part(text, part):
    with pytest.raises(ExpressionError, match=".") as caught:
        evaluate(text, NAMES)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 200 and not str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("(n + BLOCK - 1) / BLOCK", {"n", "BLOCK"}),
        ("(size_t)n * sizeof(float)", {"n"}),
        ("cdiv(a, min(b, 3))", {"a", "b"}),
        ("1 / 0 + x", {"x"}),
        ("0 && y", {"y"}),
        ("c ? t : e", {"c", "t", "e"}),
        ("", set()),
        ("a +", {"a"}),
        ("static_cast<int>(q)", {"q"}),
    ],
)
def test_names(text, names):
    assert names_in(text) == names


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("unsigned", "unsigned int"),
        ("const unsigned int", "unsigned int"),
        ("long int", "long"),
        ("int long long", "long long"),
        ("unsigned long long int", "unsigned long long"),
        ("std::size_t", "size_t"),
        ("char", "char"),
        ("signed char", "signed char"),
        ("short int", "short"),
        ("struct Foo", "Foo"),
        ("float", "float"),
        ("signed", "int"),
    ],
)
def test_canonical_types(words, name):
    assert canonical_type(words) == name


LEAVES = st.integers(0, 50).map(str)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "<", "==", "&", "|", "^"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=12,
)


@given(TREES)
def test_agrees_with_python_where_the_languages_agree(text):
    assert evaluate(text) == int(eval(text))  # the text is our own


@given(st.text(alphabet="0123456789abn+-*/%<>=&|^~!?:()., []{}\"'\\#", max_size=30))
def test_anything_is_a_value_or_an_expression_error(text):
    try:
        assert isinstance(evaluate(text, NAMES), int)
    except ExpressionError:
        pass
    names_in(text)
