//! What runs were done under, in one paragraph: data, partition, training, model, faults and noise.

use std::fmt::Write as _;

use crate::loaded::LoadedRun;
use crate::results::Results;

/// The distinct values of something over all runs.
pub(crate) fn values(study: &Results, of: impl Fn(&LoadedRun) -> String) -> Vec<String> {
    let mut values: Vec<String> = study.runs().map(of).filter(|value| !value.is_empty()).collect();
    // Numbers by size, before words.
    let number = |text: &str| text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    values.sort_by(|a, b| match (number(a), number(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y).then_with(|| a.cmp(b)),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.cmp(b),
    });
    values.dedup();
    values
}

/// All of them, as a list.
pub(crate) fn all(study: &Results, of: impl Fn(&LoadedRun) -> String) -> String {
    values(study, of).join(", ")
}

/// All of them, as part of a sentence.
fn either(mut values: Vec<String>) -> String {
    let Some(last) = values.pop() else { return String::new() };
    if values.is_empty() {
        return last;
    }
    // Commas inside the values would be confused with those between them.
    let mark = if values.iter().chain([&last]).any(|value| value.contains(", ")) { ";" } else { "" };
    format!("{}{mark} or {last}", values.join(if mark.is_empty() { ", " } else { "; " }))
}

/// An integer with thousands separators.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

/// All conditions in one paragraph.
pub(crate) fn conditions(study: &Results) -> String {
    let of = |part: fn(&LoadedRun) -> String| either(values(study, part));
    let key = |name: &'static str| either(values(study, move |run| run.config.get(name).cloned().unwrap_or_default()));
    let rounds = match of(|run| run.header.rounds.to_string()) {
        one if one == "1" => "the one round".to_string(),
        all => format!("each of {all} rounds"),
    };
    let mut text = format!(
        "{}. {} clients train in {rounds}",
        of(|run| format!("{}, {}", run.header.dataset, run.header.partition)),
        of(|run| format!("{} of {}", run.header.per_round, run.header.clients)),
    );
    if !key("clients.epochs").is_empty() {
        let (epochs, batch) = (key("clients.epochs"), key("clients.batch"));
        let noun = if epochs == "1" { "epoch" } else { "epochs" };
        let _ = write!(text, ", {epochs} local {noun} in batches of {batch}");
        let _ = write!(text, ", {} with learning rate {}", key("optimizer.kind"), key("optimizer.lr"));
        for (name, word) in [("optimizer.momentum", "momentum"), ("optimizer.weight-decay", "weight decay")] {
            if !key(name).is_empty() {
                let _ = write!(text, ", {word} {}", key(name));
            }
        }
    }
    let _ = write!(
        text,
        ". The model is {}. Seeds: {}.",
        of(|run| format!("{} with {} parameters", run.header.model, thousands(run.header.parameters))),
        all(study, |run| run.header.seed.to_string()),
    );
    for (title, part) in [("Faults", faults as fn(&LoadedRun) -> String), ("Server", server), ("Noise", noise)] {
        let found = values(study, part);
        if found.is_empty() {
            continue;
        }
        let without = study.runs().any(|run| part(run).is_empty());
        let found = found.into_iter().chain(without.then(|| "none".to_string())).collect();
        let _ = write!(text, " {title}: {}.", either(found));
    }
    text
}

/// What goes wrong on purpose.
fn faults(run: &LoadedRun) -> String {
    let of_attack = ["attack", "attackers", "factor"];
    let value = |name: &str| run.config.get(&format!("faults.{name}")).map(String::as_str);
    let is_zero = |text: &str| text.parse::<f64>().is_ok_and(|number| number == 0.0);
    let slow = value("slow").is_some_and(|share| !is_zero(share));
    let mut parts = Vec::new();
    if let (false, Some(attack)) = (run.header.attackers.is_empty(), value("attack")) {
        let factor = value("factor").map_or(String::new(), |factor| format!(", factor {factor}"));
        parts.push(format!(
            "{} of {} clients attack ({attack}{factor})",
            run.header.attackers.len(),
            run.header.clients
        ));
    }
    for (key, text) in &run.config {
        let Some(name) = key.strip_prefix("faults.").filter(|name| !of_attack.contains(name)) else { continue };
        if !is_zero(text) && (slow || name != "slowdown") {
            parts.push(format!("{name} {text}"));
        }
    }
    parts.join(", ")
}

/// How the server protects itself.
fn server(run: &LoadedRun) -> String {
    let rule = run.config.get("server.rule").filter(|rule| *rule != "mean").map(|rule| format!("rule {rule}"));
    let clip = run.config.get("server.clip-update").map(|norm| format!("updates clipped to norm {norm}"));
    rule.into_iter().chain(clip).collect::<Vec<_>>().join(", ")
}

/// What hides the clients, and how well.
fn noise(run: &LoadedRun) -> String {
    let of = |name: &str| run.config.get(name).map(String::as_str);
    let Some(noise) = of("privacy.noise").filter(|noise| noise.parse::<f64>().is_ok_and(|noise| noise > 0.0)) else {
        return String::new();
    };
    let (at, clip) = (of("privacy.at").unwrap_or("server"), of("server.clip-update").unwrap_or("?"));
    let spent = match run.summary.privacy {
        Some(spent) => format!("{} after {} rounds", spent.describe(), run.summary.rounds),
        None => "no bound on epsilon, so no protection".to_string(),
    };
    format!("{noise} times the clipping norm {clip}, at the {at}: {spent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_stays_readable() {
        let of = |values: &[&str]| either(values.iter().map(|value| value.to_string()).collect());
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["3 of 20"]), "3 of 20");
        assert_eq!(of(&["1", "5", "10"]), "1, 5 or 10");
        assert_eq!(of(&["cifar10, iid", "mnist, shards"]), "cifar10, iid; or mnist, shards");
    }

    #[test]
    fn large_numbers_have_separators() {
        assert_eq!((thousands(7), thousands(1_234_567)), ("7".to_string(), "1,234,567".to_string()));
    }
}
