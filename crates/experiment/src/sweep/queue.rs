//! Which job is next in this process, and which are another's.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fedelity_files::{ClaimState, Claims};

use super::share::{Elsewhere, Sharing};
use super::{Job, Sweep};
use crate::StopSign;

/// How long a worker without a job waits before it looks whether it should stop.
const PAUSE: Duration = Duration::from_millis(200);

/// The jobs of a sweep, as this process knows them.
pub(super) struct Queue<'a> {
    sweep: &'a Sweep,
    claims: &'a Claims,
    /// Whether to wait for what others run.
    wait: bool,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    open: VecDeque<usize>,
    /// How many are being run, or looked at.
    here: usize,
    /// Jobs that others run, and whether those others certainly live.
    elsewhere: BTreeMap<usize, bool>,
    /// All that were ever another's.
    were_elsewhere: HashSet<usize>,
    done: HashSet<usize>,
    closed: bool,
}

impl<'a> Queue<'a> {
    pub(super) fn new(sweep: &'a Sweep, sharing: &Sharing, claims: &'a Claims) -> Self {
        let mut open: VecDeque<usize> = (0..sweep.jobs.len()).filter(|&at| sharing.includes(at)).collect();
        if !open.is_empty() && !claims.others().is_empty() {
            // Those that start at the same moment should not all want the same job.
            let start = RandomState::new().hash_one(&claims.me().name) as usize;
            let length = open.len();
            open.rotate_left(start % length);
        }
        let state = Mutex::new(QueueState { open, ..QueueState::default() });
        Self { sweep, claims, wait: sharing.waits(), state, changed: Condvar::new() }
    }

    /// The next job, and whether it was another's before. Waits for those that others run, as far as that is wanted.
    pub(super) fn next(&self, sign: &StopSign) -> Option<(usize, bool)> {
        let mut state = self.lock();
        loop {
            if sign.is_asked() || state.closed {
                return None;
            }
            if let Some(at) = state.open.pop_front() {
                state.here += 1;
                return Some((at, state.were_elsewhere.contains(&at)));
            }
            // Whoever does not wait still makes sure that the others live.
            if state.elsewhere.values().all(|&sure| sure && !self.wait) {
                return None;
            }
            state = self.changed.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn ended(&self, at: usize, done: bool) {
        let mut state = self.lock();
        state.here -= 1;
        if done {
            state.done.insert(at);
        }
    }

    pub(super) fn elsewhere(&self, at: usize) {
        let mut state = self.lock();
        state.here -= 1;
        state.elsewhere.insert(at, false);
        state.were_elsewhere.insert(at);
    }

    /// How many jobs this process runs.
    pub(super) fn here(&self) -> usize {
        self.lock().here
    }

    /// No more jobs are given out.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Takes back what nobody else has any more, and says what others have.
    pub(super) fn update(&self) -> Elsewhere {
        let held = self.claims.held();
        let sure: BTreeMap<&str, bool> = held.iter().map(|(key, _, sure)| (&**key, *sure)).collect();
        let mut state = self.lock();
        let places: Vec<usize> = state.elsewhere.keys().copied().collect();
        for at in places {
            let key = self.sweep.jobs[at].key();
            match self.claims.state(&key) {
                ClaimState::Held(_) => {
                    state.elsewhere.insert(at, sure.get(&*key).copied().unwrap_or(false));
                }
                ClaimState::Open | ClaimState::Mine | ClaimState::Stale(_) | ClaimState::Failed(..) => {
                    state.elsewhere.remove(&at);
                    state.open.push_front(at);
                }
            }
        }
        drop(state);
        self.changed.notify_all();
        let ours = |key: &str| self.sweep.place(&super::job::claimed_folder(key)).is_some();
        let mut hosts = BTreeSet::new();
        let mut runs = 0;
        for (key, holder, _) in held.iter().filter(|(key, ..)| ours(key)) {
            let unknown = || format!("process of {key}");
            hosts.insert(if holder.host.is_empty() { unknown() } else { holder.host.clone() });
            runs += 1;
        }
        Elsewhere { runs, hosts: hosts.into_iter().collect() }
    }

    /// What others still run. Claims of what is done, which a killed process may have left, are removed.
    pub(super) fn leave(&self) -> Elsewhere {
        let _ = self.claims.look(Duration::ZERO);
        let state = self.lock();
        let done = |key: &str| {
            let at = self.sweep.place(&super::job::claimed_folder(key));
            at.is_some_and(|at| state.done.contains(&at))
        };
        self.claims.keys().iter().filter(|key| done(key)).for_each(|key| self.claims.clear(key));
        let left = state.elsewhere.len();
        drop(state);
        // Dead processes that hold nothing any more are forgotten.
        let _ = self.claims.look(Duration::ZERO);
        Elsewhere { runs: left, ..self.update() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sweep {
    /// The place of a job in the list.
    pub(super) fn place(&self, folder: &str) -> Option<usize> {
        let of = |(at, job): (usize, &Job)| (job.folder.clone(), at);
        self.places.get_or_init(|| self.jobs.iter().enumerate().map(of).collect()).get(folder).copied()
    }
}
