"""Files of environment variables: what kubelets take for a variable, and what they refuse."""

from __future__ import annotations

import pytest

from haru.kube.pod_environment.env_file import value_in


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A='1'\nKEY='two words' # why\n", "two words"),
        ("# KEY='no'\n\n  KEY='yes'", "yes"),
        ("KEY='one\n  two\n'", "one\n  two\n"),
        ("A='x\nKEY='\nKEY='after'", "after"),
        ("KEY='a=b'", "a=b"),
        ("KEY='first'\nKEY='second'", "first"),
        ("KEY= 'x'\nKEY='later'", ""),
        ("KEY=''", ""),
        ("OTHER= x\nKEY='y'\r\n", "y"),
        ("", ""),
    ],
)
def test_value_of_key(text: str, value: str) -> None:
    assert value_in(text, "KEY") == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nothing", "line 1: write NAME='VALUE'"),
        ("='x'", "line 1: write NAME='VALUE'"),
        ("A='x'\nKEY ='x'", "line 2: write NAME='VALUE'"),
        ("KEY=x", "line 1: the value must be in single quotes"),
        ("KEY='x'y", "line 1: nothing may follow the quote but a comment"),
        ("KEY='x\ny", "line 1: the quote is not closed"),
    ],
)
def test_wrong_line_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        value_in(text, "KEY")


def test_line_after_the_key_is_not_looked_at() -> None:
    assert value_in("KEY='x'\nnothing", "KEY") == "x"
