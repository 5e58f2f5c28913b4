//! Model files: safetensors with PyTorch's names and shapes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};

use crate::error::Error;
use crate::layout::{Layout, Params, Tensor};
use crate::model::Model;

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

/// Writes a model. The file appears whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub fn save(path: &Path, layout: &Layout, params: &Params, metadata: &BTreeMap<String, String>) -> Result<(), Error> {
    write(path, &[(layout, params)], metadata)
}

/// Writes a model with its frozen weights. The file appears whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub fn save_model(
    path: &Path,
    model: &Model,
    params: &[f32],
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    write(path, &[(model.frozen_layout(), model.frozen()), (model.layout(), params)], metadata)
}

fn write(path: &Path, parts: &[(&Layout, &[f32])], metadata: &BTreeMap<String, String>) -> Result<(), Error> {
    let tensors = parts.iter().flat_map(|&(layout, values)| {
        layout.tensors().iter().map(move |t| (t.name.as_str(), Slice { shape: &t.shape, data: &values[t.range()] }))
    });
    // One entry, because the format's library writes several in an order that changes from run to run.
    let lines: Vec<String> = metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let metadata = (!lines.is_empty()).then(|| HashMap::from([("fedelity".to_owned(), lines.join("\n"))]));
    let bytes = safetensors::serialize(tensors, metadata)
        .map_err(|e| Error::BadFile { reason: e.to_string(), path: path.to_owned() })?;
    let io = |source| Error::Io { source, path: path.to_owned() };
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let written = fs::File::create(partial).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(partial, path)).map_err(|e| {
        // The first error is the one to report.
        let _ = fs::remove_file(partial);
        io(e)
    })
}

/// Reads a model for this layout: every tensor must be there, as f32, in the right shape, and none more.
///
/// # Errors
/// When the file cannot be read or does not fit the layout.
pub fn load(path: &Path, layout: &Layout) -> Result<Params, Error> {
    let bytes = fs::read(path).map_err(|source| Error::Io { source, path: path.to_owned() })?;
    let bad = |reason: String| Error::BadFile { reason, path: path.to_owned() };
    let file = SafeTensors::deserialize(&bytes).map_err(|e| bad(format!("not a safetensors file ({e})")))?;
    let mut params = Params(vec![0.0; layout.len()]);
    for tensor in layout.tensors() {
        let view = file.tensor(&tensor.name).map_err(|_| bad(format!("tensor {:?} is missing", tensor.name)))?;
        copy(&mut params[tensor.range()], tensor, &view).map_err(bad)?;
    }
    if let Some(extra) = file.names().iter().find(|name| !layout.tensors().iter().any(|t| t.name == **name)) {
        return Err(bad(format!("tensor {extra:?} does not belong to this model")));
    }
    Ok(params)
}

/// Fills a tensor's part of the parameters, if the file's has the same shape.
pub(crate) fn copy(part: &mut [f32], tensor: &Tensor, view: &TensorView<'_>) -> Result<(), String> {
    if view.shape() != tensor.shape || view.dtype() != Dtype::F32 {
        let (name, dtype, found, shape) = (&tensor.name, view.dtype(), view.shape(), &tensor.shape);
        return Err(format!("tensor {name:?} is {dtype:?} {found:?}, expected F32 {shape:?}"));
    }
    for (value, bytes) in part.iter_mut().zip(view.data().chunks_exact(4)) {
        *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(())
}
