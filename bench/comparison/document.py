"""Tables of suites inside a Markdown document, between lines that name them:

    <!-- compare.py: mixed -->
    what compare.py --into writes
    <!-- compare.py: end -->
"""

import os
import re

from .cells import titled
from .report import conditions, costs, filled, rows, summary

PLACE = re.compile(r"(?P<begin>^<!-- compare\.py: (?P<title>(?!end)[\w-]+) -->\n).*?(?P<end>^<!-- compare\.py: end -->$)",
                   re.MULTILINE | re.DOTALL)


def section(run, suite, chart=None):
    """A suite's chart, if any, table and sentences, as Markdown."""
    head, *body = rows(run, suite)
    picture = [f"![{suite}, {run.header.get('gpu', 'unknown GPU')}]({chart})", ""] if chart else []
    table = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1),
             *("| " + " | ".join(row) + " |" for row in body)]
    sentences = [summary(run.of(suite)), *(f"{line}." for line in costs(run, suite))]
    words = filled(" ".join(sentences))
    return "\n".join([*picture, *table, "", words, "", conditions(run, suite), ""])


def fill(path, runs, charts=None):
    """Writes the suites of `runs` into their sections of the file `path`. Returns the titles, as in the names of
    --results files, of suites without a section. charts: folder of their pictures, or None."""
    sections = {}
    for run in runs:
        for suite in run.suites():
            title = titled(suite, run.mode(suite))
            picture = None if charts is None else os.path.relpath(charts / f"compare-{title}.svg", path.parent)
            sections[title] = section(run, suite, picture)
    text = path.read_text(encoding="utf-8")
    places = {match["title"] for match in PLACE.finditer(text)}

    def filled(match):
        return match["begin"] + sections[match["title"]] + match["end"] if match["title"] in sections else match[0]

    path.write_text(PLACE.sub(filled, text), encoding="utf-8")
    return [title for title in sections if title not in places]
