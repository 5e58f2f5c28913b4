"""The guide to real sites on three machines: a server and two sites, each with an address and files of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from federation import WORK, Program, case, check, compare, finish, flwr_run, tool, until
from node_cases import SITES, study

SERVER = "fl.example.org"
ADDRESSES = {"server": "10.77.0.1", "mercy": "10.77.0.2", "north": "10.77.0.3"}


def machines() -> None:
    """Three network namespaces on one switch, which know the server by its name."""

    def run(*words: str) -> None:
        done = subprocess.run(words, capture_output=True, text=True)
        check(done.returncode == 0, f"{' '.join(words)}: {done.stderr}")

    (WORK / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESSES['server']} {SERVER}\n")
    run("mount", "--bind", str(WORK / "hosts"), "/etc/hosts")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("ip", "link", "add", "switch", "type", "bridge")
    run("ip", "link", "set", "switch", "up")
    for name, address in ADDRESSES.items():
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", f"to-{name}", "master", "switch", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")


def on(name: str, *command: str) -> list[str]:
    """A command on a machine, in its folder."""
    return ["ip", "netns", "exec", name, "env", "--chdir", str(WORK / name), *command]


def said(name: str, *command: str) -> str:
    done = subprocess.run(on(name, *command), capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(command)} at {name}: {done.stdout}{done.stderr}")
    return done.stdout


@case
def three_machines() -> None:
    """The guide's commands on three machines: the weights of `fedelity run`, and the model at both sites."""
    machines()
    file, folder = study("three"), WORK / "three-run"
    fedelity_node = tool("fedelity-node")
    (WORK / "server").mkdir()
    # At the server: kits, which are handed to the sites.
    sites = [word for name in SITES for word in ("--site", name)]
    print(said("server", fedelity_node, "kit", "federation", "--server", f"{SERVER}:8000", *sites, "--config", str(file)), end="")
    for number, name in enumerate(SITES):
        shutil.copytree(WORK / "server" / "federation" / "sites" / name, WORK / name)
        shutil.copy(WORK / "sites" / f"{name}.csv", WORK / name / "patients.csv")
        site = WORK / name / "site.toml"
        data = 'name = "csv"\ntrain = "patients.csv"\nlabel = "outcome"'
        site.write_text(site.read_text().replace('name = "folder"\npath = "data"', data))
        check(f"client = {number}" in site.read_text(), site.read_text())
    server = WORK / "server" / "federation" / "server"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    link = Program("superlink", *on("server", "env", f"PATH={path}", str(server / "start")))
    health = ["curl", "-sf", "--cacert", "ca.crt", f"https://{SERVER}:8000/health"]
    until(lambda: subprocess.run(on(SITES[0], *health), capture_output=True).returncode == 0, 60, "the SuperLink, seen from a site")
    home = Path(os.environ["FLWR_HOME"])
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "fl"\n[superlink.fl]\naddress = "{SERVER}:8000"\nroot-certificates = "{server}/ca.crt"\n'
    )
    # At each site: a key, whose public half goes to the server, and a look at what would leave.
    for name in SITES:
        print(said(name, fedelity_node, "key", "--site", "site.toml"), end="")
        print(said(name, fedelity_node, "check", "--site", "site.toml"), end="")
        shutil.copy(WORK / name / f"{name}.pub", WORK / "server")
        said("server", tool("flwr"), "supernode", "register", f"{name}.pub", "fl")
    nodes = [Program(name, *on(name, fedelity_node, "--site", "site.toml")) for name in SITES]
    run = flwr_run("run", "fl", before=on("server"), config=str(file), output=str(folder), poll=0.1)
    text = finish(run, 180)
    check("fedelity: finished, 3 rounds" in text, text[-3000:])
    compare(file, folder)
    for name, node in zip(SITES, nodes, strict=True):
        model = WORK / name / "state" / "model.safetensors"
        until(model.exists, 30, f"the last model at {name}")
        check(model.read_bytes() == (folder / "model.safetensors").read_bytes(), f"the model at {name} is not the server's")
        print(said(name, tool("fedelity"), "evaluate", "state/model.safetensors", "--data", "patients.csv").splitlines()[0])
        check(node.stop() == 0, f"{name} leaves in order: {node.text()[-500:]}")
    link.kill()
