#!/usr/bin/env python3
"""Runs the same studies with Fedelity and with other systems, interleaved, and writes docs/speed.md.

Needs Python 3.11 and Linux. README.md says how to install the systems.
"""

import argparse
import datetime
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
from studies import CORES, FOLDER, PEERS, STUDIES, fedelity_arguments, title
from tree import Watch, busy

TIMEOUT = 900
# A run counts if everything else on the machine used at most this share of the cores meanwhile, and this many seconds.
OTHERS_SHARE, OTHERS_SECONDS = 0.02, 0.1
# How long a run waits for an idle machine if the number of tries is limited.
WAIT_SECONDS = 5


def main():
    options = parse()
    results = options.scratch / "results.jsonl"
    if options.report:
        return report.write(results, options.output)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    options.scratch.mkdir(parents=True, exist_ok=True)
    prepare(options)
    if options.check:
        return check(options)
    known = report.read(results)
    done = {(row["series"], row["study"], row["system"], row["seed"]) for row in known}
    versions = {system: installed(system, options) for system in options.systems}
    for seed in options.seeds:
        for name in options.studies:
            study = STUDIES[name]
            systems = [system for system in options.systems if system in study.systems]
            # Another system begins in each repetition.
            turn = (seed - 1) % max(len(systems), 1)
            for system in systems[turn:] + systems[:turn]:
                if (options.series, name, system, seed) in done:
                    continue
                row = undisturbed(study, system, seed, options)
                row |= {"series": options.series, "study": name, "system": system, "seed": seed}
                row |= {"versions": versions[system], "machine": machine()}
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                show(row)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fedelity", help="the release binary")
    parser.add_argument("--data", type=Path, help="the folder with MNIST and CIFAR-10, as for fedelity --data-dir")
    parser.add_argument("--venvs", type=Path, help="the folder with one virtual environment per peer")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for prepared data and results; resumes")
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--systems", nargs="+", choices=["fedelity", *PEERS], default=["fedelity", *PEERS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="one repetition per seed")
    parser.add_argument("--series", default="1", help="another name measures again; the newest result counts")
    parser.add_argument("--lock", type=Path, help="file to lock during each timed run, on a shared machine")
    parser.add_argument("--tries", type=int, help="runs until the least disturbed one counts; by default, one must be calm")
    parser.add_argument("--check", action="store_true", help="only compare the loss of the first weights")
    parser.add_argument("--report", action="store_true", help="only write the document from the results")
    parser.add_argument("--output", type=Path, default=FOLDER.parent.parent / "docs" / "speed.md")
    options = parser.parse_args()
    if not options.report and not (options.fedelity and options.data and options.venvs):
        parser.error("--fedelity, --data and --venvs are needed, except with --report")
    if not options.report:
        require(options, parser)
    return options


def require(options, parser):
    """Ends with a message if something is not there."""
    found = shutil.which(options.fedelity)
    if found is None:
        parser.error(f"--fedelity: there is no program {options.fedelity}")
    options.fedelity = str(Path(found).absolute())
    for name, folder in (("mnist", "mnist"), ("cifar10", "cifar-10-batches-bin")):
        if not (options.data / folder).is_dir():
            parser.error(f"--data: {options.data / folder} is missing: fedelity data fetch {name} --data-dir {options.data}")
    for system in {"torch", *options.systems} - {"fedelity"}:
        if not Path(python(system, options)).exists():
            parser.error(f"--venvs: {python(system, options)} is missing; README.md says how to install {title(system)}")


def python(system, options):
    return str(options.venvs.absolute() / system / "bin" / "python")


def prepare(options):
    """Writes data, partitions and tasks that do not exist yet."""
    command = [python("torch", options), str(FOLDER / "prepare.py"), "--fedelity", str(options.fedelity)]
    command += ["--data", str(options.data.absolute()), "--scratch", str(options.scratch.absolute())]
    command += ["--studies", *options.studies, "--seeds", *map(str, options.seeds)]
    subprocess.run(command, check=True)


def task(study, seed, options):
    return options.scratch.absolute() / "tasks" / study.name / str(seed)


def command(study, system, seed, options, output):
    """The command of a timed run."""
    folder = task(study, seed, options)
    if system == "fedelity":
        data, partition = options.data.absolute(), folder.parent / "partition.json"
        return [str(options.fedelity), *fedelity_arguments(study, data, partition, seed, output)]
    script = [str(FOLDER / "peers" / PEERS[system][1]), str(folder)]
    if system == "pfl":
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nnodes=1", f"--nproc_per_node={CORES}"]
        return [python(system, options), *launcher, *script]
    return [python(system, options), *script]


def environment():
    """No variable that changes the number of threads comes from outside."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "FEDELITY_", "XLA_", "RAY_"))}
    return kept | {"PYTHONUNBUFFERED": "1", "PFL_PYTORCH_DEVICE": "cpu", "JAX_PLATFORMS": "cpu"}


def undisturbed(study, system, seed, options):
    """Runs a study when the machine is idle, again if something else worked meanwhile; the least disturbed run."""
    rows = []
    while not options.tries or len(rows) < options.tries:
        await_idle(options.tries)
        with quiet(options.lock):
            rows.append(measure(study, system, seed, options))
        row = rows[-1]
        if row["others"] <= OTHERS_SECONDS + OTHERS_SHARE * row["whole"] * os.cpu_count():
            return row
        print(f"{study.name}, {system}, seed {seed}: disturbed for {row['others']:.1f} s", file=sys.stderr)
    return min(rows, key=lambda row: row["others"] / row["whole"])


def await_idle(tries):
    """Returns when all cores have been idle for a second, or after some seconds if the number of tries is limited."""
    for _ in range(WAIT_SECONDS) if tries else itertools.count():
        before, own = busy(), sum(os.times()[:2])
        time.sleep(1)
        if busy() - before - (sum(os.times()[:2]) - own) < 0.05:
            return


def measure(study, system, seed, options):
    """Runs a study once; times of rounds, memory and accuracy."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        arguments = command(study, system, seed, options, Path(folder) / "run")
        with open(Path(folder) / "stderr", "w+") as errors:
            date, start = datetime.date.today().isoformat(), time.monotonic()
            total, own = busy(), sum(os.times()[:2])
            child = subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=errors, env=environment(), start_new_session=True, cwd=folder
            )
            watch, ends, accuracies, chosen = Watch(child.pid), [], [], []
            deadline = signal.signal(signal.SIGALRM, lambda *_: os.killpg(child.pid, signal.SIGKILL))
            signal.alarm(TIMEOUT)
            for line in child.stdout:
                if line.startswith(b"{") and b'"round"' in line:
                    ends.append(time.monotonic() - start)
                    row = json.loads(line)
                    accuracies.append(row.get("accuracy"))
                    chosen.append(row.get("clients"))
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            whole = time.monotonic() - start
            signal.alarm(0)
            signal.signal(signal.SIGALRM, deadline)
            left = watch.stop()
            worked = max(watch.seconds(), usage.ru_utime + usage.ru_stime)
            others = busy() - total - worked - (sum(os.times()[:2]) - own)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            errors.seek(0)
            said = errors.read()
    expected = json.loads((task(study, seed, options) / "task.json").read_text())
    if child.returncode != 0 or len(ends) != expected["rounds"]:
        sys.exit(f"{study.name}, {system}: exit code {child.returncode} after {len(ends)} rounds\n{said[-3000:]}")
    if system == "fedelity" and chosen != expected["schedule"]:
        sys.exit(f"{study.name}: Fedelity trained other clients than the peers; remove {task(study, seed, options)}")
    return {
        "date": date,
        "first": ends[0],
        "rounds": [after - before for before, after in zip(ends, ends[1:])],
        "whole": whole,
        "per-round": expected["per_round"],
        # The largest set of pages of one process, which no sample can miss, or the tree, whichever is more.
        "memory": max(watch.peak, usage.ru_maxrss * 1024),
        "accuracy": accuracies[-1],
        # Seconds of processor time, of the run and of everything else on the machine.
        "worked": worked,
        "others": max(others, 0.0),
    }


def check(options):
    """Whether all networks and data are the same: the test loss of the first weights is."""
    for name in options.studies:
        study = STUDIES[name]
        for system in (system for system in options.systems if system in study.systems and system != "fedelity"):
            script = [str(FOLDER / "peers" / PEERS[system][1]), str(task(study, options.seeds[0], options)), "--check"]
            answer = subprocess.run(
                [python(system, options), *script], check=True, capture_output=True, text=True, env=environment()
            )
            loss = json.loads(answer.stdout.splitlines()[-1])["loss"]
            expected = json.loads((task(study, options.seeds[0], options) / "task.json").read_text())["initial_loss"]
            print(f"{name:12} {system:8} loss {loss:.6f}, Fedelity {expected:.6f}")
            if abs(loss - expected) > 1e-5:
                sys.exit("The losses differ: the data or the networks are not the same.")


def installed(system, options):
    """The versions of what runs."""
    if system == "fedelity":
        said = subprocess.run([options.fedelity, "--version"], check=True, capture_output=True, text=True).stdout
        digest = hashlib.sha256(Path(options.fedelity).read_bytes()).hexdigest()
        return {"fedelity": said.split()[-1], "sha256": digest[:12]}
    code = "import importlib.metadata as m, json, sys; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    answer = subprocess.run([python(system, options), "-c", code, *PEERS[system][2]], check=True, capture_output=True)
    said = subprocess.run([python(system, options), "--version"], check=True, capture_output=True, text=True).stdout
    return json.loads(answer.stdout) | {"Python": said.split()[-1]}


def machine():
    """The processor, in words."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    sets = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    name, best = fields.get("model name", os.uname().machine), next((n for f, n in sets.items() if f in flags), "none")
    return {"processor": name, "cores": os.cpu_count(), "instructions": best, "memory": round(memory)}


class quiet:
    """Holds a lock, if there is one, so that nothing else that takes it runs."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = self.path and open(self.path, "a")
        if self.file:
            fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        if self.file:
            self.file.close()


def show(row):
    rounds = sorted(row["rounds"])
    print(
        f"{row['study']:12} {row['system']:8} seed {row['seed']}  first {row['first']:6.2f} s  "
        f"round {1000 * rounds[len(rounds) // 2]:9.2f} ms  whole {row['whole']:7.2f} s  "
        f"{row['memory'] / 1e6:6.0f} MB  accuracy {row['accuracy']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
