//! Clients whose uploads did not count, and why.

use serde::{Deserialize, Serialize};

use crate::notice::client_name;

/// A client of a round whose upload did not arrive or was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Incident {
    pub client: u64,
    pub kind: IncidentKind,
    /// Why the upload was refused or the client failed; empty if nothing arrived.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How often the round had been repeated before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeat: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentKind {
    /// The client dropped out before it received anything.
    DroppedBefore,
    /// It dropped out during its training.
    DroppedDuring,
    /// It dropped out after its training, and its upload was lost.
    DroppedAfter,
    /// Its upload was not there at the deadline.
    Late,
    /// Its training failed.
    Failed,
    /// The server refused what arrived.
    Refused,
}

impl Incident {
    /// One clause about it, with the name of the client where it is known.
    pub fn describe(&self, clients: &[String]) -> String {
        let client = client_name(clients, self.client);
        match self.kind {
            IncidentKind::DroppedBefore => format!("{client} dropped out before it received the model"),
            IncidentKind::DroppedDuring => format!("{client} dropped out during training"),
            IncidentKind::DroppedAfter => format!("{client} dropped out after training"),
            IncidentKind::Late => format!("{client} was late"),
            IncidentKind::Failed => format!("{client} failed: {}", self.reason),
            IncidentKind::Refused => format!("an upload of {client} was refused: {}", self.reason),
        }
    }
}

/// How many incidents a run had, by what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct IncidentCounts {
    /// Clients that dropped out.
    pub dropped: u64,
    /// Clients that were late.
    pub late: u64,
    /// Clients whose training failed.
    pub failed: u64,
    /// Uploads that the server refused.
    pub refused: u64,
    /// Rounds that were repeated because too few uploads counted, once for each repetition.
    pub repeats: u64,
}

impl IncidentCounts {
    /// The number of incidents of each kind.
    pub fn of<'a>(incidents: impl IntoIterator<Item = &'a Incident>) -> Self {
        let mut counts = Self::default();
        counts.add(incidents, 0);
        counts
    }

    pub(crate) fn add<'a>(&mut self, incidents: impl IntoIterator<Item = &'a Incident>, repeats: u64) {
        for incident in incidents {
            let count = match incident.kind {
                IncidentKind::DroppedBefore | IncidentKind::DroppedDuring | IncidentKind::DroppedAfter => {
                    &mut self.dropped
                }
                IncidentKind::Late => &mut self.late,
                IncidentKind::Failed => &mut self.failed,
                IncidentKind::Refused => &mut self.refused,
            };
            *count = count.saturating_add(1);
        }
        self.repeats = self.repeats.saturating_add(repeats);
    }

    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What happened, in one line, such as `12 clients dropped out, 3 uploads were refused`; empty if nothing did.
    pub fn describe(&self) -> String {
        let counts = [
            (self.dropped, "client dropped out", "clients dropped out"),
            (self.late, "upload was late", "uploads were late"),
            (self.failed, "client failed", "clients failed"),
            (self.refused, "upload was refused", "uploads were refused"),
            (self.repeats, "repeated round", "repeated rounds"),
        ];
        let said = counts.into_iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| {
            let what = if count == 1 { one } else { many };
            format!("{count} {what}")
        });
        said.collect::<Vec<_>>().join(", ")
    }
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incidents_are_clauses_come_back_and_are_counted() {
        let names = ["mercy".to_string()];
        let mut counts = IncidentCounts::default();
        assert_eq!((counts.is_none(), counts.describe().as_str()), (true, ""));
        for (client, kind, reason, said) in [
            (0, IncidentKind::DroppedBefore, "", "client 'mercy' dropped out before it received the model"),
            (1, IncidentKind::DroppedDuring, "", "client 1 dropped out during training"),
            (1, IncidentKind::DroppedAfter, "", "client 1 dropped out after training"),
            (0, IncidentKind::Late, "", "client 'mercy' was late"),
            (2, IncidentKind::Failed, "it diverged", "client 2 failed: it diverged"),
            (2, IncidentKind::Refused, "too long", "an upload of client 2 was refused: too long"),
        ] {
            let incident = Incident { client, kind, reason: reason.to_string(), repeat: u64::from(client == 2) };
            assert_eq!(incident.describe(&names), said);
            let text = serde_json::to_string(&incident).unwrap();
            assert_eq!(serde_json::from_str::<Incident>(&text).unwrap(), incident, "{text}");
            counts.add(&[incident], client);
        }
        let said = "3 clients dropped out, 1 upload was late, 1 client failed, 1 upload was refused, 6 repeated rounds";
        assert_eq!((counts.is_none(), counts.describe().as_str()), (false, said));
    }
}
