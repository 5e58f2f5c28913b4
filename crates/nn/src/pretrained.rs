//! Encoders from a folder in Hugging Face format: config.json and model.safetensors.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::Value;

use crate::architecture::BlockNames;
use crate::checkpoint;
use crate::encoder::{EncoderShape, MOST_LAYERS};
use crate::error::NnError;
use crate::layout::{Layout, Params, Tensor};
use crate::model::{InitialWeights, Model};

/// File with the sizes of the encoder.
const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
/// A tensor that every encoder has.
const WORDS: &str = "embeddings.word_embeddings.weight";

/// Tensors that a file may have but that are not used: BERT's pooler, position IDs, and the heads of other tasks.
const IGNORED: &[&str] =
    &["pooler.", "embeddings.position_ids", "cls.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector."];

/// The layers on top of the encoder. They are initialised at random if the file lacks them.
const HEAD: &[&str] = &["pre_classifier.", "projection.", "classifier."];

/// A folder with an encoder.
#[derive(Clone, Debug)]
pub struct Pretrained {
    folder: PathBuf,
    shape: EncoderShape,
    vocabulary: usize,
    bytes: Vec<u8>,
}

impl Pretrained {
    /// Opens a folder with a model of the BERT or DistilBERT family.
    ///
    /// # Errors
    /// When a file is missing or invalid.
    pub fn open(folder: &Path) -> Result<Self, NnError> {
        let path = folder.join(CONFIG);
        let text = fedelity_files::read_text(&path, fedelity_files::TEXT)
            .map_err(|source| NnError::Io { source, path: path.clone() })?;
        let (shape, vocabulary) = shape(&text).map_err(|reason| NnError::BadFile { reason, path })?;
        let path = folder.join(WEIGHTS);
        let bytes = checkpoint::read(&path, fedelity_files::WEIGHTS)?;
        let mut found = Self { folder: folder.to_owned(), shape, vocabulary, bytes };
        let prefix = {
            let file = found.file()?;
            let name = file.names().into_iter().find_map(|name| name.strip_suffix(WORDS));
            name.map(str::to_owned)
                .ok_or_else(|| found.bad(format!("tensor {WORDS:?} is missing: not a BERT or DistilBERT model")))?
        };
        found.shape.prefix = prefix;
        let (claimed, held) = (found.claimed(), found.bytes.len() / 2);
        if claimed > held as u128 {
            let reason = format!("the sizes in {CONFIG} are those of {claimed} weights, but the file can hold {held}");
            return Err(found.bad(reason));
        }
        Ok(found)
    }

    /// The matrices of the encoder by its sizes, in numbers. A number in the file takes two bytes or more.
    fn claimed(&self) -> u128 {
        let EncoderShape { width, hidden, layers, positions, types, .. } = self.shape;
        let [width, hidden, layers, rows] =
            [width, hidden, layers, self.vocabulary + positions + types].map(|size| size as u128);
        width * (rows + layers * (4 * width + 2 * hidden))
    }

    #[must_use]
    pub fn shape(&self) -> &EncoderShape {
        &self.shape
    }

    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The file with the weights in a folder.
    #[must_use]
    pub fn weights_file(folder: &Path) -> PathBuf {
        folder.join(WEIGHTS)
    }

    /// The path of config.json.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// Loads the weights into a model built with this shape. Layers on top that the file lacks are initialised at
    /// random.
    ///
    /// # Errors
    /// When a tensor is missing, has a different shape, or belongs to no part of the model.
    pub fn load(&self, model: Model) -> Result<Model, NnError> {
        let file = self.file()?;
        let (params, given) = self.read(&file, model.layout())?;
        let (frozen, _) = self.read(&file, model.frozen_layout())?;
        let known = |name: &str| {
            let rest = name.strip_prefix(&self.shape.prefix).unwrap_or(name);
            let tensors = || model.layout().tensors().iter().chain(model.frozen_layout().tensors());
            let ignored = |part: &&&str| rest.starts_with(**part) || name.starts_with(**part);
            IGNORED.iter().find(ignored).is_some() || tensors().any(|t| t.name == name || old_name(&t.name) == name)
        };
        let mut names = file.names();
        names.sort_unstable();
        if let Some(extra) = names.into_iter().find(|name| !known(name)) {
            return Err(self.bad(format!("tensor {extra:?} does not belong to model {:?}", model.name())));
        }
        Ok(model.with_weights(frozen, InitialWeights { params, given }))
    }

    /// The tensors of a layout, and whether the file has each of them.
    fn read(&self, file: &SafeTensors<'_>, layout: &Layout) -> Result<(Params, Vec<bool>), NnError> {
        let find = |tensor: &Tensor| {
            let name = &tensor.name;
            let view = file.tensor(name).or_else(|_| file.tensor(&old_name(name))).ok();
            match &view {
                Some(view) => checkpoint::fits(tensor, view).map_err(|reason| self.bad(reason))?,
                None if HEAD.iter().any(|part| name.starts_with(part)) => {}
                None => return Err(self.bad(format!("tensor {name:?} is missing"))),
            }
            Ok(view)
        };
        // Everything is checked before memory is taken: config.json can claim any size.
        let views = layout.tensors().iter().map(find).collect::<Result<Vec<_>, NnError>>()?;
        let mut values = Params(vec![0.0; layout.len()]);
        for (tensor, view) in layout.tensors().iter().zip(&views) {
            if let Some(view) = view {
                checkpoint::copy(&mut values[tensor.range()], view);
            }
        }
        Ok((values, views.iter().map(Option::is_some).collect()))
    }

    fn file(&self) -> Result<SafeTensors<'_>, NnError> {
        SafeTensors::deserialize(&self.bytes).map_err(|e| self.bad(format!("not a safetensors file ({e})")))
    }

    fn bad(&self, reason: String) -> NnError {
        NnError::BadFile { reason, path: self.folder.join(WEIGHTS) }
    }
}

/// The names of scale and shift of a normalisation in early BERT files.
fn old_name(name: &str) -> String {
    name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
}

/// The sizes in a config.json, and the size of the vocabulary.
fn shape(text: &str) -> Result<(EncoderShape, usize), String> {
    let config: Value = serde_json::from_str(text).map_err(|e| format!("not JSON ({e})"))?;
    let names = match config.get("model_type").and_then(Value::as_str) {
        Some("bert") => BlockNames::Bert,
        Some("distilbert") => BlockNames::DistilBert,
        Some(other) => return Err(format!("model_type is {other:?}, expected \"bert\" or \"distilbert\"")),
        None => return Err("model_type is missing, expected \"bert\" or \"distilbert\"".to_string()),
    };
    let bert = names == BlockNames::Bert;
    let pick = |a: &'static str, b: &'static str| if bert { a } else { b };
    let size = |key: &str| match config.get(key).and_then(Value::as_u64) {
        Some(value @ 1..=1_000_000_000) => Ok(value as usize),
        _ => Err(format!("{key} is {}, expected a whole number above 0", shown(config.get(key)))),
    };
    let share = |key: &str, default: f64| match config.get(key) {
        None | Some(Value::Null) => Ok(default as f32),
        Some(value) => value
            .as_f64()
            .filter(|p| (0.0..1.0).contains(p))
            .map(|p| p as f32)
            .ok_or_else(|| format!("{key} is {value}, expected a number from 0 to below 1")),
    };
    let only = |key: &str, value: &str| match config.get(key) {
        None | Some(Value::Null) => Ok(()),
        Some(found) if found == value => Ok(()),
        Some(found) => Err(format!("{key} is {found}, but only \"{value}\" is supported")),
    };
    only(pick("hidden_act", "activation"), "gelu")?;
    only("position_embedding_type", "absolute")?;
    let shape = EncoderShape {
        names,
        prefix: String::new(),
        width: size(pick("hidden_size", "dim"))?,
        layers: size(pick("num_hidden_layers", "n_layers"))?,
        heads: size(pick("num_attention_heads", "n_heads"))?,
        hidden: size(pick("intermediate_size", "hidden_dim"))?,
        positions: size("max_position_embeddings")?,
        types: if bert { size("type_vocab_size")? } else { 0 },
        eps: share("layer_norm_eps", 1e-12)?,
        dropout: share(pick("hidden_dropout_prob", "dropout"), 0.1)?,
        attention_dropout: share(pick("attention_probs_dropout_prob", "attention_dropout"), 0.1)?,
        head_dropout: share("seq_classif_dropout", 0.2)?,
    };
    if shape.layers > MOST_LAYERS {
        let key = pick("num_hidden_layers", "n_layers");
        return Err(format!("{key} is {}, expected at most {MOST_LAYERS}", shape.layers));
    }
    if !shape.width.is_multiple_of(shape.heads) {
        return Err(format!("{} heads do not divide a width of {}", shape.heads, shape.width));
    }
    Ok((shape, size("vocab_size")?))
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("missing".to_owned(), Value::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_encoder_has_are_refused_before_memory_is_taken() {
        let config = |layers: u64| {
            let text = r#"{"model_type": "bert", "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8,
                "max_position_embeddings": 16, "type_vocab_size": 2, "vocab_size": 30, "num_hidden_layers": "#;
            shape(&format!("{text}{layers}}}"))
        };
        assert_eq!(config(1_000).unwrap().0.layers, 1_000);
        for layers in [1_001, 1_000_000_000] {
            let reason = config(layers).unwrap_err();
            assert_eq!(reason, format!("num_hidden_layers is {layers}, expected at most 1000"));
        }
        assert!(config(0).is_err() && config(u64::MAX).is_err());
    }
}
