//! A model of one's own, read from its file.

use std::io::Read;
use std::path::Path;

use fedelity_nn::{Architecture, InputShape, LayerList, MOST_BYTES, ModelFile};

use crate::ExperimentError;
use crate::config::{Document, ModelKeys};
use crate::error::Result;

/// The layers of a model file, with the place of each value for messages.
pub(crate) struct OwnModel {
    pub(crate) file: ModelFile,
    pub(crate) name: String,
    places: Document,
}

/// Reads a model file.
pub fn model_file(path: &Path) -> Result<ModelFile> {
    OwnModel::read(path, |reason| ExperimentError::path(path, reason)).map(|own| own.file)
}

/// The model of a file for inputs like `image` or, if it reads texts, like `text`.
pub fn own_architecture(
    path: &Path,
    image: InputShape,
    text: InputShape,
    classes: usize,
    projection: bool,
) -> Result<Architecture> {
    let own = OwnModel::read(path, |reason| ExperimentError::path(path, reason))?;
    let input = match (text, own.file.positions()) {
        _ if !own.file.reads_text() => image,
        (InputShape::Tokens { vocabulary, max_length }, Some(most)) => {
            InputShape::Tokens { vocabulary, max_length: max_length.min(most) }
        }
        _ => text,
    };
    let data = match input {
        InputShape::Image { channels, height, width } => format!("images of {channels}x{height}x{width}"),
        InputShape::Tokens { max_length, .. } => format!("texts of up to {max_length} tokens"),
    };
    own.architecture(input, classes, projection, &data)
}

impl OwnModel {
    /// The model of `model.file`, if the configuration has one.
    pub(crate) fn of(document: &Document, keys: &ModelKeys) -> Result<Option<Self>> {
        let Some(path) = &keys.file else { return Ok(None) };
        let wrong =
            |reason: String| document.error("model.file", format!("model.file = \"{}\": {reason}", path.display()));
        Self::read(path, wrong).map(Some)
    }

    /// Reads a file; `wrong` makes the error if it cannot be read.
    pub(crate) fn read(path: &Path, wrong: impl Fn(String) -> ExperimentError) -> Result<Self> {
        let mut bytes = Vec::new();
        let most = MOST_BYTES as u64 + 1;
        fedelity_files::open(path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(|error| wrong(format!("cannot read it: {error}")))?;
        if bytes.len() > MOST_BYTES {
            return Err(wrong(format!("it has more than {MOST_BYTES} bytes, too many for a model file")));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not a text file".to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let places = Document::parse(path.display().to_string(), folder, &text)?;
        let mut file = ModelFile::read(places.table()).map_err(|error| match error.key.as_str() {
            "" => wrong(error.message),
            _ => places.key_error(&error),
        })?;
        let stem = || path.file_stem().map_or_else(|| "own".to_string(), |stem| stem.to_string_lossy().into_owned());
        let name = file.name.clone().unwrap_or_else(stem);
        file.name = Some(name.clone());
        Ok(Self { file, name, places })
    }

    /// The model for inputs of this shape; `data` describes them in messages.
    pub(crate) fn architecture(
        &self,
        input: InputShape,
        classes: usize,
        projection: bool,
        data: &str,
    ) -> Result<Architecture> {
        let built = self.file.architecture(&self.name, input, classes, projection);
        built.map_err(|misfit| {
            let key = misfit.place.key();
            let key = if key.is_empty() { LayerList::Layers.key() } else { &key };
            self.places.error(key, format!("{misfit} (the data: {data})"))
        })
    }
}
