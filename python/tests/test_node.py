"""What a node does before it meets a server. Federations with real servers are in flower-app/tests."""

import json

import fedelity
import pytest

pytest.importorskip("flwr")

from fedelity.node.audit import Audit
from fedelity.node.command import main
from fedelity.node.errors import SiteError
from fedelity.node.keys import certificate, make_key, private_key
from fedelity.node.kit import make_kits
from fedelity.node.state import State


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["fedelity-node", *words])
    status = main()
    shown = capsys.readouterr()
    return status, shown.out + shown.err


def test_kits_have_certificates_and_no_keys(tmp_path):
    list(make_kits(tmp_path / "fed", "fl.example.org:8000", ["10.0.0.1"], ["mercy", "north"], "{}"))
    server = certificate(tmp_path / "fed/server/server.crt")
    authority = certificate(tmp_path / "fed/authority/ca.crt")
    server.verify_directly_issued_by(authority)
    assert (tmp_path / "fed/authority/ca.key").stat().st_mode & 0o077 == 0
    for number, name in enumerate(["mercy", "north"]):
        kit = tmp_path / "fed/sites" / name
        assert not list(kit.glob("*.key"))
        site = fedelity.Site(kit / "site.toml")
        assert site.client_number == number and site.keys["server"] == "fl.example.org:8000"
    # More sites later; none twice.
    list(make_kits(tmp_path / "fed", "fl.example.org:8000", [], ["south"], None))
    assert fedelity.Site(tmp_path / "fed/sites/south/site.toml").client_number == 2
    assert certificate(tmp_path / "fed/authority/ca.crt") == authority
    for name in ["north", "../up", ""]:
        with pytest.raises(SiteError):
            list(make_kits(tmp_path / "fed", "fl.example.org:8000", [], [name], None))
    with pytest.raises(SiteError, match="expected HOST:PORT"):
        list(make_kits(tmp_path / "fed", "fl.example.org", [], ["west"], None))


def test_keys_are_private_and_never_overwritten(tmp_path):
    public = make_key(tmp_path / "mercy.key")
    assert public.name == "mercy.pub" and public.read_text().startswith("ecdsa-sha2-nistp384 ")
    private_key(tmp_path / "mercy.key")
    with pytest.raises(SiteError, match="exists, and is not overwritten"):
        make_key(tmp_path / "mercy.key")
    (tmp_path / "mercy.key").chmod(0o644)
    with pytest.raises(SiteError, match="chmod 600"):
        private_key(tmp_path / "mercy.key")
    with pytest.raises(SiteError, match="fedelity-node key"):
        private_key(tmp_path / "missing.key")


def test_one_process_has_a_state_folder(tmp_path):
    state = State(tmp_path / "state")
    with pytest.raises(SiteError, match="belongs to a node that is running"):
        State(tmp_path / "state")
    state.write("memory", b"old")
    state.write("memory", b"new")
    assert state.read("memory") == b"new" and state.read("other") is None
    state.close()
    assert State(tmp_path / "state").read("memory") == b"new"


def test_the_log_survives_a_torn_line(tmp_path):
    path = tmp_path / "audit.jsonl"
    first = Audit(path)
    first.note("sent", b"12345", round=3, decision="sent")
    first.close()
    with path.open("ab") as file:
        file.write(b'{"time": "2026')
    second = Audit(path)
    second.note("left")
    second.close()
    lines = path.read_text().splitlines()
    assert json.loads(lines[0])["bytes"] == 5 and len(json.loads(lines[0])["sha256"]) == 64
    assert json.loads(lines[-1])["event"] == "left"


def test_check_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    status, shown = command(monkeypatch, capsys, "check", "--site", "missing.toml")
    assert status == 2 and "cannot read missing.toml" in shown
    site = tmp_path / "site.toml"
    site.write_text('server = "fl.example.org:8000"\nclient = 0\n[policy]\nnoise = 1.0\n')
    status, shown = command(monkeypatch, capsys, "check", "--site", str(site))
    assert status == 2 and "site.toml:4:1: policy.noise: needs largest-update" in shown
    site.write_text('server = "fl.example.org:8000"\nclient = 0\nkey = "nowhere.key"\n')
    status, shown = command(monkeypatch, capsys, "check", "--site", str(site))
    assert status == 2 and "fedelity-node key" in shown
