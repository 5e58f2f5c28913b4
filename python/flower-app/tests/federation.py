"""What the cases of federations are made of: programs, studies, and the comparison with `fedelity run`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

APP = Path(__file__).resolve().parents[1]
#: The methods whose weights are compared; some need samples on the server.
METHODS = {
    "fedavg": "",
    "fedntd": "",
    "scaffold": "",
    "moon": "",
    "fedgkd-vote": "[server]\nvalidation = 0.1\n",
    "fedcad": "[server]\nauxiliary = 32\n",
}
CASES: dict[str, Callable[[], None]] = {}
WORK = Path(os.environ.get("FEDELITY_FLOWER_WORK", "."))


def case(act: Callable[[], None]) -> Callable[[], None]:
    CASES[act.__name__.replace("_", "-")] = act
    return act


class Failed(Exception):
    """A case that does not hold."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)


# What a case starts.


class Program:
    """A program that a case has started, with its log."""

    def __init__(self, name: str, *command: str) -> None:
        self.name, self.command, self.log = name, command, WORK / f"{name}.log"
        self.start()

    def start(self) -> None:
        out = self.log.open("ab")
        self.process = subprocess.Popen(self.command, stdout=out, stderr=out, cwd=WORK, start_new_session=True)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Ends it and everything that it has started, at once."""
        below = descendants(self.process.pid)
        for line in subprocess.run(["ps", "-eo", "pid=,sid="], capture_output=True, text=True).stdout.splitlines():
            pid, session = map(int, line.split())
            if session == self.process.pid or pid in below:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()

    def stop(self) -> int:
        """Ends it in order."""
        self.process.terminate()
        return self.process.wait(60)


def descendants(pid: int) -> set[int]:
    """The processes that a process has started."""
    rows = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout.splitlines()
    pairs, found = [tuple(map(int, row.split())) for row in rows], {pid}
    while more := {child for child, parent in pairs if parent in found} - found:
        found |= more
    return found


def tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < end, f"{what}: not within {seconds:g} s")
        time.sleep(0.2)


def superlink(*options: str) -> Program:
    """Flower's server, on port 8000."""
    made = Program("superlink", tool("flower-superlink"), "--disable-runtime-dependency-installation", *options)
    tls = "--insecure" not in options

    def healthy() -> bool:
        check(made.process.poll() is None, f"the SuperLink ended:\n{made.text()[-2000:]}")
        command = ["curl", "-sf", *(["--cacert", "ca.crt"] if tls else []), f"http{'s' if tls else ''}://127.0.0.1:8000/health"]
        return subprocess.run(command, cwd=WORK, capture_output=True).returncode == 0

    until(healthy, 60, "the SuperLink")
    return made


def supernode(number: int, *options: str, name: str = "", security: tuple[str, ...] = ("--insecure",)) -> Program:
    """One of Flower's nodes."""
    config = f"partition-id={number} {' '.join(options)}".strip()
    port = 9100 + number + (50 if name else 0)
    return Program(
        name or f"node{number}",
        *(tool("flower-supernode"), *security, "--superlink", "127.0.0.1:8000", "--port", str(port)),
        *("--node-config", config),
    )


def flwr_run(name: str, link: str = "link", federation: str = "", before: Sequence[str] = (), **settings: object) -> Program:
    """Starts a federation, after the words `before`, and shows its log as it goes."""
    text = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in settings.items())
    command = [*before, tool("flwr"), "run", str(APP), link, "--run-config", text, "--stream"]
    return Program(name, *command, *(["--federation-config", federation] if federation else []))


def finish(run: Program, seconds: float) -> str:
    """Waits for a federation, and returns its log."""

    def ended() -> bool:
        return run.process.poll() is not None or bool(re.search(r"fedelity: \w+, \d+ rounds", run.text()))

    until(ended, seconds, f"{run.name}\n{run.text()[-3000:]}\n")
    return run.text()


def study(name: str, clients: int, method: str, rounds: int = 2, more: str = "") -> Path:
    """A study on the embedded data in which all clients take part in every round."""
    file = WORK / f"{name}.toml"
    file.write_text(
        f'rounds = {rounds}\n[partition]\nclients = {clients}\n[clients]\nper-round = {clients}\nepochs = 1\n'
        f'[model]\nname = "simple-cnn"\nprojection = true\n{METHODS[method]}{more}[method]\nname = "{method}"\n'
    )
    return file


def hashes(folder: Path) -> list[str]:
    """The weights after every round of a run."""
    lines = (folder / "rounds.jsonl").read_text().splitlines()[1:]
    return [json.loads(line)["weights"]["sha256"] for line in lines]


def simulated(file: Path) -> list[str]:
    """The weights after every round of `fedelity run`."""
    folder = WORK / f"{file.stem}-reference"
    subprocess.run([tool("fedelity"), "run", "-q", str(file), "--output", str(folder)], check=True, cwd=WORK)
    return hashes(folder)


def compare(file: Path, folder: Path) -> None:
    """The weights after every round are those of `fedelity run`, and the folder is one that its commands read."""
    expected, found = simulated(file), hashes(folder)
    check(found == expected, f"{file.stem}: weights {found}, expected {expected}")
    for command in (["report", str(folder), "-o", str(folder / "report.html")], ["verify", str(folder)], ["compare", str(folder)]):
        done = subprocess.run([tool("fedelity"), *command], cwd=WORK, capture_output=True, text=True)
        check(done.returncode == 0, f"fedelity {command[0]}: {done.stderr}")
    print(f"  {file.stem}: the weights of {len(found)} rounds are those of fedelity run", flush=True)


def seconds_a_round(folder: Path) -> str:
    lines = (folder / "rounds.jsonl").read_text().splitlines()[1:]
    took = [sum(json.loads(line)["seconds"].values()) for line in lines]
    return ", ".join(f"{one:.1f}" for one in took)
