"""A picture of each suite: bars by cell, with the spread of the samples. Drawn on white, so that it reads the same on
a light and on a dark page."""

from .contender import missing
from .records import OK
from .report import contenders, geometric_mean, heading, label, ratio

FALLBACK = "#8a8f98"
WORDS = {"µs": "µs per call (less is better)", "GB/s": "GB/s of q, k, v and o", "TFLOP/s": "TFLOP/s of useful work"}
FLOOR_WORDS = "the floor's time over the time, %"


def absent():
    """The reason why no chart can be drawn, or None."""
    return missing("matplotlib")


def _height(one):
    """Of a bar: the speed of an "ok" result, or where there is a floor, percent of what it allows: times of 10 and of
    1,000 µs then stand beside each other."""
    return 100 * one["floor_us"] / one["us"]["median"] if "floor_us" in one else one["speed"]


def _reach(one):
    """Heights at the first and last decile of the times of an "ok" result."""
    us = one["us"]
    lower, upper = us["p10"] / us["median"], us["p90"] / us["median"]
    by_time = one["unit"] == "µs" and "floor_us" not in one
    return [_height(one) * f for f in ((lower, upper) if by_time else (1 / upper, 1 / lower))]


def _bars(axis, cells, colors, names):
    width = 0.84 / len(names)
    for index, row in enumerate(cells.values()):
        done = {name: one for name, one in row.items() if one["status"] == OK}
        for place, name in enumerate(names):
            if name in done:
                x = index - 0.42 + width * (place + 0.5)
                axis.bar(x, _height(done[name]), width * 0.94, color=colors.get(name, FALLBACK), zorder=2)
                axis.plot([x, x], _reach(done[name]), color="#00000090", linewidth=0.8, zorder=3)
        value = ratio(row)
        if value is not None:
            top = max(_reach(one)[1] for one in done.values())
            axis.annotate(f"{value:.2f}×", (index, top), xytext=(0, 2), textcoords="offset points", ha="center",
                          fontsize=7, color="#1c7c3c" if value >= 1 else "#a33")
    axis.set_xticks(range(len(cells)), [next(iter(row.values()))["tick"] for row in cells.values()], fontsize=7.5)
    axis.set_xlim(-0.6, len(cells) - 0.4)


def draw(run, suite, path, colors):
    """Writes the chart of one suite to `path` (its ending chooses the format: .svg, .png, ...). colors: {contender:
    color}."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "jit-attention", "font.size": 8.5})
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    cells = run.of(suite)
    drawn = {name for row in cells.values() for name, one in row.items() if one["status"] == OK}
    names = [name for name in contenders(cells) if name in drawn]
    panels = {}
    for cell, row in cells.items():
        panels.setdefault(next(iter(row.values()))["panel"], {})[cell] = row
    counts = [len(panel) for panel in panels.values()]
    width = min(max(7.5, 1.2 + 0.75 * sum(counts)), 11.5)
    figure, axes = pyplot.subplots(1, len(panels), figsize=(width, 3.9), sharey=True, squeeze=False,
                                   width_ratios=counts, facecolor="white", layout="constrained")
    for axis, (title, panel) in zip(axes[0], panels.items()):
        if names:
            _bars(axis, panel, colors, names)
        axis.set_title(title, fontsize=8.5)
        axis.grid(axis="y", color="#e4e6ea", zorder=0)
        axis.set_axisbelow(True)
        axis.margins(y=0.1)
        axis.spines[["top", "right"]].set_visible(False)
    first = next(iter(next(iter(cells.values())).values()))
    axes[0][0].set_ylabel(FLOOR_WORDS if "floor_us" in first else WORDS[first["unit"]])
    mean = geometric_mean(value for value in map(ratio, cells.values()) if value is not None)
    said = "" if mean is None else f"; above the bars: ours over the best peer, geometric mean {mean:.2f}×"
    figure.suptitle(f"{heading(run, suite)}, bf16, {run.header.get('gpu', 'unknown GPU')}{said}", fontsize=9.5)
    if names:
        figure.legend(handles=[Patch(color=colors.get(name, FALLBACK), label=label(run, name)) for name in names],
                      loc="outside lower center", frameon=False,
                      ncols=min(len(names), int(15 * width / (7 + max(len(label(run, name)) for name in names)))))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
