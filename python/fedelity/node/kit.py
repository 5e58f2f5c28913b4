"""Kits: what a site gets from whoever runs the server. Private keys are not among it: each site makes its own."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import fedelity

from .errors import SiteError
from .keys import make_authority, make_server_certificate

LOCAL = ("localhost", "127.0.0.1")

SITE = """\
# The site {name}. Keys are explained in the guide to real sites.
server = "{server}"
client = {client}
certificate = "ca.crt"
key = "{name}.key"
state = "state"

# The data of this site: a folder with one folder of images per class, or a table.
[data]
name = "folder"
path = "data"

# What may run here, and what may leave. It can only tighten what the server asks for.
[policy]
# methods = ["fedavg", "fedntd"]
# most-bytes-up = 50_000_000
label-counts = false
fewest-samples = 1
# largest-update = 1.0
# noise = 0.5
"""

UNIT = """\
[Unit]
Description=Fedelity node of the site {name}
Wants=network-online.target
After=network-online.target

[Service]
# Where the kit is, and where fedelity-node is installed.
WorkingDirectory=/etc/fedelity/{name}
ExecStart=/opt/fedelity/bin/fedelity-node --site site.toml
User=fedelity
UMask=0077
Restart=on-failure
# A mistake in the site's file or a refused key does not go away by itself.
RestartPreventExitStatus=2 3
RestartSec=10
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
# Data below /home or /root cannot be read; read-only lets it be read.
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
ReadWritePaths=/etc/fedelity/{name}/state

[Install]
WantedBy=multi-user.target
"""

SERVER = """\
# Starts Flower's server with this certificate, on all addresses of this machine; only registered nodes may join.
cd "$(dirname "$0")"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
exec flower-superlink --host 0.0.0.0 --port {port} --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \\
  --enable-supernode-auth --database state.db --disable-runtime-dependency-installation "$@"
"""


def make_kits(
    folder: Path, server: str, also: list[str], sites: list[str], study: fedelity.Server | None
) -> Iterator[str]:
    """Makes an authority and the server's certificate, unless they exist, and a kit for each site; says what it made. If the
    study is given, sites are its clients, and each kit has its agreement."""
    host, port = _address(server)
    for name in sites:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
            raise SiteError(f"--site {name}: a name has letters, digits, '.', '_' and '-', and at most 64 of them")
        if sites.count(name) > 1 or (folder / "sites" / name).exists():
            raise SiteError(f"--site {name}: there is a kit for this site already in {folder / 'sites'}")
    numbered = _numbered(folder, sites, study)
    authority, machine = folder / "authority", folder / "server"
    make_authority(authority, f"Fedelity federation at {host}")
    certificate = (authority / "ca.crt").read_bytes()
    if not (machine / "server.crt").exists():
        # Flower's own processes on the server reach it by its local address.
        make_server_certificate(authority, machine, list(dict.fromkeys([host, *also, *LOCAL])))
        (machine / "ca.crt").write_bytes(certificate)
        (machine / "start").write_text("#!/bin/sh\n" + SERVER.format(port=port))
        (machine / "start").chmod(0o755)
        yield f"{authority}: the authority; ca.key stays with you"
        yield f"{machine}: certificate and key of the server {host}; {machine / 'start'} starts it"
    for number, name in numbered:
        kit = folder / "sites" / name
        kit.mkdir(parents=True)
        (kit / "ca.crt").write_bytes(certificate)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        (kit / "site.toml").write_text(SITE.format(name=name, server=address, client=number))
        (kit / f"fedelity-node-{name}.service").write_text(UNIT.format(name=name))
        if study is not None:
            (kit / "agreement.json").write_text(study.agreement)
        yield f"{kit}: the kit of client {number}"


def _numbered(folder: Path, sites: list[str], study: fedelity.Server | None) -> list[tuple[int, str]]:
    """The number of each new site: its place among the names of the study or, if those are not known, the first ones that no
    kit has."""
    taken = {}
    for file in sorted(folder.glob("sites/*/site.toml")):
        try:
            taken[int(tomllib.loads(file.read_text())["client"])] = file.parent.name
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise SiteError(f"{file}: cannot read the number of its client: {error!r}") from None
    names = [] if study is None else [re.sub(r"[^A-Za-z0-9._-]", "-", name) for name in study.names]
    numbered: list[tuple[int, str]] = []
    for name in sites:
        if names and name not in names:
            raise SiteError(f"--site {name}: the study's partition.names has {', '.join(names)}: add it there, or give one of those")
        number = names.index(name) if names else max(taken, default=-1) + 1
        if number in taken:
            raise SiteError(f"--site {name}: client {number} is {taken[number]}, whose kit is in {folder / 'sites'}")
        if study is not None and number >= study.clients:
            raise SiteError(f"--site {name}: it would be client {number}, but the study has {study.clients} clients, from 0")
        taken[number] = name
        numbered.append((number, name))
    return numbered


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise SiteError(f"--server {server}: expected HOST:PORT, such as fl.example.org:8000")
    return host.strip("[]") if host.startswith("[") else host, int(port)
