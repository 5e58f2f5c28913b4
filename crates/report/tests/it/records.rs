//! Synthetic runs as files.

use std::path::{Path, PathBuf};

use fedelity_record::{
    ClientRecord, FocusRecord, Header, Holdings, LocalEvaluation, LocalRecord, RoundRecord, RunFolder, Seconds, Spread,
    Status, Summary,
};

/// The size of a synthetic study.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) methods: usize,
    pub(crate) seeds: u64,
    pub(crate) rounds: u64,
    pub(crate) classes: usize,
}

/// A pseudo-random number from 0 to 1 that is always the same.
pub(crate) fn noise(seed: u64) -> f64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// A method's name; names sort like their numbers, as folders do.
pub(crate) fn name(method: usize) -> String {
    let known = ["fedavg", "fedcad", "fedgkd", "fedntd", "fedprox", "fedssd", "moon"];
    known.get(method).map_or_else(|| format!("other-{method:02}"), |name| name.to_string())
}

/// Accuracy of a class in a round.
fn class_accuracy(method: usize, seed: u64, round: u64, class: usize, rounds: u64) -> f64 {
    let grown = 0.9 * (1.0 - (-4.0 * round as f64 / rounds.max(2) as f64).exp());
    let dip = if (round + class as u64).is_multiple_of(5 + method as u64) { 0.4 } else { 0.0 };
    (grown - dip
        + 0.1 * noise(round * 31 + class as u64 * 7 + seed * 1_001 + method as u64 * 77)
        + 0.005 * method as f64)
        .clamp(0.0, 1.0)
}

pub(crate) fn round(made: Made, method: usize, seed: u64, round: u64) -> RoundRecord {
    let by_class: Vec<Option<f64>> =
        (0..made.classes).map(|class| Some(class_accuracy(method, seed, round, class, made.rounds))).collect();
    let accuracy = by_class.iter().flatten().sum::<f64>() / made.classes as f64;
    let n = |k: u64| noise(round * 131 + seed * 17 + method as u64 * 3 + k);
    let last = round == made.rounds;
    let matrix = |part: u64| -> Vec<Vec<u64>> {
        (0..made.classes)
            .map(|i| {
                (0..made.classes)
                    .map(|j| if i == j { 60 } else { (noise((i * 997 + j) as u64 + part) * 8.0) as u64 })
                    .collect()
            })
            .collect()
    };
    let client = |client: u64| ClientRecord {
        client,
        samples: 100,
        accuracy: accuracy * 0.7,
        drift: 1.0 + n(client),
        ..ClientRecord::default()
    };
    let local = LocalRecord {
        samples: 500,
        class_correct_before: Vec::new(),
        accuracy_before: accuracy - 0.02,
        accuracy: Spread { mean: accuracy * 0.7, sd: 0.05, min: accuracy * 0.5, max: accuracy * 0.8 },
        in_before: Some(accuracy),
        in_after: Some((accuracy + 0.1).min(1.0)),
        out_before: Some(accuracy),
        out_after: Some(accuracy * 0.6 + 0.01 * method as f64),
        class_forgot: (0..made.classes).map(|class| Some(0.3 * n(class as u64))).collect(),
        class_learnt: (0..made.classes).map(|class| Some(0.1 * n(class as u64 + 500))).collect(),
        alignment: [("fc1".to_string(), 0.6 + 0.2 * n(9)), ("fc2".to_string(), 0.5 + 0.2 * n(10))].into(),
        clients: (0..4).map(client).collect(),
        focus: last.then(|| FocusRecord { client: 3, before: matrix(1), after: matrix(90) }),
    };
    RoundRecord {
        round,
        accuracy: Some(accuracy),
        loss: Some(2.3 * (1.0 - accuracy) + 0.1),
        class_accuracy: Some(by_class),
        forgetting: (round > 1).then(|| 0.3 * n(1)),
        class_forgetting: (round > 1).then(|| vec![Some(0.1); made.classes]),
        class_cosine: (round > 1).then(|| 0.9 + 0.1 * n(2)),
        confusion: last.then(|| matrix(7)),
        local: Some(local),
        drift: Some(Spread { mean: 1.0 + n(3), sd: 0.1, min: 0.9, max: 2.1 }),
        gradient_diversity: Some(1.5 + n(4)),
        train_loss: Some(1.0 - accuracy / 2.0),
        train_terms: [("ce".to_string(), 0.8 - accuracy / 2.0), ("kd".to_string(), 0.2)].into(),
        trained_samples: 1_000,
        teacher_samples: if method == 0 { 0 } else { 200 },
        bytes_down: 1_000_000,
        bytes_up: 1_000_000 + 1_000 * method as u64,
        traffic: Some(1.0),
        seconds: Seconds { train: 0.2 + 0.01 * method as f64, aggregate: 0.01, evaluate: 0.01, observe: 0.02 },
        clients: vec![0, 1, 2, 3],
        ..RoundRecord::default()
    }
}

pub(crate) fn header(made: Made, method: &str, seed: u64) -> Header {
    Header {
        fedelity: "0.1.0".to_string(),
        method: method.to_string(),
        dataset: "made-up".to_string(),
        dataset_fingerprint: "d1".repeat(32),
        partition: "dirichlet, alpha 0.1, 20 clients".to_string(),
        partition_fingerprint: "c0".repeat(32),
        model: "simple-cnn".to_string(),
        parameters: 44_426,
        seed,
        rounds: made.rounds,
        clients: 20,
        per_round: 4,
        threads: 2,
        classes: (0..made.classes)
            .map(|class| if made.classes > 12 { class.to_string() } else { format!("class {class}") })
            .collect(),
        local_evaluation: Some(LocalEvaluation {
            metrics: "standard".into(),
            samples: 500,
            of: 1_000,
            alignment_every: 1,
            every: 1,
            class_samples: vec![],
        }),
        machine: "a machine".to_string(),
        isa: "avx2".to_string(),
        ..Header::default()
    }
}

/// Writes one run.
pub(crate) fn run(path: &Path, made: Made, header: &Header, method: usize) -> PathBuf {
    let folder = RunFolder::create(path).unwrap();
    let config = "rounds = 1\nseeds = [1]\n[clients]\nepochs = 5\nbatch = 32\n[optimizer]\nkind = \"sgd\"\nlr = 0.02\n";
    folder.write_config(&format!("{config}[method]\nname = {:?}\n", header.method)).unwrap();
    let counts = (0..20)
        .map(|client| (0..made.classes as u64).map(|class| (noise(client * 50 + class) * 60.0) as u64).collect())
        .collect();
    folder.write_holdings(&Holdings::new(counts)).unwrap();
    let mut file = folder.start_rounds(header).unwrap();
    let mut summary = Summary { status: Status::Finished, ..Summary::default() };
    for number in 1..=made.rounds {
        let record = round(made, method, header.seed, number);
        file.append(&record).unwrap();
        summary.add(&record);
    }
    folder.write_summary(&summary).unwrap();
    path.to_path_buf()
}

/// Writes a whole study.
pub(crate) fn study(folder: &Path, made: Made) {
    for method in 0..made.methods {
        for seed in 1..=made.seeds {
            let path = folder.join(name(method)).join(format!("seed-{seed}"));
            run(&path, made, &header(made, &name(method), seed), method);
        }
    }
}
