//! How many threads a command uses.

use std::sync::RwLock;
use std::thread;

use anyhow::{Result, bail};

use crate::printer::Printer;

/// As many as asked for with `option`, or one per core; fewer, with a warning, if the system does not allow that many.
pub(crate) fn threads(option: &str, asked: Option<usize>, printer: &Printer) -> Result<usize> {
    let wanted = match asked {
        Some(n @ (0 | 1_025..)) => bail!("{option} {n}: expected a whole number of at least 1 and at most 1024"),
        Some(n) => n,
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let found = startable(wanted);
    if found < wanted {
        printer.warn(format_args!("only {found} of {wanted} threads can be started (see ulimit -u)"));
    }
    Ok(found)
}

/// How many of these threads can exist at the same time, with the one that asks.
pub fn startable(wanted: usize) -> usize {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        // None ends before all have been started.
        let _closed = gate.write();
        let wait = || drop(gate.read());
        1 + (1..wanted).map_while(|_| thread::Builder::new().spawn_scoped(scope, wait).ok()).count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_threads_can_be_started() {
        assert_eq!([1, 2, 9].map(startable), [1, 2, 9]);
    }
}
