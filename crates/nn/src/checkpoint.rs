//! Model files: safetensors with PyTorch's tensor names and shapes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};
use serde::Deserialize;

use crate::card::Card;
use crate::error::NnError;
use crate::layout::{Layout, Params, Tensor};
use crate::model::Model;

/// Suffix of tensors found only in PyTorch's files.
const COUNT: &str = ".num_batches_tracked";

/// Metadata key of the [`Card`], stored as JSON.
const CARD: &str = "fedelity";

/// The safetensors crate rejects longer headers.
const LONGEST_HEADER: u64 = 100_000_000;

/// Bytes that a file may have more than a model needs and still be read.
const MUCH: u64 = 1 << 26;

/// A file's header.
#[derive(Deserialize)]
struct FileHeader {
    #[serde(rename = "__metadata__", default)]
    metadata: BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: HashMap<String, Place>,
}

/// Where a tensor is, after the header.
#[derive(Deserialize)]
struct Place {
    data_offsets: (u64, u64),
}

/// The header of a file, and its length with what says how long it is.
fn header(path: &Path, file: &mut File) -> Result<(FileHeader, u64), NnError> {
    let io = |source| NnError::Io { source, path: path.to_owned() };
    let bad = |reason: String| NnError::BadFile { reason, path: path.to_owned() };
    let mut bytes = Vec::new();
    Read::by_ref(file).take(8).read_to_end(&mut bytes).map_err(io)?;
    let length = <[u8; 8]>::try_from(&bytes[..]).map_or(u64::MAX, u64::from_le_bytes);
    if length > LONGEST_HEADER {
        return Err(bad("not a safetensors file".to_owned()));
    }
    Read::by_ref(file).take(length).read_to_end(&mut bytes).map_err(io)?;
    let header = serde_json::from_slice(&bytes[8..]).map_err(|e| bad(format!("not a safetensors file ({e})")))?;
    Ok((header, bytes.len() as u64))
}

/// Reads a file that is as long as its header says, with tensors of at most this many bytes. What only has holes where
/// tensors should be takes no memory.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, NnError> {
    let io = |source| NnError::Io { source, path: path.to_owned() };
    let bad = |reason: String| NnError::BadFile { reason, path: path.to_owned() };
    let mut file = fedelity_files::open(path).map_err(io)?;
    let (header, start) = header(path, &mut file)?;
    let tensors = header.tensors.values().map(|place| place.data_offsets.1).max().unwrap_or(0);
    let (found, said) = (file.metadata().map_err(io)?.len(), start.saturating_add(tensors));
    if found != said {
        return Err(bad(format!("its header describes {said} bytes, but it has {found}")));
    }
    if tensors > most {
        return Err(bad(format!("it has {tensors} bytes of tensors; this model has at most {most}")));
    }
    fedelity_files::read(path, found).map_err(io)
}

struct Slice<'a> {
    shape: &'a [usize],
    data: &'a [f32],
}

impl View for Slice<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.data.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    fn data_len(&self) -> usize {
        size_of_val(self.data)
    }
}

/// Writes a model atomically.
///
/// # Errors
/// When the file cannot be written.
pub fn save(path: &Path, layout: &Layout, params: &Params, card: Option<&Card>) -> Result<(), NnError> {
    write(path, &[(layout, params)], card)
}

/// Writes a model with its frozen weights, atomically.
///
/// # Errors
/// When the file cannot be written.
pub fn save_model(path: &Path, model: &Model, params: &[f32], card: Option<&Card>) -> Result<(), NnError> {
    write(path, &parts(model, params), card)
}

/// What [`save_model`] writes.
///
/// # Errors
/// When the weights do not fit into the format.
pub fn model_bytes(model: &Model, params: &[f32], card: Option<&Card>) -> Result<Vec<u8>, NnError> {
    serialised(&parts(model, params), card)
        .map_err(|reason| NnError::DoesNotFit { model: model.name().to_owned(), reason })
}

/// All weights of a model, the frozen ones first.
fn parts<'a>(model: &'a Model, params: &'a [f32]) -> [(&'a Layout, &'a [f32]); 2] {
    [(model.frozen_layout(), model.frozen()), (model.layout(), params)]
}

fn write(path: &Path, parts: &[(&Layout, &[f32])], card: Option<&Card>) -> Result<(), NnError> {
    let bad = |reason: String| NnError::BadFile { reason, path: path.to_owned() };
    let bytes = serialised(parts, card).map_err(bad)?;
    fedelity_files::write(path, &bytes).map_err(|source| NnError::Io { source, path: path.to_owned() })
}

fn serialised(parts: &[(&Layout, &[f32])], card: Option<&Card>) -> Result<Vec<u8>, String> {
    let tensors = parts.iter().flat_map(|&(layout, values)| {
        layout.tensors().iter().map(move |t| (t.name.as_str(), Slice { shape: &t.shape, data: &values[t.range()] }))
    });
    let card = card.map(serde_json::to_string).transpose().map_err(|error| error.to_string())?;
    // A single entry: the safetensors crate writes several in an order that changes from run to run.
    let metadata = card.map(|card| HashMap::from([(CARD.to_owned(), card)]));
    safetensors::serialize(tensors, metadata).map_err(|error| error.to_string())
}

/// The description of the model in a file; `None` if there is none, as in files from other programs.
///
/// # Errors
/// When the file or its description cannot be read.
pub fn card(path: &Path) -> Result<Option<Card>, NnError> {
    let bad = |reason: String| NnError::BadFile { reason, path: path.to_owned() };
    let mut file = fedelity_files::open(path).map_err(|source| NnError::Io { source, path: path.to_owned() })?;
    let (header, _) = header(path, &mut file)?;
    let Some(text) = header.metadata.get(CARD) else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|e| bad(format!("its description cannot be read ({e})")))
}

/// Reads a model with this layout. The file must have exactly these tensors, with the right shapes.
///
/// # Errors
/// When the file cannot be read or does not fit the layout.
pub fn load(path: &Path, layout: &Layout) -> Result<Params, NnError> {
    // A file of another model is refused below, with the tensor that differs, unless it is much larger.
    let bytes = read(path, 8 * layout.len() as u64 + MUCH)?;
    let bad = |reason: String| NnError::BadFile { reason, path: path.to_owned() };
    let file = SafeTensors::deserialize(&bytes).map_err(|e| bad(format!("not a safetensors file ({e})")))?;
    // Check everything before allocating memory: a file can claim to be larger than it is.
    let views: Result<Vec<TensorView<'_>>, NnError> = layout
        .tensors()
        .iter()
        .map(|tensor| {
            let view = file.tensor(&tensor.name).map_err(|_| bad(format!("tensor {:?} is missing", tensor.name)))?;
            fits(tensor, &view).map(|()| view).map_err(bad)
        })
        .collect();
    let mut params = Params(vec![0.0; layout.len()]);
    for (tensor, view) in layout.tensors().iter().zip(views?) {
        copy(&mut params[tensor.range()], &view);
    }
    // PyTorch counts the batches behind a running statistic; nothing here reads the count.
    let known = |name: &str| name.ends_with(COUNT) || layout.tensors().iter().any(|t| t.name == name);
    if let Some(extra) = file.names().into_iter().find(|name| !known(name)) {
        return Err(bad(format!("tensor {extra:?} does not belong to this model")));
    }
    Ok(params)
}

/// Whether a tensor in a file has the expected shape and a supported number type.
pub(crate) fn fits(tensor: &Tensor, view: &TensorView<'_>) -> Result<(), String> {
    if view.shape() != tensor.shape || !matches!(view.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) {
        let (name, dtype, found, shape) = (&tensor.name, view.dtype(), view.shape(), &tensor.shape);
        return Err(format!("tensor {name:?} is {dtype:?} {found:?}, expected F32 {shape:?}"));
    }
    Ok(())
}

/// Copies a tensor that [`fits`] into its part of the parameters. Half-precision numbers become f32.
pub(crate) fn copy(part: &mut [f32], view: &TensorView<'_>) {
    let (wide, _) = view.data().as_chunks::<4>();
    let (narrow, _) = view.data().as_chunks::<2>();
    match view.dtype() {
        Dtype::F16 => part.iter_mut().zip(narrow).for_each(|(value, b)| *value = f16::from_le_bytes(*b).to_f32()),
        Dtype::BF16 => part.iter_mut().zip(narrow).for_each(|(value, b)| *value = bf16::from_le_bytes(*b).to_f32()),
        _ => part.iter_mut().zip(wide).for_each(|(value, b)| *value = f32::from_le_bytes(*b)),
    }
}
