"""A server and its clients give the weights of a run."""

import base64
import json
import struct
import subprocess
import sys

import fedelity
import numpy as np
import pytest
import test_method  # noqa: F401: its methods in Python are registered


def hashes(result):
    return [record["weights"]["sha256"] for record in result.runs[0].records]


def exchange(server, clients):
    """One round, with uploads in reverse order."""
    for client in reversed(server.open()):
        server.accept(client, clients(client).train(server.message(client)))
    assert server.missing() == []
    return server.close()


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedntd", "my-ntd", "control", "average"])
def test_the_weights_of_a_run(small, method):
    config = {**small, "method": {"name": method}}
    expected = hashes(fedelity.run(config, "run"))
    server = fedelity.Server(config)
    made = {}

    def clients(number):
        if number not in made:
            made[number] = fedelity.Client(server.agreement, number, config=config)
        return made[number]

    for digest in expected:
        end = exchange(server, clients)
        assert end and sorted(end.counted) == end.counted and end.left_out == []
        assert server.hash == digest
        # Both sides can be rebuilt between rounds.
        server = fedelity.Server.restore(config, server.save())
        memories = {number: client.memory() for number, client in made.items()}
        made.clear()
        for number, memory in memories.items():
            clients(number).remember(memory)
    assert server.rounds == 3
    weights = fedelity.Result("run").runs[0].weights()
    assert list(weights) == list(server.weights())
    assert all((weights[name] == array).all() for name, array in server.weights().items())
    assert server.evaluate().accuracy == pytest.approx(fedelity.Result("run").runs[0].curve()[-1])


def test_refusals_say_why(small):
    server = fedelity.Server(small)
    chosen = server.open()
    client = fedelity.Client(server.agreement, chosen[0], config=small)
    upload = client.train(server.message(chosen[0]))
    with pytest.raises(fedelity.Refused, match="two nodes must not have one number"):
        server.accept(chosen[1], upload)
    with pytest.raises(fedelity.Refused, match="not a message"):
        server.accept(chosen[0], b"GET / HTTP/1.1")
    for broken, why in [
        (upload[:-1], "ends too early.*the sender must send it again, whole"),
        (upload + b"more", "4 bytes follow the end.*the sender must send it again"),
        (server.message(chosen[0]), r"of kind 2, expected 3 \(an upload\): the sender must send that instead"),
    ]:
        with pytest.raises(fedelity.Refused, match=why):
            server.accept(chosen[0], broken)
    server.accept(chosen[0], upload)
    with pytest.raises(fedelity.Refused, match="already"):
        server.accept(chosen[0], upload)
    assert server.missing() == chosen[1:]
    stranger = next(number for number in range(5) if number not in chosen)
    outsider, message = fedelity.Client(server.agreement, stranger, config=small), server.message(chosen[0])
    with pytest.raises(fedelity.Refused, match="must give each client its own"):
        outsider.train(message)
    # With another client's number, it would train.
    outside = outsider.train(message[:36] + struct.pack("<Q", stranger) + message[44:])
    with pytest.raises(fedelity.Refused, match="must wait until the server sends it a message"):
        server.accept(stranger, outside)
    with pytest.raises(fedelity.Error, match="not one of the open round's"):
        server.message(next(number for number in range(5) if number not in chosen))
    before = server.hash
    server.abandon()
    assert server.hash == before and server.rounds == 0
    other = fedelity.Server({**small, "optimizer": {"lr": 0.5}})
    with pytest.raises(fedelity.Refused, match="another agreement"):
        client.train(other.message(other.open()[0]))
    with pytest.raises(fedelity.ConfigError, match="clients 0 to 4"):
        fedelity.Client(server.agreement, 99, config=small)


def weights_of(message, count):
    """A message of the server with as many weights as these, whatever its model has."""
    found = struct.unpack("<Q", message[68:76])[0]
    assert len(message) == 76 + 4 * found + 8
    return message[:68] + struct.pack("<Q", count) + message[76 : 76 + 4 * count] + message[-8:]


def test_a_message_of_another_shape_is_refused(small):
    server = fedelity.Server(small)
    number = server.open()[0]
    client = fedelity.Client(server.agreement, number, config=small)
    with pytest.raises(fedelity.Refused, match="it has 9 weights, but the model has .*the server must send what its half made"):
        client.train(weights_of(server.message(number), 9))
    assert client.train(server.message(number))


def test_late_uploads_and_rounds_after_the_last(small):
    config = {**small, "rounds": 2}
    server = fedelity.Server(config)
    clients = {number: fedelity.Client(server.agreement, number, config=config) for number in range(5)}
    first = server.open()
    uploads = {number: clients[number].train(server.message(number)) for number in first}
    for number, upload in uploads.items():
        server.accept(number, upload)
    server.close()
    again = next(number for number in server.open() if number in first)
    with pytest.raises(fedelity.Refused, match="it belongs to round 1, but round 2 is open: it is too late"):
        server.accept(again, uploads[again])
    exchange(server, clients.__getitem__)
    assert server.done
    with pytest.raises(fedelity.ConfigError, match="has ended after round 2"):
        server.open()


def test_another_configuration_or_version_says_which_side_must_change(small):
    server = fedelity.Server(small)
    for change, what in [
        ({"optimizer": {"lr": 0.5}}, "optimizer.lr: 0.02 there and 0.5 here"),
        ({"optimizer": {"clip": 1.0}}, "optimizer.clip: absent there and 1.0 here"),
        ({"method": {"name": "fedprox"}}, 'method.name: "fedavg" there and "fedprox" here'),
        ({"method": [{"name": "fedprox"}, {"name": "fednova"}]}, 'method.name: "fedavg" there and "fedprox" here'),
        ({"seeds": [7]}, "the seed: 1 there and 7 here"),
    ]:
        with pytest.raises(fedelity.ConfigError, match=f"{what}; give this client the server's configuration"):
            fedelity.Client(server.agreement, 0, config={**small, **change})
    # Of several methods, the agreement chooses.
    several = {**small, "method": [{"name": "fedprox"}, {"name": "fedavg"}], "seeds": [2, 1], "partition": {**small["partition"], "seed": 1}}
    assert fedelity.Client(server.agreement, 0, config=several).id == 0
    # A version with other fields is still known by its number.
    other = json.dumps({"fedelity": "9.9.9", "terms": []})
    with pytest.raises(fedelity.ConfigError, match="the server runs Fedelity 9.9.9.*install 9.9.9 here"):
        fedelity.Client(other, 0, config=small)
    with pytest.raises(fedelity.ConfigError, match="not an agreement.*give the client that of its server"):
        fedelity.Client("{}", 0, config=small)


def test_what_was_saved_is_checked(small):
    server = fedelity.Server(small)
    first, second = (fedelity.Client(server.agreement, number, config=small) for number in (0, 1))
    with pytest.raises(fedelity.Refused, match="memory of client 1, not of client 0"):
        first.remember(second.memory())
    for broken in (b"", first.memory()[:-1], server.save()[:50]):
        with pytest.raises(fedelity.Refused, match="not what a server or client saved"):
            first.remember(broken)
        with pytest.raises(fedelity.Refused, match="not what a server or client saved"):
            fedelity.Server.restore(small, broken)
    with pytest.raises(fedelity.Refused, match="saved under another agreement"):
        fedelity.Server.restore({**small, "optimizer": {"lr": 0.5}}, server.save())
    with pytest.raises(fedelity.Error, match="one method and one seed"):
        fedelity.Server.restore({**small, "seeds": [1, 2]}, server.save())


def test_sites_whose_tables_differ_say_which_side_must_change(tmp_path):
    def table(name, header, *rows):
        (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
        return {"name": "csv", "train": str(tmp_path / name), "label": "outcome"}

    rows = [f"{i},{i % 3},{name}" for i in range(12) for name in ("ill", "well")]
    data = table("server.csv", "a,b,outcome", *rows)
    config = {"rounds": 1, "data": data, "partition": {"kind": "sites", "names": ["mercy", "north"]}, "model": {"name": "logistic"}}
    agreement = fedelity.Server(config).agreement
    turned = [",".join([row.split(",")[1], row.split(",")[0], "ill"]) for row in rows]
    # Columns in another order, and a class that the site lacks.
    assert fedelity.Client(agreement, 0, data=table("turned.csv", "b,a,outcome", *turned)).samples == 24
    more = table("more.csv", "a,b,c,outcome", "1,2,3,ill", "1,2,3,well")
    for bad, what in [
        (table("fewer.csv", "a,outcome", "1,ill"), "there is no column 'b'.*of this site, or the server's data"),
        (more, r"does not know the column 'c'.*data.ignore = \[\"c\"\].*of this site, or the server's data"),
        (table("word.csv", "a,b,outcome", "1,high,ill"), "expected a number, found 'high'.*data.skip-bad"),
        (table("fox.csv", "a,b,outcome", "1,2,fox"), "'fox' is not part of the federation.*here, or add it to the server's data"),
    ]:
        with pytest.raises(fedelity.Error, match=what):
            fedelity.Client(agreement, 0, data=bad)
    assert fedelity.Client(agreement, 0, data={**more, "ignore": ["c"]}).samples == 2


def test_too_few_uploads_repeat_the_round(small):
    server = fedelity.Server({**small, "server": {"quorum": 1.0}})
    server.open()
    end = server.close()
    assert not end and "0 of 3" in repr(end) and server.rounds == 0


def test_arrays_are_checked(small):
    server = fedelity.Server(small)
    images, labels = np.zeros((4, 1, 28, 28), np.uint8), np.array([0, 1, 2, 9])
    client = fedelity.Client(server.agreement, 0, x=images, y=labels)
    assert (client.id, client.samples) == (0, 4)
    assert fedelity.Client(server.agreement, 0, x=images[:, 0], y=labels).samples == 4
    for x, y, error, text in [
        (images.astype(float), labels, TypeError, "array of uint8, found float64"),
        (images[:, :, :27], labels, ValueError, r"shape \(1, 28, 28\)"),
        (images, labels[:3], ValueError, "4 samples, but y has 3"),
        (images, labels.astype(float), TypeError, "whole numbers"),
        (images, labels - 1, ValueError, "-1 is not a class number"),
        (images, labels + 1, fedelity.ConfigError, "label 10, but there are 10 classes"),
        (images.tolist(), labels, TypeError, "numpy array, found list"),
    ]:
        with pytest.raises(error, match=text):
            fedelity.Client(server.agreement, 0, x=x, y=y)
    with pytest.raises(TypeError, match="given once"):
        fedelity.Client(server.agreement, 0)


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_arrays_give_the_weights_of_a_run(method):
    """The server has arrays; a client takes its part of them, or has samples of its own."""
    rng = np.random.default_rng(3)
    y, site = rng.integers(0, 3, 200), rng.integers(0, 4, 200)
    x = (rng.normal(2 * y[:, None], 1.0, (200, 5)) * [1, 10, 100, 1, 1]).astype(np.float32)
    data = fedelity.Data(x[:150], y[:150], client=site[:150], x_test=x[150:], y_test=y[150:], classes=["a", "b", "c"])
    config = {"rounds": 3, "model": {"name": "mlp"}, "clients": {"per-round": 3}, "method": {"name": method}}
    expected = hashes(fedelity.run(config, "run", data=data))
    server = fedelity.Server(config, data=data, output="fed")
    assert server.clients == 4 and server.names == ["0", "1", "2", "3"]

    def own(number):
        of = site[:150] == number
        return {"x": x[:150][of], "y": y[:150][of]}

    kinds = [{"config": fedelity.Study(config, data=data)}, {"config": config, "data": data}, own(2), own(3)]
    made = {number: fedelity.Client(server.agreement, number, **given) for number, given in enumerate(kinds)}
    for digest in expected:
        exchange(server, made.__getitem__)
        assert server.hash == digest
        assert fedelity.Server.restore(config, server.save(), data=data).hash == digest
    assert server.finish() == "finished" and server.evaluate().samples == 50
    # Its folder is one of any run; it goes on with the same data only.
    assert hashes(fedelity.Result("fed")) == expected
    with pytest.raises(fedelity.DataError, match="has to give them again: in Python, with data="):
        fedelity.Server({**config, "data": {"name": "arrays"}})
    for given, text in [
        ({"data": data}, "give the study, too, .* or the client's own samples as x=... and y=..."),
        ({**kinds[0], "data": data}, "the study that is given has its data"),
        ({"config": config, "data": {"name": "csv"}}, "expected fedelity.Data, found dict"),
    ]:
        with pytest.raises(TypeError, match=text):
            fedelity.Client(server.agreement, 0, **given)


def test_numbers_of_clients_are_checked(small):
    server = fedelity.Server(small)
    server.open()

    def client(number):
        return fedelity.Client(server.agreement, number, config=small)

    for ask in (server.message, lambda number: server.accept(number, b""), server.absent, client):
        for number in (-1, -(2**70), 2**70):
            with pytest.raises(ValueError, match=f"client = {number}: expected a whole number from 0 to 4"):
                ask(number)
        for number, kind in ((1.0, "float"), ("1", "str"), (None, "NoneType")):
            with pytest.raises(TypeError, match=f"client: expected a whole number from 0 to 4, found {kind}"):
                ask(number)
    assert len(server.missing()) == 3 and client(np.int64(4)).id == 4


def test_a_site_has_no_methods_in_python(tmp_path):
    (tmp_path / "table.csv").write_text("a,outcome\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    data = {"name": "csv", "train": str(tmp_path / "table.csv"), "label": "outcome"}
    (tmp_path / "site.toml").write_text(
        'server = "fl.example.org:8000"\nclient = 0\n[data]\nname = "csv"\ntrain = "table.csv"\nlabel = "outcome"\n'
    )
    site, config = fedelity.Site(tmp_path / "site.toml"), {"data": data, "partition": {"clients": 2}, "model": {"name": "logistic"}}
    assert site.client(fedelity.Server(config).agreement, bytes(32)).samples == 40
    # Registered in this process, and still not at a site.
    server = fedelity.Server({**config, "method": {"name": "my-ntd"}})
    text = "the server asks for the method 'my-ntd'.*sites run built-in methods only.*the server's study must name one of fedavg, "
    for ask in (lambda: site.client(server.agreement, bytes(32)), lambda: site.report(server.agreement)):
        with pytest.raises(fedelity.Refused, match=text):
            ask()


def test_a_method_in_python_that_fails_is_named(small, monkeypatch):
    @fedelity.register
    class Broken(fedelity.Method):
        name = "broken-half"
        where = "nowhere"

        def loss(self, step):
            if self.where == "client":
                raise LookupError("not here")
            return fedelity.loss("fedavg", step.logits, step.labels)

        def conclude(self, server):
            if self.where == "server":
                raise LookupError("not there")

    def federation(where):
        config = {**small, "method": {"name": "broken-half", "where": where}}
        study, server = fedelity.Study(config), fedelity.Server(config)
        clients = {number: fedelity.Client(server.agreement, number, config=study) for number in server.open()}
        return server, clients

    server, clients = federation("client")
    number, client = next(iter(clients.items()))
    with pytest.raises(fedelity.MethodError, match="its hook loss raised LookupError: not here") as raised:
        client.train(server.message(number))
    assert isinstance(raised.value.__cause__, LookupError)
    server, clients = federation("server")
    for number, client in clients.items():
        server.accept(number, client.train(server.message(number)))
    before = server.hash
    with pytest.raises(fedelity.MethodError, match="its hook conclude raised LookupError: not there"):
        server.close()
    assert server.hash == before and server.rounds == 0

    # Elsewhere, the class is not known.
    server, _ = federation("nowhere")
    images = np.zeros((4, 28, 28), np.uint8)
    assert fedelity.Client(server.agreement, 0, x=images, y=np.arange(4)).samples == 4
    monkeypatch.delitem(fedelity._method._registered, "broken-half")
    with pytest.raises(fedelity.ConfigError, match="broken-half.*has called fedelity.register with it; Flower's app and sites have the built-in ones only"):
        fedelity.Client(server.agreement, 0, x=images, y=np.arange(4))


# A server in a process of its own. It says what it does, line by line, and is told what clients send.
SERVER = """
import base64, json, sys
import fedelity

def say(**what):
    print(json.dumps(what), flush=True)

server = fedelity.Server(json.loads(sys.argv[1]), output="fed")
say(agreement=server.agreement, rounds=server.rounds)
while not server.done:
    server.open()
    for client in server.missing():
        say(client=client, message=base64.b64encode(server.message(client)).decode(), round=server.rounds + 1)
        server.accept(client, base64.b64decode(sys.stdin.readline()))
    say(closing=server.rounds + 1)
    server.close()
    say(closed=server.rounds, hash=server.hash)
say(ended=server.finish())
"""


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedgkd"])
def test_a_killed_server_goes_on_with_the_same_weights(small, method):
    """Killed before a round's first upload, between two, after the last, while it closes a round, and after a round."""
    config = {**small, "rounds": 6, "method": {"name": method}}
    expected = hashes(fedelity.run(config, "run"))
    # After this many requests for uploads in a round; "closing" and "closed" are lines of their own.
    kills = {(1, 0), (2, 1), (3, 2), (3, "closing"), (4, "closed"), (5, "closing"), (6, "closing")}
    clients, found, starts, ended = {}, {}, [], None
    while ended is None:
        assert len(starts) < 12
        command = [sys.executable, "-c", SERVER, json.dumps(config)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            asked = 0
            for line in process.stdout:
                said = json.loads(line)
                if "agreement" in said:
                    agreement = said["agreement"]
                    starts.append(said["rounds"])
                    continue
                ended = said.get("ended")
                if "closed" in said:
                    found[said["closed"]], asked = said["hash"], 0
                place = next(((said[word], word) for word in ("closing", "closed") if word in said), (said.get("round"), asked))
                if place in kills:
                    kills.remove(place)
                    process.kill()
                    break
                if "client" in said:
                    asked += 1
                    number = said["client"]
                    if number not in clients:
                        clients[number] = fedelity.Client(agreement, number, config=config)
                    upload = clients[number].train(base64.b64decode(said["message"]))
                    process.stdin.write(base64.b64encode(upload).decode() + "\n")
                    process.stdin.flush()
    assert not kills and ended == "finished"
    assert starts[0] == 0 and starts == sorted(starts) and starts[-1] >= 5
    assert all(expected[number - 1] == digest for number, digest in found.items())
    run = fedelity.Result("fed").runs[0]
    assert [record["weights"]["sha256"] for record in run.records] == expected
    weights = fedelity.Result("run").runs[0].weights()
    assert all((weights[name] == array).all() for name, array in run.weights().items())
    assert run.summary["status"] == {"kind": "finished"}
