//! Ctrl-C or a termination signal: the first ends the run as soon as the clients in training have finished, the second
//! immediately.

use anyhow::Result;
use fedelity_experiment::StopSign;

use crate::printer::Printer;

/// Whether the user wants to stop. Once it is dropped, signals go to those who listened before, if anybody did, and are
/// ignored otherwise.
#[derive(Debug)]
pub(crate) struct Interrupt {
    sign: StopSign,
    _listener: Listener,
}

impl Interrupt {
    /// Installs a handler for both.
    pub(crate) fn listen(printer: &Printer) -> Result<Self> {
        let printer = *printer;
        Self::listen_and(move |text| printer.say(text))
    }

    /// The same, where nothing is in training: there is nothing to say.
    pub(crate) fn listen_quietly() -> Result<Self> {
        Self::listen_and(|_| {})
    }

    /// The same, for a caller with a table on the screen that must be cleared before a message.
    pub(crate) fn listen_and(say: impl Fn(&str) + Send + 'static) -> Result<Self> {
        let sign = StopSign::default();
        let text = "\nStopping when the clients in training have finished; press Ctrl-C again to stop immediately";
        let listener = on_signal(&sign, move || say(text))?;
        Ok(Self { sign, _listener: listener })
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.sign.is_asked()
    }

    /// From now on, the first signal ends the program: nothing is in training any more.
    pub(crate) fn end_at_once(&self) {
        self.sign.ask();
    }

    pub(crate) fn sign(&self) -> StopSign {
        self.sign.clone()
    }
}

/// The status of a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// The first signal to stop that is not ignored asks to stop and calls a function; the second ends the program. It is the
/// only way out of a client that takes too long; finished clients and rounds are on disk.
#[cfg(unix)]
fn on_signal(sign: &StopSign, act: impl Fn() + Send + 'static) -> Result<Listener> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag;
    use signal_hook::iterator::Signals;

    let mut caught = vec![SIGINT, SIGTERM, SIGHUP];
    caught.retain(|&signal| !is_ignored(signal, SIGHUP));
    let mut signals = Signals::new(&caught)?;
    let mut listener = Listener { actions: Vec::new(), signals: signals.handle() };
    for &signal in &caught {
        listener.actions.push(flag::register_conditional_shutdown(signal, INTERRUPTED, sign.flag())?);
        listener.actions.push(flag::register(signal, sign.flag())?);
    }
    let listen = move || signals.forever().take(1).for_each(|_| act());
    // Without a thread, it stops all the same.
    let _ = std::thread::Builder::new().name("signals".to_string()).spawn(listen);
    Ok(listener)
}

/// What catches signals, as long as it lives.
#[cfg(unix)]
#[derive(Debug)]
struct Listener {
    actions: Vec<signal_hook::SigId>,
    signals: signal_hook::iterator::Handle,
}

#[cfg(unix)]
impl Drop for Listener {
    fn drop(&mut self) {
        for action in self.actions.drain(..) {
            signal_hook::low_level::unregister(action);
        }
        self.signals.close();
    }
}

/// A handler cannot be taken back here.
#[cfg(not(unix))]
#[derive(Debug)]
struct Listener;

#[cfg(not(unix))]
fn on_signal(sign: &StopSign, act: impl Fn() + Send + 'static) -> Result<Listener> {
    let sign = sign.clone();
    ctrlc::set_handler(move || {
        if sign.ask() {
            #[allow(clippy::exit)]
            std::process::exit(INTERRUPTED);
        }
        act();
    })?;
    Ok(Listener)
}

/// Whether whoever started the program ignores a signal, which must then stay ignored: `nohup` ignores the hangup of
/// its terminal. Where this is not known, a hangup is left to the system.
#[cfg(unix)]
fn is_ignored(signal: i32, hangup: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match ignored(&status) {
        Some(ignored) => ignored >> (signal - 1) & 1 == 1,
        None => signal == hangup,
    }
}

/// The ignored signals of a process in Linux: the lowest bit is signal 1.
#[cfg(unix)]
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Makes a write beyond the limit of `ulimit -f` fail with an error instead of ending the program without a word.
pub(crate) fn report_file_size_limits() {
    #[cfg(unix)]
    {
        // Without the handler, only the message would be missing.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t00\n"), Some(0x1001));
        assert_eq!(ignored("Name:\tx\n"), None);
    }
}
