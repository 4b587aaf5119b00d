"""docs/spark-questions.md: every statement and every cell on the page answers what the page says it does.

``pytest tests/spark/test_questions.py --rewrite`` writes the answers anew.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

import pytest
from project import ROOT

PATH = ROOT / "docs" / "spark-questions.md"
ASKED = re.compile(r"```(sql|python)\n(.*?)\n```\n\n```text\n(.*?)\n?```", re.DOTALL)
PAGE = PATH.read_text()
START = re.search(r"```python\n(.*?)\n```", PAGE, re.DOTALL)[1]


class Answer(NamedTuple):
    language: str
    code: str
    text: str


ANSWERS = [Answer(*found) for found in ASKED.findall(PAGE.split(START)[1])]


@pytest.fixture
def notebook(call, golden_tables):
    """Runs a cell, and returns what a notebook shows of its last expression as text."""
    names = {}
    exec(START.replace("/tmp/tables", str(golden_tables)), names)

    def run(cell):
        *lines, last = ast.parse(cell).body
        exec(compile(ast.Module(lines, []), "cell", "exec"), names)
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names).to_string()

    return run


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_an_answer_is_what_the_page_says(number, call, notebook, golden_tables, request):
    language, code, wanted = ANSWERS[number]
    if language == "sql":
        done = call("query", "--tables", golden_tables, code)
        assert done.exit_code == 0, done.output + str(done.exception)
        found = done.stdout
    else:
        found = notebook(code)
    found = "\n".join(line.rstrip() for line in found.rstrip().splitlines())
    assert len(found.splitlines()) > 1, "an answer without rows shows nothing"
    if request.config.getoption("--rewrite"):
        text = PATH.read_text()
        spot = list(ASKED.finditer(text, text.index(START) + len(START)))[number]
        PATH.write_text(f"{text[: spot.start(3)]}{found}\n{text[spot.end() - 3 :]}")
        return
    assert found == wanted, "run pytest tests/spark/test_questions.py --rewrite"


def test_every_question_has_an_answer_for_the_shell_and_one_for_a_notebook():
    for question in PAGE.split("\n## ")[1:]:
        assert re.findall(r"```(\w+)", question) == ["sql", "text", "python", "text"], question
    assert len(ANSWERS) == 2 * len(re.findall("^## ", PAGE, re.MULTILINE)) == 2 * (10 + 2)
