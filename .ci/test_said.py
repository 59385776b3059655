"""The assertions that most tests of texts rest on fail where a fact is missing or is another one."""

import pytest
from said import has, refused, says, says_together

from model_profiling.core.errors import FormatError, InputError


@pytest.mark.parametrize(
    ("text", "fact", "expected"),
    [
        ("it took 12 ms", "2 ms", False),
        ("it took 2 ms.", "2 ms", True),
        ("1.52 of it", "1.5", False),
        ("1.52 of it", "52", False),
        ("SLOWER by 3%", "slower", True),
        ("analysis.pairs[0] is 7", "pairs[0]", True),
        ("in /a/bc", "/a/b", False),
        ("", "2", False),
    ],
)
def test_a_fact_is_there_as_a_whole_or_not_at_all(text: str, fact: str, expected: bool) -> None:
    assert has(text, fact) is expected


def test_what_is_not_said_fails() -> None:
    with pytest.raises(AssertionError, match="fp16"):
        says("int8 is faster", "int8", "fp16")
    with pytest.raises(AssertionError):
        says_together("int8 is faster; fp16 is slower", "int8", "slower")
    says_together("int8 is faster; fp16 is slower", "fp16", "slower")


@pytest.mark.parametrize(
    "error", [InputError("a.json", ""), InputError("a.json\nb", "mend it"), InputError("b.json", "mend it")]
)
def test_an_error_without_its_facts_cure_or_line_fails(error: InputError) -> None:
    with pytest.raises(AssertionError), refused(InputError, "a.json"):
        raise error
    with pytest.raises(FormatError), refused(InputError, "a.json"):
        raise FormatError("a.json", "mend it")
