"""A chart of each suite: bars by cell, with the samples' spread, on white for light and dark pages. Writes SVG without
a plotting library: bars of one color are one path and text stays text, a tenth of such a library's output."""

import html
import math
import textwrap

from .records import OK
from .report import contenders, geometric_mean, heading, label, ratio

FALLBACK = "#8a8f98"
WORDS = {"µs": "µs per call (less is better)", "GB/s": "GB/s of q, k, v and o", "TFLOP/s": "TFLOP/s of useful work",
         "TFLOP/s a GPU": "TFLOP/s of useful work, of one GPU"}
FLOOR_WORDS = "the floor's time over the time, %"

FONT = "'DejaVu Sans',Verdana,sans-serif"
WIDE = 0.55  # average letter width, relative to the font size
TITLE, TEXT, TICK, RATIO = 9.5, 8.5, 7.5, 7  # sizes of text
LINE = 1.2  # line height, relative to the font size
LEFT, RIGHT, GAP, TOP, HEIGHT = 46, 6, 14, 34, 200  # of the panels, and between them


def _height(one):
    """A bar's height: the speed of an "ok" result, or with a floor, the percentage of it reached, so that times of 10
    and 1,000 µs are comparable."""
    return 100 * one["floor_us"] / one["us"]["median"] if "floor_us" in one else one["speed"]


def _reach(one):
    """Heights of the first and last decile of an "ok" result's times."""
    us = one["us"]
    lower, upper = us["p10"] / us["median"], us["p90"] / us["median"]
    by_time = one["unit"] == "µs" and "floor_us" not in one
    return [_height(one) * f for f in ((lower, upper) if by_time else (1 / upper, 1 / lower))]


def _served(row):
    return {name: one for name, one in row.items() if one["status"] == OK}


def _first(cells):
    """A result of the cells, which share unit and panel."""
    return next(iter(next(iter(cells.values())).values()))


def _ticks(cells):
    return [next(iter(row.values()))["tick"] for row in cells.values()]


def _steps(highest):
    """Heights of grid lines from 0: about six round numbers."""
    rough = highest / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * index for index in range(int(highest / step) + 1)]


def _number(value):
    return f"{value:.1f}".removesuffix(".0")


def _wrapped(words, size, width):
    """The words broken into lines of this width, where possible."""
    letters = max(1, int(width / (WIDE * size)))
    return "\n".join(part for line in words.split("\n")
                     for part in textwrap.wrap(line, letters, break_long_words=False, break_on_hyphens=False))


def _text(x, y, words, size, anchor="middle", color=None):
    """Lines of text, the first on y."""
    looks = f' font-size="{size}" text-anchor="{anchor}"' + (f' fill="{color}"' if color else "")
    return "".join(f'<text x="{_number(x)}" y="{_number(y + LINE * size * index)}"{looks}>{html.escape(line)}</text>\n'
                   for index, line in enumerate(words.split("\n")))


class _Panel:
    """Adjacent cells from x, each `width` wide; `scale` is the pixels of a height of 1."""

    def __init__(self, title, cells, x, width, scale):
        self.cells, self.x, self.width, self.scale = cells, x, width, scale
        self.right = x + width * (len(cells) + 0.2)
        self.title = _wrapped(title, TEXT, self.right - x)
        self.ticks = [_wrapped(tick, TICK, width) for tick in _ticks(cells)]

    def middles(self):
        return [self.x + self.width * (index + 0.6) for index in range(len(self.cells))]

    def y(self, height):
        return TOP + HEIGHT - self.scale * height

    def frame(self, steps, numbers):
        """Title, axes, grid lines, and cell labels."""
        lines = "".join(f"M{_number(self.x)} {_number(self.y(step))}H{_number(self.right)}" for step in steps)
        yield f'<path d="{lines}" stroke="#e4e6ea"/>\n'
        yield f'<path d="M{_number(self.x)} {TOP}V{TOP + HEIGHT}H{_number(self.right)}" fill="none" stroke="#000"/>\n'
        yield _text((self.x + self.right) / 2, TOP - 5 - LINE * TEXT * self.title.count("\n"), self.title, TEXT)
        for x, tick in zip(self.middles(), self.ticks):
            yield _text(x, TOP + HEIGHT + 12, tick, TICK)
        if numbers:
            for step in steps:
                yield _text(self.x - 5, self.y(step) + 3, f"{step:g}", TEXT, "end")

    def bars(self, names):
        """(name, path of its bars, path of its spreads) for contenders with results."""
        wide = 0.84 * self.width / max(1, len(names))
        for middle, row in zip(self.middles(), self.cells.values()):
            for name, one in _served(row).items():
                x = middle + wide * (names.index(name) - len(names) / 2)
                bottom, top, low, high = (_number(self.y(height)) for height in (0, _height(one), *_reach(one)))
                yield (name, f"M{_number(x)} {bottom}V{top}h{_number(0.94 * wide)}V{bottom}",
                       f"M{_number(x + wide / 2)} {low}V{high}")

    def ratios(self):
        """Ratios of ours to the best peer, above the bars."""
        for x, row in zip(self.middles(), self.cells.values()):
            value = ratio(row)
            if value is not None:
                top = max(_reach(one)[1] for one in _served(row).values())
                yield _text(x, self.y(top) - 2, f"{value:.2f}×", RATIO, color="#1c7c3c" if value >= 1 else "#a33")


def _panels(cells, width, highest):
    """The panels of the cells, wider where a cell's label has a longer word."""
    split = {}
    for cell, row in cells.items():
        split.setdefault(next(iter(row.values()))["panel"], {})[cell] = row
    letters = [max(6, *(len(word) for tick in _ticks(panel) for word in tick.split())) for panel in split.values()]
    space = width - LEFT - RIGHT - GAP * (len(split) - 1)
    letter = space / sum(count * (len(panel) + 0.2) for count, panel in zip(letters, split.values()))
    x, panels = LEFT, []
    for (title, panel), count in zip(split.items(), letters):
        panels.append(_Panel(title, panel, x, letter * count, HEIGHT / highest))
        x = panels[-1].right + GAP
    return panels


def _legend(entries, width, y):
    """Rows of squares with their (color, words) beside them, the first row's text on y; the last y and the SVG."""
    wide = 30 + WIDE * TEXT * max(len(words) for _, words in entries)
    columns = max(1, min(len(entries), int(width / wide)))
    left, lines = (width - columns * wide) / 2, []
    for index, (color, words) in enumerate(entries):
        x, line = left + wide * (index % columns), y + 1.6 * TEXT * (index // columns)
        lines.append(f'<path d="M{_number(x)} {_number(line - 7)}h16v7h-16" fill="{color}"/>\n'
                     + _text(x + 21, line, words, TEXT, "start"))
    return y + 1.6 * TEXT * ((len(entries) - 1) // columns), "".join(lines)


def draw(run, suite, path, colors):
    """Writes the chart of one suite to `path`, an SVG. colors: {contender: color}."""
    cells = run.of(suite)
    drawn = {name for row in cells.values() for name in _served(row)}
    names = [name for name in contenders(cells) if name in drawn]
    mean = geometric_mean(value for value in map(ratio, cells.values()) if value is not None)
    said = "" if mean is None else f"; above the bars: ours over the best peer, geometric mean {mean:.2f}×"
    title = f"{heading(run, suite)}, bf16, {run.header.get('gpu', 'unknown GPU')}{said}"
    width = min(max(540, 86 + 54 * len(cells)), 828)
    highest = 1.08 * max((_reach(one)[1] for row in cells.values() for one in _served(row).values()), default=1)
    panels, steps = _panels(cells, width, highest), _steps(highest)
    words = FLOOR_WORDS if "floor_us" in _first(cells) else WORDS[_first(cells)["unit"]]

    middle = TOP + HEIGHT / 2
    parts = [f'<g transform="rotate(-90 11 {middle:g})">\n', _text(11, middle, words, TEXT), "</g>\n"]
    paths, spreads, ratios = {}, [], []
    for panel in panels:
        parts += panel.frame(steps, numbers=panel is panels[0])
        ratios += panel.ratios()
        for name, bar, spread in panel.bars(names):
            paths.setdefault(name, []).append(bar)
            spreads.append(spread)
    parts += [f'<path d="{"".join(paths[name])}" fill="{colors.get(name, FALLBACK)}"/>\n' for name in names]
    if spreads:
        parts.append(f'<path d="{"".join(spreads)}" stroke="#000" stroke-opacity=".56"/>\n')
    parts += ratios
    bottom = TOP + HEIGHT + 12 + LINE * TICK * max(tick.count("\n") for panel in panels for tick in panel.ticks)
    if names:
        bottom, legend = _legend([(colors.get(name, FALLBACK), label(run, name)) for name in names], width, bottom + 20)
        parts.append(legend)
    higher = round(LINE * TEXT * max(panel.title.count("\n") for panel in panels))  # titles of several lines
    height = math.ceil(bottom + 8 + higher)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}pt" '
                    f'height="{height}pt" font-family="{FONT}" stroke-width=".8">\n'
                    f'<path d="M0 0H{width}V{height}H0" fill="#fff"/>\n' + _text(width / 2, 14, title, TITLE)
                    + f'<g transform="translate(0 {higher})">\n' + "".join(parts) + "</g>\n</svg>\n", encoding="utf-8")
