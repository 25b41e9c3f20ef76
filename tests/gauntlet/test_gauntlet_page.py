"""docs/records/gauntlet.md has the table of the cases, and says how many there are."""

import page
from failures.case import all_cases


def test_page_lists_the_cases():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text, all_cases()) == text, "docs/records/gauntlet.md is not what tests/gauntlet/page.py writes"
    sources = {source for one in all_cases() for source in one.sources}
    assert f"{len(all_cases())} cases" in text and f"{len(sources)} public reports" in text, (len(all_cases()), len(sources))


def test_lines_of_the_page_are_short():
    lines = page.PAGE.read_text(encoding="utf-8").splitlines()
    assert all(len(line) <= 120 or line.startswith("|") for line in lines)
