//! The server: what it accepts, what it rejects, and abandoned rounds.

use std::sync::Arc;

use fedelity_fl::wire::Wire;
use fedelity_fl::{
    Broadcast, Coordinator, Extra, Federation, Finished, FlError, Gather, Local, Memories, Method, Named, Outbox,
    Payload, Received, Rejection, Result, Samples, Server, ServerData, ServerState, Teacher, Trained, Trainer,
    Training, Upload, Weighting, client, round,
};
use fedelity_nn::{Model, Params};

use crate::common::{model, scaling, split};

/// Sends two arrays, counts in its state and remembers its weights, which are its teacher in the next round.
#[derive(Debug)]
struct Counting;

impl Named for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }
}

impl Method for Counting {
    fn sends(&self, _: &Model) -> Vec<Extra> {
        vec![Extra::always("three", 3), Extra::sometimes("maybe", 2), Extra::growing("more", 4)]
    }

    fn receives(&self, _: &Model) -> Vec<Extra> {
        vec![Extra::sometimes("seen", 1)]
    }

    fn prepare(&self, server: &mut Server<'_>) -> Result<Payload> {
        server.scratch.put("opened", vec![1.0]);
        Ok(server.state.opt("seen").map_or_else(Payload::new, |seen| Payload::new().with("seen", seen.clone())))
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        let own = local.memory.opt("own").map(|weights| Teacher::given(weights.clone()));
        Ok(std::iter::once(Teacher::global()).chain(own).collect())
    }

    fn finish(&self, _: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        let upload = Payload::new().with("three", vec![done.steps as f32; 3]);
        Ok(Outbox { upload, memory: Payload::new().with("own", done.params) })
    }

    fn collect(&self, server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        if upload.steps == 99 {
            return Err(FlError::Method { method: self.name(), reason: "not this one".into() });
        }
        server.scratch.slot("uploads", 1)[0] += 1.0;
        gather.mean.add(upload.weight, &upload.params)
    }

    fn conclude(&self, server: &mut Server<'_>, gather: &mut Gather, state: &mut Payload) -> Result<Params> {
        state.slot("seen", 1)[0] += server.scratch.get("opened")?[0] + server.scratch.get("uploads")?[0];
        gather.mean.finish()
    }
}

const CLIENTS: usize = 4;

fn federation() -> Federation {
    Federation {
        model: model("plain"),
        method: Arc::new(Counting),
        training: Training { batch: 4, ..Training::default() },
        weighting: Weighting::Size,
        clients: CLIENTS,
        seed: 3,
        server_data: ServerData::default(),
    }
}

/// Runs client `k`, which holds five samples.
fn train(federation: &Federation, broadcast: &Broadcast, k: usize, memory: &Payload) -> Result<Finished> {
    let (split, scaling) = (split(5 * CLIENTS), scaling());
    let indices: Vec<u32> = (5 * k as u32..5 * k as u32 + 5).collect();
    let samples = Samples { split: &split, indices: &indices, scaling: &scaling };
    let task = federation.task(k, samples, broadcast, memory);
    client(&mut Trainer::new(federation.model.clone()), &task, Params::default())
}

/// An open round for clients 1 and 2, and the upload of client 1.
fn open() -> (Coordinator, Upload) {
    let mut coordinator = Coordinator::new(federation()).unwrap();
    let broadcast = coordinator.open(&[1, 2]).unwrap();
    let upload = train(coordinator.federation(), &broadcast, 1, &Payload::new()).unwrap().upload;
    (coordinator, upload)
}

#[test]
fn every_rejection_has_its_reason_and_leaves_no_trace() {
    let (coordinator, good) = open();
    let weights = good.params.len();
    let change = |change: &dyn Fn(&mut Upload)| {
        let mut upload = good.clone();
        change(&mut upload);
        upload
    };
    let array = |name: &str, values: Vec<f32>| change(&|upload| upload.extra.put(name, values.clone()));
    let bad = [
        (change(&|upload| upload.round = 1), Rejection::Round { expected: 1, found: 2 }),
        (change(&|upload| upload.round = usize::MAX), Rejection::Round { expected: 1, found: usize::MAX }),
        (change(&|upload| upload.client = 3), Rejection::Stranger { client: 3 }),
        (change(&|upload| upload.client = usize::MAX), Rejection::Stranger { client: usize::MAX }),
        (change(&|upload| upload.examples = 1 << 40), Rejection::Samples { found: 1 << 40, most: u32::MAX }),
        (change(&|upload| upload.params.0.truncate(7)), Rejection::Weights { expected: weights, found: 7 }),
        (change(&|upload| upload.params.0.clear()), Rejection::Weights { expected: weights, found: 0 }),
        (change(&|upload| upload.extra = Payload::new()), Rejection::Missing { name: "three".into() }),
        (array("four", vec![]), Rejection::Undeclared { name: "four".into() }),
        (array("three", vec![0.0; 4]), Rejection::Length { name: "three".into(), expected: 3, found: 4 }),
        (array("maybe", vec![0.0]), Rejection::Length { name: "maybe".into(), expected: 2, found: 1 }),
        (array("more", vec![]), Rejection::Length { name: "more".into(), expected: 4, found: 0 }),
        (array("more", vec![0.0; 5]), Rejection::Length { name: "more".into(), expected: 4, found: 5 }),
        (array("maybe", vec![0.0, f32::NAN]), Rejection::NotFinite { what: "array 'maybe'".into() }),
        (
            change(&|upload| upload.params[weights - 1] = f32::NEG_INFINITY),
            Rejection::NotFinite { what: "weights".into() },
        ),
        (change(&|upload| upload.params[0] = -f32::NAN), Rejection::NotFinite { what: "weights".into() }),
        (change(&|upload| upload.params[0] = -3e7), Rejection::Enormous { times: 1_000_000 }),
    ];
    drop(coordinator);
    let closed = |bad: &[(Upload, Rejection)]| {
        let (mut coordinator, good) = open();
        for (upload, reason) in bad {
            assert_eq!(coordinator.accept(upload.clone()).unwrap().as_ref(), Err(reason));
        }
        coordinator.accept(good.clone()).unwrap().unwrap();
        for (upload, _) in bad {
            coordinator.accept(upload.clone()).unwrap().unwrap_err();
        }
        assert_eq!(coordinator.accept(good.clone()).unwrap(), Err(Rejection::Twice { client: 1 }));
        let more = Payload::new().with("more", vec![1.0]).with("three", vec![0.0; 3]);
        coordinator.accept(Upload { client: 2, extra: more, ..good }).unwrap().unwrap();
        assert!(coordinator.close().unwrap().is_empty());
        coordinator.kept().clone()
    };
    let clean = closed(&[]);
    assert_eq!(closed(&bad), clean);
    assert_eq!(clean.state.get("seen").unwrap()[..], [3.0]);
    let words: Vec<String> = bad.iter().map(|(_, reason)| reason.to_string()).collect();
    assert_eq!(words[0], "it belongs to round 2, but round 1 is open");
    assert_eq!(words[13], "the numbers of its array 'maybe' are not all finite");
}

#[test]
fn a_negative_variance_is_refused() {
    let federation = Federation { model: model("batch"), ..federation() };
    let layout = federation.model.layout().clone();
    let variance = layout.tensors().iter().find(|tensor| tensor.is_variance()).unwrap();
    let mut coordinator = Coordinator::new(federation).unwrap();
    let broadcast = coordinator.open(&[1, 2]).unwrap();
    let Finished { upload, .. } = train(coordinator.federation(), &broadcast, 1, &Payload::new()).unwrap();
    let mut bad = upload.clone();
    bad.params[variance.offset + variance.len - 1] = -1e-6;
    let refused = coordinator.accept(bad).unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "its 'norm.running_var' has a negative number, which a variance cannot have");
    coordinator.accept(upload).unwrap().unwrap();
}

#[test]
fn bytes_are_uploads_or_refused() {
    let (mut coordinator, good) = open();
    let before = coordinator.kept().clone();
    let bytes = good.to_bytes();
    for cut in [0, 3, 8, bytes.len() / 2, bytes.len() - 1] {
        let refused = coordinator.accept_bytes(&bytes[..cut]).unwrap().unwrap_err();
        assert!(refused.to_string().starts_with("it cannot be read: "), "{refused}");
    }
    assert_eq!(coordinator.kept(), &before);
    coordinator.accept_bytes(&bytes).unwrap().unwrap();
    assert_eq!(coordinator.accept_bytes(&bytes).unwrap(), Err(Rejection::Twice { client: 1 }));
    coordinator.abandon();
    assert!(matches!(coordinator.accept_bytes(&[]), Err(FlError::Order { .. })));
}

#[test]
fn a_trusted_clients_rejection_is_an_error() {
    let (mut coordinator, upload) = open();
    let error = coordinator.fold(Upload { client: 0, ..upload.clone() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "round 1: the upload of client 0 was rejected: client 0 does not take part in this round"
    );
    assert_eq!(error.divergence(), None);
    let mut broken = upload;
    broken.params[0] = f32::NAN;
    assert_eq!(coordinator.fold(broken).unwrap_err().divergence(), Some((1, Some(1))));
}

#[test]
fn rounds_open_for_known_clients_and_close_in_order() {
    let mut coordinator = Coordinator::new(federation()).unwrap();
    let order = |error: FlError| matches!(error, FlError::Order { .. });
    assert!(order(coordinator.close().unwrap_err()));
    for clients in [&[0, 4][..], &[2, 1, 2]] {
        let error = coordinator.open(clients).unwrap_err().to_string();
        assert_eq!(error, "round 1: expected different clients, each below 4");
    }
    coordinator.open(&[2, 1]).unwrap();
    assert!(order(coordinator.open(&[0]).unwrap_err()));
    coordinator.abandon();
    coordinator.open(&[0]).unwrap();
}

#[test]
fn after_an_error_a_round_can_only_be_abandoned() {
    let (mut coordinator, upload) = open();
    let before = coordinator.kept().clone();
    assert!(coordinator.accept(Upload { steps: 99, ..upload.clone() }).is_err());
    let error = coordinator.accept(upload.clone()).unwrap_err().to_string();
    assert_eq!(error, "accepting an upload: round 1 is spoiled by an error");
    assert!(coordinator.close().is_err() && coordinator.open(&[1]).is_err());
    coordinator.abandon();
    assert_eq!(*coordinator.kept(), before);
    // A round without an upload cannot be closed.
    coordinator.open(&[1]).unwrap();
    assert!(coordinator.close().is_err());
    coordinator.abandon();
    assert_eq!(*coordinator.kept(), before);
}

#[test]
fn a_whole_round_is_resumed_and_abandoned_without_a_trace() {
    let clients = [3, 0, 2];
    let mut plain = (Coordinator::new(federation()).unwrap(), Memories::new());
    let mut other = (Coordinator::new(federation()).unwrap(), Memories::new());
    for _ in 0..3 {
        round(&mut plain.0, &mut plain.1, &clients, train).unwrap();
        let kept = other.0.kept().clone();
        let failed = round(&mut other.0, &mut other.1, &clients, |federation, broadcast, k, memory| match k {
            2 => Err(FlError::Method { method: "counting", reason: "the network is down".into() }),
            _ => train(federation, broadcast, k, memory),
        });
        assert!(failed.is_err() && *other.0.kept() == kept);
        other.0 = Coordinator::resume(federation(), kept).unwrap();
        round(&mut other.0, &mut other.1, &clients, train).unwrap();
        assert_eq!((plain.0.kept(), &plain.1), (other.0.kept(), &other.1));
    }
    assert_eq!(plain.1.keys().copied().collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(plain.0.kept().round, 3);
}

#[test]
fn what_a_client_receives_is_checked_before_use() {
    let mut coordinator = Coordinator::new(federation()).unwrap();
    let good = coordinator.open(&[0]).unwrap();
    let weights = good.global.len();
    let message =
        |broadcast: &Broadcast, memory: &Payload| train(&federation(), broadcast, 0, memory).unwrap_err().to_string();
    let with = |payload: Payload| Broadcast { payload, ..good.clone() };
    let nothing = Payload::new();
    assert_eq!(
        message(&Broadcast { global: Arc::new(Params(vec![0.0; 3])), ..good.clone() }, &nothing),
        format!("the broadcast of round 1 cannot be used: it has 3 weights, but the model has {weights}")
    );
    assert_eq!(
        message(&with(Payload::new().with("seen", vec![0.0; 2])), &nothing),
        "the broadcast of round 1 cannot be used: its array 'seen' has 2 numbers, expected 1"
    );
    assert_eq!(
        message(&good, &Payload::new().with("own", vec![0.0; 3])),
        format!("round 1, client 0: teacher 1 cannot be used: it has 3 weights, but the model has {weights}")
    );
    let mut own = vec![0.0; weights];
    own[weights / 2] = f32::NAN;
    assert_eq!(
        message(&good, &Payload::new().with("own", own)),
        "round 1, client 0: teacher 1 cannot be used: the numbers of its weights are not all finite"
    );
}

#[test]
fn a_state_of_another_model_is_refused() {
    let kept = ServerState { round: 2, global: Arc::new(Params(vec![0.0; 3])), state: Payload::new() };
    assert!(matches!(Coordinator::resume(federation(), kept), Err(FlError::Length { found: 3, .. })));
}
