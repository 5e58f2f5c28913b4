//! Ctrl-C or a termination signal: the first ends the run as soon as the clients in training have finished, the second
//! immediately.

use anyhow::Result;
use fedelity_experiment::StopSign;

use crate::printer::Printer;

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(StopSign);

impl Interrupt {
    /// Installs a handler for both.
    pub(crate) fn listen(printer: &Printer) -> Result<Self> {
        let printer = *printer;
        Self::listen_and(move |text| printer.say(text))
    }

    /// The same, for a caller with a table on the screen that must be cleared before a message.
    pub(crate) fn listen_and(say: impl Fn(&str) + Send + 'static) -> Result<Self> {
        let interrupt = Self::default();
        let sign = interrupt.sign();
        ctrlc::set_handler(move || {
            if sign.ask() {
                // The only way out of a client that takes too long. Finished clients and rounds are on disk.
                #[allow(clippy::exit)]
                std::process::exit(130);
            }
            say("\nStopping when the clients in training have finished; press Ctrl-C again to stop immediately");
        })?;
        Ok(interrupt)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.is_asked()
    }

    pub(crate) fn sign(&self) -> StopSign {
        self.0.clone()
    }
}
