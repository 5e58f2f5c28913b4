//! Ctrl-C or a termination signal: the first ends the run after the current round, the second immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::printer::Printer;

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs a handler for both.
    pub(crate) fn listen(printer: &Printer) -> Result<Self> {
        let printer = *printer;
        Self::listen_and(move |text| printer.say(text))
    }

    /// The same, for a caller with a table on the screen that must be cleared before a message.
    pub(crate) fn listen_and(say: impl Fn(&str) + Send + 'static) -> Result<Self> {
        let interrupt = Self::default();
        let asked = Arc::clone(&interrupt.0);
        ctrlc::set_handler(move || {
            if asked.swap(true, Ordering::SeqCst) {
                // The only way out of a round that takes too long. Records are flushed line by line.
                #[allow(clippy::exit)]
                std::process::exit(130);
            }
            say("\nStopping after this round; press Ctrl-C again to stop immediately");
        })?;
        Ok(interrupt)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
