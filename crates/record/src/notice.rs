//! What a run notices about itself.

use serde::{Deserialize, Serialize};

use crate::guessing::Unlearnt;

/// Something in a round that needs attention. `docs/notices.md` has the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Notice {
    /// A client is far out of line with the others of its round.
    Outlier {
        client: u64,
        measure: Measure,
        value: f64,
        /// The median over the clients of the round.
        median: f64,
    },
    /// The global model is no better than guessing, although it was before.
    Chance {
        accuracy: f64,
        /// The best accuracy so far.
        best: f64,
        /// The accuracy of always guessing the most frequent class.
        chance: f64,
    },
    /// The global model predicts one class for nearly all test samples, although it was better before.
    OneClass {
        class: u64,
        /// The share of test samples with this prediction.
        share: f64,
    },
    /// The global model has never been better than guessing.
    Unlearnt(Unlearnt),
    /// The accuracy lost more than half of its lead over guessing after a client was out of line.
    Fall {
        accuracy: f64,
        /// The best accuracy so far.
        best: f64,
        /// The client that was out of line.
        client: u64,
        /// The round in which it was.
        since: u64,
    },
}

/// A number in which a client can be out of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The distance of its weights from the global ones.
    Drift,
    /// Its mean training loss.
    Loss,
}

impl Notice {
    /// Whether the global model collapsed, rather than one client.
    pub fn is_collapse(&self) -> bool {
        match self {
            Self::Outlier { .. } | Self::Unlearnt(_) => false,
            Self::Chance { .. } | Self::OneClass { .. } | Self::Fall { .. } => true,
        }
    }

    /// That the global model has learnt nothing, if it says so.
    pub fn unlearnt(&self) -> Option<Unlearnt> {
        match self {
            Self::Unlearnt(found) => Some(*found),
            Self::Outlier { .. } | Self::Chance { .. } | Self::OneClass { .. } | Self::Fall { .. } => None,
        }
    }

    /// Whether both say the same kind of thing.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// One clause about it, with the names of classes and clients where they are known.
    pub fn describe(&self, classes: &[String], clients: &[String]) -> String {
        let percent = |share: &f64| format!("{:.1} %", 100.0 * share);
        match self {
            Self::Outlier { client, measure, value, median } => {
                let what = match measure {
                    Measure::Drift => "drift",
                    Measure::Loss => "training loss",
                };
                let client = client_name(clients, *client);
                format!("{client}: {what} {}, median of the round {}", short(*value), short(*median))
            }
            Self::Chance { accuracy, best, chance } => format!(
                "accuracy fell from {} to {}; guessing gives {}",
                percent(best),
                percent(accuracy),
                percent(chance)
            ),
            Self::OneClass { class, share } => {
                let name = usize::try_from(*class).ok().and_then(|class| classes.get(class));
                let name = name.map_or_else(|| class.to_string(), |name| format!("'{name}'"));
                format!("class {name} is predicted for {} of the test samples", percent(share))
            }
            Self::Unlearnt(found) => format!("nothing has been learnt {}", found.details()),
            Self::Fall { accuracy, best, client, since } => format!(
                "accuracy fell from {} to {} after {} was out of line in round {since}",
                percent(best),
                percent(accuracy),
                client_name(clients, *client)
            ),
        }
    }
}

/// What a client is called in a sentence: by its name, if it has one.
pub fn client_name(names: &[String], client: u64) -> String {
    let name = usize::try_from(client).ok().and_then(|at| names.get(at)).filter(|name| !name.is_empty());
    name.map_or_else(|| format!("client {client}"), |name| format!("client '{name}'"))
}

/// A number with three digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 || (size > 0.0 && size < 1e-3) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A notice and its round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RoundNotice {
    /// Counted from 1.
    pub round: u64,
    #[serde(flatten)]
    pub notice: Notice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_clauses_and_come_back() {
        let classes = ["cat".to_string(), "dog".to_string()];
        let outlier = Notice::Outlier { client: 7, measure: Measure::Drift, value: 211.4, median: 2.0 };
        for (notice, said) in [
            (outlier.clone(), "client 7: drift 211, median of the round 2.00"),
            (
                Notice::Chance { accuracy: 0.1, best: 0.74, chance: 0.1 },
                "accuracy fell from 74.0 % to 10.0 %; guessing gives 10.0 %",
            ),
            (Notice::OneClass { class: 1, share: 0.975 }, "class 'dog' is predicted for 97.5 % of the test samples"),
            (Notice::OneClass { class: 9, share: 1.0 }, "class 9 is predicted for 100.0 % of the test samples"),
            (
                Notice::Unlearnt(Unlearnt { accuracy: 0.1, chance: 0.1, evaluations: 12 }),
                "nothing has been learnt in 12 evaluations: accuracy 10.0 %; guessing gives 10.0 %",
            ),
            (
                Notice::Fall { accuracy: 0.28, best: 0.74, client: 7, since: 30 },
                "accuracy fell from 74.0 % to 28.0 % after client 7 was out of line in round 30",
            ),
        ] {
            assert_eq!(notice.describe(&classes, &[]), said);
            assert_eq!(notice.is_collapse(), notice != outlier && notice.unlearnt().is_none());
            let noticed = RoundNotice { round: 30, notice };
            let text = serde_json::to_string(&noticed).unwrap();
            assert_eq!(serde_json::from_str::<RoundNotice>(&text).unwrap(), noticed, "{text}");
        }
        let sites = ["mercy".to_string()];
        let outlier = Notice::Outlier { client: 0, measure: Measure::Loss, value: 20.0, median: 1.0 };
        assert_eq!(outlier.describe(&classes, &sites), "client 'mercy': training loss 20.0, median of the round 1.00");
        let fall = Notice::Fall { accuracy: 0.5, best: 0.75, client: 0, since: 3 };
        assert!(fall.describe(&classes, &sites).ends_with("after client 'mercy' was out of line in round 3"));
        assert_eq!(client_name(&sites, 1), "client 1");
        assert_eq!(
            (short(1.5e9), short(0.0), short(12.34), short(2e-5)),
            ("1.50e9".into(), "0.00".into(), "12.3".into(), "2.00e-5".into())
        );
    }
}
