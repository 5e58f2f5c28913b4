"""Flower's own nodes and simulation."""

import json
import subprocess
import time

from federation import (
    METHODS,
    WORK,
    Program,
    case,
    check,
    compare,
    descendants,
    finish,
    flwr_run,
    hashes,
    seconds_a_round,
    study,
    superlink,
    supernode,
    tool,
    until,
)

# What CI runs.


def simulate(methods: list[str]) -> None:
    link = superlink("--insecure", "--simulation")
    for method in methods:
        file, folder = study(f"simulation-{method}", 4, method), WORK / f"simulation-{method}"
        run = flwr_run(
            f"run-{method}", federation="num-supernodes=4 client-resources-num-cpus=1", config=str(file), output=str(folder), poll=0.1
        )
        text = finish(run, 240)
        check("fedelity: finished, 2 rounds" in text, text[-3000:])
        compare(file, folder)
        print(f"  seconds a round: {seconds_a_round(folder)}", flush=True)
    link.kill()


def deploy(methods: list[str]) -> None:
    link = superlink("--insecure")
    for number in (0, 1):
        supernode(number)
    for method in methods:
        file, folder = study(f"deployment-{method}", 2, method), WORK / f"deployment-{method}"
        text = finish(flwr_run(f"run-{method}", config=str(file), output=str(folder), poll=0.1), 240)
        check("fedelity: finished, 2 rounds" in text, text[-3000:])
        compare(file, folder)
        print(f"  seconds a round: {seconds_a_round(folder)}", flush=True)
    link.kill()


@case
def simulation() -> None:
    """Flower's simulation (Ray) with 4 clients."""
    simulate(["scaffold"])


@case
def deployment() -> None:
    """A SuperLink and two SuperNodes."""
    deploy(["scaffold"])


# On demand.


@case
def simulated_methods() -> None:
    """FedAvg, FedNTD, SCAFFOLD, MOON, FedGKD-VOTE and FedCAD in Flower's simulation."""
    simulate(list(METHODS))


@case
def deployed_methods() -> None:
    """The same methods on two SuperNodes."""
    deploy(list(METHODS))


@case
def tls() -> None:
    """TLS and node keys: registered nodes train, and one that is not registered is refused, until it is."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=WORK, check=True, capture_output=True)

    ca = ["-subj", "/CN=test CA", "-addext", "basicConstraints=critical,CA:TRUE"]
    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", f"{name}.key", "-out", f"{name}.crt", *ca)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (WORK / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    sign = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", *sign)
    for number in range(3):
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", f"key{number}"], cwd=WORK, check=True)
    certificates = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key")
    link = superlink(*certificates, "--enable-supernode-auth")
    for url, authority in (("http://127.0.0.1:8000/health", "ca.crt"), ("https://127.0.0.1:8000/health", "other.crt")):
        done = subprocess.run(["curl", "-sf", "--cacert", authority, url], cwd=WORK, capture_output=True)
        check(done.returncode != 0, f"{url} answers with {authority}")

    def register(key: int) -> None:
        done = subprocess.run([tool("flwr"), "supernode", "register", f"key{key}.pub", "tls"], cwd=WORK, capture_output=True, text=True)
        check(done.returncode == 0, f"register: {done.stdout}{done.stderr}")

    def keyed(number: int, key: int, name: str = "") -> Program:
        return supernode(number, name=name, security=("--root-certificates", "ca.crt", "--auth-supernode-private-key", f"key{key}"))

    def activated() -> int:
        return link.text().count('/activate-node HTTP/1.1" 200')

    register(0)
    register(1)
    # The stranger says that it is a client that the federation waits for.
    stranger = keyed(1, 2, "stranger")
    keyed(0, 0)
    file, folder = study("tls-fedavg", 2, "fedavg"), WORK / "tls-fedavg"
    run = flwr_run("run", "tls", config=str(file), output=str(folder), poll=0.1)
    until(lambda: stranger.process.poll() is not None, 90, "the unregistered node ends")
    until(lambda: "fedelity: client 0 is here" in run.text(), 90, "the registered node is here")
    check(stranger.process.returncode != 0, "the unregistered node must fail")
    check("Failed to activate SuperNode" in stranger.text(), f"the unregistered node: {stranger.text()[-2000:]}")
    check("client 1 is here" not in run.text() and activated() == 1, f"the unregistered node got in: {run.text()[-2000:]}")
    print(f"  the unregistered node ended with status {stranger.process.returncode}: Failed to activate SuperNode", flush=True)
    keyed(1, 1)
    text = finish(run, 180)
    check("fedelity: finished, 2 rounds" in text and activated() == 2, text[-3000:])
    compare(file, folder)
    # It was its key alone.
    register(2)
    stranger.start()
    until(lambda: activated() == 3, 60, "the node is let in once its key is registered")
    link.kill()


@case
def killed() -> None:
    """A node is killed in the middle of a round: the quorum ends the round, and the node takes part again."""
    link = superlink("--insecure")
    nodes = [supernode(number) for number in (0, 1)]
    slow = "[data]\naugmentation = { crop = 2, flip = true }\n"
    file = WORK / "killed.toml"
    file.write_text(study("killed", 2, "fedavg", rounds=4, more=slow).read_text().replace("epochs = 1", "epochs = 60"))
    folder = WORK / "killed-run"
    run = flwr_run("run", config=str(file), output=str(folder), poll=0.2, join_timeout=8.0)
    until(lambda: "fedelity: round 1:" in run.text(), 180, "round 1")
    busy = lambda: any("clientapp" in row for row in processes(nodes[1].process.pid))  # noqa: E731
    until(busy, 60, "training of round 2")
    time.sleep(3)
    nodes[1].kill()
    print("  node 1 was killed in round 2", flush=True)
    until(lambda: "fedelity: round 2: 1 of 2 uploads" in run.text(), 180, "round 2 ends with one upload")
    nodes[1].start()
    text = finish(run, 300)
    check("fedelity: finished, 4 rounds" in text, text[-3000:])
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()[1:]]
    counts = [line.get("accepted", 2) for line in lines]
    check(counts[0] == 2 and counts[1] == 1 and counts[3] == 2, f"uploads: {counts}")
    print(f"  uploads that counted: {counts}; round 2: {lines[1]['incidents']}")
    link.kill()


def processes(pid: int) -> list[str]:
    """The command lines of the processes that a process has started."""
    below = descendants(pid) - {pid}
    rows = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout.splitlines()
    return [row for row in rows if int(row.split(None, 1)[0]) in below]


@case
def restarted() -> None:
    """A SuperNode restarts between rounds of SCAFFOLD: with its memory in a folder the weights are the same, and without
    one the client says what it has lost."""
    link = superlink("--insecure")
    for kept in (True, False):
        name = "kept" if kept else "lost"
        options = [f'memory="{WORK / "memory"}"'] if kept else []
        nodes = [supernode(number, *options, name=f"{name}{number}") for number in (0, 1)]
        file = study(f"restarted-{name}", 2, "scaffold", rounds=3)
        folder = WORK / f"restarted-{name}-run"
        run = flwr_run(f"run-{name}", config=str(file), output=str(folder), poll=0.2, join_timeout=90.0, round_timeout=60.0)
        until(lambda: "fedelity: round 1:" in run.text(), 180, "round 1")
        nodes[1].stop()
        nodes[1].start()
        text = finish(run, 300)
        if kept:
            check("fedelity: finished, 3 rounds" in text, text[-3000:])
            compare(file, folder)
        else:
            said = [line for line in text.splitlines() if "but the client remembers nothing" in line]
            check(bool(said), text[-3000:])
            print(f"  {said[0].strip()}")
        for node in nodes:
            node.kill()
        until(lambda: True, 1, "")
        time.sleep(65)  # until Flower notices that they have gone
    link.kill()


@case
def restarted_superlink() -> None:
    """The SuperLink and the server are killed and started again, with a database: the federation goes on in its folder."""
    database = ("--insecure", "--database", str(WORK / "link.db"))
    link = superlink(*database)
    memory = f'memory="{WORK / "memory"}"'
    nodes = [supernode(number, memory) for number in (0, 1)]
    file, folder = study("superlink", 2, "scaffold", rounds=4), WORK / "superlink-run"
    settings = {"config": str(file), "output": str(folder), "poll": 0.2}
    run = flwr_run("run-first", **settings)
    until(lambda: "fedelity: round 2:" in run.text(), 180, "round 2")
    link.kill()
    run.kill()
    print(f"  SuperLink and server were killed after {len(hashes(folder))} rounds", flush=True)
    check(all(node.process.poll() is None for node in nodes), "the nodes wait for the SuperLink")
    link = superlink(*database)
    text = finish(flwr_run("run-again", **settings), 300)
    check("going on after round" in text and "fedelity: finished, 4 rounds" in text, text[-3000:])
    compare(file, folder)
    link.kill()


@case
def one_number() -> None:
    """Two nodes with one client number, and a number that the study does not have: refused, and they are told."""
    link = superlink("--insecure")
    nodes = [supernode(0), supernode(0, name="twin"), supernode(7)]
    file, folder = study("number", 2, "fedavg"), WORK / "number-run"
    run = flwr_run("run", config=str(file), output=str(folder), poll=0.2, join_timeout=150.0)
    until(lambda: "must not have one number" in run.text(), 200, "the second node is refused")
    until(lambda: "says that it is client 7, but the configuration" in run.text(), 60, "number 7 is refused")
    supernode(1)
    text = finish(run, 240)
    check("fedelity: finished, 2 rounds" in text, text[-3000:])
    compare(file, folder)
    for line in text.splitlines():
        if "refused:" in line:
            print(f"  {line.strip()}")
    check(text.count("fedelity: refused:") == 2, text[-3000:])

    def told(node: Program) -> bool:
        return "the server does not use this node" in node.text()

    first, twin, seventh = nodes
    until(lambda: told(seventh) and (told(first) or told(twin)), 30, "the refused nodes are told")
    check(told(first) != told(twin), "one of the two with the same number is used, and only the other is told")
    check("two nodes must not have one number" in (first if told(first) else twin).text(), "the second node is told why")
    check("has clients 0 to 1: start the node with another number" in seventh.text(), "number 7 is told why")
    print(f"  told: {[node.name for node in nodes if told(node)]}")
    link.kill()


@case
def nobody() -> None:
    """No node comes, or too few: the server does not wait without limit, and says what is missing."""
    link = superlink("--insecure")
    file, folder = study("nobody", 2, "fedavg", more="[server]\nquorum = 1.0\n"), WORK / "nobody-run"
    supernode(1)
    text = finish(flwr_run("run", config=str(file), output=str(folder), poll=0.2, join_timeout=25.0), 120)
    check("1 of 2 clients came within 25 s, and a round needs 2: start the nodes of client 0" in text, text[-3000:])
    check("fedelity: interrupted, 0 rounds" in text, text[-3000:])
    supernode(0)
    text = finish(flwr_run("again", config=str(file), output=str(folder), poll=0.2), 180)
    check("fedelity: finished, 2 rounds" in text, text[-3000:])
    compare(file, folder)
    link.kill()
