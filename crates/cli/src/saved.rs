//! A model from a run folder or a file, with all that is needed to use it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use fedelity_data::{Normalisation, Split};
use fedelity_fl::{Samples, Scaling};
use fedelity_nn::{Card, Model, Params, checkpoint};
use fedelity_record::names;

use crate::config::{Overrides, Settings};
use crate::fit::fit;
use crate::isa;
use crate::study::load_data;

/// Samples that go through the model together.
const CHUNK: usize = 64;

/// A trained model.
pub(crate) struct Saved {
    pub(crate) path: PathBuf,
    pub(crate) card: Card,
    pub(crate) model: Arc<Model>,
    pub(crate) params: Params,
}

/// What the command line says about a file that says nothing itself.
#[derive(Clone, Copy)]
pub(crate) struct Foreign<'a> {
    pub(crate) model: Option<&'a str>,
    pub(crate) data: Option<&'a str>,
    pub(crate) overrides: &'a Overrides,
}

impl Saved {
    /// Reads a run folder or a file.
    pub(crate) fn open(target: &Path, foreign: Foreign<'_>) -> Result<Self> {
        let path = file_of(target)?;
        let card = match (checkpoint::card(&path)?, foreign.model) {
            (Some(card), Some(name)) if name != card.model => {
                bail!("--model {name}: {} says that it is {}", path.display(), card.model)
            }
            (Some(card), _) => card,
            (None, _) => foreign.card(&path)?,
        };
        let of_file = || path.display().to_string();
        let isa = isa::chosen()?;
        let model = card.architecture().and_then(|arch| Model::compile(&arch, isa)).with_context(of_file)?;
        let params = checkpoint::load(&path, model.layout())?;
        Ok(Self { path, card, model: Arc::new(model), params })
    }

    /// How the pixels of images become numbers.
    pub(crate) fn scaling(&self) -> Scaling {
        Scaling::from(&Normalisation { mean: self.card.mean.clone(), std: self.card.std.clone() })
    }

    /// What the model says about all samples, `[sample][class]`.
    pub(crate) fn logits(&self, split: &Split, threads: usize) -> Vec<f32> {
        let (classes, scaling) = (self.card.classes.len(), self.scaling());
        let indices: Vec<u32> = (0..split.len() as u32).collect();
        let mut logits = vec![0.0; indices.len() * classes];
        let work = Mutex::new(logits.chunks_mut(CHUNK * classes).zip(indices.chunks(CHUNK)));
        thread::scope(|scope| {
            for _ in 0..threads.min(indices.len().div_ceil(CHUNK)) {
                scope.spawn(|| {
                    let mut workspace = self.model.workspace();
                    loop {
                        let next = work.lock().ok().and_then(|mut work| work.next());
                        let Some((logits, indices)) = next else { return };
                        let samples = Samples { split, indices, scaling: &scaling };
                        logits.copy_from_slice(workspace.evaluate(&self.params, &samples.batch()).logits);
                    }
                });
            }
        });
        logits
    }
}

impl Foreign<'_> {
    /// The description that a run with these options would write.
    fn card(self, path: &Path) -> Result<Card> {
        let (Some(model), Some(data)) = (self.model, self.data) else {
            bail!(
                "{}: the file does not say how its model was made; --model NAME says which it is, and --data NAME which \
                 data it is for",
                path.display()
            );
        };
        let mut document = self.overrides.data_document(data, "--data")?;
        document.put(&["model", "name"], model.into(), "--model")?;
        let mut settings = Settings::check(&document)?;
        let (mut dataset, _) = load_data(&document, &mut settings.data)?;
        Ok(fit(&document, &settings, &mut dataset)?.card)
    }
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
        some => format!("; name one of the runs in it: {}", some.join(", ")),
    };
    Err(anyhow!("{}: there is no {}{hint}", target.display(), names::MODEL))
}

/// Run folders up to `levels` below a folder, the first few.
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
