//! A model from a run folder or a file, with everything needed to use it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use fedelity_data::{Inputs, NewData, Normalisation, Shape, Split};
use fedelity_fl::observe::Portrait;
use fedelity_fl::{Samples, Scaling, Trainer};
use fedelity_nn::{Card, Input, Model, Params, checkpoint};
use fedelity_record::names;

use crate::assemble::text::TextReader;
use crate::assemble::{OwnModel, fit};
use crate::config::{Document, Settings};
use crate::error::Result;
use crate::verify::model_of_another_round;
use crate::{ExperimentError, Resources};

/// Where a model's card has the name of the class to be found, if the configuration named it.
pub(crate) const POSITIVE: &str = "positive";

/// Samples per forward pass.
const CHUNK: usize = 64;

/// A trained model.
pub struct Saved {
    pub path: PathBuf,
    pub card: Card,
    pub model: Arc<Model>,
    pub params: Params,
    /// That its weights are not those of the last round that its run recorded.
    pub stale: Option<String>,
}

impl Saved {
    /// Reads a run folder or a file. A file that does not describe its model needs a configuration that does:
    /// `[model]`, and `[data]` for its input shape and classes.
    ///
    /// `model` is the expected architecture; a file that names another is rejected.
    pub fn open(target: &Path, model: Option<&str>, foreign: Option<&Document>, resources: &Resources) -> Result<Self> {
        let path = file_of(target)?;
        let card = match (checkpoint::card(&path)?, foreign) {
            (Some(card), _) if model.is_some_and(is_model_file) => {
                let (file, wrong) = (model.unwrap_or_default(), |reason| ExperimentError::Config(reason));
                let own = OwnModel::read(Path::new(file), |reason| wrong(format!("--model {file}: {reason}")))?;
                if card.layers != Some(own.file.text()) {
                    return Err(wrong(format!("--model {file}: {} has other layers", path.display())));
                }
                card
            }
            (Some(card), _) if model.is_some_and(|name| name != card.model) => {
                let name = model.unwrap_or_default();
                let message = format!("--model {name}: {} is a {} model", path.display(), card.model);
                return Err(ExperimentError::Config(message));
            }
            (Some(card), _) => card,
            (None, Some(document)) => {
                let settings = Settings::read(document)?;
                let loaded = resources.load(document, &settings.config.data)?;
                fit(document, &settings.config.model, &loaded.dataset, &resources.engine)?.card
            }
            (None, None) => {
                let message = "the file does not describe its model; add --model NAME for the architecture and --data \
                               NAME for its inputs and classes";
                return Err(ExperimentError::path(&path, message));
            }
        };
        let of_file = |error: fedelity_nn::NnError| ExperimentError::path(&path, error.to_string());
        let model = card.architecture().and_then(|arch| Model::compile(&arch, resources.engine.clone()));
        let model = model.map_err(of_file)?;
        let params = checkpoint::load(&path, model.layout())?;
        // A file on its own, or under another name, may be anything.
        let of_a_run = [names::MODEL, names::BEST].iter().any(|name| path.ends_with(name));
        let stale = if of_a_run { model_of_another_round(&path, &params.hash()) } else { None };
        Ok(Self { path, card, model: Arc::new(model), params, stale })
    }

    /// How pixels become numbers.
    pub fn scaling(&self) -> Scaling {
        Scaling::from(&Normalisation { mean: self.card.mean.clone(), std: self.card.std.clone() })
    }

    /// The model's logits for all samples, `[sample][class]`.
    pub fn logits(&self, split: &Split, threads: usize) -> Vec<f32> {
        let (classes, scaling) = (self.card.classes.len(), self.scaling());
        let indices: Vec<u32> = (0..split.len() as u32).collect();
        let mut logits = vec![0.0; indices.len() * classes];
        let work = Mutex::new(logits.chunks_mut(CHUNK * classes).zip(indices.chunks(CHUNK)));
        let work = || {
            let mut session = self.model.session();
            loop {
                let next = work.lock().ok().and_then(|mut work| work.next());
                let Some((logits, indices)) = next else { return };
                let samples = Samples { split, indices, scaling: &scaling };
                logits.copy_from_slice(session.evaluate(&self.params, &samples.batch()).logits);
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads.min(indices.len().div_ceil(CHUNK)) {
                // If no more threads can be started, the others do the work.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        logits
    }
}

impl Saved {
    /// The model's predictions for samples that [`Self::fit_to`] has prepared.
    pub fn portrait(&self, split: &Split, threads: usize) -> Portrait {
        let (scaling, indices) = (self.scaling(), (0..split.len() as u32).collect::<Vec<u32>>());
        let mut trainers: Vec<Trainer> = (0..threads).map(|_| Trainer::new(self.model.clone())).collect();
        let samples = Samples { split, indices: &indices, scaling: &scaling };
        fedelity_sim::evaluate(&mut trainers, &self.params, samples, self.card.classes.len())
    }

    /// The class to be found, if the model has two: the one named, the one of its training, or the last.
    pub fn positive(&self, named: Option<&str>) -> Result<Option<usize>> {
        let classes = &self.card.classes;
        let place = |name: &str| classes.iter().position(|known| known == name);
        match named {
            Some(_) if classes.len() != 2 => {
                let message = format!("--positive: only with two classes, but the model has {}", classes.len());
                Err(ExperimentError::Config(message))
            }
            Some(name) => place(name).map(Some).ok_or_else(|| {
                ExperimentError::Config(format!("--positive {name}: expected '{}'", classes.join("' or '")))
            }),
            None if classes.len() != 2 => Ok(None),
            None => Ok(self.card.origin.get(POSITIVE).and_then(|name| place(name)).or(Some(1))),
        }
    }

    /// The samples to test on in the model's format, with its labels, and remarks if names cannot be matched.
    pub fn fit_to(&self, data: &NewData) -> Result<(Split, Vec<String>)> {
        fit_samples(&self.card, &self.path, data)
    }
}

/// Samples in the format of a model, with its labels, and remarks if names cannot be matched. Errors are about `path`, where the
/// card is from.
pub(crate) fn fit_samples(card: &Card, path: &Path, data: &NewData) -> Result<(Split, Vec<String>)> {
    let (dataset, mut split) = (&data.dataset, data.samples());
    let mut remarks = Vec::new();
    let wrong = |message: String| Err(ExperimentError::path(path, message));
    if split.is_empty() {
        return Err(ExperimentError::Config(format!("{}: there are no samples to test on", dataset.name)));
    }
    match (card.input, dataset.shape, &mut split.inputs) {
        (Input::Image { channels, height, width }, Shape::Image(shape), _)
            if (channels, height, width) == (shape.channels, shape.height, shape.width) => {}
        // The numbers have been read by the model's columns.
        (Input::Numbers { width }, Shape::Numbers(found), _) if width == found && card.table.is_some() => {}
        (Input::Numbers { width }, Shape::Numbers(found), Inputs::Floats(values)) if width == found => {
            let remark = "the model file does not name its columns: they are taken in the order of the data";
            remarks.push(remark.to_string());
            // The numbers were standardised with their own training rows; the model needs the scale it was trained
            // with.
            for row in values.chunks_exact_mut(width) {
                for (i, value) in row.iter_mut().enumerate() {
                    let raw = *value * dataset.normalisation.std[i] + dataset.normalisation.mean[i];
                    *value = (raw - card.mean[i]) / card.std[i];
                }
            }
        }
        (Input::Tokens { .. }, Shape::Text, _) => TextReader::of(card, path)?.tokenise(&mut split)?,
        (input, shape, _) => {
            return wrong(format!("the model reads {input}, but {} has {shape}", dataset.name));
        }
    }
    let place = |name: &String| card.classes.iter().position(|known| known == name).map(|place| place as u16);
    // Names first; numbers are places, whatever the model calls its classes.
    let number = |name: &String| name.parse().ok().filter(|&place: &u16| usize::from(place) < card.classes.len());
    let by_name: Option<Vec<u16>> = dataset.classes.iter().map(place).collect();
    let by_number = || dataset.classes.iter().map(number).collect::<Option<Vec<u16>>>();
    let places = by_name.or_else(|| {
        let found = by_number()?;
        remarks.push(format!("the classes of the data are numbers: 0 is the model's {}", card.classes[0]));
        Some(found)
    });
    let (data, model) = (some(&dataset.classes), some(&card.classes));
    match places {
        Some(places) => {
            split.labels.iter_mut().for_each(|label| *label = places[usize::from(*label)]);
            Ok((split, remarks))
        }
        None => wrong(format!(
            "the model has {} classes ({model}), but {} has {} ({data}): use the model's names, or its numbers 0 to {}",
            card.classes.len(),
            dataset.name,
            dataset.classes.len(),
            card.classes.len().saturating_sub(1),
        )),
    }
}

/// Whether a model is given by its file rather than its name.
pub fn is_model_file(model: &str) -> bool {
    Path::new(model).extension().is_some_and(|end| end == "toml")
}

/// The first few names.
fn some(names: &[String]) -> String {
    let more = if names.len() > 3 { ", ..." } else { "" };
    format!("{}{more}", names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", "))
}

/// The model file of a run folder, or the file itself.
fn file_of(target: &Path) -> Result<PathBuf> {
    if !target.is_dir() {
        return Ok(target.to_path_buf());
    }
    let file = target.join(names::MODEL);
    if file.is_file() {
        return Ok(file);
    }
    let mut inside = Vec::new();
    below(target, 2, &mut inside);
    let hint = match &inside[..] {
        [] => String::new(),
        some => format!("; choose one of the runs in it: {}", some.join(", ")),
    };
    Err(ExperimentError::path(target, format!("there is no {}{hint}", names::MODEL)))
}

/// The first few run folders up to `levels` below a folder.
fn below(folder: &Path, levels: usize, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    for path in folders {
        if path.join(names::MODEL).is_file() && found.len() < 10 {
            found.push(path.display().to_string());
        } else if levels > 1 {
            below(&path, levels - 1, found);
        }
    }
}
