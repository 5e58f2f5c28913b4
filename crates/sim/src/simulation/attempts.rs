//! A round that is open: its clients, and others if too few of their uploads can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fedelity_fl::{
    Broadcast, Finished, FlError, Rejection, Samples, Upload, longest_first, sample_clients, sample_others,
};
use fedelity_record::{Incident, IncidentCounts, IncidentKind, LocalRecord, RoundRecord};

use super::Simulation;
use crate::lookout::ClientSigns;
use crate::observe::{self, Baseline, Observed};
use crate::workers::{self, Clients, Folding, Tally};
use crate::{Keeper, faults};

/// How often a round is repeated with other clients before the run is given up.
const REPEATS: usize = 20;

/// Clients of which nothing arrives, and why.
pub type Absent = BTreeMap<usize, (IncidentKind, String)>;

/// A round that is open.
#[derive(Debug)]
pub struct OpenRound {
    pub(super) start: Instant,
    /// How long the global model was measured first.
    pub(super) looked: Duration,
    /// When the first attempt was opened.
    pub(super) opened: Duration,
    pub(super) baseline: Option<Baseline>,
    /// The clients of this attempt.
    pub(super) clients: Vec<usize>,
    pub(super) broadcast: Broadcast,
    /// How often the round has been repeated, and with whom.
    pub(super) attempt: usize,
    tried: BTreeSet<usize>,
    /// What went wrong, in all attempts.
    pub(super) incidents: Vec<Incident>,
    pub(super) bytes_down: u64,
    pub(super) bytes_up: u64,
    /// Clients that were late for the round before.
    late: Vec<usize>,
}

impl OpenRound {
    /// The clients that take part, in ascending order.
    pub fn clients(&self) -> &[usize] {
        &self.clients
    }

    /// What each of them receives.
    pub fn broadcast(&self) -> &Broadcast {
        &self.broadcast
    }

    /// Notes an upload that was refused on arrival.
    pub fn refuse(&mut self, client: usize, reason: String) {
        let (kind, repeat) = (IncidentKind::Refused, self.attempt as u64);
        self.incidents.push(Incident { client: client as u64, kind, reason, repeat });
    }
}

/// How an open round ended.
#[derive(Debug)]
pub enum Closing {
    /// It is closed.
    Closed(Box<RoundRecord>),
    /// Too few uploads counted: it is open again, for other clients.
    Repeated { round: Box<OpenRound>, accepted: usize, needed: usize },
}

/// What the clients of an attempt have brought.
pub(super) struct Gathered {
    pub(super) tally: Tally,
    pub(super) signs: Vec<ClientSigns>,
    pub(super) drifts: Vec<f64>,
    pub(super) local: Option<LocalRecord>,
    /// Features of the closely examined client, if it took part.
    pub(super) features: Option<Vec<f32>>,
}

impl Simulation {
    /// Opens the next round. Its clients may run elsewhere: [`Self::close`] takes what they send.
    pub fn open(&mut self) -> Result<OpenRound, FlError> {
        let start = Instant::now();
        let baseline = self.baseline();
        let looked = start.elapsed();
        let clients = self.draw(0, &BTreeSet::new());
        let broadcast = self.coordinator.open(&clients)?;
        let mut round = OpenRound {
            start,
            looked,
            opened: start.elapsed(),
            baseline,
            clients,
            broadcast,
            attempt: 0,
            tried: BTreeSet::new(),
            incidents: Vec::new(),
            bytes_down: 0,
            bytes_up: 0,
            late: self.late.clone(),
        };
        self.fold_late(&mut round)?;
        Ok(round)
    }

    /// Why an upload does not belong in the open round, if it does not.
    pub fn examine(&self, upload: &Upload) -> Result<(), Rejection> {
        self.coordinator.examine(upload)
    }

    /// Ends a round with what its clients have sent. Those that have sent nothing are late, if it is not said why.
    ///
    /// If too few uploads arrived, the round is open again for other clients. After an error it is given up.
    pub fn close(
        &mut self,
        mut round: OpenRound,
        arrived: Vec<Finished>,
        mut absent: Absent,
    ) -> Result<Closing, FlError> {
        let mut arrived: BTreeMap<usize, Finished> =
            arrived.into_iter().map(|done| (done.upload.client, done)).collect();
        for client in round.clients.iter().filter(|client| !arrived.contains_key(client)) {
            absent.entry(*client).or_insert((IncidentKind::Late, String::new()));
        }
        let waited = round.start.elapsed() - round.opened;
        let found = self.gather(&mut round, &mut arrived, &absent, &()).inspect_err(|_| self.coordinator.abandon())?;
        // Nobody trains here, so their memory is not used again.
        self.spare.clear();
        let Some(mut found) = found else {
            let number = self.rounds() + 1;
            return Err(FlError::Order { what: "closing a round", round: number, state: "stopped" });
        };
        found.tally.busy += waited;
        let (accepted, needed) = (found.tally.accepted, self.experiment.needed);
        if accepted >= needed {
            let record = self.conclude(round, found).inspect_err(|_| self.coordinator.abandon())?;
            return Ok(Closing::Closed(Box::new(record)));
        }
        self.repeat(&mut round, found.tally)?;
        Ok(Closing::Repeated { round: Box::new(round), accepted, needed })
    }

    /// Gives an open round up: everything is as it was before.
    pub fn abandon(&mut self, round: OpenRound) {
        self.coordinator.abandon();
        self.late = round.late;
    }

    /// The clients of an attempt.
    fn draw(&self, attempt: usize, tried: &BTreeSet<usize>) -> Vec<usize> {
        let (experiment, round) = (&self.experiment, self.coordinator.rounds());
        let (seed, per_round) = (experiment.federation.seed, experiment.per_round);
        let clients = experiment.partition.clients.len();
        match attempt {
            0 => sample_clients(seed, round, clients, per_round),
            _ => sample_others(seed, round, attempt, clients, per_round, tried),
        }
    }

    /// Clients that were late for the last attempt send what they have now.
    fn fold_late(&mut self, round: &mut OpenRound) -> Result<(), FlError> {
        for client in std::mem::take(&mut self.late) {
            // One that is drawn again trains again.
            let of = round.broadcast.round.saturating_sub(usize::from(round.attempt == 0));
            let again = round.attempt > 0 && round.clients.contains(&client);
            if !again && let Err(reason) = self.coordinator.accept(faults::stale(of, client))? {
                round.refuse(client, reason.to_string());
            }
        }
        Ok(())
    }

    /// Runs the clients of an attempt and folds in their uploads. Nothing if the keeper stops it.
    pub(super) fn gather(
        &mut self,
        round: &mut OpenRound,
        kept: &mut BTreeMap<usize, Finished>,
        absent: &Absent,
        keeper: &dyn Keeper,
    ) -> Result<Option<Gathered>, FlError> {
        let (experiment, scaling) = (&self.experiment, &self.scaling);
        let train = Samples { split: &experiment.data.train, indices: &[], scaling };
        let test = Samples { split: &experiment.data.test, indices: &self.test, scaling };
        let observed = round.baseline.as_ref().map(|baseline| Observed {
            plan: &self.plan,
            test,
            baseline,
            sites: self.book.sites.as_ref(),
            positive: experiment.observation.positive,
        });
        let (observed, faults) = (observed.as_ref(), self.faults.as_ref());
        // The samples of a site are known to the server by what it sends.
        let size = |client: usize| match experiment.partition.clients[client].len() {
            0 => kept.get(&client).map_or(0, |done| done.upload.examples),
            samples => samples,
        };
        let schedule = &longest_first(&round.clients, size)[..];
        let (broadcast, attempt) = (&round.broadcast, round.attempt);
        let all = Clients { experiment, broadcast, train, schedule, observed, keeper, faults, absent, attempt };
        let folding = Folding {
            coordinator: &mut self.coordinator,
            memories: &self.memories,
            spare: &mut self.spare,
            diversity: &mut self.diversity,
        };
        let Some(mut tally) = workers::run(&all, &mut self.trainers, folding, kept)? else { return Ok(None) };
        let enough = tally.accepted >= experiment.needed;
        let signs = tally.seen.iter().map(ClientSigns::from).collect();
        let drifts = tally.seen.iter().map(|seen| seen.drift).collect();
        let seen = std::mem::take(&mut tally.seen);
        let (local, features) = if enough { observe::together(seen, observed) } else { (None, None) };
        round.bytes_down += round.broadcast.bytes() * tally.reached as u64;
        round.bytes_up += tally.bytes_up;
        round.incidents.append(&mut tally.incidents);
        if self.faults.is_some() {
            self.late = late(&round.incidents, round.attempt as u64);
        }
        Ok(Some(Gathered { tally, signs, drifts, local, features }))
    }

    /// Opens the round again, for other clients.
    pub(super) fn repeat(&mut self, round: &mut OpenRound, tally: Tally) -> Result<(), FlError> {
        self.coordinator.abandon();
        // If training fails everywhere, other clients do not help.
        let failed = tally.failures.len();
        if let Some(error) = tally.failures.into_iter().next().filter(|_| failed == round.clients.len()) {
            return Err(error);
        }
        if round.attempt == REPEATS {
            let last = round.incidents.iter().filter(|one| one.repeat == round.attempt as u64);
            let lost = IncidentCounts::of(last).describe();
            let (number, accepted, needed) = (self.rounds() + 1, tally.accepted, self.experiment.needed);
            return Err(FlError::Quorum { round: number, accepted, needed, repeats: REPEATS, lost });
        }
        round.tried.extend(std::mem::take(&mut round.clients));
        round.attempt += 1;
        round.clients = self.draw(round.attempt, &round.tried);
        round.broadcast = self.coordinator.open(&round.clients)?;
        self.fold_late(round)
    }
}

/// The clients that were late for an attempt.
pub(super) fn late(incidents: &[Incident], attempt: u64) -> Vec<usize> {
    let late = incidents.iter().filter(|one| one.kind == IncidentKind::Late && one.repeat == attempt);
    late.map(|one| one.client as usize).collect()
}
