//! Limits on updates, noise and its account, in whole runs.

use std::path::Path;

use fedelity_experiment::{Document, Resources, Study};
use fedelity_fl::{Accountant, sample_clients};
use fedelity_record::{RoundRecord, Seconds, Summary, names, read_summary, salvage_rounds};

use crate::bits::write_table;

const STUDY: &str = "rounds = 4\n[data]\nname = \"csv\"\ntrain = \"small.csv\"\n[partition]\nclients = 6\n\
                     [clients]\nper-round = 3\nepochs = 1\nbatch = 20\nweighting = \"uniform\"\n[model]\nname = \"mlp\"\n\
                     [server]\nclip-update = 0.1\n";
const NOISE: &str = "privacy.noise=2.5";
const AT_CLIENT: &str = "privacy.at=client";

fn document(folder: &Path, sets: &[&str]) -> Document {
    let mut document = Document::parse("study.toml".to_string(), folder.to_path_buf(), STUDY).unwrap();
    sets.iter().for_each(|set| document.set(set).unwrap());
    document
}

fn study(folder: &Path, sets: &[&str]) -> Study {
    Study::load_with(&document(folder, sets), &Resources::default()).unwrap()
}

/// The weights, rounds and summary of a run.
fn run(study: &Study, folder: &Path, threads: usize) -> (Vec<u8>, Vec<RoundRecord>, Summary) {
    let folder = match folder.exists() {
        true => fedelity_record::RunFolder::open(folder).unwrap(),
        false => study.folder(Some(folder)).unwrap(),
    };
    study.run(&folder, threads, &mut ()).unwrap();
    let rounds = salvage_rounds(&folder.file(names::ROUNDS)).unwrap().rounds;
    let without_time = |record: RoundRecord| RoundRecord { seconds: Seconds::default(), ..record };
    let summary = Summary { seconds: Seconds::default(), ..read_summary(&folder.file(names::SUMMARY)).unwrap() };
    let model = std::fs::read(folder.file(names::MODEL)).unwrap();
    (model, rounds.into_iter().map(without_time).collect(), summary)
}

fn epsilons(rounds: &[RoundRecord]) -> Vec<f64> {
    rounds.iter().map(|round| round.protection.unwrap().privacy.unwrap().epsilon).collect()
}

#[test]
fn every_round_records_what_has_been_spent_and_resuming_continues_the_account() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let at = |name: &str| dir.path().join(name);

    let server = study(dir.path(), &[NOISE, "privacy.delta=1e-3"]);
    let (model, rounds, summary) = run(&server, &at("server"), 2);
    let sampled = Accountant::fixed_size(2.5, 3, 6);
    assert_eq!(epsilons(&rounds), [1, 2, 3, 4].map(|rounds| sampled.epsilon(rounds, 1e-3)));
    let spent = summary.privacy.unwrap();
    assert_eq!((spent.epsilon, spent.delta), (sampled.epsilon(4, 1e-3), 1e-3));
    assert_eq!(server.privacy(&server.settings.methods[0]).unwrap().after(4, &[1]), Some(spent));
    assert!(rounds.iter().all(|round| round.protection.unwrap().clipped.unwrap() <= 3));
    // Neither threads nor a pause change anything.
    assert!(run(&server, &at("one"), 1) == (model.clone(), rounds.clone(), summary.clone()));
    let short = study(dir.path(), &[NOISE, "privacy.delta=1e-3", "rounds=2"]);
    let (_, first, _) = run(&short, &at("longer"), 2);
    assert_eq!(epsilons(&first), epsilons(&rounds)[..2]);
    let (longer, all, ended) = run(&server, &at("longer"), 2);
    assert_eq!((longer, epsilons(&all), ended.privacy), (model, epsilons(&rounds), summary.privacy));

    // Clients that remember are not hidden by being drawn.
    let moon = study(dir.path(), &[NOISE, "method.name=moon"]);
    let (_, rounds, _) = run(&moon, &at("moon"), 2);
    let everyone = Accountant::fixed_size(2.5, 6, 6);
    assert_eq!(epsilons(&rounds), [1, 2, 3, 4].map(|rounds| everyone.epsilon(rounds, 1e-5)));

    // With noise at the client, its own uploads count.
    let client = study(dir.path(), &[NOISE, AT_CLIENT]);
    let (model, rounds, _) = run(&client, &at("client"), 2);
    let mut uploads = [0; 6];
    let expected = [0, 1, 2, 3].map(|round| {
        sample_clients(1, round, 6, 3).into_iter().for_each(|client| uploads[client] += 1);
        everyone.epsilon(*uploads.iter().max().unwrap(), 1e-5)
    });
    assert_eq!(epsilons(&rounds), expected);
    let planned = client.privacy(&client.settings.methods[0]).unwrap().after(4, &[1]).unwrap();
    assert_eq!(planned.epsilon, expected[3]);
    assert_eq!(run(&client, &at("client-one"), 1).0, model);
    assert!(rounds.iter().all(|round| round.protection.unwrap().clipped.is_none()));
    // Nothing but the noisy weights left the clients.
    assert!(rounds.iter().all(|round| round.train_loss.is_none() && round.trained_samples == 0));
}

#[test]
fn without_noise_and_within_the_limit_no_bit_changes() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let wide = study(dir.path(), &["server.clip-update=1e6"]);
    let (model, rounds, summary) = run(&wide, &dir.path().join("wide"), 2);
    assert!(rounds.iter().all(|round| round.protection.unwrap().clipped == Some(0)));
    assert_eq!(summary.privacy, None);
    let off = study(dir.path(), &["server.clip-update=1e6", "privacy.noise=0", AT_CLIENT]);
    assert!(run(&off, &dir.path().join("off"), 2) == (model.clone(), rounds, summary));
    let mut plain = Document::parse(
        "study.toml".to_string(),
        dir.path().to_path_buf(),
        STUDY.strip_suffix("[server]\nclip-update = 0.1\n").unwrap(),
    )
    .unwrap();
    plain.set("rounds=4").unwrap();
    let plain = Study::load(&plain).unwrap();
    let (same, rounds, _) = run(&plain, &dir.path().join("plain"), 2);
    assert_eq!(same, model);
    assert!(rounds.iter().all(|round| round.protection.is_none()));
    let narrow = study(dir.path(), &["server.clip-update=0.001"]);
    let (other, rounds, _) = run(&narrow, &dir.path().join("narrow"), 2);
    assert!(other != model && rounds.iter().all(|round| round.protection.unwrap().clipped == Some(3)));
}

#[test]
fn the_record_says_what_leaves_a_client() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let of = |sets: &[&str]| {
        let study = study(dir.path(), sets);
        let folder = study.folder(Some(&dir.path().join("run"))).unwrap();
        study.run(&folder, 2, &mut ()).unwrap();
        let leaves = salvage_rounds(&folder.file(names::ROUNDS)).unwrap().header.leaves.unwrap();
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(leaves.weights, study.model.layout().len() as u64);
        leaves
    };
    let scaffold = of(&["method.name=scaffold", "rounds=1"]);
    assert_eq!(scaffold.arrays.keys().collect::<Vec<_>>(), ["control-change"]);
    assert_eq!(scaffold.arrays["control-change"], scaffold.weights);
    assert!(scaffold.counts_and_loss && !scaffold.label_counts && scaffold.noise.is_none());
    let fedgen = of(&["method.name=fedgen", "rounds=1"]);
    assert!(fedgen.label_counts && fedgen.arrays["label-counts"] == 3);
    // The server's noise is not there yet when the update leaves.
    let server = of(&[NOISE, "rounds=1"]);
    assert!(server.counts_and_loss && server.noise.is_none() && server.clip.is_none());
    let client = of(&[NOISE, AT_CLIENT, "rounds=1"]);
    assert_eq!((client.clip, client.noise, client.counts_and_loss), (Some(0.1), Some(0.25), false));
    assert!(client.arrays.is_empty());
}

#[test]
fn what_noise_would_not_hide_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let refused = |sets: &[&str]| Study::load(&document(dir.path(), sets)).err().unwrap().to_string();
    for (sets, message) in [
        (
            &["clients.weighting=size"][..],
            "--set: privacy.noise: needs clients.weighting = \"uniform\": weighted by size",
        ),
        (
            &["server.rule=median"],
            "privacy.noise: not with server.rule = \"median\": its guarantee is for the mean; set",
        ),
        (&["method.name=scaffold"], "the method 'scaffold' also sends control-change, which would leave clients"),
        (
            &["method.name=feddf", "server.unlabelled=10"],
            "set privacy.at = \"client\", so that uploads have it themselves",
        ),
        (&["method=[{name=\"fedavg\"}, {name=\"fedcurv\"}]"], "the method 'fedcurv' also sends fisher, fisher-weights"),
        (&["server.clip-update=0"], "server.clip-update = 0: expected a finite number above 0"),
        (&["privacy.delta=1"], "privacy.delta = 1: expected"),
        (&["privacy.at=nobody"], "privacy.at = \"nobody\": expected one of server, client"),
    ] {
        let text = refused(&[&[NOISE][..], sets].concat());
        assert!(text.contains(message), "{sets:?}: {text}");
    }
    for set in ["privacy.at=client", "privacy.delta=0.1"] {
        let key = set.split('=').next().unwrap();
        assert_eq!(
            refused(&[set]),
            format!("--set: {key}: only allowed with privacy.noise, such as privacy.noise = 1.0")
        );
    }
    let mut without = Document::default();
    without.set(NOISE).unwrap();
    let text = Study::load(&without).err().unwrap().to_string();
    assert!(text.contains("privacy.noise: needs server.clip-update, the largest norm of an update"), "{text}");
    for set in ["clients.weighting=uniform", "server.clip-update=1.0", "model.name=resnet18-bn"] {
        without.set(set).unwrap();
    }
    let text = Study::load(&without).err().unwrap().to_string();
    assert!(text.contains("running statistics of the model 'resnet18-bn' would leave clients without noise"), "{text}");
}
