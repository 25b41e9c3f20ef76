"""How far results are from fp64 attention: problems whose inputs are easy and hard for a softmax that is computed
tile by tile, the errors of one contender, and tables of all.

    normal    N(0, 1)
    outlier   N(0, 1) + N(0, 100) * Bernoulli(0.001), as in the FlashAttention-3 paper
    sink      all queries lean to the first key: 1 is added to q, and the first key is 11 / sqrt(head_dim) throughout
    peaky     4 q and 2 k: few keys carry a row
"""

import math
import pathlib
import shlex
import sys
from dataclasses import dataclass

from . import environment, records, report
from .backward import gradients_in
from .cells import Cell, backward_of
from .cells import cell as dense
from .contender import Contender, Runner, Unsupported, first_line
from .fp8_suites import Fp8Cell
from .inputs import Inputs
from .ours import JitAttention
from .reference import masked_scores, weighted_sum

SUITE = "accuracy"
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
FP8 = "fp8_e4m3"  # with scales of 1: the rounding of q, k and v to e4m3 is not part of the error
INPUTS = ("normal", "outlier", "sink", "peaky")
HEAD_DIMS = (128, 64, 256)


@dataclass(frozen=True)
class Problem:
    """The input type, the kind of inputs, and their cell."""

    dtype: str
    inputs: str
    cell: Cell

    @property
    def name(self):
        return f"{self.dtype}/{self.cell.label}"


def problems(batch=2, seqlen=2048, heads=8, head_dims=HEAD_DIMS, suite=SUITE, dtypes=DTYPES, kinds=INPUTS):
    """All problems, grouped by table."""
    cells = [(inputs, dense(suite, f"d{head_dim} {inputs}{', causal' * (mask == 'causal')}", batch, seqlen,
                                  heads, head_dim, mask=mask))
             for head_dim in head_dims for inputs in kinds for mask in ("none", "causal")]
    return [Problem(dtype, inputs, cell) for dtype in dtypes for inputs, cell in cells]


def make_inputs(problem, device, seed):
    """The Inputs of a problem, determined by the seed."""
    import torch

    cell, generator = problem.cell, torch.Generator(device).manual_seed(seed)
    shape = (cell.batch, cell.seqlen_q, cell.heads_q, cell.head_dim)

    def normal():
        return torch.randn(shape, device=device, generator=generator)

    q, k, v = normal(), normal(), normal()
    if problem.inputs == "outlier":
        q, k, v = (t + 10 * normal() * (torch.rand(shape, device=device, generator=generator) < 1e-3)
                   for t in (q, k, v))
    elif problem.inputs == "sink":
        q += 1
        k[:, 0] = 11 / math.sqrt(cell.head_dim)
    elif problem.inputs == "peaky":
        q, k = 4 * q, 2 * k
    if problem.dtype == FP8:
        return Inputs(*(t.to(torch.float8_e4m3fn).to(torch.bfloat16) for t in (q, k, v)))
    dtype = getattr(torch, DTYPES[problem.dtype])
    return Inputs(*(t.to(dtype) for t in (q, k, v)))


class Reference:
    """fp64 attention of a problem: o (batch, seqlen_q, heads_q, head_dim_v) and lse (batch, heads_q, seqlen_q)."""

    def __init__(self, problem, inputs):
        import torch

        cell = problem.cell
        scores = [masked_scores(cell, inputs, entry, 0, cell.seqlen_q, torch.float64) for entry in range(cell.batch)]
        self.lse = torch.stack([one.logsumexp(-1) for one in scores])
        self.o = torch.stack([weighted_sum(cell, inputs, entry, one).transpose(0, 1)
                              for entry, one in enumerate(scores)])

    def errors(self, o, lse):
        """Root mean squares and largest magnitudes of the differences, {name: value}. lse may be None."""
        found = {}
        for name, value, expected in (("", o, self.o), ("lse_", lse, self.lse)):
            if value is not None:
                difference = value.double().reshape(expected.shape) - expected
                found[f"{name}rmse"] = difference.square().mean().sqrt().item()
                found[f"{name}max"] = difference.abs().max().item()
        return found


class Plain(Contender):
    """Attention step by step in the input's type, every intermediate result rounded to it."""

    name, label, color = "plain", "plain attention", "#777777"

    def absent(self):
        return None

    def version(self):
        return "step by step in the input's type"

    def with_lse(self, cell, inputs):
        import torch

        scores = [masked_scores(cell, inputs, entry, 0, cell.seqlen_q, inputs.q.dtype) for entry in range(cell.batch)]
        o = [weighted_sum(cell, inputs, entry, one).transpose(0, 1) for entry, one in enumerate(scores)]
        return torch.stack(o), None, {}

    def differentiate(self, cell, inputs):
        return Runner(lambda: gradients_in(inputs.q.dtype, cell, inputs))


class Variant(JitAttention):
    """The cost model's config with some fields replaced, such as "rescale=lazy"; with "family=..." its best config of
    that family. Empty text: unchanged."""

    def __init__(self, text=""):
        super().__init__("off")
        self.fields = dict(word.split("=", 1) for word in text.split())
        if text:
            self.name = self.label = f"{JitAttention.name} {text}"

    def prepared(self, cell, inputs):
        """An Attention with this config. Raises Unsupported when it is illegal."""
        import jit_attention as ja

        spec = ja.AttentionSpec(dtype={"torch.bfloat16": "bf16", "torch.float16": "fp16"}[str(inputs.q.dtype)],
                                head_dim=cell.head_dim, gqa_ratio=cell.gqa_ratio,
                                mask=ja.mask.causal() if cell.mask == "causal" else None)
        qkv = inputs.q, inputs.k, inputs.v
        chosen = ja.prepare(spec, *qkv, tuning="off")
        if not self.fields:
            return chosen
        base = chosen.kernel(*qkv).config
        family = self.fields.get("family", base["family"])
        if family != base["family"]:
            known = ja.candidate_configs(spec, ja.devices()[0].arch)
            base = next((config for config in known if config["family"] == family), {})
        config = {name: str(value).lower() for name, value in base.items()} | self.fields
        try:
            return ja.prepare(spec, *qkv, config=" ".join(f"{name}={value}" for name, value in config.items()))
        except (ja.errors.NoValidConfigError, ja.errors.InvalidArgumentError) as error:
            raise Unsupported(first_line(error)) from None

    def with_lse(self, cell, inputs):
        qkv, prepared = (inputs.q, inputs.k, inputs.v), self.prepared(cell, inputs)
        return *prepared(*qkv, return_lse=True), dict(config=dict(prepared.kernel(*qkv).config))


def of_fp8(contender, cell, inputs):
    """o for e4m3 q, k and v, without LSE. Raises Unsupported when a contender has no such call."""
    if getattr(contender, "make_fp8", None) is None or getattr(contender, "fields", None):
        raise Unsupported("no FP8 q, k and v")
    runner = contender.make_fp8(backward_of(cell, cell.suite, Fp8Cell), inputs)
    with runner.context():
        return runner.checked_part(runner.call()), None


def measure(problem, contenders, seed=0, device="cuda"):
    """One result for each of `contenders`, in the order given."""
    import torch

    inputs = make_inputs(problem, device, seed)
    reference = Reference(problem, inputs)

    def find(contender):
        with torch.no_grad():
            if problem.dtype == FP8:
                return reference.errors(*of_fp8(contender, problem.cell, inputs)), {}
            o, lse, detail = contender.with_lse(problem.cell, inputs)
        return reference.errors(o, lse), detail

    return [result(problem, one, find) for one in contenders]


def result(problem, contender, find):
    """A contender's result, from find(contender), which returns ({name: error}, a Runner's detail)."""
    status, reason, known, cell = records.OK, None, {}, problem.cell
    try:
        errors, detail = find(contender)
        if all(map(math.isfinite, errors.values())):
            known = dict(errors, detail=detail)
        else:
            status, reason = records.WRONG, "a result is not finite"
    except Unsupported as refused:
        status, reason = records.UNSUPPORTED, str(refused)
    except Exception as error:  # peers may raise anything; others continue
        status, reason = records.FAILED, f"{type(error).__name__}: {first_line(error)}"
    return dict(kind="result", suite=cell.suite, cell=problem.name, contender=contender.name, status=status,
                reason=reason, dtype=problem.dtype, inputs=problem.inputs, mask=cell.mask, batch=cell.batch,
                seqlen=cell.seqlen_q, heads=cell.heads_q, head_dim=cell.head_dim, **known)


def add_arguments(parser):
    """Adds the arguments of a program that measures these problems."""
    parser.add_argument("--cells", metavar="SUBSTRING", default="", help="only problems whose name holds this")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.jsonl", help="all errors as JSON lines")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE.md", help="tables, which are printed otherwise")


def chosen_problems(parser, options, everything):
    """The problems of a list that --cells selects."""
    chosen = [one for one in everything if options.cells in one.name]
    if not chosen:
        names = ", ".join(one.name for one in everything)
        parser.error(f'--cells "{options.cells}": no problem has that in its name, of {names}')
    return chosen


def run(parser, options, everyone, compile_ahead, measure, markdown):
    """Measures options.problems with the present contenders of `everyone`, ours first, and writes lines and tables.
    Returns the exit status."""
    chosen = [(one, one.absent()) for one in everyone]
    if chosen[0][1]:
        parser.exit(1, f"{parser.prog}: {chosen[0][1]}\n")
    command = shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    found = records.Run(environment.describe(command, chosen, seed=options.seed))
    writer = records.Writer(options.out)
    writer.write(found.header)
    compile_ahead(options.problems, options.seed)
    for problem in options.problems:
        for one in measure(problem, [one for one, absent in chosen if not absent], options.seed):
            found.results.append(one)
            writer.write(one)
    text = markdown(found)
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(text, encoding="utf-8")
    else:
        print(text)
    lost = [one["cell"] for one in found.results if one["contender"] == report.OURS and one["status"] != records.OK]
    if lost:
        print(f"{parser.prog}: jit-attention is wrong or failed in {', '.join(lost)}", file=sys.stderr)
    return 1 if lost else 0


def ratio(row, name, error):
    """A contender's error in a row {contender: result} over the smallest of peers except plain attention; below 1 it is
    closer to fp64. None when either is missing."""
    peers = [one[error] for peer, one in row.items()
             if error in one and not report.is_ours(peer) and peer != Plain.name]
    return row[name][error] / min(peers) if peers and min(peers) > 0 and error in row.get(name, {}) else None


def table(cells, error, labels):
    """Rows for an error, header first; the last two have the geometric mean and largest ratio of each of ours."""
    names = [name for name in labels if any(error in row.get(name, {}) for row in cells.values())]
    rows = [["", *(labels[name] for name in names)]]
    ratios = {name: [] for name in names if report.is_ours(name)}
    for cell, row in cells.items():
        texts = []
        for name in names:
            value, relative = row.get(name, {}).get(error), ratio(row, name, error) if report.is_ours(name) else None
            texts.append("–" if value is None else f"{value:.2e}" + (f" ({relative:.2f})" if relative else ""))
            if relative:
                ratios[name].append(relative)
        rows.append([cell.split("/", 1)[1], *texts])
    for what, of in (("geometric mean", report.geometric_mean), ("largest", max)):
        sums = {name: f"{of(values):.2f}" for name, values in ratios.items() if values}
        rows.append([f"ratio to the best peer, {what}", *(sums.get(name, "") for name in names)])
    return rows


def markdown(run):
    """A run's tables of o and LSE by type, with conditions and reasons."""
    everything = run.of(SUITE)
    labels = {name: report.label(run, name) for row in everything.values() for name in row}
    parts = [report.conditions(run, SUITE), f"Command: `{run.header.get('command', 'unknown')}`.", ""]
    for dtype in (*DTYPES, FP8):
        cells = {cell: row for cell, row in everything.items() if cell.startswith(f"{dtype}/")}
        for error, what in (("rmse", "o"), ("lse_rmse", "LSE")):
            if not any(error in one for row in cells.values() for one in row.values()):
                continue
            parts += [f"## {what}, {dtype}: RMSE against fp64 (ratio to the best peer)", "",
                      *report.table_lines(table(cells, error, labels)), ""]
    return "\n".join(parts + [f"- {line}" for line in report.notes(run, SUITE) + report.absent(run)]).rstrip() + "\n"
