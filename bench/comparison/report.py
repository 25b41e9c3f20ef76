"""Ratios to the best peer, and tables."""

import math
import re
import textwrap

from .backward_suites import DETERMINISTIC
from .cells import RUN_MODES
from .records import FAILED, OK, UNSUPPORTED, WRONG

OURS, BUILT_IN = "ours", "ours_built_in"
SHOWN = {UNSUPPORTED: "–", WRONG: "wrong", FAILED: "failed"}


def is_ours(name):
    """Whether a contender is jit-attention in some form: "ours", "ours_two_calls", "ours rescale=lazy"."""
    return re.split("[ _]", name)[0] == OURS


def best_peer(row):
    """The contender that is not jit-attention with the smallest median time in a row {contender: result}, or None."""
    peers = {name: one["us"]["median"] for name, one in row.items() if not is_ours(name) and one["status"] == OK}
    return min(peers, key=peers.get) if peers else None


def ratio(row):
    """Time of the best peer over our time: above 1 we are faster. None when either is missing."""
    peer = best_peer(row)
    if peer is None or row.get(OURS, {}).get("status") != OK:
        return None
    return row[peer]["us"]["median"] / row[OURS]["us"]["median"]


def floor(row):
    """A row's lower bound in microseconds; None: the problem has none."""
    return next(iter(row.values())).get("floor_us")


def over_floor(row):
    """Our time over the floor. None when either is missing."""
    if floor(row) is None or row.get(OURS, {}).get("status") != OK:
        return None
    return row[OURS]["us"]["median"] / floor(row)


def texts(cells):
    """{cell: speed of a mask as text over that of the built-in one}, for cells with both."""
    both = {cell: [row.get(name, {}) for name in (BUILT_IN, OURS)] for cell, row in cells.items()}
    return {cell: built_in["us"]["median"] / text["us"]["median"] for cell, (built_in, text) in both.items()
            if built_in.get("status") == text.get("status") == OK}


def geometric_mean(values):
    """The geometric mean of positive numbers; None for an empty list."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def contenders(cells):
    """Names of contenders with results in a suite, in file order, ours first."""
    names = dict.fromkeys(name for row in cells.values() for name, one in row.items() if one["status"] != UNSUPPORTED)
    return [OURS, *(name for name in names if name != OURS)]


def label(run, name):
    return run.header.get("contenders", {}).get(name, {}).get("label", name)


def heading(run, suite):
    """"forward, sustained": a suite and its mode, unless its cells name the mode."""
    mode = run.mode(suite)
    return f"{suite}, {mode}" if mode in RUN_MODES else suite


def summary(cells):
    """One sentence on a suite's ratios; it names cells without a comparison."""
    ratios = {cell: ratio(row) for cell, row in cells.items()}
    known = [value for value in ratios.values() if value is not None]
    if known:
        ahead = sum(value > 1 for value in known)
        worst = min((cell for cell in ratios if ratios[cell] is not None), key=ratios.get)
        text = (f"Geometric mean of the ratios to the best peer: {geometric_mean(known):.3f} over {len(known)} "
                f"cell{'s' * (len(known) != 1)}, ahead in {ahead}; the worst is {ratios[worst]:.3f} "
                f"({worst.split('/', 1)[1]}).")
    else:
        text = "No cell with both jit-attention and a peer."
    without_ours = [cell for cell, row in cells.items() if row.get(OURS, {}).get("status") != OK]
    alone = [cell for cell, value in ratios.items() if value is None and cell not in without_ours]
    if without_ours:
        text += f" Without a result of jit-attention, so not in the mean: {', '.join(without_ours)}."
    if alone:
        text += f" Without any peer: {', '.join(alone)}."
    return text


def _number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def _value(one):
    if one is None:
        return ""
    if one["status"] != OK:
        return SHOWN[one["status"]]
    text = f"{one['speed']:.1f}"
    if "burst_us" in one:
        return f"{text} ({one['speed'] * one['us']['median'] / one['burst_us']:.1f})"
    return f"{text} ({one['host_us']['median']:.1f})" if one["unit"] == "µs" and "host_us" in one else text


def _pair(values):
    """Two figures, of calls by themselves and in bursts."""
    return "" if not values else f"{values[0]:.2f} ({values[1]:.2f})"


def rows(run, suite):
    """A suite's table as lists of strings, header first. Problems with a floor have it in the first column, and our
    time over it in the last."""
    cells = run.of(suite)
    names = contenders(cells)
    results = [one for row in cells.values() for one in row.values()]
    host = " (of which host)" * any("host_us" in one for one in results)
    what = f"µs per call{host}" if results[0]["unit"] == "µs" else results[0]["unit"]
    shares = sorted({name for one in results for name in one.get("efficiencies", ())})
    what += " (in bursts)" * bool(shares)
    bounded = any(floor(row) is not None for row in cells.values())
    table = [[what, *["floor"] * bounded, *(label(run, name) for name in names), "best peer", "ratio",
              *["over floor"] * bounded, *shares]]
    for cell, row in cells.items():
        peer = best_peer(row)
        table.append([cell.split("/", 1)[1], *[_number(floor(row), 1)] * bounded,
                      *(_value(row.get(name)) for name in names), label(run, peer) if peer else "",
                      _number(ratio(row)), *[_number(over_floor(row))] * bounded,
                      *(_pair(row.get(OURS, {}).get("efficiencies", {}).get(share)) for share in shares)])
    if texts(cells):
        mean = f"{geometric_mean(texts(cells).values()):.2f} of built in"
        table.append(["texts", *[""] * bounded, mean, *[""] * (len(table[0]) - 2 - bounded)])
    return table


def text_table(run, suite):
    """The table of a suite for a terminal."""
    table = rows(run, suite)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [heading(run, suite)]
    for row in table:
        texts = [text.rjust(width) if column else text.ljust(width)
                 for column, (text, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(texts).rstrip())
    return "\n".join([*lines, summary(run.of(suite))])


def notes(run, suite):
    """Reasons for missing results and different measurements: one line per contender and reason, with the cells."""
    reasons = {}
    for cell, row in run.of(suite).items():
        for name, one in row.items():
            if one["status"] != OK or one.get("reason"):
                key = (label(run, name), one["status"], one.get("reason") or "no reason given")
                reasons.setdefault(key, []).append(cell.split("/", 1)[1])
    count = len(run.of(suite))
    return [f"{name}, {status}: {reason} ({'all cells' if len(cells) == count else ', '.join(cells)})"
            for (name, status, reason), cells in reasons.items()] + costs(run, suite)


def costs(run, suite):
    """The cost of deterministic sums and of masks as text, for suites with both."""
    return deterministic_cost(run, suite) + texts_cost(run, suite)


def texts_cost(run, suite):
    """The speed of masks as text over built-in ones, for each cell with both, in one line; empty without."""
    speeds = texts(run.of(suite))
    words = ", ".join(f"{cell.split('/', 1)[1]} {value:.2f}" for cell, value in speeds.items())
    return [f"Speed of masks as text over that of built-in ones: {words}"] if words else []


def deterministic_cost(run, suite):
    """The relative speed of each contender with bitwise identical results: one line, for problems that a suite has both
    ways. Empty without any."""
    cells = run.of(suite)
    time = lambda row, name: row[name]["us"]["median"] if row.get(name, {}).get("status") == OK else None
    texts = []
    for name in contenders(cells):
        pairs = [(time(cells[cell.removesuffix(DETERMINISTIC)], name), time(row, name)) for cell, row in cells.items()
                 if cell.endswith(DETERMINISTIC) and cell.removesuffix(DETERMINISTIC) in cells]
        shares = [free / equal for free, equal in pairs if free and equal]
        if shares:
            texts.append(f"{label(run, name)} {geometric_mean(shares):.2f} (at least {min(shares):.2f})")
    return [f"Speed of deterministic sums over any order, geometric means: {', '.join(texts)}"] if texts else []


def absent(run):
    """One line for each contender that was absent, or not requested."""
    return [f"{one['label']}: {one['absent']}" for one in run.header.get("contenders", {}).values()
            if one.get("absent")]


def conditions(run, suite):
    """One sentence: a suite's hardware, and the versions of the contenders in its table."""
    header, shown = run.header, contenders(run.of(suite))
    versions = ", ".join(f"{one['label']} {one['version']}" for name, one in header.get("contenders", {}).items()
                         if one.get("version") and name in shown)
    return filled(f"{header.get('gpu', 'unknown GPU')}, driver {header.get('driver', 'unknown')}, "
                  f"{header.get('date', 'unknown date')}; {versions}.")


def table_lines(rows):
    """Lists of strings as a Markdown table, header first."""
    head, *body = ("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows)
    return [head, "| --- |" + " ---: |" * (len(rows[0]) - 1), *body]


def filled(text, begin=""):
    """Text in lines of at most 120 columns; continuation lines are indented by the length of `begin`."""
    return textwrap.fill(text, 120, initial_indent=begin, subsequent_indent=" " * len(begin), break_long_words=False,
                         break_on_hyphens=False)


def markdown(runs):
    """All suites of all runs as Markdown, with conditions, ratios and reasons."""
    parts = []
    for run in runs:
        for suite in run.suites():
            parts += [f"## {heading(run, suite)}", "", conditions(run, suite)]
            parts += [filled(f"Command: `{run.header.get('command', 'unknown')}`."), ""]
            parts += table_lines(rows(run, suite))
            parts += ["", filled(summary(run.of(suite))), ""]
            parts += [filled(line, "- ") for line in notes(run, suite) + absent(run)]
            parts += [""]
    return "\n".join(parts).rstrip() + "\n"
