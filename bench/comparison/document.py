"""Tables of suites inside a Markdown document, between lines that name them:

    <!-- compare.py: mixed -->
    what compare.py --into writes
    <!-- compare.py: end -->
"""

import os
import re
import textwrap

from .cells import titled
from .report import conditions, rows, summary

PLACE = re.compile(r"(?P<begin>^<!-- compare\.py: (?P<title>(?!end)[\w-]+) -->\n).*?(?P<end>^<!-- compare\.py: end -->$)",
                   re.MULTILINE | re.DOTALL)


def section(run, suite, chart=None):
    """The chart, where there is one, the table and the sentences of a suite, as Markdown."""
    head, *body = rows(run, suite)
    picture = [f"![{suite}, {run.header.get('gpu', 'unknown GPU')}]({chart})", ""] if chart else []
    table = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1),
             *("| " + " | ".join(row) + " |" for row in body)]
    words = textwrap.fill(summary(run.of(suite)), 120, break_on_hyphens=False)
    return "\n".join([*picture, *table, "", words, "", conditions(run), ""])


def filled(text, runs, charts=None, folder="."):
    """`text` with the places of all suites in `runs` filled, and the titles of those that it has no place for. charts:
    the folder of pictures, or None; `folder` is that of the document. Titles are a suite's, as files of --results have
    them."""
    sections = {}
    for run in runs:
        for suite in run.suites():
            title = titled(suite, run.mode(suite))
            picture = None if charts is None else os.path.relpath(charts / f"compare-{title}.svg", folder)
            sections[title] = section(run, suite, picture)
    places = {match["title"] for match in PLACE.finditer(text)}

    def fill(match):
        return match["begin"] + sections[match["title"]] + match["end"] if match["title"] in sections else match[0]

    return PLACE.sub(fill, text), [title for title in sections if title not in places]
