"""Writes the document from the results."""

import json
import math
import statistics
import textwrap

from studies import CORES, PEERS, STUDIES, title

WIDTH = 124

INTRODUCTION = """\
# Speed compared with other systems

The same studies, run by Fedelity and by what one would use instead: Flower with Ray, pfl, FedJAX, and a plain PyTorch loop.
Everything here was measured by `benches/race/race.py`; `benches/race/README.md` says how to repeat it.
"""

METHOD = """\
## What is the same

- The partition, the clients of each round, the first weights and the test images are the same for all systems; only the order
  of batches and the features that dropout zeroes differ. Before the race, `race.py --check` compares the test loss of the
  first weights, where dropout is off: all agree to five decimals. No client differs from another in size, so every round of a
  study is the same amount of work.
- All train in float32 on {cores} cores. No system was changed; each is installed from its package.
- Runs are interleaved: each repetition runs all systems in turn, with another seed, beginning with another system.
  Everything else on the machine used at most {others:.1%} of the cores during a run.

Each system has the settings that its documentation recommends, and where there is a choice, the faster one:

- **Flower**: message API, one core per client, so Ray trains {cores} clients at a time. Its workers read images and build the
  network once, not once per client. Started by `run_simulation` from Python; `flwr run` was not measured.
- **pfl**: `torchrun` with one process per core, all data in memory as tensors, testing shared by the processes.
- **FedJAX**: the `jit` backend, the default; `pmap` over {cores} devices was slower. It does not run with JAX 0.6 or newer.
- **PyTorch loop**: one process, one client after the other, {cores} threads inside PyTorch, one for logistic regression, where
  that is faster.
- The three that use PyTorch have the memory format that is faster for the study: channels last for convolutions.
- **Fedelity**: `--threads {cores}`, and `evaluation.metrics = "fast"`, because the others measure nothing on local models.

## What is measured

- *First round*: from the start of the process to the end of the first round, with loading, compiling and starting workers. The
  peers read images that are already decoded and normalised; Fedelity decodes and normalises them itself.
- *Per round*: the median of all later rounds. Rounds with and without a test count alike.
- *Ratio*: time per round, divided by Fedelity's.
- *Whole run*: from the start of the process to its end.
- *Memory*: the most that the process and all that it started held at once. Pages shared by several processes count once.
- *Accuracy* of the global model after the last round, on all test images.

Each value is the median of the repetitions, with the lowest and the highest in brackets if they differ. The best value of a
column is bold.
"""

CAVEATS = """\
## What this does not show

- Two cores and no GPU. Flower, pfl and FedJAX are made for accelerators or clusters, where they do what Fedelity cannot.
- Flower's simulation runs the same client code as its deployment and sends every message as if over a network.
- PyTorch's package includes its GPU libraries, which take memory even when they are not used.
- A few rounds, on one machine. Accuracies after so few rounds show that all learn, not which system learns better.
"""


def wrap(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def read(path):
    """All results, oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def newest(rows):
    """The newest result of each study, system and seed: rows by study and system."""
    latest = {(row["study"], row["system"], row["seed"]): row for row in rows}
    chosen = {}
    for (study, system, _), row in latest.items():
        chosen.setdefault(study, {}).setdefault(system, []).append(row)
    return chosen


def round_time(row):
    return statistics.median(row["rounds"])


MEASURES = {
    "first": lambda row: row["first"],
    "round": round_time,
    "client": lambda row: round_time(row) / row["per-round"],
    "whole": lambda row: row["whole"],
    "memory": lambda row: row["memory"],
    "accuracy": lambda row: row["accuracy"],
}
HEADS = {
    "first": "first round",
    "round": "per round",
    "ratio": "ratio",
    "client": "per client",
    "whole": "whole run",
    "memory": "memory",
    "accuracy": "accuracy",
}


def significant(value, digits=3):
    """A positive number with this many significant digits, and thousands apart."""
    before = math.floor(math.log10(value)) + 1 if value > 0 else 1
    return f"{value:,.{max(0, digits - before)}f}"


def seconds(value):
    if value < 0.001:
        return f"{significant(1e6 * value)} µs"
    return f"{significant(1000 * value)} ms" if value < 1 else f"{significant(value)} s"


def show(measure, value):
    if measure == "memory":
        return f"{value / 1e6:,.0f} MB"
    if measure == "accuracy":
        return f"{100 * value:.2f} %"
    return seconds(value)


def cell(measure, values):
    """The median with its unit, and the range."""
    middle, low, high = (show(measure, f(values)) for f in (statistics.median, min, max))
    if low == high:
        return middle
    unit = middle.rsplit(" ", 1)[1]
    if low.endswith(unit) and high.endswith(unit):
        return f"{middle.rsplit(' ', 1)[0]} ({low.rsplit(' ', 1)[0]} to {high.rsplit(' ', 1)[0]}) {unit}"
    return f"{middle} ({low} to {high})"


def table(study, systems):
    """The results of a study."""
    columns = ["first", "round", "client", "memory"] if study.one_image else ["first", "round", "whole", "memory", "accuracy"]
    middle = {
        system: {c: statistics.median(MEASURES[c](row) for row in rows) for c in columns} for system, rows in systems.items()
    }
    best = {c: min(m[c] for m in middle.values()) for c in columns if c != "accuracy"}
    shown = columns[:2] + ["ratio"] + columns[2:]
    lines = ["| | " + " | ".join(HEADS[c] for c in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for system in (s for s in ("fedelity", *PEERS) if s in systems):
        cells = []
        for c in shown:
            if c == "ratio":
                cells.append(significant(middle[system]["round"] / middle["fedelity"]["round"]))
                continue
            text = cell(c, [MEASURES[c](row) for row in systems[system]])
            cells.append(f"**{text}**" if middle[system][c] == best.get(c) else text)
        lines.append(f"| {title(system)} | " + " | ".join(cells) + " |")
    return lines


def named(system):
    """The name of a system inside a sentence."""
    return "the PyTorch loop" if system == "torch" else title(system)


def verdict(systems):
    """Who is fastest, in words."""
    times = {s: statistics.median(round_time(row) for row in rows) for s, rows in systems.items()}
    order = sorted(times, key=times.get)
    faster = [s for s in order if times[s] < times["fedelity"]]
    if not faster:
        factor = times[order[1]] / times["fedelity"]
        return f"Per round, Fedelity is {significant(factor, 2)} times as fast as the next, {named(order[1])}."
    listed = [f"{named(s)} ({significant(times['fedelity'] / times[s], 2)} times as fast)" for s in faster]
    return f"Per round, faster than Fedelity: {', '.join(listed)}."


def write(results, output):
    """Writes the document."""
    rows = read(results)
    if not rows:
        raise SystemExit(f"{results} holds no results; run race.py without --report first")
    chosen = newest(rows)
    counted = [row for systems in chosen.values() for rows in systems.values() for row in rows]
    parts = [INTRODUCTION, setting(counted)]
    for name, study in STUDIES.items():
        systems = chosen.get(name, {})
        if "fedelity" not in systems:
            continue
        repetitions = sorted({len(rows) for rows in systems.values()})
        count = f"{repetitions[0]}" if len(repetitions) == 1 else f"{repetitions[0]} to {repetitions[-1]}"
        parts.append(f"## {study.title}\n\n{wrap(f'{study.text} Repetitions: {count}.')}\n")
        parts.append("\n".join(table(study, systems)) + "\n")
        parts.append(wrap(verdict(systems)) + "\n")
    others = max(row["others"] / (row["whole"] * row["machine"]["cores"]) for row in counted)
    parts += [METHOD.format(cores=CORES, others=others), CAVEATS]
    output.write_text("\n".join(parts))


def setting(rows):
    """Machine, date and versions."""
    machine = rows[-1]["machine"]
    dates = sorted({row["date"] for row in rows})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    lines = [
        "## Machine and versions\n",
        f"{machine['processor']} ({machine['instructions']}), {machine['cores']} cores, {machine['memory']} GB of memory, "
        f"Linux, {span}.\n",
        "| | versions |",
        "|---|---|",
    ]
    for system in ("fedelity", *PEERS):
        seen = {json.dumps(row["versions"]) for row in rows if row["system"] == system}
        for text in sorted(seen):
            versions = json.loads(text)
            digest = versions.pop("sha256", None)
            said = ", ".join(f"{name} {version}" for name, version in versions.items())
            lines.append(f"| {title(system)} | {said}{f' (binary {digest})' if digest else ''} |")
    return "\n".join(lines) + "\n"
