"""docs/spark-questions.md: every statement on the page answers what the page says it does.

``pytest tests/spark/test_questions.py --rewrite`` writes the answers anew.
"""

from __future__ import annotations

import re

import pytest
from project import ROOT

PATH = ROOT / "docs" / "spark-questions.md"
PAIR = re.compile(r"```sql\n(.*?)\n```\n\n```text\n(.*?)\n?```", re.DOTALL)
PAGE = PATH.read_text()
PAIRS = PAIR.findall(PAGE)


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_an_answer_is_what_the_page_says(number, call, golden_tables, request):
    sql, wanted = PAIRS[number]
    done = call("query", "--tables", golden_tables, sql)
    assert done.exit_code == 0, done.output + str(done.exception)
    assert len(done.stdout.splitlines()) > 1, "an answer without rows shows nothing"
    if request.config.getoption("--rewrite"):
        spot = list(PAIR.finditer(PATH.read_text()))[number]
        text = PATH.read_text()
        PATH.write_text(f"{text[: spot.start(2)]}{done.stdout.rstrip()}\n{text[spot.end() - 3 :]}")
        return
    assert done.stdout.rstrip() == wanted, "run pytest tests/spark/test_questions.py --rewrite"


def test_every_question_has_an_answer():
    assert len(PAIRS) == PAGE.count("```sql") == PAGE.count("```text")
    assert len(re.findall("^## ", PAGE, re.MULTILINE)) == 8
