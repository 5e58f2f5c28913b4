//! Keys, and the tables that contain them.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::KeyError;

/// A key of a configuration, for documentation and for [`Schema::fill`].
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    /// Its description. The first paragraph is the summary.
    pub about: &'static str,
    pub value: ValueType,
    /// Whether it may be absent.
    pub optional: bool,
    /// As TOML.
    pub default: Option<&'static str>,
    pub bounds: Bounds,
    /// What is expected, if it does not follow from the type.
    pub what: &'static str,
    /// The symbol in the paper.
    pub symbol: &'static str,
    /// The paper's value.
    pub paper: &'static str,
    /// The field's statement about 0; see [`Key::at_zero`].
    pub zero: Option<AtZero>,
    /// The key that this one depends on, and which of its values allow it.
    pub only: Option<Condition>,
    /// The key that removes this one's default, and which of its values do.
    pub unless: Option<Condition>,
    /// The key of the same table that this one replaces: only one of them may be given.
    pub instead: Option<&'static str>,
}

/// Another key, and a predicate on its value.
pub type Condition = (&'static str, fn(&str) -> bool);

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum ValueType {
    Whole,
    /// `single`: used in single precision, and must be in bounds there too.
    Number {
        single: bool,
    },
    Flag,
    Text,
    Path,
    /// One of these.
    Word(&'static [&'static str]),
    /// `len` values of a type, or any number.
    List {
        of: &'static ValueType,
        len: Option<usize>,
    },
    Table(&'static Schema),
    /// One of several types that cannot be confused.
    Either(&'static [ValueType]),
    /// Anything: its reader checks it.
    Raw,
}

/// The bounds of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    pub min: Option<f64>,
    pub above: Option<f64>,
    pub max: Option<f64>,
    pub below: Option<f64>,
}

/// What a number does at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtZero {
    /// FedAvg, bit for bit, once all such keys of the method are 0.
    FedAvg,
    /// Something else, as described.
    Does(&'static str),
    /// It is out of bounds.
    Refused,
    /// There is no 0: the value is a word or a switch.
    None,
}

/// The keys of a table.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    pub keys: &'static [Key],
    pub selectors: &'static [Selector],
}

impl Schema {
    /// The keys with this name in its sections.
    pub(crate) fn below(&self, name: &str) -> Vec<String> {
        let has = |schema: &Schema| {
            let of_variants = schema.selectors.iter().flat_map(|one| one.variants).flat_map(|variant| variant.keys);
            schema.selectors.iter().any(|one| one.name == name)
                || schema.keys.iter().chain(of_variants).any(|key| key.name == name)
        };
        let place = |key: &Key| match key.value {
            ValueType::Table(inner) if has(inner) => Some(format!("{}.{name}", key.name)),
            _ => None,
        };
        self.keys.iter().filter_map(place).collect()
    }
}

/// A key whose value decides which other keys exist.
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    pub name: &'static str,
    pub about: &'static str,
    /// As TOML.
    pub default: Option<&'static str>,
    pub variants: &'static [Variant],
}

/// A value of a selector, and its keys.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub words: &'static [&'static str],
    pub about: &'static str,
    pub keys: &'static [Key],
}

/// A struct whose fields are the keys of a table.
pub trait Keys: Typed + DeserializeOwned {
    const SCHEMA: &'static Schema;

    /// Rejects combinations that no single key can; the error names a key of this table.
    fn check(&self) -> Result<(), KeyError> {
        Ok(())
    }
}

/// An enum that is a selector.
pub trait Selected {
    const SELECTOR: Selector;

    /// Checks the chosen table with [`Keys::check`].
    fn verify(&self) -> Result<(), KeyError> {
        Ok(())
    }
}

/// An enum whose values are words.
pub trait Choice {
    const WORDS: &'static [&'static str];
}

/// A type that a key's value can have.
pub trait Typed {
    const TYPE: ValueType;
    const OPTIONAL: bool = false;

    /// Checks a table and the tables in it with [`Keys::check`].
    fn verify(&self) -> Result<(), KeyError> {
        Ok(())
    }
}

macro_rules! typed {
    ($($rust:ty => $value:expr),* $(,)?) => {
        $(impl Typed for $rust {
            const TYPE: ValueType = $value;
        })*
    };
}

typed! {
    usize => ValueType::Whole,
    u64 => ValueType::Whole,
    f32 => ValueType::Number { single: true },
    f64 => ValueType::Number { single: false },
    bool => ValueType::Flag,
    String => ValueType::Text,
    PathBuf => ValueType::Path,
    (usize, usize) => ValueType::List { of: &ValueType::Whole, len: Some(2) },
    toml::Value => ValueType::Raw,
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: ValueType = T::TYPE;
    const OPTIONAL: bool = true;

    fn verify(&self) -> Result<(), KeyError> {
        self.as_ref().map_or(Ok(()), T::verify)
    }
}

impl<T: Typed> Typed for Vec<T> {
    const TYPE: ValueType = ValueType::List { of: &T::TYPE, len: None };
}

impl Bounds {
    pub const NONE: Self = Self { min: None, above: None, max: None, below: None };

    pub fn hold(&self, number: f64) -> bool {
        self.min.is_none_or(|min| number >= min)
            && self.above.is_none_or(|above| number > above)
            && self.max.is_none_or(|max| number <= max)
            && self.below.is_none_or(|below| number < below)
    }

    /// In words, with a leading space; empty if there are none.
    fn words(&self) -> String {
        let part = |words: &str, bound: Option<f64>| bound.map(|bound| format!("{words} {bound}"));
        let parts = [
            part("of at least", self.min),
            part("above", self.above),
            part("of at most", self.max),
            part("below", self.below),
        ];
        let text =
            parts.into_iter().flatten().collect::<Vec<_>>().join(" and ").replace("and of at most", "and at most");
        if text.is_empty() { text } else { format!(" {text}") }
    }
}

impl Key {
    /// What is expected, in words.
    pub fn expected(&self) -> String {
        if self.what.is_empty() { self.value.expected(&self.bounds) } else { self.what.to_string() }
    }

    /// What it does at 0, if it is a number.
    pub fn at_zero(&self) -> AtZero {
        let number = match self.value {
            ValueType::Either(types) => types.iter().any(ValueType::is_number),
            ref value => value.is_number(),
        };
        match self.zero {
            _ if !number => AtZero::None,
            Some(zero) => zero,
            None if self.bounds.hold(0.0) => AtZero::Does(""),
            None => AtZero::Refused,
        }
    }

    /// The summary: the first paragraph of its description.
    pub fn summary(&self) -> &'static str {
        self.about.lines().next().unwrap_or("")
    }
}

impl ValueType {
    fn change_paths(&self, value: &mut Value, change: &dyn Fn(&mut String)) {
        match (self, value) {
            (Self::Path, Value::String(path)) => change(path),
            (Self::List { of, .. }, Value::Array(items)) => {
                items.iter_mut().for_each(|item| of.change_paths(item, change));
            }
            (Self::Table(schema), Value::Table(table)) => schema.change_paths(table, change),
            (Self::Either(types), value) => {
                if let Some(one) = types.iter().find(|one| one.looks_like(value)) {
                    one.change_paths(value, change);
                }
            }
            // Values of the wrong type are rejected elsewhere.
            (Self::Path | Self::List { .. } | Self::Table(_), _) => {}
            (Self::Whole | Self::Number { .. } | Self::Flag | Self::Text | Self::Word(_) | Self::Raw, _) => {}
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Whole | Self::Number { .. })
    }

    /// What is expected, in words.
    pub fn expected(&self, bounds: &Bounds) -> String {
        let range = bounds.words();
        match self {
            Self::Whole if *bounds == Bounds::NONE => "a whole number of at least 0".to_string(),
            Self::Whole => format!("a whole number{range}"),
            Self::Number { .. } if bounds.max.or(bounds.below).is_some() => format!("a number{range}"),
            Self::Number { .. } => format!("a finite number{range}"),
            Self::Flag => "true or false".to_string(),
            Self::Text => "a text".to_string(),
            Self::Path => "a path".to_string(),
            Self::Word([word]) => format!("\"{word}\""),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::List { of, len } => {
                let each = of.expected(bounds);
                let each = each.strip_prefix("a ").map_or(each.clone(), |each| each.replacen("number", "numbers", 1));
                len.map_or(format!("a list of {each}"), |len| format!("a list of {len} {each}"))
            }
            Self::Table(_) => "a table".to_string(),
            Self::Either(types) => types.iter().map(|one| one.expected(bounds)).collect::<Vec<_>>().join(", or "),
            Self::Raw => "a table, or a list of tables".to_string(),
        }
    }
}

impl Schema {
    /// The names of all keys: each selector with the keys of its variants, then those that always exist.
    pub fn names(&self) -> Vec<&'static str> {
        let own = |selector: &'static Selector| selector.variants.iter().flat_map(|variant| variant.keys);
        let selected = self.selectors.iter().flat_map(|one| [one.name].into_iter().chain(own(one).map(|key| key.name)));
        let mut names: Vec<&'static str> = Vec::new();
        for name in selected.chain(self.keys.iter().map(|key| key.name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The values of a key that satisfy a condition, if its values are words.
    pub fn words_where(&self, (name, fits): Condition) -> Vec<&'static str> {
        let selected = self.selectors.iter().filter(|selector| selector.name == name).flat_map(Selector::words);
        let own = self.key(name).map_or(&[][..], |key| match key.value {
            ValueType::Word(words) => words,
            _ => &[],
        });
        selected.chain(own.iter().copied()).filter(|word| fits(word)).collect()
    }

    /// The pairs of keys that exclude each other, by dotted path.
    pub fn alternatives(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for key in self.keys {
            found.extend(key.instead.map(|other| (key.name.to_string(), other.to_string())));
            if let ValueType::Table(inner) = key.value {
                let below = |name: String| format!("{}.{name}", key.name);
                found.extend(inner.alternatives().into_iter().map(|(one, other)| (below(one), below(other))));
            }
        }
        found
    }

    /// Changes every path in a filled table.
    pub fn change_paths(&self, table: &mut Table, change: &dyn Fn(&mut String)) {
        let mut keys: Vec<&Key> = self.keys.iter().collect();
        for selector in self.selectors {
            let word = table.get(selector.name).and_then(Value::as_str).unwrap_or_default();
            let chosen = selector.variants.iter().filter(|variant| variant.words.contains(&word));
            keys.extend(chosen.flat_map(|variant| variant.keys));
        }
        for key in keys {
            if let Some(value) = table.get_mut(key.name) {
                key.value.change_paths(value, change);
            }
        }
    }

    /// A key by its name, among those that always exist.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Selector {
    /// All its allowed values.
    pub fn words(&self) -> Vec<&'static str> {
        self.variants.iter().flat_map(|variant| variant.words).copied().collect()
    }

    /// Its values with which a key exists.
    pub fn words_with(&self, name: &str) -> Vec<&'static str> {
        let with = |variant: &'static Variant| {
            let keys = variant.keys.iter().filter(move |key| key.name == name);
            keys.flat_map(|key| variant.words_of(key, self.name))
        };
        self.variants.iter().flat_map(with).collect()
    }
}

impl Variant {
    /// Its words with which one of its keys exists. `selector` is the name of the selector.
    pub fn words_of(&self, key: &Key, selector: &str) -> Vec<&'static str> {
        let fits = |word: &&str| key.only.is_none_or(|(other, fits)| other != selector || fits(word));
        self.words.iter().copied().filter(fits).collect()
    }
}
