//! The process that holds something: a lock or a claim.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longer descriptions of a holder are not ours.
pub(crate) const LONGEST: u64 = 4096;

/// A process as its file describes it. What the file does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    pub host: String,
    pub process: Option<u32>,
    /// Seconds since 1970, by its own clock.
    pub since: Option<u64>,
}

impl Holder {
    /// This process, from now on.
    pub(crate) fn here() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { host: host(), process: Some(std::process::id()), since: Some(since) }
    }

    pub(crate) fn of(text: &str) -> Self {
        let host = value(text, "host").unwrap_or_default().chars().filter(|c| !c.is_control()).take(255).collect();
        let number = |key| value(text, key).and_then(|found| found.parse::<u64>().ok());
        Self {
            host,
            process: number("process").and_then(|process| u32::try_from(process).ok()),
            since: number("since"),
        }
    }

    /// Itself as lines of a file.
    pub(crate) fn lines(&self) -> String {
        let number = |found: Option<u64>| found.map_or(String::new(), |found| found.to_string());
        let (process, since) = (number(self.process.map(u64::from)), number(self.since));
        format!("host: {}\nprocess: {process}\nsince: {since}\n", self.host)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "process {process}")?,
            None => f.write_str("another process")?,
        }
        if self.host.is_empty() { Ok(()) } else { write!(f, " on {}", self.host) }
    }
}

/// The value of a line `key: value`.
pub(crate) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
}

/// The name of this machine, if the system tells it in a file.
fn host() -> String {
    let told = ["/proc/sys/kernel/hostname", "/etc/hostname"].iter().find_map(|path| fs::read_to_string(path).ok());
    told.map_or_else(String::new, |name| name.trim().to_string())
}
