//! A vocabulary of words, built from texts.

use std::collections::{BTreeMap, HashMap};

use crate::tokens::TokenIds;

/// The token ID reserved for padding; no text contains it.
pub const PAD: u32 = 0;
/// The token ID of every word that is not in the vocabulary.
pub const UNKNOWN: u32 = 1;
/// The token ID that starts every text, if one does.
pub const START: u32 = 2;
/// The tokens with these IDs. No text contains them: a bracket is a separate word.
const SPECIAL: [&str; 3] = ["<pad>", "<unk>", "<cls>"];

/// The words of some texts, by how often they occur.
///
/// A word is a run of letters and digits in lower case; every other character that is not white space is a separate
/// word. IDs 0 and 1 are `<pad>` and `<unk>`, ID 2 is `<cls>` if every text starts with it; then come words by
/// frequency, ties in alphabetical order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    words: Vec<String>,
    numbers: HashMap<String, u32>,
    start: Option<u32>,
}

impl Vocabulary {
    /// The most frequent words of these texts, at most `size` tokens including the special ones. With `start`, every
    /// text will start with a special token.
    pub fn build<'a>(texts: impl Iterator<Item = &'a str>, size: usize, start: bool) -> Self {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for text in texts {
            each_word(text, |word| {
                *counts.entry(word).or_default() += 1;
            });
        }
        let mut found: Vec<(String, u64)> = counts.into_iter().collect();
        // Stable, so ties are in alphabetical order.
        found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut words: Vec<String> = SPECIAL[..2 + usize::from(start)].iter().map(|word| (*word).to_owned()).collect();
        let special = words.len();
        words.extend(found.into_iter().map(|(word, _)| word).take(size.saturating_sub(special)));
        Self::of(words, start)
    }

    /// A vocabulary from its [words](Vocabulary::words), as built by [`Vocabulary::build`]; `None` if they are invalid.
    #[must_use]
    pub fn from_words(words: Vec<String>) -> Option<Self> {
        let start = words.get(START as usize).is_some_and(|word| word == SPECIAL[2]);
        (words.len() > 1 && words[..2] == SPECIAL[..2]).then(|| Self::of(words, start))
    }

    fn of(words: Vec<String>, start: bool) -> Self {
        let special = 2 + usize::from(start);
        let numbers = words.iter().enumerate().skip(special).map(|(i, word)| (word.clone(), i as u32)).collect();
        Self { words, numbers, start: start.then_some(START) }
    }

    /// The tokens by ID.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The first `max_length` tokens of each text. A text with no tokens becomes one unknown word.
    #[must_use]
    pub fn encode(&self, texts: &[String], max_length: usize) -> TokenIds {
        let mut tokens = TokenIds::default();
        let mut ids = Vec::new();
        for text in texts {
            ids.clear();
            ids.extend(self.start);
            each_word(text, |word| {
                if ids.len() < max_length {
                    ids.push(self.numbers.get(&word).copied().unwrap_or(UNKNOWN));
                }
            });
            if ids.is_empty() {
                ids.push(UNKNOWN);
            }
            tokens.push(ids.iter().copied());
        }
        tokens
    }
}

fn each_word(text: &str, mut f: impl FnMut(String)) {
    let mut word = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            f(std::mem::take(&mut word));
        }
        if !c.is_whitespace() {
            f(c.to_string());
        }
    }
    if !word.is_empty() {
        f(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_frequency_then_alphabet() {
        let texts = ["b a, b", "C a c\u{e9} B!"];
        let words = Vocabulary::build(texts.into_iter(), 100, false);
        assert_eq!(words.words(), ["<pad>", "<unk>", "b", "a", "!", ",", "c", "c\u{e9}"]);
        let few = Vocabulary::build(texts.into_iter(), 4, false);
        assert_eq!(few.words(), ["<pad>", "<unk>", "b", "a"]);
        let tokens = few.encode(&["A b zebra a".to_owned(), String::new(), " \n".to_owned()], 3);
        assert_eq!((tokens.ids, tokens.starts), (vec![3, 2, UNKNOWN, UNKNOWN, UNKNOWN], vec![0, 3, 4, 5]));
        let started = Vocabulary::build(texts.into_iter(), 4, true);
        assert_eq!(started.words(), ["<pad>", "<unk>", "<cls>", "b"]);
        let tokens = started.encode(&["A b".to_owned(), String::new(), "b b b".to_owned()], 3);
        assert_eq!((tokens.ids, tokens.starts), (vec![START, UNKNOWN, 3, START, START, 3, 3], vec![0, 3, 4, 7]));
        assert_eq!(PAD, 0);
        for made in [words, few, started] {
            assert_eq!(Vocabulary::from_words(made.words().to_vec()), Some(made));
        }
        assert_eq!(Vocabulary::from_words(vec!["a".to_owned(), "b".to_owned()]), None);
    }
}
