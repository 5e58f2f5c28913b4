"""Fedelity's own node: sites with tables of their own, against `fedelity run` on the same tables."""

import csv
import json
import random
import signal
import subprocess
import time
from pathlib import Path

from federation import WORK, Program, case, check, compare, finish, flwr_run, hashes, simulated, superlink, tool, until

SITES = ("mercy", "north")


def tables() -> None:
    """A table for each site, and one for testing; its classes depend on its columns."""
    rng = random.Random(1)

    def rows(count: int) -> list[list[object]]:
        made = []
        for _ in range(count):
            values = [round(rng.gauss(0, 1), 4) for _ in range(4)]
            made.append([*values, "ill" if values[0] + values[1] > 0.3 * values[2] else "well"])
        return made

    for name, count in (("sites/mercy", 120), ("sites/north", 90), ("test", 100)):
        path = WORK / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "c", "d", "outcome"], *rows(count)])


def study(name: str, method: str = "scaffold", rounds: int = 3, more: str = "", epochs: int = 2) -> Path:
    """A study whose clients are the sites."""
    tables()
    file = WORK / f"{name}.toml"
    file.write_text(
        f'rounds = {rounds}\n[data]\nname = "csv"\ntrain = "sites"\ntest = "test.csv"\nlabel = "outcome"\n'
        f'[partition]\nkind = "natural"\n[clients]\nper-round = 2\nepochs = {epochs}\n{more}'
        f'[model]\nname = "mlp"\n[method]\nname = "{method}"\n'
    )
    return file


def kits(config: Path | None = None) -> None:
    """Kits for the sites and a stranger, with keys of their own and data."""
    config_option = [] if config is None else ["--config", str(config)]
    names = [word for name in SITES for word in ("--site", name)]
    node_command("kit", "fed", "--server", "127.0.0.1:8000", *config_option, *names)
    # The study does not have the stranger.
    node_command("kit", "fed", "--server", "127.0.0.1:8000", "--site", "stranger")
    for name in (*SITES, "stranger"):
        kit = WORK / "fed" / "sites" / name
        text = (kit / "site.toml").read_text()
        source = WORK / "sites" / f"{name if name in SITES else SITES[0]}.csv"
        data = f'name = "csv"\ntrain = "{source}"\nlabel = "outcome"'
        (kit / "site.toml").write_text(text.replace('name = "folder"\npath = "data"', data))
        node_command("key", "--site", str(kit / "site.toml"))
    (WORK / "ca.crt").write_bytes((WORK / "fed" / "server" / "ca.crt").read_bytes())


def node_command(*words: str, fails: int = 0) -> str:
    done = subprocess.run([tool("fedelity-node"), *words], cwd=WORK, capture_output=True, text=True)
    check(done.returncode == fails, f"fedelity-node {' '.join(words)}: {done.returncode} {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def node(name: str) -> Program:
    return Program(name, tool("fedelity-node"), "--site", str(WORK / "fed" / "sites" / name / "site.toml"))


def secured(again: bool = False) -> Program:
    """A SuperLink that knows the keys of the sites, but not the stranger's; `again` with the database of an earlier one."""
    server = WORK / "fed" / "server"
    names = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key")
    options = [word if word.startswith("--") else str(server / word) for word in names]
    link = superlink(*options, "--enable-supernode-auth", "--database", str(WORK / "link.db"))
    for name in () if again else SITES:
        key = WORK / "fed" / "sites" / name / f"{name}.pub"
        done = subprocess.run([tool("flwr"), "supernode", "register", str(key), "tls"], capture_output=True, text=True, cwd=WORK)
        check(done.returncode == 0, f"register: {done.stdout}{done.stderr}")
    return link


def audit(name: str) -> list[dict[str, object]]:
    text = (WORK / "fed" / "sites" / name / "state" / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def of_round(name: str, round_: int) -> list[object]:
    """What the log of a site has of a round."""
    return [line["event"] for line in audit(name) if line.get("round") == round_]


def policy(name: str, text: str) -> None:
    """Adds a key to the policy of a site."""
    file = WORK / "fed" / "sites" / name / "site.toml"
    file.write_text(file.read_text().replace("[policy]\n", f"[policy]\n{text}\n"))


def started(name: str, **settings: object) -> tuple[Path, Path, Program, list[Program], Program]:
    """A federation of the sites on its way, long enough to be disturbed: its study, its folder, the server, the nodes and the run."""
    file, folder = study(name, **settings), WORK / f"{name}-run"  # type: ignore[arg-type]
    kits()
    link = secured()
    running = [node(site) for site in SITES]
    run = flwr_run("run", "tls", config=str(file), output=str(folder), poll=0.1, join_timeout=90.0)
    until(lambda: "fedelity: round 1:" in run.text(), 120, "round 1")
    return file, folder, link, running, run


def undisturbed(file: Path, folder: Path, run: Program, rounds: int) -> None:
    """Waits for the end: all rounds, and the weights of `fedelity run`."""
    text = finish(run, 240)
    check(f"fedelity: finished, {rounds} rounds" in text, text[-3000:])
    expected, found = simulated(file), hashes(folder)
    check(found == expected, f"weights {found}, expected {expected}")


@case
def nodes() -> None:
    """Two of Fedelity's nodes with TLS, keys and tables of their own: the weights of `fedelity run`, a log of what left, and the
    last model at each site."""
    file, folder = study("nodes"), WORK / "nodes-run"
    kits(file)
    said = node_command("check", "--site", "fed/sites/mercy/site.toml")
    check("120 samples" in said and "control-change" in said and "no sample and no label" in said, said)
    link = secured()
    running = [node(name) for name in SITES]
    text = finish(flwr_run("run", "tls", config=str(file), output=str(folder), poll=0.1), 180)
    check("fedelity: finished, 3 rounds" in text, text[-3000:])
    compare(file, folder)
    for name in SITES:
        state = WORK / "fed" / "sites" / name / "state"
        until(lambda state=state: (state / "model.safetensors").exists(), 30, "the last model")
        model, ours = (state / "model.safetensors").read_bytes(), (folder / "model.safetensors").read_bytes()
        check(model == ours, f"the model at {name} is not the server's")
        done = subprocess.run(
            [tool("fedelity"), "predict", str(state / "model.safetensors"), str(WORK / "test.csv")],
            cwd=WORK, capture_output=True, text=True,
        )
        check(done.returncode == 0, f"predict with the model at {name}: {done.stderr}")
        lines = audit(name)
        messages = [line for line in lines if line["event"] in ("received", "sent")]
        check(all(len(str(line["sha256"])) == 64 and "bytes" in line and line["decision"] for line in messages), f"{messages}")
        asked = [line["event"] for line in messages if line["kind"] == "query"]
        check(asked == ["received", "sent"], f"questions and answers: {messages}")
        sent = [line for line in messages if line["event"] == "sent" and line["kind"] == "train"]
        check([line["round"] for line in sent] == [1, 2, 3], f"{sent}")
        check(all(set(line["arrays"]) == {"weights", "control-change"} for line in sent), f"{sent[0]}")  # type: ignore[arg-type]
    print(f"  one line of {len(lines)}: {json.dumps(sent[-1])}")
    for one in running:
        check(one.stop() == 0, f"{one.name} leaves in order: {one.text()[-500:]}")
        check("leaving the server" in one.text(), one.text()[-500:])
    link.kill()


@case
def node_stranger() -> None:
    """A node whose key is not registered tries for a while, says why, and ends."""
    study("stranger")
    kits()
    link, stranger = secured(), node("stranger")
    until(lambda: stranger.process.poll() is not None, 120, "the stranger ends")
    check(stranger.process.returncode == 3, f"the stranger: {stranger.process.returncode}")
    print(f"  the stranger: {stranger.text().splitlines()[-1]}")
    link.kill()


@case
def node_killed() -> None:
    """A node is killed between two rounds of SCAFFOLD and started again at once: it is let in, and the weights are the same."""
    file, folder, link, running, run = started("node-killed", rounds=4, epochs=40)
    running[1].process.send_signal(signal.SIGKILL)
    running[1].process.wait()
    since = time.monotonic()
    running[1].start()
    until(lambda: running[1].text().count("joined") == 2, 90, "the node is back")
    print(f"  back after {time.monotonic() - since:.1f} s", flush=True)
    undisturbed(file, folder, run, 4)
    link.kill()


@case
def node_killed_training() -> None:
    """A node is killed while it trains and started again: it trains the round again, answers it, and the weights are the same."""
    file, folder, link, running, run = started("node-killed-training", rounds=3, epochs=2_000)

    until(lambda: of_round("north", 2) == ["received"], 60, "the node trains round 2")
    running[1].process.send_signal(signal.SIGKILL)
    running[1].process.wait()
    running[1].start()
    undisturbed(file, folder, run, 3)
    check("answering what was not answered before" in running[1].text(), running[1].text())
    link.kill()


@case
def node_leaves() -> None:
    """A node is told to stop while it trains: it leaves at once and in order, sends nothing of the round, and when it is back the
    weights are the same."""
    file, folder, link, running, run = started("node-leaves", rounds=3, epochs=2_000)
    until(lambda: of_round("north", 2) == ["received"], 60, "the node trains round 2")
    since = time.monotonic()
    check(running[1].stop() == 0, f"the node leaves in order: {running[1].text()[-500:]}")
    print(f"  left after {time.monotonic() - since:.1f} s", flush=True)
    check(of_round("north", 2) == ["received"] and audit("north")[-1]["event"] == "left", f"{audit('north')[-2:]}")
    check("leaving the server" in running[1].text(), running[1].text()[-500:])
    running[1].start()
    undisturbed(file, folder, run, 3)
    check(of_round("north", 2) == ["received", "received", "sent"], f"{audit('north')}")
    link.kill()


@case
def node_offline() -> None:
    """The server is killed and started again: nodes wait, say so, and go on."""
    file, folder = study("node-offline", rounds=4, epochs=40), WORK / "node-offline-run"
    kits()
    link = secured()
    running = [node(name) for name in SITES]
    settings = {"config": str(file), "output": str(folder), "poll": 0.1}
    run = flwr_run("run", "tls", **settings)
    until(lambda: "fedelity: round 1:" in run.text(), 120, "round 1")
    link.kill()
    run.kill()
    until(lambda: all("cannot reach the server" in one.text() for one in running), 60, "the nodes notice")
    link = secured(again=True)
    text = finish(flwr_run("run-again", "tls", **settings), 240)
    check("going on after round" in text and "fedelity: finished, 4 rounds" in text, text[-3000:])
    compare(file, folder)
    check(all(one.process.poll() is None for one in running), "the nodes are still there")
    link.kill()


@case
def node_policy() -> None:
    """What a site's policy forbids is refused there: the server gets the reason, records it, and goes on without the site."""
    file, folder = study("node-policy", more="[server]\nquorum = 0.5\n"), WORK / "node-policy-run"
    kits(file)
    policy("north", 'methods = ["fedavg"]')
    said = node_command("check", "--site", "fed/sites/north/site.toml", fails=2)
    check("this site runs only fedavg" in said, said)
    link = secured()
    running = [node(name) for name in SITES]
    text = finish(flwr_run("run", "tls", config=str(file), output=str(folder), poll=0.1), 180)
    check("fedelity: finished, 3 rounds" in text, text[-3000:])
    reason = "the server asks for 'scaffold', and this site runs only fedavg"
    check(reason in text, text[-3000:])
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()[1:]]
    check(all(reason in json.dumps(line["incidents"]) for line in lines), f"{lines[0]['incidents']}")
    refused = [line for line in audit("north") if line["event"] == "received" and line["decision"] == "refused"]
    check(len(refused) == 3 and all(reason in str(line["reason"]) for line in refused), f"{refused}")
    check([line["round"] for line in refused] == [1, 2, 3], f"{refused}")
    check(all(line["sha256"] and line["agreement"] and line["arrays"] for line in refused), f"{refused}")
    left = [line for line in audit("north") if line["event"] == "sent" and line["kind"] == "train"]
    check(len(left) == 3 and all(reason in line["reason"] and "arrays" not in line for line in left), f"only the reason has left: {left}")
    check(all(line["bytes"] == len(line["reason"]) and len(line["sha256"]) == 64 for line in left), f"{left}")
    print(f"  {json.dumps(refused[0])}")
    check(all(one.stop() == 0 for one in running), "the nodes leave in order")
    link.kill()


@case
def node_data() -> None:
    """A site whose data do not fit the agreement takes no part; the server is not told what is in them."""
    file, folder = study("node-data", more="[server]\nquorum = 0.5\n"), WORK / "node-data-run"
    kits(file)
    table = WORK / "north.csv"
    table.write_text((WORK / "sites" / "north.csv").read_text() + "1,2,3,4,hopeless\n")
    site = WORK / "fed" / "sites" / "north" / "site.toml"
    site.write_text(site.read_text().replace("/sites/north.csv", "/north.csv"))
    said = node_command("check", "--site", str(site), fails=2)
    check("the class 'hopeless' is not part of the federation, which has ill, well" in said, said)
    link = secured()
    running = [node(name) for name in SITES]
    text = finish(flwr_run("run", "tls", config=str(file), output=str(folder), poll=0.1), 180)
    check("fedelity: finished, 3 rounds" in text, text[-3000:])
    check("cannot be used under the agreement" in text and "hopeless" not in text, text[-3000:])
    check("hopeless" not in json.dumps(audit("north")), "the log has no label")
    check("'hopeless'" in running[1].text(), running[1].text())
    link.kill()
