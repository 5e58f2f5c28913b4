//! The numbers of a round by name, for other programs.

use crate::csv::FIXED;
use crate::round::RoundRecord;

/// The names of classes, each once; where there is none, its number.
pub(crate) fn class_labels(names: &[String], classes: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for class in 0..classes {
        let own = names.get(class).filter(|name| !name.trim().is_empty());
        let name = own.cloned().unwrap_or_else(|| class.to_string());
        let taken = found.contains(&name);
        found.push(if taken { format!("{name} ({class})") } else { name });
    }
    found
}

/// Every measured number of a round: its group, if it has one, its name there, and the number.
pub(crate) fn scalars(round: &RoundRecord, classes: &[String]) -> Vec<(&'static str, String, f64)> {
    let fixed = FIXED.iter().map(|(name, of)| ("", name.to_string(), of(round)));
    let terms = round.train_terms.iter().map(|(name, value)| ("train", name.clone(), Some(*value)));
    let layers = round.alignment.iter().map(|(name, value)| ("alignment", name.clone(), Some(*value)));
    let local = round.local.iter().flat_map(|local| &local.alignment);
    let local = local.map(|(name, value)| ("local-alignment", name.clone(), Some(*value)));
    let known = round.class_accuracy.as_deref().unwrap_or_default();
    let by_class = class_labels(classes, known.len()).into_iter().zip(known);
    let by_class = by_class.map(|(name, value)| ("class-accuracy", name, *value));
    let all = fixed.chain(terms).chain(layers).chain(local).chain(by_class);
    all.filter_map(|(group, name, value)| Some((group, name, value?))).collect()
}
