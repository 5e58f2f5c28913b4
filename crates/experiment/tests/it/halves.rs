//! Server and clients as separate programs: the bits of a simulation, whatever arrives first, is lost or restarts.

use std::fs;
use std::path::Path;

use fedelity_data::{ArrayData, Dataset, ImageShape, Inputs, Shape, Split};
use fedelity_experiment::{Agreement, Client, Document, ExchangeError, Resources, RoundEnd, Server, Study};
use fedelity_fl::{Coordinator, Memories, Samples, Scaling, Trainer, client, longest_first, round};
use fedelity_nn::Params;
use fedelity_record::{RoundRecord, RunFolder, Seconds, Status, Summary, salvage_rounds};
use fedelity_sim::Simulation;

use crate::bits::{server, write_table};

const STUDY: &str = "rounds = 3\n[data]\nname = \"csv\"\ntrain = \"small.csv\"\n[partition]\nclients = 4\n\
                     [clients]\nper-round = 3\nepochs = 1\nbatch = 20\n[model]\nname = \"mlp\"\nprojection = true\n";

fn document(folder: &Path, method: &str, sets: &[&str]) -> Document {
    let mut document = Document::parse("study.toml".to_string(), folder.to_path_buf(), STUDY).unwrap();
    document.set(&format!("method.name={method}")).unwrap();
    server(method).iter().chain(sets).for_each(|set| document.set(set).unwrap());
    document
}

/// Small images of three classes, for studies with `data.name = "arrays"`.
fn images() -> Dataset {
    let (n, side) = (120, 6);
    let pixel = |i: usize, at: usize| ((i * 53 + at * 31 + (i % 3) * at * 17) % 251) as u8;
    let pixels = (0..n).flat_map(|i| (0..side * side).map(move |at| pixel(i, at))).collect();
    let data = ArrayData {
        name: "images".to_string(),
        classes: ["a", "b", "c"].map(String::from).to_vec(),
        shape: Shape::Image(ImageShape { channels: 1, height: side, width: side }),
        train: Split::images(pixels, (0..n).map(|i| (i % 3) as u16).collect()),
        test: None,
        test_fraction: 0.2,
        normalisation: None,
    };
    data.dataset().unwrap()
}

fn study(document: &Document) -> Study {
    Study::load_with(document, &Resources::default().with_data(images())).unwrap()
}

/// The samples of one client alone, in its order.
fn own(study: &Study, id: usize) -> Split {
    let (train, indices) = (&study.pool.dataset.train, &study.pool.partition.clients[id]);
    let width = |len: usize| len / train.len();
    let pick = |all: &[f32]| -> Vec<f32> {
        let width = width(all.len());
        indices.iter().flat_map(|&i| all[i as usize * width..(i as usize + 1) * width].to_vec()).collect()
    };
    let inputs = match &train.inputs {
        Inputs::Floats(all) => Inputs::Floats(pick(all)),
        Inputs::Bytes(all) => {
            let width = width(all.len());
            let image = |&i: &u32| all[i as usize * width..(i as usize + 1) * width].to_vec();
            Inputs::Bytes(indices.iter().flat_map(image).collect())
        }
        Inputs::Texts(_) | Inputs::Tokens(_) => panic!("no texts here"),
    };
    Split { inputs, labels: indices.iter().map(|&i| train.labels[i as usize]).collect(), keys: None }
}

/// Runs rounds with a server that is rebuilt before each of them, clients that restart after each, and uploads that arrive in
/// reverse. Returns the hash of the weights after each round.
fn federate(document: &Document, rounds: usize, make: impl Fn(&Agreement, usize) -> Client) -> Vec<String> {
    let mut saved = Server::new(study(document), 1).unwrap().save();
    let mut memories: Vec<Option<Vec<u8>>> = vec![None; 4];
    let mut hashes = Vec::new();
    for _ in 0..rounds {
        let mut server = Server::restore(study(document), 1, &saved).unwrap();
        let agreement = Agreement::from_json(&server.agreement().to_json()).unwrap();
        assert_eq!(agreement.digest(), server.agreement().digest());
        let clients = server.open().unwrap();
        let mut uploads = Vec::new();
        for &id in &clients {
            let mut client = make(&agreement, id);
            if let Some(memory) = &memories[id] {
                client.remember(memory).unwrap();
            }
            uploads.push((id, client.train(&server.message(id).unwrap()).unwrap()));
            memories[id] = Some(client.memory());
        }
        for (id, upload) in uploads.iter().rev() {
            server.accept(*id, upload).unwrap();
        }
        assert_eq!(server.missing(), Vec::<usize>::new());
        assert!(matches!(server.close().unwrap(), RoundEnd::Closed { .. }));
        hashes.push(server.weights().hash());
        saved = server.save();
    }
    hashes
}

fn simulate(document: &Document, rounds: usize) -> Vec<String> {
    let study = study(document);
    let mut simulation = Simulation::new(study.experiment(&study.settings.methods[0], 1, 1)).unwrap();
    (0..rounds).map(|_| simulation.step().map(|_| simulation.global().hash()).unwrap()).collect()
}

#[test]
fn every_method_gives_the_bits_of_a_simulation() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let resources = Resources::default();
    let methods = fedelity_methods::entries().iter().map(|entry| (entry.id, &[][..]));
    let noise = ["clients.weighting=uniform", "server.clip-update=0.1", "privacy.noise=0.5", "privacy.at=client"];
    let more: [(&str, &[&str]); 3] =
        [("fedavg", &["server.optimizer=fedadam"]), ("scaffold", &["server.rule=median"]), ("moon", &noise)];
    for (method, sets) in methods.chain(more) {
        let document = document(dir.path(), method, sets);
        let (study, expected) = (study(&document), simulate(&document, 3));
        let of_partition = |agreement: &Agreement, id| Client::of_partition(&study, agreement, id).unwrap();
        assert_eq!(federate(&document, 3, of_partition), expected, "{method} {sets:?}");
        let alone = |agreement: &Agreement, id| Client::of_samples(agreement, id, own(&study, id), &resources).unwrap();
        assert_eq!(federate(&document, 3, alone), expected, "{method} {sets:?}, alone");
    }
}

/// A site that holds only its own images draws the same random views of them, whatever the method does with them: teachers see
/// them, too.
#[test]
fn augmented_images_are_the_same_at_a_site_with_every_method() {
    let text = "rounds = 2\n[data]\nname = \"arrays\"\naugmentation = { crop = 2, flip = true, rotation = 10.0 }\n\
                [partition]\nclients = 4\nkind = \"iid\"\n[clients]\nper-round = 3\nepochs = 1\nbatch = 12\n\
                [model]\nname = \"mlp\"\nprojection = true\n";
    let resources = Resources::default();
    for entry in fedelity_methods::entries() {
        let mut document = Document::parse("study.toml".to_string(), ".".into(), text).unwrap();
        document.set(&format!("method.name={}", entry.id)).unwrap();
        server(entry.id).iter().for_each(|set| document.set(set).unwrap());
        let (study, expected) = (study(&document), simulate(&document, 2));
        let alone = |agreement: &Agreement, id| Client::of_samples(agreement, id, own(&study, id), &resources).unwrap();
        assert_eq!(federate(&document, 2, alone), expected, "{}", entry.id);
    }
}

/// Each site has one file, with its columns in another order, and reads it under the agreement.
#[test]
fn sites_read_their_own_tables_under_the_agreement() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let text = fs::read_to_string(dir.path().join("small.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let (head, rows) = rows.split_first().unwrap();
    let write = |name: &str, rows: &[Vec<&str>], order: &[usize]| {
        let line = |row: &Vec<&str>| order.iter().map(|&at| row[at]).collect::<Vec<_>>().join(",");
        let lines: Vec<String> = std::iter::once(head).chain(rows).map(line).collect();
        fs::write(dir.path().join(name), lines.join("\n") + "\n").unwrap();
    };
    let (plain, other) = ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 4, 2]);
    fs::create_dir(dir.path().join("sites")).unwrap();
    let parts = [("a", 0..50), ("b", 50..130), ("c", 130..200)];
    for (site, part) in &parts {
        write(&format!("sites/{site}.csv"), &rows[part.clone()], &plain);
        write(&format!("{site}.csv"), &rows[part.clone()], &other);
    }
    write("test.csv", &rows[200..], &plain);
    let text = "rounds = 3\n[data]\nname = \"csv\"\ntrain = \"sites\"\ntest = \"test.csv\"\n[partition]\nkind = \"natural\"\n\
                [clients]\nper-round = 2\nepochs = 2\n[model]\nname = \"mlp\"\n[method]\nname = \"scaffold\"\n";
    let document = Document::parse("study.toml".to_string(), dir.path().to_path_buf(), text).unwrap();
    let resources = Resources::default();
    let site = |name: &str| {
        let data = format!("[data]\nname = \"csv\"\ntrain = \"{name}.csv\"\n");
        Document::parse("site.toml".to_string(), dir.path().to_path_buf(), &data).unwrap()
    };
    let of_site =
        |agreement: &Agreement, id: usize| Client::of_site(agreement, id, &site(parts[id].0), &resources).unwrap();
    assert_eq!(federate(&document, 3, of_site), simulate(&document, 3));

    let agreement = Server::new(study(&document), 1).unwrap().agreement().clone();
    // A class that the site lacks is no error, one that nobody knows is.
    let one: Vec<Vec<&str>> = rows.iter().filter(|row| row[5] == "1").take(12).cloned().collect();
    write("one.csv", &one, &other);
    assert_eq!(Client::of_site(&agreement, 2, &site("one"), &resources).unwrap().samples(), 12);
    let mut strange = one.clone();
    strange[3][5] = "9";
    write("strange.csv", &strange, &plain);
    let refused = Client::of_site(&agreement, 2, &site("strange"), &resources).unwrap_err().to_string();
    assert!(refused.contains('9'), "{refused}");
    write("fewer.csv", &one, &[0, 1, 2, 4, 5]);
    let refused = Client::of_site(&agreement, 2, &site("fewer"), &resources).unwrap_err().to_string();
    assert!(refused.contains("'d'"), "{refused}");
    let refused = Client::of_site(&agreement, 9, &site("one"), &resources).unwrap_err().to_string();
    assert_eq!(refused, "client 9: the agreement has clients 0 to 2; give this node one of them");
}

#[test]
fn lost_uploads_and_restarts_do_not_part_the_two_sides() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let document = document(dir.path(), "scaffold", &["server.quorum=0.6", "clients.per-round=4"]);
    let study = study(&document);
    let mut server = Server::new(self::study(&document), 1).unwrap();
    let agreement = server.agreement().clone();
    let mut clients: Vec<Client> = (0..4).map(|id| Client::of_partition(&study, &agreement, id).unwrap()).collect();
    // A server that only ever meets the clients whose uploads count.
    let (federation, scaling) =
        (study.federation(&study.settings.methods[0], 1), Scaling::from(&study.pool.dataset.normalisation));
    let mut calm = Coordinator::new(federation.clone()).unwrap();
    let (mut trainer, mut memories) = (Trainer::new(federation.model.clone()), Memories::new());
    let mut expect = |clients: &[usize]| {
        let parts = &study.pool.partition.clients;
        let order = longest_first(clients, |client| parts[client].len());
        round(&mut calm, &mut memories, &order, |federation, broadcast, id, memory| {
            let samples = Samples { split: &study.pool.dataset.train, indices: &parts[id], scaling: &scaling };
            client(&mut trainer, &federation.task(id, samples, broadcast, memory), Params::default())
        })
        .unwrap();
        calm.global().hash()
    };
    let mut run = |server: &mut Server, lost: &[usize]| {
        let chosen = server.open().unwrap();
        for id in chosen {
            let upload = clients[id].train(&server.message(id).unwrap()).unwrap();
            if !lost.contains(&id) {
                server.accept(id, &upload).unwrap();
                assert!(matches!(server.accept(id, &upload), Err(ExchangeError::Refused(_))));
            }
        }
        server.close().unwrap()
    };
    assert_eq!(run(&mut server, &[2]), RoundEnd::Closed { counted: vec![0, 1, 3], left_out: vec![] });
    let before = server.weights().hash();
    assert_eq!(before, expect(&[0, 1, 3]));
    assert_eq!(run(&mut server, &[0, 1]), RoundEnd::Repeated { arrived: 2, needed: 3 });
    assert_eq!((server.weights().hash(), server.rounds()), (before, 1));
    assert_eq!(run(&mut server, &[]), RoundEnd::Closed { counted: vec![0, 1, 2, 3], left_out: vec![] });
    assert_eq!(server.weights().hash(), expect(&[0, 1, 2, 3]));
    // A client that lost its memory is told so, and what it would send is not made up.
    server.open().unwrap();
    let message = server.message(1).unwrap();
    let mut fresh = Client::of_partition(&study, &agreement, 1).unwrap();
    let error = fresh.train(&message).unwrap_err().to_string();
    assert!(error.contains("accepted an upload of client 1 in round 2, but the client remembers nothing"), "{error}");
    fresh.remember(&clients[1].memory()).unwrap();
    // The message of another client is refused, and changes nothing.
    let kept = fresh.memory();
    let error = fresh.train(&server.message(2).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("client 1 was given the server's message for client 2: "), "{error}");
    assert_eq!(fresh.memory(), kept);
    let upload = fresh.train(&message).unwrap();
    assert!(fresh.remember(&clients[2].memory()).is_err());
    // What does not belong is refused, and leaves nothing behind.
    let other = self::document(dir.path(), "scaffold", &["optimizer.lr=0.5"]);
    let stranger = Server::new(self::study(&other), 1).unwrap();
    assert!(matches!(Server::restore(self::study(&other), 1, &server.save()), Err(ExchangeError::Saved)));
    assert!(Client::of_partition(&study, stranger.agreement(), 1).is_err());
    assert!(matches!(server.accept(2, &upload), Err(ExchangeError::Sender { sender: 2, named: 1 })));
    for cut in 0..upload.len().min(200) {
        assert!(server.accept(1, &upload[..cut]).is_err(), "{cut}");
    }
    let mut foreign = upload.clone();
    foreign[10] ^= 1;
    assert!(matches!(server.accept(1, &foreign), Err(ExchangeError::Agreement)));
    server.accept(1, &upload).unwrap();
    assert_eq!(server.missing(), [0, 2, 3]);
    server.abandon();
    assert!(server.accept(1, &upload).is_err());
}

/// The records of a run, without what depends on the clock.
fn records(path: &Path) -> Vec<RoundRecord> {
    let salvage = salvage_rounds(&path.join("rounds.jsonl")).unwrap();
    assert_eq!(salvage.problems, Vec::<String>::new());
    let timeless = |record: RoundRecord| RoundRecord { seconds: Seconds::default(), ..record };
    salvage.rounds.into_iter().map(timeless).collect()
}

/// What a simulation with the same configuration records.
fn simulated(document: &Document, path: &Path) -> Vec<RoundRecord> {
    let study = study(document);
    study.run(&study.folder(Some(path)).unwrap(), 2, &mut ()).unwrap();
    records(path)
}

/// Runs the open round, except the clients that are lost.
fn exchange(server: &mut Server, clients: &mut [Client], lost: &[usize]) -> RoundEnd {
    for id in server.open().unwrap() {
        if server.missing().contains(&id) && !lost.contains(&id) {
            let upload = clients[id].train(&server.message(id).unwrap()).unwrap();
            server.accept(id, &upload).unwrap();
        }
    }
    server.close().unwrap()
}

/// The files of a run folder that must not depend on who ran the clients.
fn files(path: &Path) -> Vec<Vec<u8>> {
    let names =
        ["config.toml", "partition.json", "holdings.json", "clients.json", "model.safetensors", "best.safetensors"];
    names.iter().map(|name| fs::read(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))).collect()
}

#[test]
fn a_server_writes_the_run_folder_of_a_simulation_and_goes_on_with_it() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    for (method, sets) in [
        ("scaffold", &["server.validation=0.1"][..]),
        ("fedgkd", &["evaluation.best=test", "evaluation.metrics=all", "evaluation.every=2"]),
        ("fedavg", &["evaluation.best=test", "server.rule=krum", "server.byzantine=0", "clients.per-round=4"]),
    ] {
        let document = document(dir.path(), method, sets);
        let (expected, path) = (dir.path().join(format!("{method}-simulated")), dir.path().join(method));
        let rounds = simulated(&document, &expected);
        let study = study(&document);
        let server = || Server::in_folder(self::study(&document), 2, &path).unwrap();
        let agreement = server().agreement().clone();
        let mut clients: Vec<Client> = (0..4).map(|id| Client::of_partition(&study, &agreement, id).unwrap()).collect();
        for round in 0..3 {
            // Stopped in the middle of a round: what has arrived is kept.
            let mut stopped = server();
            assert_eq!((stopped.rounds(), stopped.is_done()), (round, false));
            let first = stopped.open().unwrap()[0];
            let upload = clients[first].train(&stopped.message(first).unwrap()).unwrap();
            stopped.accept(first, &upload).unwrap();
            drop(stopped);
            let mut server = server();
            server.open().unwrap();
            assert!(!server.missing().contains(&first), "{method}: the upload was lost");
            assert!(matches!(exchange(&mut server, &mut clients, &[]), RoundEnd::Closed { .. }));
            assert_eq!(server.records().len(), round + 1);
            if round == 2 {
                assert!(server.is_done());
                assert_eq!(server.finish().unwrap().summary.status, Status::Finished);
            }
        }
        assert_eq!(records(&path), rounds, "{method}");
        assert_eq!(files(&path), files(&expected), "{method}");
        let summary = |path: &Path| {
            let read = fedelity_record::read_summary(&path.join("summary.json")).unwrap();
            Summary { seconds: Seconds::default(), ..read }
        };
        assert_eq!(summary(&path), summary(&expected), "{method}");
        // A complete folder is left alone.
        let server = server();
        assert!(server.is_done() && server.rounds() == 3);
        assert_eq!(server.weights().hash(), rounds[2].weights.as_ref().unwrap().sha256);
        drop(server);
        assert!(path.join("summary.json").is_file());
    }
}

#[test]
fn what_is_lost_is_recorded_and_a_folder_belongs_to_one_federation() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let document = document(dir.path(), "fedavg", &["clients.per-round=4", "server.quorum=0.7"]);
    let (study, path) = (study(&document), dir.path().join("run"));
    let mut server = Server::in_folder(self::study(&document), 1, &path).unwrap();
    let agreement = server.agreement().clone();
    let mut clients: Vec<Client> = (0..4).map(|id| Client::of_partition(&study, &agreement, id).unwrap()).collect();
    let held = Server::in_folder(self::study(&document), 1, &path).err().unwrap().to_string();
    assert!(held.contains("is writing to this folder"), "{held}");
    // Two are lost, which is too many; then one fails and one sends something else first.
    server.open().unwrap();
    server.absent(0, None);
    // Nobody of this round.
    server.absent(9, Some("no disk space"));
    assert_eq!(server.missing(), [1, 2, 3]);
    assert_eq!(exchange(&mut server, &mut clients, &[0, 1]), RoundEnd::Repeated { arrived: 2, needed: 3 });
    assert_eq!(server.open().unwrap(), [0, 1, 2, 3]);
    server.absent(3, Some("no disk space"));
    assert!(server.accept(1, b"garbage").is_err());
    assert_eq!(exchange(&mut server, &mut clients, &[]), RoundEnd::Closed { counted: vec![0, 1, 2], left_out: vec![] });
    server.open().unwrap();
    server.message(0).unwrap();
    server.absent(0, None);
    assert_eq!(
        exchange(&mut server, &mut clients, &[0]),
        RoundEnd::Closed { counted: vec![1, 2, 3], left_out: vec![] }
    );
    let said: Vec<String> = server.records()[1].incidents.iter().map(|incident| incident.describe(&[])).collect();
    assert_eq!(said, ["client 0 dropped out during training"]);
    let record = &server.records()[0];
    let said: Vec<String> = record.incidents.iter().map(|incident| incident.describe(&[])).collect();
    let expected = [
        "client 0 dropped out before it received the model",
        "client 1 was late",
        "an upload of client 1 was refused: not a message between a Fedelity server and its clients: the sender must send \
         what its half made, whole and unchanged",
        "client 3 failed: no disk space",
    ];
    let mut sorted = said.clone();
    sorted.sort_by_key(|text| expected.iter().position(|known| known == text));
    assert_eq!(sorted, expected, "{said:?}");
    assert_eq!((record.accepted, record.repeats), (Some(3), 1));
    assert_eq!(server.finish().unwrap().summary.status, Status::Interrupted);
    drop(server);
    // Another method, a simulation and a folder of the user's are refused, with nothing written.
    let other = self::document(dir.path(), "fedprox", &["clients.per-round=4"]);
    let refused = Server::in_folder(self::study(&other), 1, &path).err().unwrap().to_string();
    assert!(refused.ends_with("the run cannot be resumed: its method was fedavg and is now fedprox"), "{refused}");
    let folder = RunFolder::open(&path).unwrap();
    let refused = study.run(&folder, 1, &mut ()).err().unwrap().to_string();
    assert!(refused.contains("a federation whose clients ran elsewhere: its server goes on with it"), "{refused}");
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("thesis.tex"), "x").unwrap();
    let refused = Server::in_folder(self::study(&document), 1, &own).err().unwrap().to_string();
    assert!(refused.contains("it has other files than those of a federation"), "{refused}");
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
    let mut faulty = document.clone();
    faulty.set("faults.drop-before=0.5").unwrap();
    let refused = Server::new(self::study(&faulty), 1).err().unwrap().to_string();
    assert!(refused.starts_with("[faults] is for simulations"), "{refused}");
    // It goes on where it was.
    let mut server = Server::in_folder(self::study(&document), 1, &path).unwrap();
    assert_eq!(server.rounds(), 2);
    exchange(&mut server, &mut clients, &[]);
    assert_eq!((server.rounds(), server.accepted(3)), (3, Some(2)));
}
