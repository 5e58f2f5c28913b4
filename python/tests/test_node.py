"""What a node does before it meets a server. Federations with real servers are in flower-app/tests."""

import hashlib
import json
import struct
import zlib
from types import SimpleNamespace

import fedelity
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs flwr")

from cryptography import x509
from flwr.app import ConfigRecord, Message, MessageType, Metadata, RecordDict
from flwr.common.serde import recorddict_to_proto

from fedelity.flower import server as app
from fedelity.flower.messages import MODEL, REFUSED, bytes_of, with_bytes
from fedelity.node.answers import Answers, Refusal
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
    list(make_kits(tmp_path / "fed", "fl.example.org:8000", ["10.0.0.1"], ["mercy", "north"], None))
    server = certificate(tmp_path / "fed/server/server.crt")
    authority = certificate(tmp_path / "fed/authority/ca.crt")
    server.verify_directly_issued_by(authority)
    assert (tmp_path / "fed/authority/ca.key").stat().st_mode & 0o077 == 0
    # Sites reach the server by its name, and Flower's processes on the server by its local address.
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "127.0.0.1"]
    assert "--host 0.0.0.0 --port 8000 " in (tmp_path / "fed/server/start").read_text()
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


def test_sites_have_the_numbers_of_the_study(tmp_path):
    rows = "".join(f"{i},{name}\n" for i in range(12) for name in ("ill", "well"))
    (tmp_path / "table.csv").write_text("a,outcome\n" + rows)
    study = {
        "data": {"name": "csv", "train": str(tmp_path / "table.csv"), "label": "outcome"},
        "partition": {"kind": "sites", "names": ["mercy", "north", "saint luke"]},
        "model": {"name": "logistic"},
    }
    server, folder = fedelity.Server(study), tmp_path / "fed"

    def kits(*names, study=server):
        made = list(make_kits(folder, "[::1]:8000", [], list(names), study))
        return {name: fedelity.Site(folder / "sites" / name / "site.toml").client_number for name in names} if made else {}

    # In another order than that of the study, one by one, and with a name that is no folder's.
    assert kits("saint-luke", "mercy") == {"saint-luke": 2, "mercy": 0}
    assert kits("north") == {"north": 1}
    assert (folder / "sites/north/agreement.json").read_text() == server.agreement
    assert fedelity.Site(folder / "sites/north/site.toml").keys["server"] == "[::1]:8000"
    with pytest.raises(SiteError, match="partition.names has mercy, north, saint-luke: add it there, or give one of those"):
        kits("west")
    # A site that has gone does not give its number to one that another has.
    (folder / "sites/mercy/site.toml").unlink()
    assert kits("east", study=None) == {"east": 3}
    plain = fedelity.Server({"partition": {"clients": 4}, "model": {"name": "logistic"}})
    with pytest.raises(SiteError, match="it would be client 4, but the study has 4 clients"):
        kits("west", study=plain)


def test_check_reads_data_without_an_agreement(tmp_path, monkeypatch, capsys):
    site = tmp_path / "site.toml"
    site.write_text('server = "fl.example.org:8000"\nclient = 0\n[data]\nname = "csv"\ntrain = "patients.csv"\nlabel = "outcome"\n')
    status, shown = command(monkeypatch, capsys, "check", "--site", str(site))
    assert status == 2 and "patients.csv" in shown
    (tmp_path / "patients.csv").write_text("a,outcome\n1,ill\n2,well\n3,ill\n")
    status, shown = command(monkeypatch, capsys, "check", "--site", str(site))
    assert status == 0 and "3 samples: 2 ill, 1 well" in shown and "none yet" in shown
    # Images of any size.
    for i, size in enumerate([(4, 5, 3), (9, 7, 3)]):
        draw(tmp_path / "images" / "cat" / f"{i}.png", np.zeros(size, np.uint8))
    draw(tmp_path / "images" / "dog" / "0.png", np.zeros((6, 6, 3), np.uint8))
    site.write_text('server = "fl.example.org:8000"\nclient = 0\n[data]\nname = "folder"\npath = "images"\n')
    status, shown = command(monkeypatch, capsys, "check", "--site", str(site))
    assert status == 0 and "3 samples: 2 cat, 1 dog" in shown


def test_flowers_app_has_no_methods_in_python(tmp_path):
    (tmp_path / "study.toml").write_text('[method]\nname = "mine-alone"\n')
    seconds = {"join-timeout": 1, "round-timeout": 1, "poll": 0.1}
    context = SimpleNamespace(run_id=1, run_config={**seconds, "config": str(tmp_path / "study.toml"), "output": str(tmp_path / "run")})
    with pytest.raises(fedelity.ConfigError, match='"mine-alone".*Flower\'s app and sites have the built-in ones only'):
        app.main(None, context)


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


def draw(path, pixels):
    """Writes a PNG file."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def test_sites_with_folders_of_images_train_under_the_agreement(tmp_path):
    """Three sites answer what a server asks, each with a folder of its own: the weights are those of a run that has them all."""
    rng = np.random.default_rng(1)
    # The second site has no cats, and folders say neither the size nor the colours that the model reads.
    for site, counts in {"a": {"cat": 9, "dog": 7}, "b": {"dog": 11}, "c": {"cat": 12, "dog": 3}}.items():
        for name, count in counts.items():
            for i in range(count):
                draw(tmp_path / "all/train" / site / name / f"{i:03}.png", rng.integers(0, 256, (10, 12, 3), np.uint8))
    for name in ("cat", "dog"):
        for i in range(4):
            draw(tmp_path / "all/test/a" / name / f"{i:03}.png", rng.integers(0, 256, (10, 12, 3), np.uint8))
    config = {
        "rounds": 3,
        "data": {"name": "folder", "path": str(tmp_path / "all"), "layout": "key/class", "size": [8, 8], "colour": "grey"},
        "partition": {"kind": "natural"},
        "clients": {"epochs": 2, "batch": 4},
        "model": {"name": "mlp"},
        "method": {"name": "scaffold"},
    }
    expected = [record["weights"]["sha256"] for record in fedelity.run(config, "run").runs[0].records]
    server = fedelity.Server(config)

    def site(number, name):
        file = tmp_path / f"{name}.toml"
        file.write_text(
            f'server = "fl.example.org:8000"\nclient = {number}\nstate = "state-{name}"\n'
            f'[data]\nname = "folder"\npath = "all/train/{name}"\n'
        )
        state = State(tmp_path / f"state-{name}")
        return Answers(fedelity.Site(file), state, Audit(tmp_path / f"audit-{name}.jsonl"))

    def come(content, kind=MessageType.TRAIN):
        """A message as it is when it has come from a server."""
        metadata = Metadata(
            run_id=1, message_id="", src_node_id=1, dst_node_id=2, reply_to_message_id="", group_id="", created_at=0.0, ttl=60.0,
            message_type=kind,
        )
        return Message(content=content, metadata=metadata)

    def question(number):
        return come(with_bytes("message", server.message(number), agreement=server.agreement))

    def asked(answers, number):
        """The bytes of the answer."""
        message = question(number)
        answer, did = answers.to(message)
        assert did == f"trained round {server.rounds + 1}"
        return bytes_of(Message(answer, reply_to=message), "upload")

    sites = {number: site(number, name) for number, name in enumerate("abc")}
    for digest in expected:
        for number in server.open():
            server.accept(number, asked(sites[number], number))
        assert server.close() and server.hash == digest
    logged = [json.loads(line) for line in (tmp_path / "audit-b.jsonl").read_text().splitlines()]
    assert [entry["event"] for entry in logged] == ["received", "sent"] * 3
    assert "dog" not in (tmp_path / "audit-b.jsonl").read_text()

    # The last model is kept if it is one.
    sites[1].to(come(with_bytes("model", (tmp_path / "run/model.safetensors").read_bytes()), MODEL))
    kept = tmp_path / "state-b/model.safetensors"
    def last_of(count):
        """The last lines of the log: each says what came or went, and what was decided."""
        return [json.loads(line) for line in (tmp_path / "audit-b.jsonl").read_text().splitlines()[-count:]]

    kept_line, thanks = last_of(2)
    assert kept_line["decision"] == "kept" and sum(kept_line["arrays"].values()) == sum(map(np.size, server.weights().values()))
    assert (thanks["event"], thanks["bytes"], thanks["sha256"]) == ("sent", 0, hashlib.sha256(b"").hexdigest())
    with pytest.raises(Refusal, match="cannot be read as a model") as refused:
        sites[1].to(come(with_bytes("model", b"this is not a model"), MODEL))
    sites[1].refuse(come(with_bytes("model", b"this is not a model"), MODEL), refused.value)
    assert last_of(2)[0]["sha256"] == hashlib.sha256(b"this is not a model").hexdigest()
    assert kept.read_bytes() == (tmp_path / "run/model.safetensors").read_bytes()
    assert not (tmp_path / "state-b/new.safetensors").exists()

    # A class that nobody knows: the operator sees which, the server does not.
    server = fedelity.Server({**config, "seeds": [7]})
    server.open()
    draw(tmp_path / "all/train/b/fox/000.png", rng.integers(0, 256, (10, 12, 3), np.uint8))
    with pytest.raises(Refusal, match="its operator sees why") as refused:
        asked(sites[1], 1)
    assert "fox" not in str(refused.value) and "the class 'fox' is not part of the federation" in refused.value.detail
    # The log says what was refused, and what was answered.
    reply = sites[1].refuse(question(1), refused.value)
    last, answer = last_of(2)
    assert (last["event"], last["decision"], last["round"]) == ("received", "refused", 1)
    assert set(last["arrays"]) == {"weights"} and last["bytes"] == len(server.message(1))
    assert last["sha256"] == hashlib.sha256(server.message(1)).hexdigest()
    assert last["agreement"] == hashlib.sha256(server.agreement.encode()).hexdigest()
    assert (answer["event"], answer["decision"], answer["round"]) == ("sent", "refused", 1) and "arrays" not in answer
    assert answer["reason"] == reply.error.reason and answer["sha256"] == hashlib.sha256(reply.error.reason.encode()).hexdigest()

    # Questions, and what is no question of a server.
    asking = RecordDict({"server": ConfigRecord({"fedelity": fedelity.__version__})})
    answer, _ = sites[1].to(come(asking, MessageType.QUERY))
    told = come(RecordDict({"refusal": ConfigRecord({"reason": "two nodes"})}), REFUSED)
    sites[1].to(told)
    received, sent, noted, _ = last_of(4)
    assert (received["kind"], received["decision"], noted["decision"]) == ("query", "answered", "noted")
    for line, content in [(received, asking), (sent, answer), (noted, told.content)]:
        data = recorddict_to_proto(content).SerializeToString(deterministic=True)
        assert data and (line["bytes"], line["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    for strange in [come(asking, "train.other"), come(asking), come(RecordDict(), MODEL)]:
        with pytest.raises(Refusal) as refused:
            sites[1].to(strange)
        sites[1].refuse(strange, refused.value)
        assert [line["decision"] for line in last_of(2)] == ["refused", "refused"]

    # A message that was accepted, but cannot be trained on, has come once: its size is right, and its weights are none.
    (tmp_path / "all/train/b/fox/000.png").unlink()
    (tmp_path / "all/train/b/fox").rmdir()
    message = server.message(1)

    # What cannot be saved is refused, whether or not the site has trained, and can be asked for again.
    for name in ["agreement.json", f"memory-{hashlib.sha256(server.agreement.encode()).hexdigest()[:16]}.bin"]:
        (tmp_path / f"state-b/{name}.part").mkdir()
        with pytest.raises(Refusal, match="cannot save what it must remember") as refused:
            sites[1].to(question(1))
        assert "state: " in refused.value.detail
        sites[1].refuse(question(1), refused.value)
        (tmp_path / f"state-b/{name}.part").rmdir()

    broken = come(with_bytes("message", message[:76] + b"\xff" * (len(message) - 84) + message[-8:], agreement=server.agreement))
    with pytest.raises(Refusal) as refused:
        sites[1].to(broken)
    sites[1].refuse(broken, refused.value)
    lines = last_of(1000)
    assert [(line["event"], line["decision"]) for line in lines[-2:]] == [("received", "accepted"), ("sent", "refused")]
    assert all(len(line["sha256"]) == 64 and line["bytes"] >= 0 and line["decision"] and line["time"] for line in lines)
    assert [line["event"] for line in lines] == ["received", "sent"] * (len(lines) // 2)
    assert "fox" not in json.dumps(lines)
