#!/usr/bin/env python3
"""The table of docs/records/gauntlet.md, from the cases: `tests/gauntlet/page.py` writes it, test_gauntlet_page.py checks."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "gauntlet.md"
PLACE = re.compile(r"(?<=<!-- cases -->\n).*?(?=<!-- end of cases -->)", re.DOTALL)


def table(cases):
    """The cases as Markdown, a table for each kind."""
    lines = []
    for kind in dict.fromkeys(one.kind for one in cases):
        lines += ["", f"### {kind}", "", "| case | source | what failed there | what is asserted here |", "| --- | --- | --- | --- |"]
        for one in cases:
            if one.kind == kind:
                sources = ", ".join(map(link, one.sources))
                lines.append(f"| `{one.name}` | {sources} | {one.where}: {one.failed} | {one.asserts} |")
    return "\n".join([*lines, "", ""]).lstrip("\n")


def link(source):
    """A source, as a link: GitHub leads from the number of an issue to a pull request of that number."""
    repository, number = source.split("#")
    return f"[{source}](https://github.com/{repository}/issues/{number})"


def filled(text, cases):
    """The text of the page with the table of these cases."""
    return PLACE.sub(lambda _: "\n" + table(cases), text)


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
    from failures.case import all_cases

    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), all_cases()), encoding="utf-8")
