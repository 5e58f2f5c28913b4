//! Typed access to one table of a document. Every message names the key, what was given and what is allowed.

use anyhow::{Result, anyhow};
use toml::{Table, Value};

use super::document::{Document, describe};

/// One table of a document and the keys it may have.
pub(crate) struct Section<'a> {
    pub(crate) document: &'a Document,
    /// The dotted path of the table, empty for the top.
    path: String,
    table: Option<&'a Table>,
}

impl<'a> Section<'a> {
    /// The top table.
    pub(crate) fn top(document: &'a Document, keys: &[&str]) -> Result<Self> {
        let section = Self { document, path: String::new(), table: Some(document.table()) };
        section.refuse_unknown(keys)?;
        Ok(section)
    }

    /// A table below the top. A missing one is an empty one.
    pub(crate) fn of(document: &'a Document, name: &str, keys: &[&str]) -> Result<Self> {
        let table = match document.table().get(name) {
            None => None,
            Some(Value::Table(table)) => Some(table),
            Some(other) => {
                let message = format!("{name}: expected a table [{name}], found {}", describe(other));
                return Err(document.error(name, message));
            }
        };
        let section = Self { document, path: name.to_string(), table };
        section.refuse_unknown(keys)?;
        Ok(section)
    }

    /// A table in this one.
    pub(crate) fn inner(&self, key: &str, keys: &[&str]) -> Result<Self> {
        let table = self.get(key).and_then(Value::as_table);
        let section = Self { document: self.document, path: self.full(key), table };
        section.refuse_unknown(keys)?;
        Ok(section)
    }

    fn refuse_unknown(&self, keys: &[&str]) -> Result<()> {
        match self.table.and_then(|table| table.keys().find(|key| !keys.contains(&key.as_str()))) {
            Some(key) => {
                let place = if self.path.is_empty() { "here".to_string() } else { format!("in [{}]", self.path) };
                let message = unknown(&self.full(key), key, keys, &place);
                Err(self.document.error(&self.full(key), message))
            }
            None => Ok(()),
        }
    }

    /// The dotted path of a key of this table.
    pub(crate) fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.table?.get(key)
    }

    /// The error that the value of a key is not what is allowed.
    pub(crate) fn refuse(&self, key: &str, value: &Value, allowed: &str) -> anyhow::Error {
        let full = self.full(key);
        self.document.error(&full, format!("{full} = {}: expected {allowed}", short(value)))
    }

    /// The error that the type of a value is wrong.
    fn wrong_type(&self, key: &str, value: &Value, allowed: &str) -> anyhow::Error {
        let full = self.full(key);
        self.document.error(&full, format!("{full}: expected {allowed}, found {}", describe(value)))
    }

    /// A whole number of at least `least`.
    pub(crate) fn whole(&self, key: &str, least: i64) -> Result<Option<u64>> {
        let allowed = format!("a whole number of at least {least}");
        match self.get(key) {
            None => Ok(None),
            Some(Value::Integer(n)) if *n >= least => Ok(u64::try_from(*n).ok()),
            Some(value @ Value::Integer(_)) => Err(self.refuse(key, value, &allowed)),
            Some(value) => Err(self.wrong_type(key, value, &allowed)),
        }
    }

    /// As [`Self::whole`], as a count.
    pub(crate) fn count(&self, key: &str, least: i64) -> Result<Option<usize>> {
        self.whole(key, least)?
            .map(|n| usize::try_from(n).map_err(|_| anyhow!("{} = {n}: too large for this machine", self.full(key))))
            .transpose()
    }

    /// A number for which `fits` holds; `allowed` says so in words. Whole numbers count as numbers.
    pub(crate) fn number(&self, key: &str, allowed: &str, fits: impl Fn(f64) -> bool) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value {
            Value::Float(x) => *x,
            Value::Integer(n) => *n as f64,
            other => return Err(self.wrong_type(key, other, allowed)),
        };
        if fits(number) { Ok(Some(number)) } else { Err(self.refuse(key, value, allowed)) }
    }

    pub(crate) fn text(&self, key: &str, allowed: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.wrong_type(key, value, allowed)),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(*flag)),
            Some(value) => Err(self.wrong_type(key, value, "true or false")),
        }
    }

    /// One of several words.
    pub(crate) fn choice(&self, key: &str, words: &[&'static str]) -> Result<Option<&'static str>> {
        let allowed = format!("one of {}", words.join(", "));
        let Some(text) = self.text(key, &allowed)? else { return Ok(None) };
        match words.iter().find(|word| **word == text) {
            Some(word) => Ok(Some(word)),
            None => {
                let full = self.full(key);
                let guess = nearest(text, words).map_or(String::new(), |word| format!("; did you mean '{word}'?"));
                Err(self.document.error(&full, format!("{full} = \"{text}\": expected {allowed}{guess}")))
            }
        }
    }
}

/// A value on one line, cut if it is long.
fn short(value: &Value) -> String {
    let text = value.to_string().replace('\n', " ");
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// The message about an unknown key, with the nearest allowed one and all of them.
pub(crate) fn unknown(full: &str, given: &str, allowed: &[&str], place: &str) -> String {
    let guess = nearest(given, allowed).map_or(String::new(), |name| {
        let prefix = full.strip_suffix(given).unwrap_or("");
        format!(", did you mean '{prefix}{name}'?")
    });
    let list = if allowed.is_empty() { "none".to_string() } else { allowed.join(", ") };
    format!("unknown key '{full}'{guess} (allowed {place}: {list})")
}

/// The allowed word that is most like the given one, if any is like it at all.
pub(crate) fn nearest<'w>(given: &str, words: &[&'w str]) -> Option<&'w str> {
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
    fn nearest_finds_typos_and_leaves_strangers() {
        let words = ["rounds", "seeds", "clients"];
        assert_eq!(nearest("rondus", &words), Some("rounds"));
        assert_eq!(nearest("Seeds", &words), Some("seeds"));
        assert_eq!(nearest("per_round", &["per-round", "fraction"]), Some("per-round"));
        assert_eq!(nearest("xyz", &words), None);
    }

    #[test]
    fn messages_name_key_value_and_allowed() {
        let mut doc = Document::default();
        doc.set("clients.batch=0").unwrap();
        doc.set("clients.epochs=many").unwrap();
        let section = Section::of(&doc, "clients", &["batch", "epochs"]).unwrap();
        let text = section.whole("batch", 1).unwrap_err().to_string();
        assert_eq!(text, "--set: clients.batch = 0: expected a whole number of at least 1");
        let text = section.whole("epochs", 1).unwrap_err().to_string();
        assert!(text.contains("clients.epochs") && text.contains("the string \"many\""), "{text}");
        let Err(error) = Section::of(&doc, "clients", &["epochs", "patch"]) else { panic!("accepted") };
        assert!(error.to_string().contains("did you mean 'clients.patch'"), "{error}");
    }
}
