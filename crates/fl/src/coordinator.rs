//! The server's side of a round.

use std::sync::Arc;

use fedelity_data::Dataset;
use fedelity_nn::{Model, Params};

use crate::rng::{Purpose, stream};
use crate::settings::at_least;
use crate::{Error, Gather, Method, Payload, Result, Samples, Scaling, Server, Trainer, Training, Upload, Weighting};

/// Samples that the server holds, from a training split.
#[derive(Clone, Debug)]
pub struct Held {
    data: Arc<Dataset>,
    indices: Vec<u32>,
    scaling: Scaling,
}

impl Held {
    /// These training samples of a data set.
    pub fn new(data: Arc<Dataset>, indices: Vec<u32>) -> Self {
        let scaling = Scaling::from(&data.normalisation);
        Self { data, indices, scaling }
    }

    /// The samples.
    pub fn samples(&self) -> Samples<'_> {
        Samples { split: &self.data.train, indices: &self.indices, scaling: &self.scaling }
    }
}

/// What the server holds besides the model.
#[derive(Clone, Debug, Default)]
pub struct ServerData {
    /// Labelled auxiliary samples.
    pub auxiliary: Option<Held>,
    /// Labelled validation samples.
    pub validation: Option<Held>,
    /// Samples whose labels nobody reads.
    pub unlabelled: Option<Held>,
}

/// What a federation agrees on before its first round.
#[derive(Clone, Debug)]
pub struct Federation {
    /// The model.
    pub model: Arc<Model>,
    /// The method.
    pub method: Arc<dyn Method>,
    /// How clients train.
    pub training: Training,
    /// How uploads are weighted.
    pub weighting: Weighting,
    /// The number of clients.
    pub clients: usize,
    /// The seed of the run.
    pub seed: u64,
    /// What the server holds.
    pub server_data: ServerData,
}

/// What the server sends to every client of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// The round, counted from 0.
    pub round: usize,
    /// The weights.
    pub global: Arc<Params>,
    /// What the method adds.
    pub payload: Payload,
}

impl Broadcast {
    /// Bytes on the wire to one client: 4 a number.
    pub fn bytes(&self) -> u64 {
        4 * self.global.len() as u64 + self.payload.bytes()
    }
}

/// The server: opens a round, folds uploads in, closes the round.
#[derive(Debug)]
pub struct Coordinator {
    federation: Federation,
    trainer: Trainer,
    global: Arc<Params>,
    state: Payload,
    gather: Gather,
    round: usize,
    open: bool,
    each_upload: bool,
}

impl Coordinator {
    /// A federation before its first round, with fresh weights.
    pub fn new(federation: Federation) -> Result<Self> {
        let global = federation.model.init(&mut stream(federation.seed, Purpose::Init, 0, 0, 0));
        let mut new = Self::resume(federation, 0, global, Payload::new())?;
        let method = new.federation.method.clone();
        let mut server = server(&new.federation, &mut new.trainer, 0);
        new.state = method.init(&mut server, &new.global)?;
        Ok(new)
    }

    /// A federation before its next round (counted from 0), with the weights and the state it had.
    pub fn resume(federation: Federation, round: usize, global: Params, state: Payload) -> Result<Self> {
        federation.check()?;
        federation.fits("the weights", global.len())?;
        let each_upload = federation.method.needs().each_upload;
        let trainer = Trainer::new(federation.model.clone());
        let (global, gather) = (Arc::new(global), Gather::default());
        Ok(Self { federation, trainer, global, state, gather, round, open: false, each_upload })
    }

    /// What the federation agreed on.
    pub fn federation(&self) -> &Federation {
        &self.federation
    }

    /// The global weights: those that the last closed round made.
    pub fn global(&self) -> &Arc<Params> {
        &self.global
    }

    /// The method's state on the server.
    pub fn state(&self) -> &Payload {
        &self.state
    }

    /// The rounds that are closed; also the number, counted from 0, of the next or open one.
    pub fn rounds(&self) -> usize {
        self.round
    }

    /// Opens the next round: what all its clients receive.
    pub fn open(&mut self) -> Result<Broadcast> {
        self.expect("opening a round", false)?;
        let mut server = server(&self.federation, &mut self.trainer, self.round);
        let payload = self.federation.method.prepare(&mut server, &mut self.state, &self.global)?;
        self.gather.clear();
        self.open = true;
        Ok(Broadcast { round: self.round, global: self.global.clone(), payload })
    }

    /// Folds one upload in. The order of calls is the order of summation.
    ///
    /// Memory that is no longer needed comes back for the next upload.
    pub fn accept(&mut self, mut upload: Upload) -> Result<Option<Params>> {
        self.expect("accepting an upload", true)?;
        self.federation.fits("an upload", upload.params.len())?;
        upload.weight = self.federation.weighting.weight(upload.examples);
        let mut server = server(&self.federation, &mut self.trainer, self.round);
        let method = &self.federation.method;
        method.collect(&mut server, &mut self.state, &self.global, &mut self.gather, &upload)?;
        if self.each_upload {
            self.gather.uploads.push(upload);
            return Ok(None);
        }
        Ok(Some(upload.params))
    }

    /// Closes the round: the method makes the new global weights. Gives the clients whose uploads were left out.
    ///
    /// Only now is an upload accepted for good, and only now may the other clients of the round keep what they have to
    /// remember.
    pub fn close(&mut self) -> Result<Vec<usize>> {
        self.expect("closing a round", true)?;
        let mut server = server(&self.federation, &mut self.trainer, self.round);
        let method = &self.federation.method;
        let global = method.conclude(&mut server, &mut self.state, &self.global, &mut self.gather)?;
        self.federation.fits("the new weights", global.len())?;
        self.gather.uploads.clear();
        self.global = Arc::new(global);
        self.round += 1;
        self.open = false;
        Ok(std::mem::take(&mut self.gather.refused))
    }

    fn expect(&self, what: &'static str, open: bool) -> Result<()> {
        if self.open != open {
            let state = if self.open { "open" } else { "not open" };
            return Err(Error::Order { what, round: self.round + 1, state });
        }
        Ok(())
    }
}

impl Federation {
    /// Whether the settings are in range and the method has what it needs.
    pub fn check(&self) -> Result<()> {
        self.training.check()?;
        at_least("clients", self.clients, 1)?;
        let (needs, data) = (self.method.needs(), &self.server_data);
        let wants = [
            (needs.auxiliary, data.auxiliary.is_some(), "labelled auxiliary samples on the server"),
            (needs.validation, data.validation.is_some(), "labelled validation samples on the server"),
            (needs.unlabelled, data.unlabelled.is_some(), "unlabelled samples on the server"),
        ];
        for (needed, given, what) in wants {
            if needed && !given {
                return Err(Error::Needs { method: self.method.name(), what });
            }
        }
        Ok(())
    }

    fn fits(&self, what: &str, found: usize) -> Result<()> {
        let expected = self.model.layout().len();
        if found != expected {
            return Err(Error::Length { what: what.to_string(), expected, found });
        }
        Ok(())
    }
}

fn server<'a>(federation: &'a Federation, trainer: &'a mut Trainer, round: usize) -> Server<'a> {
    let data = &federation.server_data;
    Server {
        model: &federation.model,
        training: &federation.training,
        clients: federation.clients,
        round,
        seed: federation.seed,
        auxiliary: data.auxiliary.as_ref().map(Held::samples),
        validation: data.validation.as_ref().map(Held::samples),
        unlabelled: data.unlabelled.as_ref().map(Held::samples),
        trainer,
    }
}
