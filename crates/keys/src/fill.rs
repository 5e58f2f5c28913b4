//! Checks the given values of a configuration and fills in the rest.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::{Bounds, Key, Schema, Selector, ValueType, nearest};

/// An error about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// Its dotted path.
    pub key: String,
    /// The error, with the path and the value.
    pub message: String,
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}

impl KeyError {
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }

    /// The value of a key is not what is expected.
    pub fn expected(key: &str, value: impl std::fmt::Display, expected: impl std::fmt::Display) -> Self {
        Self::new(key, format!("{key} = {value}: expected {expected}"))
    }

    /// The same error, for a table at this path.
    #[must_use]
    pub fn below(self, at: &str) -> Self {
        let key = path(at, &self.key);
        let message = match self.message.strip_prefix(&self.key) {
            Some(rest) => format!("{key}{rest}"),
            None => self.message,
        };
        Self { key, message }
    }
}

/// What a table itself does not know: where its values came from.
pub trait Context {
    /// Whether to drop a key that does not belong to its selector's value, because the selector was changed after the
    /// key was written. The key and the selector are dotted paths; the last argument is the selector's value.
    fn leave_out(&mut self, _key: &str, _selector: &str, _chosen: &str) -> bool {
        false
    }

    /// The path that a key's value refers to.
    fn locate(&self, _key: &str, path: &str) -> PathBuf {
        Path::new(path).to_path_buf()
    }
}

impl Context for () {}

impl Schema {
    /// Checks a table whose dotted path is `at` and fills in defaults.
    pub fn fill(&self, given: &Table, at: &str, context: &mut dyn Context) -> Result<Table, KeyError> {
        let mut filled = Table::new();
        let mut allowed: Vec<&Key> = self.keys.iter().collect();
        let mut chosen = Vec::new();
        for selector in self.selectors {
            let word = selector.choose(given, at)?;
            let variant = selector.variants.iter().find(|variant| variant.words.contains(&word));
            let own = variant.map_or(&[][..], |variant| variant.keys);
            allowed.splice(0..0, own);
            chosen.push((selector, word, own));
            filled.insert(selector.name.to_string(), Value::String(word.to_string()));
        }
        let mut given = given.clone();
        let strangers = given.keys().filter(|name| {
            !allowed.iter().any(|key| key.name == *name) && !self.selectors.iter().any(|one| one.name == *name)
        });
        for name in strangers.cloned().collect::<Vec<String>>() {
            let full = path(at, &name);
            let owner = chosen.iter().find(|(selector, ..)| !selector.words_with(&name).is_empty());
            let Some((selector, word, own)) = owner else {
                let place = if at.is_empty() { "here".to_string() } else { format!("in [{at}]") };
                let mut names: Vec<&str> = self.selectors.iter().map(|selector| selector.name).collect();
                names.extend(allowed.iter().map(|key| key.name));
                let below: Vec<String> = self.below(&name).iter().map(|key| path(at, key)).collect();
                return Err(KeyError::new(&full, unknown(&full, &name, &names, &below, &place)));
            };
            let others: Vec<&str> = selector.words_with(&name);
            let selector = path(at, selector.name);
            if context.leave_out(&full, &selector, word) {
                given.remove(&name);
                continue;
            }
            let own: Vec<&str> = own.iter().map(|key| key.name).collect();
            let own = if own.is_empty() { "none".to_string() } else { own.join(", ") };
            let message = format!(
                "{full}: not a key of {selector} = \"{word}\" (its keys: {own}); it goes with {}",
                others.join(", ")
            );
            return Err(KeyError::new(&full, message));
        }
        for key in &allowed {
            if let Some(other) = key.instead
                && given.contains_key(key.name)
                && given.contains_key(other)
            {
                let (one, other) = (path(at, key.name), path(at, other));
                return Err(KeyError::new(&one, format!("{one}: expected {one} or {other}, not both")));
            }
        }
        for key in allowed.into_iter().filter(|key| chosen.iter().all(|(selector, ..)| selector.name != key.name)) {
            let full = path(at, key.name);
            let word = |selector| match filled.get(selector) {
                Some(Value::String(word)) => word.as_str(),
                // A list is given, but it is no word.
                Some(Value::Array(_)) => "[...]",
                _ => "",
            };
            if let Some((selector, fits)) = key.only
                && !fits(word(selector))
            {
                let owner = self.selectors.iter().find(|one| one.name == selector);
                let others = owner.map_or_else(|| self.words_where((selector, fits)), |one| one.words_with(key.name));
                let (selector, word) = (path(at, selector), word(selector));
                if given.remove(key.name).is_some() && !context.leave_out(&full, &selector, word) {
                    let others = others.join(", ");
                    let message = match word {
                        "" => format!("{full}: only allowed with {selector}, one of {others}"),
                        _ => format!("{full}: not a key of {selector} = \"{word}\"; it goes with {others}"),
                    };
                    return Err(KeyError::new(&full, message));
                }
                continue;
            }
            let default = key.default.filter(|_| key.unless.is_none_or(|(selector, fits)| !fits(word(selector))));
            let value = match (given.remove(key.name), default, key.value) {
                (Some(value), ..) => key.value.settle(key, &full, value, context)?,
                (None, Some(default), _) => literal(default),
                (None, None, ValueType::Table(schema)) if !key.optional => {
                    Value::Table(schema.fill(&Table::new(), &full, context)?)
                }
                (None, None, _) if key.optional => continue,
                (None, None, _) => return Err(self.lacks(at, &full, &chosen)),
            };
            filled.insert(key.name.to_string(), value);
        }
        Ok(filled)
    }

    fn lacks(&self, at: &str, full: &str, chosen: &[(&Selector, &str, &[Key])]) -> KeyError {
        match chosen.first() {
            Some((selector, word, _)) => {
                let selector = path(at, selector.name);
                KeyError::new(&selector, format!("{selector} = \"{word}\" needs {full}"))
            }
            None => KeyError::new(at, format!("{full} is missing")),
        }
    }
}

impl Selector {
    /// The value in a table, or the default.
    fn choose(&self, given: &Table, at: &str) -> Result<&'static str, KeyError> {
        let (full, words) = (path(at, self.name), self.words());
        let expected = || format!("one of {}", words.join(", "));
        let word = match (given.get(self.name), self.default) {
            (Some(Value::String(word)), _) => word.clone(),
            (Some(other), _) => return Err(wrong_type(&full, other, &expected())),
            (None, Some(default)) => default.trim_matches('"').to_string(),
            (None, None) => return Err(KeyError::new(at, format!("{full} is missing: expected {}", expected()))),
        };
        words.iter().find(|known| **known == word).copied().ok_or_else(|| no_such_word(&full, &word, &words))
    }
}

impl ValueType {
    /// Checks a value and converts it for serde.
    fn settle(&self, key: &Key, full: &str, value: Value, context: &mut dyn Context) -> Result<Value, KeyError> {
        match (self, value) {
            (Self::Table(schema), Value::Table(table)) => Ok(Value::Table(schema.fill(&table, full, context)?)),
            (Self::Table(schema), other) if key.what.is_empty() => {
                let has = |one: &&Selector| other.as_str().is_some_and(|word| one.words().contains(&word));
                let meant = schema.selectors.iter().find(has);
                let guess =
                    meant.map_or(String::new(), |one| format!("; did you mean {} = {other}?", path(full, one.name)));
                let message = format!("{full}: expected a table [{full}], found {}{guess}", describe(&other));
                Err(KeyError::new(full, message))
            }
            (Self::Path, Value::String(given)) => {
                Ok(Value::String(context.locate(full, &given).to_string_lossy().into_owned()))
            }
            (Self::List { of: Self::Path, .. }, Value::Array(items)) if items.iter().all(Value::is_str) => {
                let settled = items.into_iter().map(|item| Self::Path.settle(key, full, item, context));
                Ok(Value::Array(settled.collect::<Result<_, _>>()?))
            }
            (Self::Word(words), Value::String(word)) => {
                let known = words.contains(&word.as_str());
                if known { Ok(Value::String(word)) } else { Err(no_such_word(full, &word, words)) }
            }
            (Self::Either(types), value) => {
                let one = types.iter().find(|one| one.looks_like(&value));
                one.map_or_else(
                    || Err(wrong_type(full, &value, &key.expected())),
                    |one| {
                        let settled = one.settle(key, full, value.clone(), context);
                        let word = matches!(one, Self::Word(_));
                        if word {
                            settled.map_err(|_| KeyError::expected(full, &value, key.expected()))
                        } else {
                            settled
                        }
                    },
                )
            }
            (_, value) if !self.looks_like(&value) => Err(wrong_type(full, &value, &key.expected())),
            (_, value) if !self.fits(&key.bounds, &value) => {
                Err(KeyError::expected(full, short(&value), key.expected()))
            }
            (_, value) => Ok(value),
        }
    }

    /// Whether a value is of this type, in bounds or not.
    pub(crate) fn looks_like(&self, value: &Value) -> bool {
        match self {
            Self::Whole => value.is_integer(),
            Self::Number { .. } => value.is_float() || value.is_integer(),
            Self::Flag => value.is_bool(),
            Self::Text | Self::Path | Self::Word(_) => value.is_str(),
            Self::List { .. } => value.is_array(),
            Self::Table(_) => value.is_table(),
            Self::Either(types) => types.iter().any(|one| one.looks_like(value)),
            Self::Raw => true,
        }
    }

    /// Whether a value of this type is in bounds.
    fn fits(&self, bounds: &Bounds, value: &Value) -> bool {
        match self {
            Self::Whole => value.as_integer().is_some_and(|n| usize::try_from(n).is_ok() && bounds.hold(n as f64)),
            Self::Number { single } => {
                let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64)).unwrap_or(f64::NAN);
                let rounded = if *single { f64::from(number as f32) } else { number };
                rounded.is_finite() && bounds.hold(rounded) && bounds.hold(number)
            }
            Self::List { of, len } => value.as_array().is_some_and(|items| {
                len.is_none_or(|len| len == items.len())
                    && items.iter().all(|item| of.looks_like(item) && of.fits(bounds, item))
            }),
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Either(types) => types.iter().any(|one| one.looks_like(value) && one.fits(bounds, value)),
            Self::Flag | Self::Text | Self::Path | Self::Table(_) | Self::Raw => true,
        }
    }
}

/// The dotted path of a key of the table at `at`.
fn path(at: &str, name: &str) -> String {
    if at.is_empty() || name.is_empty() { format!("{at}{name}") } else { format!("{at}.{name}") }
}

fn literal(toml: &str) -> Value {
    let parsed = format!("value = {toml}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| panic!("{toml}: a default that is not TOML"))
}

fn wrong_type(full: &str, value: &Value, expected: &str) -> KeyError {
    KeyError::new(full, format!("{full}: expected {expected}, found {}", describe(value)))
}

fn no_such_word(full: &str, word: &str, words: &[&str]) -> KeyError {
    let guess = nearest(word, words).map_or(String::new(), |word| format!("; did you mean '{word}'?"));
    KeyError::new(full, format!("{full} = \"{word}\": expected one of {}{guess}", words.join(", ")))
}

/// The message about an unknown key, with the nearest allowed key and all allowed keys. `below` are keys of this name in
/// sections.
pub fn unknown(full: &str, given: &str, allowed: &[&str], below: &[String], place: &str) -> String {
    let prefix = full.strip_suffix(given).unwrap_or("");
    let guess = match (nearest(given, allowed), below) {
        (Some(name), _) => format!(", did you mean '{prefix}{name}'?"),
        (None, [_, ..]) => format!(", did you mean '{}'?", below.join("' or '")),
        (None, []) => String::new(),
    };
    let list = if allowed.is_empty() { "none".to_string() } else { allowed.join(", ") };
    format!("unknown key '{full}'{guess} (allowed {place}: {list})")
}

/// A description of a value, for messages.
pub fn describe(value: &Value) -> String {
    match value {
        Value::String(_) => format!("the string {value}"),
        Value::Integer(_) => format!("the integer {value}"),
        Value::Float(_) => format!("the number {value}"),
        Value::Boolean(_) => format!("the boolean {value}"),
        Value::Datetime(_) => format!("the date {value}"),
        Value::Array(_) => "a list".to_string(),
        Value::Table(_) => "a table".to_string(),
    }
}

/// A value on one line, truncated if it is long.
fn short(value: &Value) -> String {
    let text = value.to_string().replace('\n', " ");
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
