//! "Did you mean ...?"

/// The known word most similar to the given one, if any is similar enough: at most one letter in three differs, or the
/// word begins with the given one. `+` reads as `-plus`.
pub fn nearest<'w>(given: &str, words: &[&'w str]) -> Option<&'w str> {
    let given = given.to_lowercase().replace('_', "-").replace('+', "-plus");
    let is_near = |distance: usize, word: &str| {
        let length = given.chars().count().max(word.chars().count());
        distance <= (length / 3).max(1).min(length.saturating_sub(1))
    };
    words
        .iter()
        .map(|word| (strsim::damerau_levenshtein(&given, word), *word))
        .filter(|(distance, word)| is_near(*distance, word) || (given.len() >= 3 && word.starts_with(&given)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_typos_and_ignores_other_words() {
        let words = ["rounds", "seeds", "clients"];
        assert_eq!(nearest("rondus", &words), Some("rounds"));
        assert_eq!(nearest("Seeds", &words), Some("seeds"));
        assert_eq!(nearest("per_round", &["per-round", "fraction"]), Some("per-round"));
        assert_eq!(nearest("xyz", &words), None);
        assert_eq!(nearest("most", &["all", "standard", "fast"]), None);
        assert_eq!(nearest("", &["a", "rounds"]), None);
        assert_eq!(nearest("round", &words), Some("rounds"));
        assert_eq!(nearest("feddistill+", &["feddistill", "feddistill-plus"]), Some("feddistill-plus"));
        assert_eq!(nearest("FedGKD+", &["fedgkd", "fedgkd-vote", "fedgkd-plus"]), Some("fedgkd-plus"));
    }
}
