//! Faults on purpose: what a real federation meets, drawn by seed. `docs/faults.md` explains them.
//!
//! Faults happen between a client and the server: the client trains as always, and what reaches the server is lost, late,
//! damaged or forged. The server does not know about them. It has the checks of a deployment, `Coordinator::accept`.

use std::ops::Range;

use fedelity_data::{Dataset, Split};
use fedelity_fl::wire::Wire;
use fedelity_fl::{Payload, Purpose, Samples, Scaling, Upload, rng, stream};
use fedelity_keys::{KeyError, keys};
use fedelity_nn::Params;
use fedelity_record::IncidentKind;

use crate::Experiment;
use crate::lookout::median;

/// Which faults happen to which clients.
const EVENTS: Purpose = Purpose::Faults(0);
/// Which clients attack.
const ATTACKERS: Purpose = Purpose::Faults(1);
/// Which clients are slow.
const SLOW: Purpose = Purpose::Faults(2);
/// Where an upload is damaged.
const DAMAGE: Purpose = Purpose::Faults(3);
/// Chances are drawn in steps of one over this.
const STEPS: u32 = 1 << 31;
/// An enormous update is this many times the real one.
const ENORMOUS: f32 = 1e12;

/// Faults to inject. A client of a round meets at most one of those that are chances.
#[keys(check = Faults::fits)]
#[derive(Copy)]
pub struct Faults {
    /// Chance that a client drops out before it receives the model, for each client and round.
    #[key(default = 0.0, min = 0, max = 1)]
    pub drop_before: f64,
    /// Chance that a client drops out during its training.
    #[key(default = 0.0, min = 0, max = 1)]
    pub drop_during: f64,
    /// Chance that a client drops out after its training, before its upload arrives.
    #[key(default = 0.0, min = 0, max = 1)]
    pub drop_after: f64,
    /// Chance that an upload arrives after its round is closed.
    #[key(default = 0.0, min = 0, max = 1)]
    pub late: f64,
    /// Chance that an upload arrives twice.
    #[key(default = 0.0, min = 0, max = 1)]
    pub twice: f64,
    /// Chance that an upload is cut off on its way.
    #[key(default = 0.0, min = 0, max = 1)]
    pub truncated: f64,
    /// Chance that an upload has too many or too few numbers, or an array that does not belong there.
    #[key(default = 0.0, min = 0, max = 1)]
    pub misshapen: f64,
    /// Chance that a number of an upload is infinite or NaN.
    #[key(default = 0.0, min = 0, max = 1)]
    pub non_finite: f64,
    /// Chance that an update is 1,000,000,000,000 times too large.
    #[key(default = 0.0, min = 0, max = 1)]
    pub enormous: f64,
    /// Share of the clients that are slow. They always are.
    #[key(default = 0.0, min = 0, max = 1)]
    pub slow: f64,
    /// How many times as long a slow client takes.
    #[key(default = 5.0, min = 1)]
    pub slowdown: f64,
    /// How long a round waits for a client: this many times what a client with the median number of samples takes. Clients
    /// take time in proportion to their samples; those that take longer are late. Without it, the round waits for all.
    #[key(above = 0)]
    pub deadline: Option<f64>,
    #[key(flatten)]
    pub attack: Attack,
}

/// What attackers send.
#[keys(tag = "attack", default = "none")]
#[derive(Copy)]
pub enum Attack {
    /// Nobody attacks.
    None,
    /// The opposite of their update.
    SignFlip {
        /// Share of the clients that attack. They always do.
        #[key(default = 0.2, min = 0, max = 1)]
        attackers: f64,
        /// The update is multiplied by minus this.
        #[key(default = 1.0, above = 0)]
        factor: f64,
    },
    /// More of their update.
    Scale {
        /// Share of the clients that attack. They always do.
        #[key(default = 0.2, min = 0, max = 1)]
        attackers: f64,
        /// The update is multiplied by this.
        #[key(default = 10.0, above = 0)]
        factor: f64,
    },
    /// An update learnt from wrong labels: class k of n becomes class n - 1 - k.
    LabelFlip {
        /// Share of the clients that attack. They always do.
        #[key(default = 0.2, min = 0, max = 1)]
        attackers: f64,
    },
}

impl Attack {
    /// What attackers send, in words, if anybody attacks.
    pub fn describe(self) -> Option<String> {
        match self {
            _ if self.attackers() == 0.0 => None,
            Self::None => None,
            Self::SignFlip { factor: 1.0, .. } => Some("the opposite of their update".to_string()),
            Self::SignFlip { factor, .. } => Some(format!("the opposite of their update, {factor} times as long")),
            Self::Scale { factor, .. } => Some(format!("{factor} times their update")),
            Self::LabelFlip { .. } => Some("updates learnt from wrong labels".to_string()),
        }
    }

    /// The share of the clients that attack.
    fn attackers(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::SignFlip { attackers, .. } | Self::Scale { attackers, .. } | Self::LabelFlip { attackers } => {
                attackers
            }
        }
    }
}

impl Faults {
    /// The chances, with their names, in the order in which they are drawn.
    fn chances(&self) -> [(&'static str, f64, Fault); 9] {
        [
            ("drop-before", self.drop_before, Fault::DropBefore),
            ("drop-during", self.drop_during, Fault::DropDuring),
            ("drop-after", self.drop_after, Fault::DropAfter),
            ("late", self.late, Fault::Late),
            ("twice", self.twice, Fault::Twice),
            ("truncated", self.truncated, Fault::Truncated),
            ("misshapen", self.misshapen, Fault::Misshapen),
            ("non-finite", self.non_finite, Fault::NonFinite),
            ("enormous", self.enormous, Fault::Enormous),
        ]
    }

    /// The chances that are not 0, with their names.
    pub fn injected(&self) -> Vec<(&'static str, f64)> {
        let all = self.chances().into_iter().map(|(name, chance, _)| (name, chance));
        all.filter(|(_, chance)| *chance > 0.0).collect()
    }

    /// Whether nothing is injected.
    pub fn is_none(&self) -> bool {
        self.attack.attackers() == 0.0
            && self.deadline.is_none()
            && self.chances().iter().all(|(_, chance, _)| *chance == 0.0)
    }

    /// The share of uploads that can be expected to count, given the clients' numbers of samples.
    pub fn expected_share(&self, sizes: &[usize]) -> f64 {
        let lost: f64 =
            self.chances().iter().filter(|(.., fault)| *fault != Fault::Twice).map(|(_, chance, _)| chance).sum();
        let median = usual(sizes);
        let in_time = |slow: bool| {
            sizes.iter().filter(|size| !self.is_late(slow, **size, median)).count() as f64 / sizes.len().max(1) as f64
        };
        (1.0 - lost).max(0.0) * ((1.0 - self.slow) * in_time(false) + self.slow * in_time(true))
    }

    /// Whether a client misses the deadline.
    fn is_late(&self, slow: bool, samples: usize, median: f64) -> bool {
        let pace = if slow { self.slowdown } else { 1.0 };
        self.deadline.is_some_and(|deadline| pace * samples as f64 > deadline * median)
    }

    /// How many of so many clients attack.
    pub fn attackers(&self, clients: usize) -> usize {
        count(self.attack.attackers(), clients)
    }

    fn fits(&self) -> Result<(), KeyError> {
        let refuse = |key: &str, why: String| Err(KeyError::new(key, format!("{key}: {why}")));
        let given: Vec<_> = self.chances().into_iter().filter(|(_, chance, _)| *chance > 0.0).collect();
        let sum: f64 = given.iter().map(|(_, chance, _)| chance).sum();
        if let Some((last, ..)) = given.last()
            && sum > 1.0 + 1e-9
        {
            let names: Vec<&str> = given.iter().map(|(name, ..)| *name).collect();
            return refuse(last, format!("{} add up to {sum}, but chances are at most 1 together", names.join(", ")));
        }
        if self.slow > 0.0 && self.deadline.is_none() {
            return refuse("slow", "slow clients change nothing without faults.deadline, such as 3".to_string());
        }
        Ok(())
    }
}

/// What happens to one client in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    DropBefore,
    DropDuring,
    DropAfter,
    Late,
    Twice,
    Truncated,
    Misshapen,
    NonFinite,
    Enormous,
}

impl Fault {
    /// Why nothing reaches the server in time, if so.
    pub(crate) fn silence(self) -> Option<IncidentKind> {
        match self {
            Self::DropBefore => Some(IncidentKind::DroppedBefore),
            Self::DropDuring => Some(IncidentKind::DroppedDuring),
            Self::DropAfter => Some(IncidentKind::DroppedAfter),
            Self::Late => Some(IncidentKind::Late),
            Self::Twice | Self::Truncated | Self::Misshapen | Self::NonFinite | Self::Enormous => None,
        }
    }
}

/// The samples of all attackers with flipped labels.
#[derive(Debug)]
struct Poisoned {
    split: Split,
    /// Which of them a client holds; nothing if it does not attack.
    clients: Vec<Option<Vec<u32>>>,
}

/// The faults of one run.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    faults: Faults,
    seed: u64,
    attackers: Vec<bool>,
    slow: Vec<bool>,
    /// What a client with the median number of samples has.
    median: f64,
    /// What attackers train on, if labels are flipped.
    poisoned: Option<Poisoned>,
    /// The weights that are trained; running statistics stay as they are.
    trainable: Vec<Range<usize>>,
}

/// What a client sends.
#[derive(Debug)]
pub(crate) enum Sent {
    Upload(Upload),
    Twice(Upload),
    /// A message that is cut off.
    Bytes(Vec<u8>),
}

impl FaultPlan {
    /// The plan of an experiment.
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let Experiment { faults, data, partition, federation, .. } = experiment;
        let (faults, seed, clients) = (*faults, federation.seed, partition.clients.len());
        let sizes: Vec<usize> = partition.clients.iter().map(Vec::len).collect();
        let attackers = share(faults.attack.attackers(), clients, seed, ATTACKERS);
        let flips = matches!(faults.attack, Attack::LabelFlip { .. });
        Self {
            seed,
            slow: share(faults.slow, clients, seed, SLOW),
            median: usual(&sizes),
            poisoned: flips.then(|| Poisoned::new(data, &partition.clients, &attackers)),
            attackers,
            trainable: federation.model.layout().trainable().to_vec(),
            faults,
        }
    }

    /// The clients that attack, in ascending order.
    pub(crate) fn attackers(&self) -> Vec<usize> {
        (0..self.attackers.len()).filter(|&client| self.attackers[client]).collect()
    }

    /// What happens to a client of a round, counted from 0. An attempt is 0, or the number of times the round has been
    /// repeated.
    pub(crate) fn fault(&self, round: usize, attempt: usize, client: usize, samples: usize) -> Option<Fault> {
        let mut rng = stream(self.seed, EVENTS, round as u64, client as u64, attempt as u64);
        let drawn = f64::from(rng::below(&mut rng, STEPS)) / f64::from(STEPS);
        let mut below = 0.0;
        let event = self.faults.chances().into_iter().find_map(|(_, chance, fault)| {
            below += chance;
            (chance > 0.0 && drawn < below).then_some(fault)
        });
        match event {
            Some(Fault::DropBefore | Fault::DropDuring | Fault::DropAfter) => event,
            _ if self.faults.is_late(self.slow[client], samples, self.median) => Some(Fault::Late),
            _ => event,
        }
    }

    /// The samples that a client trains on.
    pub(crate) fn samples<'a>(&'a self, client: usize, own: Samples<'a>, scaling: &'a Scaling) -> Samples<'a> {
        let poisoned = self.poisoned.as_ref().and_then(|all| Some((&all.split, all.clients[client].as_ref()?)));
        poisoned.map_or(own, |(split, indices)| Samples { split, indices, scaling })
    }

    /// Turns a client's upload into what an attacker sends. Arrays beside the weights stay as they are.
    pub(crate) fn forge(&self, global: &[f32], upload: &mut Upload) {
        let factor = match self.faults.attack {
            _ if !self.attackers[upload.client] => return,
            Attack::None | Attack::LabelFlip { .. } => return,
            Attack::SignFlip { factor, .. } => -factor,
            Attack::Scale { factor, .. } => factor,
        };
        self.stretch(global, &mut upload.params, factor as f32);
    }

    /// What arrives of an upload.
    pub(crate) fn damage(&self, fault: Option<Fault>, attempt: usize, global: &[f32], mut upload: Upload) -> Sent {
        let mut rng = stream(self.seed, DAMAGE, upload.round as u64, upload.client as u64, attempt as u64);
        let place = rng::below(&mut rng, u32::try_from(upload.params.len()).unwrap_or(u32::MAX)) as usize;
        match fault {
            Some(Fault::Twice) => return Sent::Twice(upload),
            Some(Fault::Truncated) => {
                let mut bytes = upload.to_bytes();
                bytes.truncate(rng::below(&mut rng, u32::try_from(bytes.len()).unwrap_or(u32::MAX)) as usize);
                return Sent::Bytes(bytes);
            }
            Some(Fault::Misshapen) => match rng::below(&mut rng, 3) {
                0 => upload.params.0.truncate(place),
                1 => upload.params.0.push(0.0),
                _ => upload.extra = std::mem::take(&mut upload.extra).with("unexpected", vec![0.0]),
            },
            Some(Fault::NonFinite) => {
                let broken = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][rng::below(&mut rng, 3) as usize];
                upload.params.0.iter_mut().skip(place).take(1).for_each(|value| *value = broken);
            }
            Some(Fault::Enormous) => self.stretch(global, &mut upload.params, ENORMOUS),
            None | Some(Fault::DropBefore | Fault::DropDuring | Fault::DropAfter | Fault::Late) => {}
        }
        Sent::Upload(upload)
    }

    /// Moves weights so that the update is multiplied by a factor.
    fn stretch(&self, global: &[f32], params: &mut Params, factor: f32) {
        for range in &self.trainable {
            let each = params.0[range.clone()].iter_mut().zip(&global[range.clone()]);
            each.for_each(|(value, start)| *value = start + factor * (*value - start));
        }
    }
}

/// The upload of an earlier round, which is known to be refused before its weights are looked at.
pub(crate) fn stale(round: usize, client: usize) -> Upload {
    Upload {
        round,
        client,
        examples: 0,
        steps: 0,
        terms: Default::default(),
        params: Params(Vec::new()),
        extra: Payload::new(),
    }
}

/// The median of numbers of samples, at least 1.
fn usual(sizes: &[usize]) -> f64 {
    median(sizes.iter().map(|&size| size as f64).collect()).max(1.0)
}

/// A share of clients as their number, at least one if it is above 0.
fn count(of: f64, clients: usize) -> usize {
    if of > 0.0 { ((of * clients as f64).round() as usize).clamp(1, clients.max(1)) } else { 0 }
}

/// Draws a share of all clients.
fn share(of: f64, clients: usize, seed: u64, purpose: Purpose) -> Vec<bool> {
    let count = count(of, clients);
    let mut marks: Vec<bool> = (0..clients).map(|client| client < count).collect();
    rng::shuffle(&mut stream(seed, purpose, 0, 0, 0), &mut marks);
    marks
}

impl Poisoned {
    fn new(data: &Dataset, clients: &[Vec<u32>], attackers: &[bool]) -> Self {
        let attacking = || clients.iter().zip(attackers).filter(|(_, attacks)| **attacks).flat_map(|(own, _)| own);
        let mut marks = vec![false; data.train.len()];
        attacking().for_each(|&index| marks[index as usize] = true);
        let mut split = data.train.marked(&marks);
        split.labels.iter_mut().for_each(|label| *label = (data.classes.len() as u16).saturating_sub(1 + *label));
        // Marked samples keep their order, so their new places count them.
        let counts = marks.iter().scan(0u32, |count, marked| {
            let place = *count;
            *count += u32::from(*marked);
            Some(place)
        });
        let places: Vec<u32> = counts.collect();
        let own = |(own, attacks): (&Vec<u32>, &bool)| {
            attacks.then(|| own.iter().map(|&index| places[index as usize]).collect())
        };
        Self { split, clients: clients.iter().zip(attackers).map(own).collect() }
    }
}
