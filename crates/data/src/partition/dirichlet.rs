//! Class-wise Dirichlet partition, as in MOON, NIID-Bench and FedNTD.
//!
//! For each class in label order: p ~ Dirichlet(alpha) over the clients; p is set to 0 for a client that already holds
//! n/N samples or more (the balance trick); the class is cut at floor(cumsum(p) * n_k). Everything is redrawn until
//! every client has the minimum size.
//!
//! Deviation: the components of a symmetric Dirichlet are independent up to their sum, so full clients are left out of
//! the draw instead of being zeroed after it. A draw only determines sizes; samples are picked once, for the accepted
//! draw. The published code loops forever if the minimum is out of reach; here the best draw is repaired, with a note.

use super::shares::Shares;
use super::stream::{Stream, ln};
use super::{Partition, all, by_class};

/// Maximum number of weights drawn per call: a few seconds of work.
const MOST_WEIGHTS: u64 = 100_000_000;
/// Draws after which to judge whether the minimum is within reach.
const TRIAL_DRAWS: u32 = 16;

pub(super) fn make(
    labels: &[u16],
    clients: usize,
    alpha: f64,
    min_size: usize,
    max_draws: u32,
    stream: &mut Stream,
) -> Partition {
    let samples = labels.len();
    let mut notes = Vec::new();
    let most = samples / clients;
    let least = min_size.clamp(1, most);
    if min_size > most {
        notes.push(format!(
            "minimum size lowered from {min_size} to {least}: there are only {samples} samples for \
             {clients} clients"
        ));
    }
    let mut classes = by_class(all(samples), labels);
    let class_sizes: Vec<u32> = classes.iter().map(|class| class.len() as u32).collect();
    let mut search = Search::new(&class_sizes, clients, alpha);
    let found = search.run(least as u32, max_draws, MOST_WEIGHTS, stream);
    let mut shares = found.best.shares(clients);
    if found.best.missing > 0 {
        let moved = shares.raise(least as u32);
        let reason = match found.stop {
            Stop::Draws => "",
            Stop::Work => " (more would take too long)",
            Stop::OutOfReach => " (more draws would not help)",
        };
        notes.push(format!(
            "none of {} draws gave every client {least} samples{reason}: the best one was \
             repaired by moving {} samples from the largest clients to small ones ({} clients)",
            found.draws, moved.samples, moved.clients
        ));
    }
    for class in &mut classes {
        stream.shuffle(class);
    }
    Partition { clients: shares.assign(&classes), draws: found.draws, notes, ..Partition::default() }
}

/// `count` samples of `class` go to `client`.
#[derive(Clone, Copy)]
struct Piece {
    class: u32,
    client: u32,
    count: u32,
}

/// The result of one draw.
#[derive(Default)]
pub(super) struct Draw {
    sizes: Vec<u32>,
    pieces: Vec<Piece>,
    /// Samples missing from clients below the minimum, in total.
    pub(super) missing: u64,
    /// Clients below the minimum.
    small: u32,
}

impl Draw {
    pub(super) fn shares(&self, clients: usize) -> Shares {
        let mut held = vec![Vec::new(); clients];
        for piece in &self.pieces {
            held[piece.client as usize].push((piece.class, piece.count));
        }
        Shares(held)
    }
}

/// Why a search ended without an acceptable draw.
pub(super) enum Stop {
    Draws,
    Work,
    OutOfReach,
}

/// The best draw of a search. It is acceptable if nothing is missing.
pub(super) struct Found {
    pub(super) best: Draw,
    pub(super) draws: u32,
    pub(super) stop: Stop,
}

/// Draws repeatedly, without allocating for each draw.
pub(super) struct Search<'a> {
    class_sizes: &'a [u32],
    samples: u64,
    clients: usize,
    alpha: f64,
    open: Vec<u32>,
    weights: Vec<f64>,
}

impl<'a> Search<'a> {
    pub(super) fn new(class_sizes: &'a [u32], clients: usize, alpha: f64) -> Self {
        Self {
            class_sizes,
            samples: class_sizes.iter().map(|&n| u64::from(n)).sum(),
            clients,
            alpha,
            open: Vec::with_capacity(clients),
            weights: Vec::with_capacity(clients),
        }
    }

    /// Draws until each client has `least` samples, up to `max_draws` draws or about
    /// `most_weights` weights.
    pub(super) fn run(&mut self, least: u32, max_draws: u32, most_weights: u64, stream: &mut Stream) -> Found {
        let per_draw = (self.clients as u64 * self.class_sizes.len() as u64).max(1);
        let affordable = u32::try_from(most_weights / per_draw).unwrap_or(u32::MAX).max(1);
        let limit = max_draws.min(affordable);
        let mut stop = if affordable < max_draws { Stop::Work } else { Stop::Draws };
        let mut best = Draw::default();
        let mut next = Draw::default();
        let mut draws = 0;
        let mut small = 0;
        while draws < limit {
            self.draw(least, &mut next, stream);
            draws += 1;
            small += u64::from(next.small);
            if draws == 1 || next.missing < best.missing {
                std::mem::swap(&mut best, &mut next);
            }
            if best.missing == 0 {
                break;
            }
            // Were small clients independent, a draw would be accepted with probability
            // exp(-mean). The margin of e^7 allows for their dependence.
            let mean = small as f64 / f64::from(draws);
            if draws == TRIAL_DRAWS && draws < limit && mean > ln(f64::from(limit)) + 7.0 {
                stop = Stop::OutOfReach;
                break;
            }
        }
        Found { best, draws, stop }
    }

    fn draw(&mut self, least: u32, out: &mut Draw, stream: &mut Stream) {
        out.sizes.clear();
        out.sizes.resize(self.clients, 0);
        out.pieces.clear();
        for (class, &count) in self.class_sizes.iter().enumerate() {
            // Below the mean size; there is always one while samples are left.
            let sizes = &out.sizes;
            self.open.clear();
            self.open.extend(
                (0..self.clients as u32)
                    .filter(|&i| u64::from(sizes[i as usize]) * (self.clients as u64) < self.samples),
            );
            self.weights.clear();
            self.weights.resize(self.open.len(), 0.0);
            stream.dirichlet(self.alpha, &mut self.weights);
            let total: f64 = self.weights.iter().sum();
            let (mut sum, mut from) = (0.0, 0);
            let last = self.open.len().saturating_sub(1);
            for (at, (&client, &weight)) in self.open.iter().zip(&self.weights).enumerate() {
                sum += weight;
                let to = if at == last {
                    count
                } else {
                    // The cast rounds down.
                    ((sum / total * f64::from(count)) as u32).clamp(from, count)
                };
                if to > from {
                    out.sizes[client as usize] += to - from;
                    out.pieces.push(Piece { class: class as u32, client, count: to - from });
                }
                from = to;
            }
        }
        out.missing = 0;
        out.small = 0;
        for &size in out.sizes.iter().filter(|&&size| size < least) {
            out.missing += u64::from(least - size);
            out.small += 1;
        }
    }
}
