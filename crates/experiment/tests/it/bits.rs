//! The default run of every method: committed hashes of its weights and records, so that every processor gives the same.
//!
//! A change that moves results on purpose replaces the lines of [`EXPECTED`] by those that the failure prints.

use std::path::Path;
use std::sync::Arc;

use fedelity_experiment::{Document, Resources, Study};
use fedelity_nn::{Engine, cpu, engines};
use fedelity_record::{RoundRecord, Seconds};
use fedelity_sim::Simulation;
use sha2::{Digest, Sha256};

/// The method, and the hashes of three rounds with its defaults and of a small run.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("fedavg", "2d4904d61ff502ca19beda37f22fa998", "5ef9a220b088284a959ef2f607ff0318"),
    ("fedprox", "b5efd84cd2561ecf562f6023e8e905a5", "c4d5ef9bffbe54c2f47bc6c225a4d93a"),
    ("fedcurv", "a062bee7244569c96696b4ead0642777", "5bafa64a593f9eac2ac6e4db35cbb20a"),
    ("fednova", "eaf60ab636ec053d0322865cefdcbb1a", "1100855770a36fb725a40937b178f7ee"),
    ("scaffold", "bbd3841954a6745fc73cde18236e8ff8", "1b4b78de378504d2da4d2c5c53f4058b"),
    ("moon", "da9f28ed771ab62286274e5f2c8e8e6a", "df821cabe2fed60ce9d9968e8697f8c1"),
    ("fedlsd", "d3171d62106bd0c6b3e2f6228955eab8", "bf983c24643a486098ecb43aceda9e20"),
    ("fedntd", "5c5bf5d75ac5f6bd803e6e961d159327", "086ce9fa85175df9b4de30a55fe1c2e7"),
    ("fedcad", "51405f23976c1bbf1ed5fa434746e536", "0a6d71f5edd8bddb08a9a29978370227"),
    ("fedssd", "0871573a9e0f3a8fbd2eee6ae9ac28b5", "0a87680b568ef7bc2835f61c867b6232"),
    ("feddistill", "b29e67b5785e6d6b7c6520c8567a5124", "71f116951ff69da926fc7e6a7b8e8cb7"),
    ("fedgkd", "c17e261a44247009633c094025926899", "0770f4a9d864638dede56f640158d621"),
    ("fedgkd-vote", "1c45f63df71dd40151a2a6b8344d6824", "06d36566cc5ffdcc0081f9f32488f115"),
    ("fedgkd-plus", "c17e261a44247009633c094025926899", "0770f4a9d864638dede56f640158d621"),
    ("feddistill-plus", "d5f60b1fb1a2244a7dc805bc0dc77259", "39fb0ba1c0d5aa67293770be254d7bee"),
    ("fedgen", "dc1865cdb814d4b133a1323c46be32ba", "b5e0dd37a46e31a17648c8067ae021da"),
    ("feddf", "077273fe3302293cd48dc04c842fc79f", "6acf4c557129ae3e7fed01f3920408b7"),
    ("fedelity", "4568ca68362e8bd6f6f5e01ff24b7f2a", "26520dfc563869891b64340865ae3c21"),
];

const WHOLE: &str = "rounds = 3\n";
/// A table of numbers, small enough for plain Rust, whose clients take part more than once.
const SMALL: &str = "rounds = 3\n[data]\nname = \"csv\"\ntrain = \"small.csv\"\n[partition]\nclients = 4\n\
                     [clients]\nper-round = 3\nepochs = 2\nbatch = 20\n[model]\nname = \"mlp\"\nprojection = true\n";

/// The table of [`SMALL`]: 240 rows in three classes.
pub(crate) fn write_table(folder: &Path) {
    let mut rows = "a,b,c,d,e,label\n".to_string();
    for i in 0..240u32 {
        let value = |k: u32| (i * 37 + k * 101 + (i * i * 7) % (13 + k)) % 97;
        let cells: Vec<String> = (0..5).map(|k| value(k).to_string()).collect();
        rows += &format!("{},{}\n", cells.join(","), (value(0) + value(1)) % 3);
    }
    std::fs::write(folder.join("small.csv"), rows).unwrap();
}

/// What the server of a method holds.
pub(crate) fn server(method: &str) -> &'static [&'static str] {
    match method {
        "fedcad" | "fedssd" => &["server.auxiliary=30"],
        "fedgkd-vote" => &["server.validation=0.1"],
        "feddf" => &["server.unlabelled=40", "server.validation=0.1"],
        _ => &[],
    }
}

/// Clears times, and fields that records had not yet when the hashes were made: they say more about the same predictions.
fn forget_later_fields(record: &mut RoundRecord) {
    record.seconds = Seconds::default();
    // They are part of the hash.
    record.weights = None;
    (record.scores, record.client_accuracy, record.validation) = (None, None, None);
    if let Some(local) = &mut record.local {
        local.class_correct_before.clear();
        local.clients.iter_mut().for_each(|client| (client.scores, client.own) = (None, None));
    }
}

/// A hash of the weights and the records, without times.
fn hash(config: &str, folder: &Path, method: &str, threads: usize, engine: &Arc<dyn Engine>) -> String {
    let mut document = Document::parse("study.toml".to_string(), folder.to_path_buf(), config).unwrap();
    document.set(&format!("method.name={method}")).unwrap();
    server(method).iter().for_each(|set| document.set(set).unwrap());
    let study = Study::load_with(&document, &Resources::on(Arc::clone(engine))).unwrap();
    let mut simulation = Simulation::new(study.experiment(&study.settings.methods[0], 1, threads)).unwrap();
    let mut hasher = Sha256::new();
    while !simulation.done() {
        let mut record = simulation.step().unwrap();
        forget_later_fields(&mut record);
        hasher.update(serde_json::to_string(&record).unwrap());
    }
    hasher.update(simulation.global().hash());
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn check(column: impl Fn(&(&str, &str, &str)) -> String, hash: impl Fn(&str) -> String) {
    let methods = fedelity_methods::entries().iter().map(|entry| entry.id);
    let found: Vec<(String, String)> = methods.map(|name| (name.to_string(), hash(name))).collect();
    let expected: Vec<(String, String)> = EXPECTED.iter().map(|line| (line.0.to_string(), column(line))).collect();
    assert!(found == expected, "other bits than those of EXPECTED:\n{found:#?}");
}

#[test]
fn the_default_run_of_every_method_gives_the_committed_bits() {
    check(|line| line.1.to_string(), |method| hash(WHOLE, Path::new(""), method, 2, &cpu()));
}

#[test]
fn a_small_run_of_every_method_gives_the_committed_bits_with_every_instruction_set() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    check(
        |line| line.2.to_string(),
        |method| {
            let all: Vec<String> = engines().iter().map(|engine| hash(SMALL, dir.path(), method, 1, engine)).collect();
            assert!(all.iter().all(|other| *other == all[0]), "{method}: instruction sets differ: {all:?}");
            all[0].clone()
        },
    );
}
