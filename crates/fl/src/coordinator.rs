//! The server's side of a round.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedelity_nn::Params;

use crate::payload::{all_finite, largest_magnitude};
use crate::rng::{Purpose, stream};
use crate::wire::Wire;
use crate::{Extra, Federation, FlError, Gather, Held, Payload, Received, Rejection, Result, Server, Trainer, Upload};

/// The largest weight of an upload may be this many times that of the global model, or of 1. A larger one would leave nothing of
/// the others in a mean of f32 numbers.
const ENORMOUS: u32 = 1_000_000;

/// What the server sends to every client of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// Counted from 0.
    pub round: usize,
    pub global: Arc<Params>,
    /// The method's additional arrays.
    pub payload: Payload,
}

impl Broadcast {
    /// Bytes on the wire to one client: 4 per number.
    pub fn bytes(&self) -> u64 {
        4 * self.global.len() as u64 + self.payload.bytes()
    }
}

/// What a server carries over between rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// The number of closed rounds; also the next round, counted from 0.
    pub round: usize,
    pub global: Arc<Params>,
    /// The method's state.
    pub state: Payload,
}

/// The server: opens a round, folds in uploads, closes the round.
///
/// Nothing of a round is kept until it is closed, so it can be [abandoned](Self::abandon) without a trace.
#[derive(Debug)]
pub struct Coordinator {
    federation: Federation,
    kept: ServerState,
    /// The clients of the open round, and whether their uploads are in.
    clients: Option<BTreeMap<usize, bool>>,
    /// The largest weight that is accepted.
    most: f32,
    spoiled: bool,
    gather: Gather,
    scratch: Payload,
    trainer: Trainer,
    sends: Vec<Extra>,
    each_upload: bool,
}

impl Coordinator {
    /// A federation before its first round, with fresh weights.
    pub fn new(federation: Federation) -> Result<Self> {
        let global = federation.model.init(&mut stream(federation.seed, Purpose::Init, 0, 0, 0));
        let fresh = ServerState { round: 0, global: Arc::new(global), state: Payload::new() };
        let mut new = Self::resume(federation, fresh)?;
        let method = new.federation.method.clone();
        new.kept.state = method.init(&mut new.server().0)?;
        Ok(new)
    }

    /// A federation before its next round, resumed from an earlier [`ServerState`].
    pub fn resume(federation: Federation, kept: ServerState) -> Result<Self> {
        federation.check()?;
        federation.fits("the weights", kept.global.len())?;
        Ok(Self {
            kept,
            clients: None,
            most: f32::MAX,
            spoiled: false,
            gather: Gather::default(),
            scratch: Payload::new(),
            trainer: Trainer::new(federation.model.clone()),
            sends: federation.method.sends(&federation.model),
            each_upload: federation.method.needs().each_upload,
            federation,
        })
    }

    pub fn federation(&self) -> &Federation {
        &self.federation
    }

    /// The state after the last closed round.
    pub fn kept(&self) -> &ServerState {
        &self.kept
    }

    /// The global weights after the last closed round.
    pub fn global(&self) -> &Arc<Params> {
        &self.kept.global
    }

    pub fn state(&self) -> &Payload {
        &self.kept.state
    }

    /// The number of closed rounds; also the next or open round, counted from 0.
    pub fn rounds(&self) -> usize {
        self.kept.round
    }

    /// Opens the next round for these clients; returns what all of them receive.
    pub fn open(&mut self, clients: &[usize]) -> Result<Broadcast> {
        self.expect("opening a round", false)?;
        let expected: BTreeMap<usize, bool> = clients.iter().map(|&client| (client, false)).collect();
        let known = clients.iter().all(|&client| client < self.federation.clients);
        if !known || expected.len() != clients.len() {
            return Err(FlError::Clients { round: self.kept.round + 1, clients: self.federation.clients });
        }
        self.abandon();
        let method = self.federation.method.clone();
        let payload = method.prepare(&mut self.server().0)?;
        self.clients = Some(expected);
        self.most = ENORMOUS as f32 * self.largest(&self.kept.global).max(1.0);
        Ok(Broadcast { round: self.kept.round, global: self.kept.global.clone(), payload })
    }

    /// Folds in one upload, or returns why not; a rejected upload does not affect the round. Uploads are summed in call
    /// order.
    ///
    /// Memory that is no longer needed is returned for the next upload. After an error the round can only be abandoned.
    pub fn accept(&mut self, upload: Upload) -> Result<Result<Option<Params>, Rejection>> {
        self.expect("accepting an upload", true)?;
        if let Err(rejection) = self.examine(&upload) {
            return Ok(Err(rejection));
        }
        let weight = self.federation.weighting.weight(upload.examples);
        let mut received = Received { upload, weight };
        let method = self.federation.method.clone();
        let (mut server, gather) = self.server();
        let admitted = method.admit(&server, gather, &mut received);
        let collected = admitted.and_then(|()| method.collect(&mut server, gather, &received));
        self.spoiled = collected.is_err();
        collected?;
        if let Some(clients) = &mut self.clients {
            clients.insert(received.client, true);
        }
        if self.each_upload {
            self.gather.uploads.push(received);
            return Ok(Ok(None));
        }
        Ok(Ok(Some(received.upload.params)))
    }

    /// [`accept`](Self::accept) for an upload in its [wire form](crate::wire).
    pub fn accept_bytes(&mut self, bytes: &[u8]) -> Result<Result<Option<Params>, Rejection>> {
        match Upload::from_bytes(bytes) {
            Ok(upload) => self.accept(upload),
            Err(reason) => self.expect("accepting an upload", true).map(|()| Err(Rejection::Unreadable { reason })),
        }
    }

    /// [`accept`](Self::accept) for trusted clients: a rejection is an error.
    pub fn fold(&mut self, upload: Upload) -> Result<Option<Params>> {
        let (round, client) = (self.kept.round + 1, upload.client);
        self.accept(upload)?.map_err(|reason| FlError::Rejected { round, client, reason })
    }

    /// How many uploads of the open round were scaled down, if there is a limit.
    pub fn clipped(&self) -> Option<usize> {
        self.gather.clipped
    }

    /// Closes the round: the method computes the new global weights. Returns the clients whose uploads were left out.
    ///
    /// Only now are uploads final, and only now may the other clients of the round store what they have to remember.
    /// After an error the round can only be abandoned.
    pub fn close(&mut self) -> Result<Vec<usize>> {
        self.expect("closing a round", true)?;
        self.spoiled = true;
        let (method, mut state) = (self.federation.method.clone(), self.kept.state.clone());
        let (mut server, gather) = self.server();
        let global = method.conclude(&mut server, gather, &mut state)?;
        self.federation.fits("the new weights", global.len())?;
        self.kept = ServerState { round: self.kept.round + 1, global: Arc::new(global), state };
        let refused = std::mem::take(&mut self.gather.refused);
        self.abandon();
        Ok(refused)
    }

    /// Abandons the open round: everything is as it was before.
    pub fn abandon(&mut self) {
        self.gather.clear();
        self.scratch = Payload::new();
        (self.clients, self.spoiled) = (None, false);
    }

    /// Why an upload does not belong in the open round, if it does not. [`accept`](Self::accept) asks it first.
    pub fn examine(&self, upload: &Upload) -> Result<(), Rejection> {
        let (client, expected) = (upload.client, self.kept.round);
        if upload.round != expected {
            return Err(Rejection::Round { expected: expected + 1, found: upload.round.saturating_add(1) });
        }
        match self.clients.as_ref().and_then(|clients| clients.get(&client)) {
            None => return Err(Rejection::Stranger { client }),
            Some(true) => return Err(Rejection::Twice { client }),
            Some(false) => {}
        }
        if upload.examples > u32::MAX as usize {
            return Err(Rejection::Samples { found: upload.examples, most: u32::MAX });
        }
        let (expected, found) = (self.kept.global.len(), upload.params.len());
        if found != expected {
            return Err(Rejection::Weights { expected, found });
        }
        Extra::check(&self.sends, &upload.extra)?;
        let broken = |what: &str| Rejection::NotFinite { what: what.to_string() };
        if !upload.terms.iter().all(|(_, mean)| mean.is_finite()) {
            return Err(broken("loss"));
        }
        if !all_finite(&upload.params) {
            return Err(broken("weights"));
        }
        if self.largest(&upload.params) > self.most {
            return Err(Rejection::Enormous { times: ENORMOUS });
        }
        let variances = self.federation.model.layout().tensors().iter().filter(|tensor| tensor.is_variance());
        for tensor in variances {
            if upload.params[tensor.range()].iter().any(|value| *value < 0.0) {
                return Err(Rejection::Variance { name: tensor.name.clone() });
            }
        }
        match upload.extra.iter().find(|(_, values)| !all_finite(values)) {
            Some((name, _)) => Err(broken(&format!("array '{name}'"))),
            None => Ok(()),
        }
    }

    /// The largest magnitude among weights that are trained.
    fn largest(&self, params: &[f32]) -> f32 {
        let parts = self.federation.model.layout().trainable().iter();
        // Unlike a comparison of numbers, this one puts NaN last.
        parts.map(|range| largest_magnitude(&params[range.clone()])).max_by(f32::total_cmp).unwrap_or(0.0)
    }

    fn expect(&self, what: &'static str, open: bool) -> Result<()> {
        let state = match (self.spoiled, self.clients.is_some()) {
            (true, _) => "spoiled by an error",
            (false, true) => "open",
            (false, false) => "not open",
        };
        if self.spoiled || self.clients.is_some() != open {
            return Err(FlError::Order { what, round: self.kept.round + 1, state });
        }
        Ok(())
    }

    /// A method's view of the server, and what it gathers.
    fn server(&mut self) -> (Server<'_>, &mut Gather) {
        let (federation, data) = (&self.federation, &self.federation.server_data);
        let server = Server {
            model: &federation.model,
            training: &federation.training,
            clients: federation.clients,
            round: self.kept.round,
            seed: federation.seed,
            global: &self.kept.global,
            state: &self.kept.state,
            scratch: &mut self.scratch,
            auxiliary: data.auxiliary.as_ref().map(Held::samples),
            validation: data.validation.as_ref().map(Held::samples),
            unlabelled: data.unlabelled.as_ref().map(Held::samples),
            trainer: &mut self.trainer,
        };
        (server, &mut self.gather)
    }
}
