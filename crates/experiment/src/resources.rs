//! Resources shared by studies: the engine, and data that have been read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fedelity_data::{DataError, DataSource, Dataset, NewData, Normalisation, Part, SetName, Shape, Skipped, quoted};
use fedelity_nn::{Card, Engine, cpu};

use crate::assemble::table_form;
use crate::config::{DataKeys, Document, Origin};
use crate::error::Result;

/// A data set, prepared as configured.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub dataset: Arc<Dataset>,
    /// Unusable samples that were skipped.
    pub skipped: Skipped,
    /// SHA-256 of the data.
    pub fingerprint: String,
}

/// Data and some of their training samples.
type HeldOutOf = (String, Vec<u32>);

/// Resources shared by studies.
#[derive(Debug)]
pub struct Resources {
    /// The engine that models run on.
    pub engine: Arc<dyn Engine>,
    /// By the configuration section that names the data. A request for data that are being read waits for them.
    data: Mutex<BTreeMap<String, Arc<Mutex<Option<Loaded>>>>>,
    /// Data that a program has in memory, for configurations that say so.
    given: Option<Dataset>,
    /// Data of which some training samples stand in for the test samples, by the data and those samples.
    held_out: Mutex<BTreeMap<HeldOutOf, Arc<Dataset>>>,
}

impl Default for Resources {
    /// The fastest engine on this machine.
    fn default() -> Self {
        Self::on(cpu())
    }
}

impl Resources {
    pub fn on(engine: Arc<dyn Engine>) -> Self {
        Self { engine, data: Mutex::default(), given: None, held_out: Mutex::default() }
    }

    /// The same with data in memory, for configurations with `data.name = "arrays"`.
    #[must_use]
    pub fn with_data(self, given: Dataset) -> Self {
        Self { given: Some(given), ..self }
    }

    /// The data of a configuration, read only once.
    pub fn load(&self, document: &Document, data: &DataKeys) -> Result<Loaded> {
        let place = {
            let mut all = self.data.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(format!("{data:?}")).or_default())
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*place {
            return Ok(loaded.clone());
        }
        let loaded = read(document, data, self.given.as_ref())?;
        *place = Some(loaded.clone());
        Ok(loaded)
    }

    /// The data of a configuration, read as a trained model reads its inputs. Without a `part`, data that do not say
    /// which samples are for testing are used whole.
    pub fn load_new(&self, document: &Document, data: &DataKeys, card: &Card, part: Option<Part>) -> Result<NewData> {
        let form = table_form(card);
        let skipped = Skipped::new(data.skip_bad);
        located(document, data, |source| source.load_new(form.as_ref(), part, skipped))
    }

    /// The same before it is known how a model reads them.
    pub(crate) fn load_unread(&self, document: &Document, data: &DataKeys) -> Result<NewData> {
        let skipped = Skipped::new(data.skip_bad);
        located(document, data, |source| source.load_new(None, None, skipped))
    }
}

impl Resources {
    /// Loaded data with these training samples in place of the test samples; unchanged if there are none.
    pub(crate) fn tested_on(&self, loaded: &Loaded, data: &DataKeys, samples: &[u32]) -> Arc<Dataset> {
        if samples.is_empty() {
            return Arc::clone(&loaded.dataset);
        }
        let mut all = self.held_out.lock().unwrap_or_else(PoisonError::into_inner);
        let made = all.entry((format!("{data:?}"), samples.to_vec())).or_insert_with(|| {
            let mut held_out = vec![false; loaded.dataset.train.len()];
            samples.iter().for_each(|&sample| held_out[sample as usize] = true);
            Arc::new(loaded.dataset.tested_on(&held_out))
        });
        Arc::clone(made)
    }
}

/// Calls a reader, whose errors about files that are missing name the place of the configuration.
fn located<T>(
    document: &Document,
    data: &DataKeys,
    read: impl FnOnce(&DataSource) -> Result<T, DataError>,
) -> Result<T> {
    if let DataSource::Named(set) = &data.source
        && let Some(dir) = &set.dir
        && document.gives("data.dir")
    {
        exists(document, set.name, dir)?;
    }
    read(&data.source()).map_err(|error| match (&error, document.origin("data.name")) {
        (DataError::NoFolder { .. } | DataError::Missing { .. }, Some(Origin::File { .. } | Origin::Other { .. })) => {
            document.error("data.name", error.to_string())
        }
        _ => error.into(),
    })
}

/// Reads the data and determines their normalisation.
fn read(document: &Document, data: &DataKeys, given: Option<&Dataset>) -> Result<Loaded> {
    let mut skipped = Skipped::new(data.skip_bad);
    let mut dataset = match (&data.source, given) {
        (DataSource::Arrays(_), Some(given)) => given.clone(),
        _ => located(document, data, |source| source.load(&mut skipped))?,
    };
    // The fingerprint does not depend on how a model reads the data.
    let fingerprint = dataset.fingerprint();
    if let Some(normalisation) = data.normalisation() {
        if let Some(reason) = unfit(&normalisation, dataset.shape) {
            return Err(document.error("data.normalisation", reason));
        }
        dataset.normalisation = normalisation;
    }
    let augmentation = data.augmentation();
    let fits = match dataset.shape.image() {
        _ if augmentation.is_none() => Ok(()),
        Some(shape) => augmentation.check(shape),
        None => Err(format!("it is for images, but the data are {}", dataset.shape)),
    };
    fits.map_err(|reason| document.error("data.augmentation", format!("data.augmentation: {reason}")))?;
    Ok(Loaded { dataset: Arc::new(dataset), skipped, fingerprint })
}

fn exists(document: &Document, set: SetName, dir: &Path) -> Result<()> {
    if dir.is_dir() || document.is_from("data.dir", "FEDELITY_DATA") {
        return Ok(());
    }
    let what = match (dir.exists(), set.entry().is_embedded()) {
        (true, _) => "not a folder".to_string(),
        (false, true) => "no such folder".to_string(),
        (false, false) => {
            let name = set.name();
            format!(
                "no such folder; 'fedelity data fetch {name} --data-dir {}' makes it and gets the data",
                quoted(dir)
            )
        }
    };
    Err(document.error("data.dir", format!("data.dir = \"{}\": {what}", dir.display())))
}

/// Why a normalisation does not fit data of this shape, if it does not.
fn unfit(normalisation: &Normalisation, shape: Shape) -> Option<String> {
    match shape {
        Shape::Image(shape) if normalisation.mean.len() == shape.channels => None,
        Shape::Image(shape) => Some(format!(
            "data.normalisation has {} numbers, but the images have {} channels",
            normalisation.mean.len(),
            shape.channels
        )),
        other => Some(format!("data.normalisation is for images, but the data are {other}")),
    }
}
