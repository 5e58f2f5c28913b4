//! What becomes of the work of a round before it is closed.

use fedelity_fl::Finished;

/// Keeps finished clients, so that their work need not be repeated, and may stop a round. `()` does neither.
///
/// Calls come from any worker.
pub trait Keeper: Sync {
    /// A client has finished, before its upload is folded in.
    fn finished(&self, _done: &Finished) {}

    /// Whether to start no further client. Those that have started still finish.
    fn stop(&self) -> bool {
        false
    }
}

impl Keeper for () {}
