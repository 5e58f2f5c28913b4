//! Only clients that have something to remember take memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Normalisation, Partition, Shape, Split};
use fedelity_fl::{Federation, Payload, ServerData, Training, Weighting};
use fedelity_nn::{InputShape, Model, ModelSpec, cpu, zoo};
use fedelity_sim::{Experiment, Faults, Observation, Simulation};

const CLIENTS: usize = 10_000;
const ROUNDS: usize = 10;
const PER_ROUND: usize = 10;
const SIDE: usize = 70;

/// SCAFFOLD's control variates exist only for the clients that took part, at most 100 of 10,000. All of them would need
/// 2 GB.
#[test]
fn ten_thousand_clients_need_memory_only_for_those_that_took_part() {
    let shape = Shape::Image(ImageShape { channels: 1, height: SIDE, width: SIDE });
    let input = InputShape::Image { channels: 1, height: SIDE, width: SIDE };
    // Clients share 100 samples: the partition does not matter here.
    let split = Split::images(vec![7; 100 * SIDE * SIDE], (0..100).map(|i| i % 10).collect());
    let data = Dataset {
        name: "flat".into(),
        classes: (0..10).map(|class| class.to_string()).collect(),
        shape,
        train: split.clone(),
        test: split,
        normalisation: Normalisation { mean: vec![0.5], std: vec![0.5] },
        table: None,
    };
    let spec = ModelSpec::new("logistic", false);
    let model = Arc::new(Model::compile(&zoo::build(&spec, input, 10).unwrap(), cpu()).unwrap());
    let floats = model.layout().len();
    assert!(4 * floats * CLIENTS > 1_900_000_000);
    let partition = Partition::of((0..CLIENTS as u32).map(|client| vec![client % 100]).collect());
    let mut simulation = Simulation::new(Experiment {
        federation: Federation {
            model,
            method: fedelity_methods::build("scaffold", &toml::Table::new()).unwrap().method,
            training: Training { batch: 1, ..Training::default() },
            weighting: Weighting::Size,
            clients: CLIENTS,
            seed: 1,
            server_data: ServerData::default(),
        },
        data: Arc::new(data),
        partition: Arc::new(partition),
        per_round: PER_ROUND,
        rounds: ROUNDS,
        evaluate_every: ROUNDS,
        threads: 2,
        observation: Observation::default(),
        faults: Faults::default(),
        needed: 1,
    })
    .unwrap();
    let before = resident();
    let mut took_part = BTreeSet::new();
    while !simulation.done() {
        took_part.extend(simulation.step().unwrap().clients.iter().map(|&client| client as usize));
    }
    assert!((90..=ROUNDS * PER_ROUND).contains(&took_part.len()));
    assert!(simulation.memories().keys().eq(&took_part));
    let bytes: u64 = simulation.memories().values().map(Payload::bytes).sum();
    assert_eq!(bytes, 4 * (floats * took_part.len()) as u64);
    if let (Some(before), Some(after)) = (before, resident()) {
        let grown = after.saturating_sub(before);
        assert!(grown < 4 * bytes, "{grown} bytes more for {bytes} bytes of memory");
    }
}

/// Resident memory of this process in bytes, if the system reports it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}
