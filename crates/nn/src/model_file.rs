//! A model as a file: its layers in TOML.
//!
//! Every model of the zoo can be written in this form, and reading it back gives the same model. A saved model of one's
//! own keeps this text in its description.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fedelity_keys::toml::{Table, Value};
use fedelity_keys::{KeyError, Selected, describe, keys, read};

use crate::activation;
use crate::architecture::{Architecture, InputShape, Layer, Node};
use crate::encoder::PROJECTION;
use crate::layer_keys::{LayerKeys, LayerKind};
use crate::place::{LayerList, LayerPlace, Misfit};
use crate::tensor_name;

/// The keys of a model file outside its layers.
#[keys]
pub struct ModelFileKeys {
    /// What the model is called in tables and records; by default, the name of its file.
    pub name: Option<String>,
    /// The name of the last layer, which is added automatically: a dense layer from the features to the classes.
    #[key(default = "head")]
    pub head: String,
    /// The layers from the input to the features, in order.
    #[key(what = "a list of layers, such as [{ kind = \"flatten\" }]")]
    pub layers: Value,
}

/// Largest model file, in bytes.
pub const MOST_BYTES: usize = 1 << 18;
/// Most layers of a model file, those of residual layers included.
const MOST_LAYERS: usize = 4096;
/// Most residual layers around a layer.
const MOST_DEPTH: usize = 16;
const LONGEST_NAME: usize = 60;

/// The layers of a model, which may still be put on any input.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    pub name: Option<String>,
    /// Name of the linear layer from the features to the logits.
    pub head: String,
    /// From the input to the features.
    pub layers: Vec<Node>,
}

impl ModelFile {
    /// The layers of a model.
    #[must_use]
    pub fn of(arch: &Architecture) -> Self {
        Self { name: Some(arch.name.clone()), head: arch.head.clone(), layers: arch.extractor.clone() }
    }

    /// Reads the values of a file.
    ///
    /// # Errors
    /// When a key or a value is wrong; the message names the layer, and the key its path in the file.
    pub fn read(table: &Table) -> Result<Self, KeyError> {
        let (ModelFileKeys { name, head, layers }, _) = read::<ModelFileKeys>(table, "", &mut ())?;
        if let Some(name) = &name
            && (name.trim().is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control))
        {
            let expected = format!("a name of 1 to {LONGEST_NAME} characters on one line");
            return Err(KeyError::expected("name", format!("{name:?}"), expected));
        }
        tensor_name::check(&head).map_err(|reason| KeyError::new("head", format!("head = {head:?}: {reason}")))?;
        let mut reader = LayerReader::default();
        let mut nodes = reader.list(&layers, LayerList::Layers, &LayerPlace::default())?;
        name_rest(&mut nodes, &mut reader.taken, &mut BTreeMap::new());
        Ok(Self { name, head, layers: nodes })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// As [`Self::read`], and when the text is not TOML.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("it has more than {MOST_BYTES} bytes"));
        }
        let table: Table = text.parse().map_err(|error: fedelity_keys::toml::de::Error| error.message().to_owned())?;
        Self::read(&table).map_err(|error| error.to_string())
    }

    /// Whether it reads texts.
    #[must_use]
    pub fn reads_text(&self) -> bool {
        self.layers.first().is_some_and(|node| match node.layer {
            Layer::Embedding { .. } | Layer::Embeddings { .. } | Layer::Block { .. } | Layer::Lstm { .. } => true,
            Layer::FirstToken => true,
            Layer::Conv { .. }
            | Layer::Dense { .. }
            | Layer::Relu
            | Layer::MaxPool(_)
            | Layer::AveragePool(_)
            | Layer::GlobalAveragePool
            | Layer::GroupNorm { .. }
            | Layer::BatchNorm
            | Layer::Dropout { .. }
            | Layer::Flatten
            | Layer::Residual { .. } => false,
        })
    }

    /// The length of the longest text that it reads, if it is limited.
    #[must_use]
    pub fn positions(&self) -> Option<usize> {
        self.layers
            .first()
            .and_then(|node| if let Layer::Embeddings { positions, .. } = node.layer { Some(positions) } else { None })
    }

    /// Whether it classifies a text by its first token, so that texts need a start token.
    #[must_use]
    pub fn needs_start_token(&self) -> bool {
        self.layers.iter().any(|node| node.layer == Layer::FirstToken)
    }

    /// The model for inputs of this shape. `projection` puts two more layers before the head.
    ///
    /// # Errors
    /// When a layer does not fit its input, or two tensors would have one name.
    pub fn architecture(
        &self,
        name: &str,
        input: InputShape,
        classes: usize,
        projection: bool,
    ) -> Result<Architecture, Misfit> {
        let (mut extractor, mut head) = (self.layers.clone(), self.head.clone());
        let features = activation::features(&extractor, input, classes)?;
        let mut own = vec![head.as_str()];
        if projection {
            own = vec!["proj1", "proj2", "head"];
        }
        distinct(&extractor, &own)?;
        if projection {
            extractor.extend([
                Node::named("proj1", Layer::Dense { out: features }),
                Node::plain(Layer::Relu),
                Node::named("proj2", Layer::Dense { out: PROJECTION }),
            ]);
            head = "head".to_owned();
        }
        Ok(Architecture { name: name.to_owned(), input, classes, extractor, head })
    }

    /// The text of a file with these layers.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        if let Some(name) = &self.name {
            let _ = writeln!(out, "name = {}", Value::String(name.clone()));
        }
        let _ = writeln!(out, "head = {}\nlayers = [", Value::String(self.head.clone()));
        write_layers(&mut out, &self.layers, 1);
        out.push_str("]\n");
        out
    }
}

/// Reads the layers of a file.
#[derive(Default)]
struct LayerReader {
    count: usize,
    /// The names that layers have been given.
    taken: BTreeSet<String>,
}

impl LayerReader {
    fn list(&mut self, value: &Value, list: LayerList, above: &LayerPlace) -> Result<Vec<Node>, KeyError> {
        let key = if above.depth() == 0 { list.key().to_owned() } else { format!("{}.{}", above.key(), list.key()) };
        let at = if above.depth() == 0 { String::new() } else { format!("{above}: ") };
        let expected = |found: String| {
            KeyError::new(&key, format!("{at}{}: expected a list of layers, found {found}", list.key()))
        };
        let items = value.as_array().ok_or_else(|| expected(describe(value)))?;
        if above.depth() > MOST_DEPTH {
            return Err(KeyError::new(&key, format!("{at}residual layers are nested more than {MOST_DEPTH} deep")));
        }
        self.count += items.len();
        if self.count > MOST_LAYERS {
            return Err(KeyError::new(&key, format!("{at}the file has more than {MOST_LAYERS} layers")));
        }
        let one = |(index, item): (usize, &Value)| {
            let place = above.below(list, index, item.get("kind").and_then(Value::as_str).and_then(known));
            let Value::Table(table) = item else {
                let message =
                    format!("{place}: expected a table such as {{ kind = \"relu\" }}, found {}", describe(item));
                return Err(KeyError::new(place.key(), message));
            };
            self.node(table, &place)
        };
        items.iter().enumerate().map(one).collect()
    }

    fn node(&mut self, table: &Table, place: &LayerPlace) -> Result<Node, KeyError> {
        let at = place.key();
        let (LayerKeys { kind, name }, _) =
            read::<LayerKeys>(table, &at, &mut ()).map_err(|error| in_words(error, &at, place))?;
        let word = kind.name();
        let layer = match kind.layer() {
            Ok(layer) => layer,
            Err((body, shortcut)) => {
                let body = self.list(&body, LayerList::Body, place)?;
                let shortcut = shortcut.map(|shortcut| self.list(&shortcut, LayerList::Shortcut, place)).transpose()?;
                Layer::Residual { body, shortcut: shortcut.unwrap_or_default() }
            }
        };
        let wrong = |reason: String| KeyError::new(format!("{at}.name"), format!("{place}: {reason}"));
        let Some(name) = name else { return Ok(Node::plain(layer)) };
        if !layer.has_weights() {
            return Err(wrong(format!("name = {name:?}: a {word} layer has no weights to name")));
        }
        tensor_name::check(&name).map_err(|reason| wrong(format!("name = {name:?}: {reason}")))?;
        if !self.taken.insert(name.clone()) {
            return Err(wrong(format!("name = {name:?}: another layer has this name")));
        }
        Ok(Node::named(name, layer))
    }
}

/// The word of a kind, if it is one.
fn known(word: &str) -> Option<&'static str> {
    LayerKind::SELECTOR.words().into_iter().find(|known| *known == word)
}

/// The error with the layer's place in words instead of its path.
fn in_words(error: KeyError, at: &str, place: &LayerPlace) -> KeyError {
    let message = error.message.replace(&format!("in [{at}]"), "here").replace(&format!("{at}."), "");
    KeyError { message: format!("{place}: {message}"), ..error }
}

/// Names the layers that have weights but no name: `conv1`, `conv2`, ... `next` is the first number to try for each kind.
fn name_rest(nodes: &mut [Node], taken: &mut BTreeSet<String>, next: &mut BTreeMap<String, usize>) {
    for node in nodes {
        if let Layer::Residual { body, shortcut } = &mut node.layer {
            name_rest(body, taken, next);
            name_rest(shortcut, taken, next);
        }
        if node.layer.has_weights() && node.name.is_empty() {
            let kind = LayerKind::word_of(&node.layer).replace('-', "_");
            let number = next.entry(kind.clone()).or_insert(1);
            while !taken.insert(format!("{kind}{number}")) {
                *number += 1;
            }
            node.name = format!("{kind}{number}");
        }
    }
}

/// Rejects two layers of one name, and a name inside another: PyTorch's modules form a tree.
fn distinct(nodes: &[Node], head: &[&str]) -> Result<(), Misfit> {
    let mut names: Vec<(LayerPlace, &str)> = Vec::new();
    collect(nodes, LayerList::Layers, &LayerPlace::default(), &mut names);
    let all: BTreeSet<&str> = names.iter().map(|(_, name)| *name).chain(head.iter().copied()).collect();
    let mut seen: BTreeSet<&str> = head.iter().copied().collect();
    for (place, name) in names {
        if !seen.insert(name) {
            let reason = format!("the name {name:?} is that of another layer, or of the last one");
            return Err(Misfit { place, reason });
        }
        let above = name.match_indices('.').map(|(dot, _)| &name[..dot]).find(|above| all.contains(above));
        if let Some(above) = above {
            return Err(Misfit { place, reason: format!("the name {name:?} is inside {above:?}, which is a layer") });
        }
    }
    let inside = |name: &&&str| head.iter().any(|head| head.starts_with(&format!("{name}.")));
    match all.iter().find(inside) {
        Some(above) => Err(format!("the name of the last layer is inside {above:?}, which is a layer").into()),
        None => Ok(()),
    }
}

fn collect<'a>(nodes: &'a [Node], list: LayerList, above: &LayerPlace, found: &mut Vec<(LayerPlace, &'a str)>) {
    for (index, node) in nodes.iter().enumerate() {
        let place = above.below(list, index, Some(LayerKind::word_of(&node.layer)));
        if let Layer::Residual { body, shortcut } = &node.layer {
            collect(body, LayerList::Body, &place, found);
            collect(shortcut, LayerList::Shortcut, &place, found);
        }
        if node.layer.has_weights() {
            found.push((place, &node.name));
        }
    }
}

/// One line per layer, the layers of a residual layer below it.
fn write_layers(out: &mut String, nodes: &[Node], depth: usize) {
    let indent = "  ".repeat(depth);
    for node in nodes {
        let kind = LayerKind::of(&node.layer);
        let _ = write!(out, "{indent}{{ kind = \"{}\"", kind.name());
        if node.layer.has_weights() {
            let _ = write!(out, ", name = {}", Value::String(node.name.clone()));
        }
        if let Layer::Residual { body, shortcut } = &node.layer {
            for (list, nodes) in [(LayerList::Body, body), (LayerList::Shortcut, shortcut)] {
                if !nodes.is_empty() || list == LayerList::Body {
                    let _ = writeln!(out, ", {} = [", list.key());
                    write_layers(out, nodes, depth + 1);
                    let _ = write!(out, "{indent}]");
                }
            }
        } else {
            write_keys(out, &kind);
        }
        out.push_str(" },\n");
    }
}

/// The keys that differ from their defaults, in the order of their documentation.
fn write_keys(out: &mut String, kind: &LayerKind) {
    let values = Table::try_from(kind).unwrap_or_default();
    let variant = LayerKind::SELECTOR.variants.iter().find(|variant| variant.words.contains(&kind.name()));
    for key in variant.map_or(&[][..], |variant| variant.keys) {
        let Some(value) = values.get(key.name) else { continue };
        // Every number with a fraction is used in single precision.
        let text = match value {
            Value::Float(number) => format!("{:?}", *number as f32),
            other => other.to_string(),
        };
        if key.default != Some(text.as_str()) {
            let _ = write!(out, ", {} = {text}", key.name);
        }
    }
}
