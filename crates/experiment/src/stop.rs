//! A wish to stop, which many threads can see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by all its clones.
#[derive(Clone, Debug, Default)]
pub struct StopSign(Arc<AtomicBool>);

impl StopSign {
    /// Asks all who share the sign to stop. Returns whether somebody had already asked.
    pub fn ask(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// The sign itself, for the handler of a signal, which can only set a flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
