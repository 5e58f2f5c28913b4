//! "Did you mean ...?"

/// The known word most similar to the given one, if any is similar enough.
pub fn nearest<'w>(given: &str, words: &[&'w str]) -> Option<&'w str> {
    let given = given.to_lowercase().replace('_', "-");
    words
        .iter()
        .map(|word| (strsim::normalized_damerau_levenshtein(&given, word), *word))
        .filter(|(likeness, word)| *likeness >= 0.5 || (given.len() >= 3 && word.starts_with(&given)))
        .max_by(|a, b| a.0.total_cmp(&b.0))
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
    }
}
