//! Sites with data of their own: what they read follows the agreement, and the weights are those of a simulation that has all data.

use std::fs;
use std::path::Path;

use fedelity_experiment::{Agreement, Client, Document, Resources, RoundEnd, Server, Study};
use fedelity_record::{Status, salvage_rounds};
use fedelity_sim::Simulation;

fn parse(folder: &Path, text: &str) -> Document {
    Document::parse("study.toml".to_string(), folder.to_path_buf(), text).unwrap()
}

fn study(document: &Document) -> Study {
    Study::load_with(document, &Resources::default()).unwrap()
}

fn simulate(document: &Document) -> Vec<String> {
    let study = study(document);
    let mut simulation = Simulation::new(study.experiment(&study.settings.methods[0], 1, 1)).unwrap();
    let rounds = study.settings.config.rounds;
    (0..rounds).map(|_| simulation.step().map(|_| simulation.global().hash()).unwrap()).collect()
}

/// Runs all rounds of a server with clients that stay, and returns the hash of the weights after each.
fn federate(server: &mut Server, make: impl Fn(&Agreement, usize) -> Client) -> Vec<String> {
    let agreement = server.agreement().clone();
    let mut clients: Vec<Client> = (0..agreement.clients).map(|id| make(&agreement, id)).collect();
    let mut hashes = Vec::new();
    while !server.is_done() {
        for id in server.open().unwrap() {
            let upload = clients[id].train(&server.message(id).unwrap()).unwrap();
            server.accept(id, &upload).unwrap();
        }
        assert!(matches!(server.close().unwrap(), RoundEnd::Closed { .. }));
        hashes.push(server.weights().hash());
    }
    hashes
}

fn refusal(made: Result<Client, fedelity_experiment::ExperimentError>) -> String {
    made.err().unwrap().to_string()
}

/// Images of a class, each of its own.
fn draw(folder: &Path, class: &str, images: std::ops::Range<u32>, side: u32) {
    let folder = folder.join(class);
    fs::create_dir_all(&folder).unwrap();
    for i in images {
        let shade = |x: u32, y: u32| ((x * 31 + y * 17 * class.len() as u32 + i * 53) % 251) as u8;
        let image = image::RgbImage::from_fn(side, side, |x, y| image::Rgb([shade(x, y), shade(y, x), shade(x, i)]));
        image.save(folder.join(format!("{i:03}.png"))).unwrap();
    }
}

#[test]
fn folders_of_images_are_read_under_the_agreement() {
    let dir = tempfile::tempdir().unwrap();
    let (train, test) = (dir.path().join("all/train"), dir.path().join("all/test"));
    // The second site has no cats.
    for (site, class, images) in
        [("a", "cat", 0..9), ("a", "puppy", 0..7), ("b", "puppy", 20..31), ("c", "cat", 40..52)]
    {
        draw(&train.join(site), class, images, 10);
    }
    draw(&train.join("c"), "puppy", 60..63, 10);
    draw(&test.join("a"), "cat", 80..84, 10);
    draw(&test.join("a"), "puppy", 80..84, 10);
    let text = "rounds = 2\n[data]\nname = \"folder\"\npath = \"all\"\nlayout = \"key/class\"\nsize = [8, 8]\ncolour = \"grey\"\n\
                augmentation = { flip = true, crop = 1 }\n[partition]\nkind = \"natural\"\n[clients]\nepochs = 2\nbatch = 4\n\
                [model]\nname = \"mlp\"\n";
    let document = parse(dir.path(), text);
    let resources = Resources::default();
    // Neither size nor colour, which are the agreement's.
    let site = |path: &Path| {
        let data = format!("[data]\nname = \"folder\"\npath = \"{}\"\n", path.display());
        parse(dir.path(), &data)
    };
    let mut server = Server::new(study(&document), 1).unwrap();
    let agreement = server.agreement().clone();
    let found = federate(&mut server, |agreement, id| {
        Client::of_site(agreement, id, &site(&train.join(["a", "b", "c"][id])), &resources).unwrap()
    });
    assert_eq!(found, simulate(&document));
    draw(&train.join("b"), "fox", 0..2, 10);
    let refused = refusal(Client::of_site(&agreement, 1, &site(&train.join("b")), &resources));
    assert!(refused.contains("the class 'fox' is not part of the federation, which has cat, puppy"), "{refused}");
    assert!(refused.contains("remove it here, or add it to the server's data"), "{refused}");
    let table = "[data]\nname = \"csv\"\ntrain = \"x.csv\"\n";
    fs::write(dir.path().join("x.csv"), "label,x\ncat,1\npuppy,2\n").unwrap();
    let refused = refusal(Client::of_site(&agreement, 1, &parse(dir.path(), table), &resources));
    assert!(refused.contains("the model reads images of 1x8x8"), "{refused}");
}

/// Texts of three classes, one file for each site, and a tiny encoder.
fn texts(dir: &Path) {
    let words = ["awful", "fair", "great"];
    let row = |i: usize| format!("{},film {} film\n", words[i % 3], words[(i * i + i / 7) % 3]);
    let write = |name: &str, rows: std::ops::Range<usize>| {
        fs::write(dir.join(name), "label,text\n".to_string() + &rows.map(row).collect::<String>()).unwrap();
    };
    fs::create_dir(dir.join("sites")).unwrap();
    write("sites/a.csv", 0..30);
    write("sites/b.csv", 30..50);
    write("test.csv", 50..80);
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/data/tiny-bert");
    for place in ["encoder", "copy", "other"] {
        fs::create_dir(dir.join(place)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(tiny.join(file), dir.join(place).join(file)).unwrap();
        }
        let first = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, \
                     {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": \
                     0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {\"[CLS]\": {\"id\": \
                     \"[CLS]\", \"ids\": [2], \"tokens\": [\"[CLS]\"]}}}";
        let vocabulary = "\"[UNK]\": 1, \"[CLS]\": 2, \"awful\": 4, \"fair\": 5, \"great\": 6, \"film\": 7";
        let tokenizer = format!(
            "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null, \
             \"pre_tokenizer\": {{\"type\": \"BertPreTokenizer\"}}, \"post_processor\": {first}, \"decoder\": null, \"model\": \
             {{\"type\": \"WordLevel\", \"vocab\": {{{vocabulary}}}, \"unk_token\": \"[UNK]\"}}}}"
        );
        fs::write(dir.join(place).join("tokenizer.json"), tokenizer).unwrap();
    }
    // One weight of the embeddings differs.
    let path = dir.join("other/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let words = tensors.as_object().unwrap().iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap();
    let at = header + words.1["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn frozen_encoders_are_read_at_the_site_and_checked_by_their_hash() {
    let dir = tempfile::tempdir().unwrap();
    texts(dir.path());
    let data = "[data]\nname = \"csv\"\ntext = \"text\"\n";
    let text = format!(
        "rounds = 2\n{data}train = \"sites\"\ntest = \"test.csv\"\n[partition]\nkind = \"natural\"\n[clients]\nepochs = 1\n\
         [model]\nname = \"minilm\"\nweights = \"encoder\"\nfreeze = 1\nmax-length = 8\n[method]\nname = \"fedgkd\"\n"
    );
    let document = parse(dir.path(), &text);
    let resources = Resources::default();
    let site = |name: &str, weights: &str| parse(dir.path(), &format!("{data}train = \"sites/{name}.csv\"\n{weights}"));
    let copy = "[model]\nname = \"minilm\"\nweights = \"copy\"\n";
    let mut server = Server::new(study(&document), 1).unwrap();
    let agreement = server.agreement().clone();
    assert_eq!(agreement.frozen.len(), 64);
    let found = federate(&mut server, |agreement, id| {
        Client::of_site(agreement, id, &site(["a", "b"][id], copy), &resources).unwrap()
    });
    assert_eq!(found, simulate(&document));
    let other = copy.replace("copy", "other");
    let refused = refusal(Client::of_site(&agreement, 0, &site("a", &other), &resources));
    assert!(
        refused.contains("other/model.safetensors: these are not the frozen weights of the federation"),
        "{refused}"
    );
    assert!(refused.contains(&agreement.frozen), "{refused}");
    let refused = refusal(Client::of_site(&agreement, 0, &site("a", ""), &resources));
    assert!(refused.contains("name = \"minilm\" and weights = \"FOLDER\""), "{refused}");
}

#[test]
fn a_server_of_sites_knows_their_names_and_nothing_of_their_samples() {
    let dir = tempfile::tempdir().unwrap();
    crate::bits::write_table(dir.path());
    let text = fs::read_to_string(dir.path().join("small.csv")).unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    fs::create_dir(dir.path().join("sites")).unwrap();
    // The longest comes last, so that the order of sizes is not that of numbers.
    for (site, part) in [("a", 0..50), ("b", 50..90), ("c", 90..200)] {
        fs::write(dir.path().join(format!("sites/{site}.csv")), format!("{head}\n{}\n", rows[part].join("\n")))
            .unwrap();
    }
    fs::write(dir.path().join("test.csv"), format!("{head}\n{}\n", rows[200..].join("\n"))).unwrap();
    let with = |partition: &str| {
        let text = format!(
            "rounds = 3\n[data]\nname = \"csv\"\ntrain = \"sites\"\ntest = \"test.csv\"\n[partition]\n{partition}\n[clients]\n\
             epochs = 2\n[model]\nname = \"mlp\"\n[method]\nname = \"scaffold\"\n"
        );
        parse(dir.path(), &text)
    };
    let document = with("kind = \"sites\"\nnames = [\"mercy\", \"north\", \"saint luke\"]");
    let path = dir.path().join("run");
    let mut server = Server::in_folder(study(&document), 1, &path).unwrap();
    assert_eq!(server.names(), ["mercy", "north", "saint luke"]);
    let agreement = server.agreement().clone();
    let (resources, whole) = (Resources::default(), study(&document));
    let refused = refusal(Client::of_partition(&whole, &agreement, 1));
    assert!(refused.contains("client 1 is a site"), "{refused}");
    let found = federate(&mut server, |agreement, id| {
        let data = format!("[data]\nname = \"csv\"\ntrain = \"sites/{}.csv\"\n", ["a", "b", "c"][id]);
        Client::of_site(agreement, id, &parse(dir.path(), &data), &resources).unwrap()
    });
    assert_eq!(found, simulate(&with("kind = \"natural\"")));
    assert_eq!(server.finish().unwrap().summary.status, Status::Finished);
    // What the server does not know is absent, not zero.
    assert!(!path.join("partition.json").exists() && !path.join("holdings.json").exists());
    let record = salvage_rounds(&path.join("rounds.jsonl")).unwrap();
    assert!(record.header.federated && record.header.command.is_empty());
    assert_eq!(record.header.client_names, ["mercy", "north", "saint luke"]);
    let local = record.rounds[2].local.as_ref().unwrap();
    assert_eq!(local.clients.iter().map(|client| client.samples).collect::<Vec<_>>(), [50, 40, 110]);
    assert!(local.clients.iter().all(|client| client.in_before.is_none() && client.out_after.is_none()));
    assert!(record.rounds.iter().all(|round| round.accuracy.is_some()));
    let clients = fedelity_record::read_clients(&path.join("clients.json")).unwrap();
    assert_eq!(clients.clients.iter().map(|client| client.samples).collect::<Vec<_>>(), [50, 40, 110]);
    assert!(clients.clients.iter().all(|client| client.held.is_empty() && client.global_in.is_none()));
    // It goes on, and it cannot be simulated.
    drop(server);
    assert!(Server::in_folder(study(&document), 1, &path).unwrap().is_done());
    let refused = whole.check(1).err().unwrap().to_string();
    assert!(refused.contains("the samples are at the sites, so there is nothing to simulate"), "{refused}");
    for (partition, expected) in [
        ("kind = \"sites\"", "how many? Set partition.names"),
        ("kind = \"sites\"\nnames = []", "a list of different names"),
        ("kind = \"sites\"\nnames = [\"a\", \"a\"]", "a list of different names"),
        ("kind = \"sites\"\nnames = [\"a\", \"b\"]\nclients = 3", "there are 2 names"),
        ("kind = \"iid\"\nnames = [\"a\", \"b\"]", "names"),
    ] {
        let error = Study::load_with(&with(partition), &resources).err().unwrap().to_string();
        assert!(error.contains(expected), "{partition}: {error}");
    }
    let counted = study(&with("kind = \"sites\"\nclients = 3"));
    assert_eq!((counted.pool.partition.clients.len(), counted.pool.partition.names.len()), (3, 0));
}
