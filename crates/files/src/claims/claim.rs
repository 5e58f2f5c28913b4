//! A claim on a piece of work.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Shared, read};
use crate::Holder;
use crate::holder::value;

/// What the file of a claim says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Held {
        worker: String,
        holder: Holder,
    },
    /// Its last holder gave it back.
    Free,
    Failed {
        holder: Holder,
        reason: String,
    },
    /// Its writer has not written it yet, or died before it could.
    Unknown,
}

impl Entry {
    pub(super) fn of(text: &str) -> Self {
        let holder = Holder::of(text);
        match (value(text, "state"), value(text, "worker")) {
            _ if !text.ends_with('\n') => Self::Unknown,
            (Some("held"), Some(worker)) => Self::Held { worker: worker.to_string(), holder },
            (Some("free"), _) => Self::Free,
            (Some("failed"), _) => Self::Failed { holder, reason: visible(value(text, "reason").unwrap_or_default()) },
            _ => Self::Unknown,
        }
    }

    pub(super) fn lines(&self) -> String {
        match self {
            Self::Held { worker, holder } => format!("state: held\nworker: {worker}\n{}", holder.lines()),
            Self::Free => "state: free\n".to_string(),
            Self::Failed { holder, reason } => {
                format!("state: failed\n{}reason: {}\n", holder.lines(), visible(reason))
            }
            Self::Unknown => String::new(),
        }
    }

    pub(super) fn worker(&self) -> Option<&str> {
        match self {
            Self::Held { worker, .. } => Some(worker),
            Self::Free | Self::Failed { .. } | Self::Unknown => None,
        }
    }
}

/// One line without control characters, of a bounded length.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect()
}

/// A piece of work that belongs to this process until the value is dropped, which gives it back.
#[derive(Debug)]
pub struct Claim {
    shared: Arc<Shared>,
    key: String,
    number: u64,
    text: String,
    /// Who held it, if that one seemed dead.
    taken_from: Option<Holder>,
    settled: AtomicBool,
}

impl Claim {
    pub(super) fn new(shared: &Arc<Shared>, key: &str, number: u64, entry: &Entry, from: Option<Holder>) -> Self {
        let (shared, key) = (Arc::clone(shared), key.to_string());
        Self { shared, key, number, text: entry.lines(), taken_from: from, settled: AtomicBool::new(false) }
    }

    /// Its number: earlier ones may have left work behind.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The process that it was taken over from, if any: it seems dead, but may only sleep.
    pub fn taken_from(&self) -> Option<&Holder> {
        self.taken_from.as_ref()
    }

    /// Whether it still is this process's. If not, another one has taken it over, and nothing may be written any more.
    pub fn holds(&self) -> bool {
        let own = read(&self.shared.file(&self.key, self.number));
        own.is_ok_and(|text| text.as_ref() == Some(&self.text))
            && fs::exists(self.shared.file(&self.key, self.number + 1)).is_ok_and(|later| !later)
    }

    /// The work is done, and everybody can see that: its claims are removed.
    pub fn finish(&self) {
        self.settled.store(true, Ordering::SeqCst);
        self.shared.clear(&self.key, self.number);
    }

    /// The work failed: those who know of this do not try again.
    pub fn fail(&self, reason: &str) {
        let (holder, reason) = (Holder::here(), reason.to_string());
        self.settle(&Entry::Failed { holder, reason });
    }

    fn settle(&self, entry: &Entry) {
        if !self.settled.swap(true, Ordering::SeqCst) && self.holds() {
            // If there is one by now, somebody has taken it over.
            let _ = self.shared.write(&self.key, self.number + 1, entry);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.settle(&Entry::Free);
    }
}
