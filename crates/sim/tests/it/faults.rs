//! Faults on purpose: what reaches the server, what it makes of it, and that nothing of it is left in the model.

use std::sync::Arc;

use fedelity_fl::{
    Coordinator, Finished, FlError, Local, Memories, Method, Named, Outbox, Payload, Result, Samples, Scaling, Teacher,
    Trained, Trainer, client, longest_first, round,
};
use fedelity_nn::Params;
use fedelity_record::{Incident, IncidentKind, RoundRecord};
use fedelity_sim::{Attack, Experiment, Faults, Progress, Simulation};

use crate::rounds::experiment;

/// Every client's last accepted weights are its teacher, so memory that was kept by mistake would change the model.
#[derive(Debug)]
struct Remembering;

impl Named for Remembering {
    fn name(&self) -> &'static str {
        "remembering"
    }
}

impl Method for Remembering {
    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(local.memory.opt("own").map(|weights| Teacher::given(weights.clone())).into_iter().collect())
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut fedelity_fl::Step<'_>) -> Result<fedelity_fl::Terms> {
        let terms = step.cross_entropy();
        if step.teachers() > 0 {
            let teacher = step.teacher(0).logits;
            for ((z, t), d) in step.student.logits.iter().zip(teacher).zip(&mut *step.d_logits) {
                *d += 0.01 * (z - t);
            }
        }
        Ok(terms)
    }

    fn finish(&self, _: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        Ok(Outbox { upload: Payload::new(), memory: Payload::new().with("own", done.params) })
    }
}

fn faulty(faults: Faults) -> Experiment {
    Experiment { faults, rounds: 6, needed: 1, ..experiment(Remembering) }
}

/// Whether it is about an upload of an earlier round or attempt.
fn is_stale(incident: &Incident) -> bool {
    ["it belongs to round", "does not take part"].iter().any(|part| incident.reason.contains(part))
}

/// The clients whose uploads count: an upload that arrives twice counts once.
fn counted(record: &RoundRecord, twice: bool) -> Vec<usize> {
    let missing = |client: &u64| {
        record
            .incidents
            .iter()
            .filter(|one| !is_stale(one))
            .any(|one| one.client == *client && one.repeat == record.repeats)
    };
    record.clients.iter().filter(|client| twice || !missing(client)).map(|&client| client as usize).collect()
}

/// A server that never meets a fault, and only these clients.
struct Calm {
    coordinator: Coordinator,
    memories: Memories,
    trainer: Trainer,
    scaling: Scaling,
    experiment: Experiment,
}

impl Calm {
    fn new(experiment: Experiment) -> Self {
        Self {
            coordinator: Coordinator::new(experiment.federation.clone()).unwrap(),
            memories: Memories::new(),
            trainer: Trainer::new(experiment.federation.model.clone()),
            scaling: Scaling::from(&experiment.data.normalisation),
            experiment,
        }
    }

    fn round(&mut self, clients: &[usize], change: impl Fn(&[f32], &mut Finished)) -> String {
        let parts = &self.experiment.partition.clients;
        let order = longest_first(clients, |client| parts[client].len());
        round(&mut self.coordinator, &mut self.memories, &order, |federation, broadcast, id, memory| {
            let samples = Samples { split: &self.experiment.data.train, indices: &parts[id], scaling: &self.scaling };
            let task = federation.task(id, samples, broadcast, memory);
            let mut done = client(&mut self.trainer, &task, Params::default())?;
            change(&broadcast.global, &mut done);
            Ok(done)
        })
        .unwrap();
        self.coordinator.global().hash()
    }
}

fn weights(record: &RoundRecord) -> &str {
    &record.weights.as_ref().unwrap().sha256
}

#[test]
fn whatever_happens_to_an_upload_the_others_make_the_model() {
    let (before, during, after) =
        (IncidentKind::DroppedBefore, IncidentKind::DroppedDuring, IncidentKind::DroppedAfter);
    let (late, refused) = (IncidentKind::Late, IncidentKind::Refused);
    let none = Faults::default();
    for (faults, kind, reasons) in [
        (Faults { drop_before: 0.4, ..none }, before, &[""][..]),
        (Faults { drop_during: 0.4, ..none }, during, &[""]),
        (Faults { drop_after: 0.4, ..none }, after, &[""]),
        (Faults { late: 0.4, ..none }, late, &[""]),
        (Faults { twice: 0.4, ..none }, refused, &["has already sent an upload in this round"]),
        (Faults { truncated: 0.4, ..none }, refused, &["it cannot be read: "]),
        (
            Faults { misshapen: 0.4, ..none },
            refused,
            &["weights, but the model has", "an array 'unexpected', which is not part of the method"],
        ),
        (Faults { non_finite: 0.4, ..none }, refused, &["the numbers of its weights are not all finite"]),
        (
            Faults { enormous: 0.4, ..none },
            refused,
            &["its largest weight is more than 1000000 times that of the global model"],
        ),
    ] {
        let (mut simulation, mut calm) = (Simulation::new(faulty(faults)).unwrap(), Calm::new(faulty(none)));
        let mut happened = 0;
        while !simulation.done() {
            let record = simulation.step().unwrap();
            let clients = counted(&record, faults.twice > 0.0);
            assert_eq!(record.accepted.unwrap_or(5) as usize, clients.len());
            assert_eq!(weights(&record), calm.round(&clients, |_, _| ()), "{faults:?}, round {}", record.round);
            assert_eq!(simulation.memories(), &calm.memories);
            for one in record.incidents.iter().filter(|one| !is_stale(one)) {
                assert_eq!(one.kind, kind);
                assert!(reasons.iter().any(|reason| one.reason.contains(reason)), "{one:?}");
                assert_eq!(one.reason.is_empty(), kind != refused, "{one:?}");
                happened += 1;
            }
        }
        assert!((3..25).contains(&happened), "{faults:?}: {happened} of 30 uploads");
    }
}

#[test]
fn late_uploads_arrive_in_the_next_round_and_are_refused() {
    let mut simulation = Simulation::new(faulty(Faults { late: 0.4, ..Faults::default() })).unwrap();
    let mut late: Vec<u64> = Vec::new();
    let mut seen = 0;
    let upload = 4 * simulation.global().len() as u64;
    while !simulation.done() {
        let record = simulation.step().unwrap();
        // They travel like the others.
        assert_eq!(record.bytes_up, record.bytes_down);
        assert_eq!(record.bytes_up, upload * record.clients.len() as u64 * (1 + record.repeats));
        let said = format!("it belongs to round {}, but round {} is open", record.round - 1, record.round);
        let stale = record.incidents.iter().filter(|one| one.kind == IncidentKind::Refused && one.reason == said);
        let stale: Vec<u64> = stale.map(|one| one.client).collect();
        assert_eq!(stale, late);
        seen += stale.len();
        let last = record.incidents.iter().filter(|one| one.kind == IncidentKind::Late && one.repeat == record.repeats);
        late = last.map(|one| one.client).collect();
    }
    assert!(seen > 2);
}

#[test]
fn a_deadline_leaves_out_clients_that_take_longer() {
    // The median client has 37.5 samples, so one with more than 45 is late.
    let faults = Faults { deadline: Some(1.2), ..Faults::default() };
    let mut simulation = Simulation::new(faulty(faults)).unwrap();
    let record = simulation.step().unwrap();
    let late: Vec<u64> = record.incidents.iter().map(|one| one.client).collect();
    let expected: Vec<u64> = record.clients.iter().copied().filter(|client| 10 + 5 * client > 45).collect();
    let mut sorted = late.clone();
    sorted.sort_unstable();
    assert!(!late.is_empty() && record.incidents.iter().all(|one| one.kind == IncidentKind::Late));
    assert_eq!(sorted, expected);
    // If everybody is ten times as slow, nobody is in time.
    let faults = Faults { slow: 1.0, slowdown: 10.0, deadline: Some(1.2), ..Faults::default() };
    let error = Simulation::new(faulty(faults)).unwrap().step().unwrap_err();
    assert!(matches!(error, FlError::Quorum { round: 1, accepted: 0, needed: 1, .. }), "{error}");
}

#[test]
fn below_the_quorum_a_round_is_repeated_with_others() {
    let faults = Faults { drop_during: 0.5, ..Faults::default() };
    let mut simulation = Simulation::new(Experiment { needed: 3, ..faulty(faults) }).unwrap();
    let mut calm = Calm::new(faulty(Faults::default()));
    let mut repeats = 0;
    while !simulation.done() {
        let record = simulation.step().unwrap();
        assert!(record.accepted.unwrap_or(5) >= 3);
        assert_eq!(weights(&record), calm.round(&counted(&record, false), |_, _| ()));
        let first: Vec<u64> = record.incidents.iter().filter(|one| one.repeat == 0).map(|one| one.client).collect();
        if record.repeats == 1 {
            assert!(first.iter().all(|client| !record.clients.contains(client)), "{record:?}");
        }
        repeats += record.repeats;
    }
    assert!(repeats > 0);
    let nobody = Faults { drop_before: 1.0, ..Faults::default() };
    let mut simulation = Simulation::new(faulty(nobody)).unwrap();
    let start = simulation.global().hash();
    assert_eq!(
        simulation.step().unwrap_err().to_string(),
        "round 1: only 0 of at least 1 uploads were accepted, although the round was repeated 20 times; in the last attempt, \
         5 clients dropped out"
    );
    assert_eq!((simulation.global().hash(), simulation.rounds()), (start, 0));
}

#[test]
fn attackers_send_what_they_should_not() {
    let attackers = 0.25;
    let of = |attack| Faults { attack, ..Faults::default() };
    let flip = (Attack::SignFlip { attackers, factor: 1.0 }, -1.0);
    for (attack, factor) in [flip, (Attack::Scale { attackers, factor: 3.0 }, 3.0)] {
        let mut simulation = Simulation::new(faulty(of(attack))).unwrap();
        let attackers = simulation.attackers();
        assert_eq!(attackers.len(), 3);
        let mut calm = Calm::new(faulty(Faults::default()));
        for _ in 0..3 {
            let record = simulation.step().unwrap();
            let all: Vec<usize> = record.clients.iter().map(|&client| client as usize).collect();
            let layout = simulation.experiment().federation.model.layout().clone();
            let forge = |global: &[f32], done: &mut Finished| {
                if attackers.contains(&done.upload.client) {
                    for at in layout.trainable().iter().cloned().flatten() {
                        done.upload.params[at] = global[at] + factor * (done.upload.params[at] - global[at]);
                    }
                }
            };
            assert_eq!(weights(&record), calm.round(&all, forge));
            assert_eq!((record.accepted, record.incidents.len()), (None, 0));
        }
    }
    // Flipped labels: the same as other data.
    let mut simulation = Simulation::new(faulty(of(Attack::LabelFlip { attackers }))).unwrap();
    let mut other = faulty(Faults::default());
    let mut data = (*other.data).clone();
    for client in simulation.attackers() {
        for &index in &other.partition.clients[client] {
            data.train.labels[index as usize] = 3 - data.train.labels[index as usize];
        }
    }
    other.data = Arc::new(data);
    let mut other = Simulation::new(other).unwrap();
    for _ in 0..3 {
        assert_eq!(weights(&simulation.step().unwrap()), weights(&other.step().unwrap()));
    }
}

#[test]
fn faults_depend_on_neither_threads_nor_an_interruption() {
    let faults = Faults {
        drop_before: 0.1,
        drop_during: 0.1,
        drop_after: 0.1,
        late: 0.1,
        twice: 0.1,
        truncated: 0.1,
        misshapen: 0.1,
        non_finite: 0.05,
        enormous: 0.05,
        attack: Attack::LabelFlip { attackers: 0.2 },
        ..Faults::default()
    };
    let of = |threads| Experiment { threads, ..faulty(faults) };
    let (mut one, mut three) = (Simulation::new(of(1)).unwrap(), Simulation::new(of(3)).unwrap());
    let mut records: Vec<RoundRecord> = Vec::new();
    while !one.done() {
        let progress = Progress { server: one.server().clone(), memories: one.memories().clone(), features: None };
        let mut resumed = Simulation::resume(of(2), progress, &records).unwrap();
        let plain = |record: RoundRecord| RoundRecord { seconds: Default::default(), ..record };
        let record = plain(one.step().unwrap());
        assert_eq!(record, plain(three.step().unwrap()));
        assert_eq!(record, plain(resumed.step().unwrap()));
        records.push(record);
    }
    let kinds: std::collections::BTreeSet<IncidentKind> =
        records.iter().flat_map(|record| &record.incidents).map(|one| one.kind).collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}
