"""Measurements as JSON lines: one "run" line, then one "result" line for each cell and contender."""

import dataclasses
import gzip
import json
import statistics
import zlib

OK, UNSUPPORTED, WRONG, FAILED = "ok", "unsupported", "wrong", "failed"


def spread(samples):
    """Median, extremes and deciles of a list of numbers, and their count."""
    ordered = sorted(samples)
    at = lambda share: ordered[min(int(share * len(ordered)), len(ordered) - 1)]
    return dict(samples=len(ordered), median=round(statistics.median(ordered), 3), min=round(ordered[0], 3),
                p10=round(at(0.1), 3), p90=round(at(0.9), 3), max=round(ordered[-1], 3))


def result(cell, contender, status, reason=None, **fields):
    """One result of a problem as a dictionary. status: "ok", "unsupported", "wrong" (the check failed) or "failed" (it
    raised)."""
    problem = {name: value for name, value in dataclasses.asdict(cell).items() if name not in ("suite", "label")}
    floor = {} if cell.floor_us() is None else dict(floor_us=round(cell.floor_us(), 2))
    return dict(kind="result", suite=cell.suite, cell=cell.name, contender=contender, status=status, reason=reason,
                **problem, unit=cell.unit, flops=cell.flops(), bytes=cell.bytes(), **floor, **fields)


def timed(cell, contender, us, host_us=None, reason=None, **fields):
    """An "ok" result of samples in microseconds; host_us: the host's share, if measured; reason: how it differs from
    the others."""
    times = spread(us)
    if host_us is not None:
        fields["host_us"] = spread(host_us)
    return result(cell, contender, OK, reason, us=times, speed=round(cell.speed(times["median"]), 3), **fields)


@dataclasses.dataclass
class Run:
    """A "run" line and the results that follow it."""

    header: dict
    results: list = dataclasses.field(default_factory=list)

    def of(self, suite):
        """A suite's results, by cell and then contender, in file order."""
        cells = {}
        for one in self.results:
            if one["suite"] == suite:
                cells.setdefault(one["cell"], {})[one["contender"]] = one
        return cells

    def mode(self, suite):
        """The mode of a suite's first result: one of suites.MODES."""
        return next(one.get("mode", "cold") for one in self.results if one["suite"] == suite)

    def suites(self):
        return list(dict.fromkeys(one["suite"] for one in self.results))


class Writer:
    """Writes lines as they come, so that an aborted run keeps its results."""

    def __init__(self, path=None):
        self.file = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("w", encoding="utf-8")

    def write(self, record):
        if self.file is not None:
            self.file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self.file.flush()


def read(path):
    """The text of a file, possibly compressed (FILE.jsonl.gz). Raises ValueError for one that is no text."""
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data.decode("utf-8")
    try:
        return gzip.decompress(data).decode("utf-8")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}") from None


def load(path):
    """The runs of a JSON-lines file, compressed or not. Raises ValueError, with file and line, for an invalid
    record."""
    runs = []
    for number, line in enumerate(read(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            kind = record["kind"]
            if kind == "run":
                runs.append(Run(record))
            elif kind == "result" and runs and {"suite", "cell", "contender", "status"} <= record.keys():
                runs[-1].results.append(record)
            else:
                raise ValueError("no run line before it, or a field is missing")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number} is no line of a comparison: {error}") from None
    return runs
