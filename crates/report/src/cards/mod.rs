//! The figures of a report, from the runs of a study: one card per question.

mod accuracy;
mod classes;
pub(crate) mod clients;
mod confusion;
mod cost;
mod curves;
mod drift;
mod features;
mod holdings;
mod local;

use std::collections::BTreeMap;

use clients::ShownClients;

use crate::embed::FeatureLayouts;
use crate::figure::{Figure, FigureCard, MethodStyle, styles};
use crate::loaded::{LeftOut, LoadedRun};
use crate::results::{Group, Results};

/// All cards for which there are records.
pub(crate) fn cards(
    study: &Results,
    clients: &ShownClients,
    embeddings: &mut FeatureLayouts,
    left_out: &mut Vec<LeftOut>,
) -> Vec<FigureCard> {
    let all = [
        accuracy::accuracy(study),
        accuracy::forgetting(study),
        holdings::holdings(study),
        clients::over_rounds(study, clients),
        clients::by_class(study, clients),
        classes::over_time(study),
        classes::at_a_round(study),
        local::before_and_after(study),
        local::changes(study),
        confusion::confusion(study),
        drift::drift(study),
        cost::cost(study),
        cost::terms(study),
        features::features(study, embeddings, left_out),
    ];
    all.into_iter().flatten().filter(|card| !card.figures.is_empty()).collect()
}

/// The accuracy and the forgetting of the global model over rounds, and how the methods are drawn.
pub fn learning_curves(study: &Results) -> (Vec<MethodStyle>, Vec<Figure>) {
    let cards = [accuracy::accuracy(study), accuracy::forgetting(study)];
    // The first of each is what the card is about.
    let figures = cards.into_iter().flatten().filter_map(|card| card.figures.into_iter().next());
    (styles(&study.groups), figures.collect())
}

fn card(id: &str, title: &str, text: &str, choice: bool, figures: Vec<Option<Figure>>) -> Option<FigureCard> {
    let figures: Vec<Figure> = figures.into_iter().flatten().collect();
    (!figures.is_empty()).then(|| FigureCard {
        id: id.to_string(),
        title: title.to_string(),
        text: text.to_string(),
        choice,
        figures,
    })
}

/// The names of the classes of runs. Runs on other data have other classes.
fn class_names<'a>(runs: impl IntoIterator<Item = &'a LoadedRun>, classes: usize) -> Vec<String> {
    let named = runs.into_iter().map(|run| &run.header.classes).find(|names| names.len() == classes);
    named.cloned().unwrap_or_else(|| (0..classes).map(|class| class.to_string()).collect())
}

/// Which runs the figures of a method are of: `fedavg, mean over 3 seeds`.
fn of_runs(group: &Group) -> String {
    match group.counted().as_slice() {
        [run] => format!("{}, seed {}", group.title(), run.header.seed),
        runs => format!("{}, mean over {} seeds", group.title(), runs.len()),
    }
}

/// A name for every method that is safe in file names, even on case-insensitive systems.
fn slugs(study: &Results) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for group in &study.groups {
        found.push(slug(&group.label, &found));
    }
    found
}

/// A name that is not in `taken`.
pub(crate) fn slug(label: &str, taken: &[String]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let base: String = label.chars().take(60).map(plain).collect();
    let base = base.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let base = if base.is_empty() { "method".to_string() } else { base };
    let mut names = (1..).map(|n| if n == 1 { base.clone() } else { format!("{base}-{n}") });
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// Nine decimal places are more than any figure shows.
fn tidy(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// The runs' values per round, without rounds that only some of them have: these would distort a mean.
fn by_round<T>(found: impl Iterator<Item = (u64, T)>) -> BTreeMap<u64, Vec<T>> {
    let mut by_round: BTreeMap<u64, Vec<T>> = BTreeMap::new();
    found.for_each(|(round, value)| by_round.entry(round).or_default().push(value));
    let whole = by_round.values().map(Vec::len).max().unwrap_or(0);
    by_round.retain(|_, all| all.len() == whole);
    by_round
}

/// Every n-th item, and the last.
fn thin<T: Clone>(items: Vec<T>, most: usize) -> Vec<T> {
    let step = items.len().div_ceil(most).max(1);
    let last = items.len().saturating_sub(1);
    items.into_iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_unique_file_names() {
        let mut taken = Vec::new();
        for label in ["fedntd beta=0.5", "FedNTD beta=0.5", "../../etc", "方法", "", "fedntd-beta-0-5-2"] {
            taken.push(slug(label, &taken));
        }
        assert_eq!(taken, ["fedntd-beta-0-5", "fedntd-beta-0-5-2", "etc", "method", "method-2", "fedntd-beta-0-5-2-2"]);
    }
}
