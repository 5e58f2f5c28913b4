//! Features of test samples in the plane, by t-SNE.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bhtsne::tSNE;
use fedelity_record::names;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors};

use crate::loaded::LoadedRun;

/// Test samples in the plane.
#[derive(Debug)]
pub(crate) struct Embedding {
    pub(crate) labels: Vec<usize>,
    pub(crate) global: Vec<(f64, f64)>,
    pub(crate) local: Vec<(f64, f64)>,
    pub(crate) client: u64,
    pub(crate) round: u64,
}

/// Most samples to lay out: memory and time grow with their square. Runs record 600.
const MOST_SAMPLES: usize = 2_000;
const PERPLEXITY: f32 = 30.0;
const EPOCHS: usize = 500;

/// Layouts computed so far, by the file of the features and its state. Each takes seconds.
#[derive(Clone, Debug, Default)]
pub struct FeatureLayouts {
    known: BTreeMap<PathBuf, (FileState, Arc<Embedding>)>,
    /// If only known ones are wanted: how many others there would have been.
    put_off: Option<usize>,
}

/// Size and modification time of a file.
type FileState = (u64, Option<SystemTime>);

type EmbedResult = Result<Arc<Embedding>, String>;

impl FeatureLayouts {
    /// The same layouts, for a page that does not wait for others.
    #[must_use]
    pub fn only_known(&self) -> Self {
        Self { put_off: Some(0), ..self.clone() }
    }

    /// Whether a page lacks layouts, because only known ones were wanted.
    pub fn is_short(&self) -> bool {
        self.put_off.is_some_and(|others| others > 0)
    }

    /// The embeddings of runs; new ones are computed on all cores, or are absent if only known ones are wanted.
    pub(crate) fn of(&mut self, runs: &[&LoadedRun]) -> Vec<Option<EmbedResult>> {
        let all: Vec<(PathBuf, FileState)> = runs.iter().map(|run| stamped(run)).collect();
        let known = |(path, stamp): &(PathBuf, FileState)| {
            self.known.get(path).filter(|(at, _)| at == stamp).map(|(_, f)| f.clone())
        };
        if let Some(others) = self.put_off {
            let found: Vec<Option<EmbedResult>> = all.iter().map(|file| known(file).map(Ok)).collect();
            self.put_off = Some(others + found.iter().filter(|found| found.is_none()).count());
            return found;
        }
        let one = |(file, run): (&(PathBuf, FileState), &&LoadedRun)| {
            known(file).map_or_else(|| embed(run).map(Arc::new), Ok)
        };
        // Without threads, one after the other.
        let found: Vec<EmbedResult> = match rayon::ThreadPoolBuilder::new().build() {
            Ok(pool) => pool.install(|| all.par_iter().zip(runs).map(one).collect()),
            Err(_) => all.iter().zip(runs).map(one).collect(),
        };
        for ((path, stamp), found) in all.into_iter().zip(&found) {
            // A file that could not be read is tried again.
            if let Ok(found) = found {
                self.known.insert(path, (stamp, Arc::clone(found)));
            }
        }
        found.into_iter().map(Some).collect()
    }
}

/// The file of a run's features, and its state.
fn stamped(run: &LoadedRun) -> (PathBuf, FileState) {
    let path = run.path.join(names::FEATURES);
    let about = std::fs::metadata(&path).ok();
    let stamp = (about.as_ref().map_or(0, std::fs::Metadata::len), about.and_then(|about| about.modified().ok()));
    (path, stamp)
}

/// Reads a run's features and lays them out. The same features give the same picture.
fn embed(run: &LoadedRun) -> Result<Embedding, String> {
    let bytes = fedelity_files::read(&run.path.join(names::FEATURES), fedelity_files::LISTING)
        .map_err(|error| error.to_string())?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| format!("not a safetensors file ({error})"))?;
    let (_, about) = SafeTensors::read_metadata(&bytes).map_err(|error| error.to_string())?;
    let about = about.metadata().as_ref().and_then(|about| about.get("fedelity")).cloned().unwrap_or_default();
    let about: serde_json::Value = serde_json::from_str(&about).unwrap_or_default();
    let labels = file.tensor("labels").map_err(|error| error.to_string())?;
    if labels.dtype() != Dtype::I64 {
        return Err(format!("labels are {:?}, expected I64", labels.dtype()));
    }
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let labels: Vec<usize> =
        labels.data().chunks_exact(8).map(|bytes| usize::try_from(number(bytes)).unwrap_or(0).min(65_535)).collect();
    if labels.len() > MOST_SAMPLES {
        return Err(format!("{} samples: at most {MOST_SAMPLES} can be laid out", labels.len()));
    }
    let plane = |name: &str| -> Result<Vec<(f64, f64)>, String> {
        let tensor = file.tensor(name).map_err(|error| error.to_string())?;
        let [n, width] = tensor.shape() else { return Err(format!("{name} has the shape {:?}", tensor.shape())) };
        if tensor.dtype() != Dtype::F32 || *n != labels.len() || *width == 0 {
            return Err(format!("{name} is {:?} of {:?} for {} labels", tensor.dtype(), tensor.shape(), labels.len()));
        }
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
        let values: Vec<f32> = tensor.data().chunks_exact(4).map(value).collect();
        if values.iter().any(|value| !value.is_finite()) {
            return Err(format!("{name} has numbers that are not finite"));
        }
        lay_out(&values, *width)
    };
    let (global, local) = (plane("global")?, plane("local")?);
    let of = |key: &str| about.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
    Ok(Embedding { labels, global, local, client: of("client"), round: of("round") })
}

/// t-SNE of rows. It starts from a fixed spiral and runs on one thread, where sums have a fixed order, so the result
/// depends only on the rows.
fn lay_out(values: &[f32], width: usize) -> Result<Vec<(f64, f64)>, String> {
    let rows: Vec<&[f32]> = values.chunks_exact(width).collect();
    if rows.len() < 4 {
        return Ok(rows.iter().enumerate().map(|(i, _)| (i as f64, 0.0)).collect());
    }
    let start: Vec<f32> = (0..rows.len())
        .flat_map(|i| {
            let (angle, radius) = (i as f32 * 2.399_963, 1e-4 * ((i + 1) as f32 / rows.len() as f32).sqrt());
            [radius * libm::cosf(angle), radius * libm::sinf(angle)]
        })
        .collect();
    let distance = |a: &&[f32], b: &&[f32]| a.iter().zip(*b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
    let run = || {
        let mut tsne = tSNE::<f32, &[f32], 2>::new(&rows);
        tsne.perplexity(PERPLEXITY.min((rows.len() as f32 - 1.0) / 3.0)).epochs(EPOCHS);
        tsne.initial_embedding(start);
        tsne.exact(distance);
        tsne.embedding()
    };
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let embedding = alone.map_err(|error| format!("cannot start a thread: {error}"))?.install(run);
    Ok(embedding.chunks_exact(2).map(|at| (f64::from(at[0]), f64::from(at[1]))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clouds_stay_apart_and_the_layout_is_deterministic() {
        let noise = |i: usize| ((i * 7_919) % 97) as f32 / 97.0;
        let values: Vec<f32> =
            (0..80).flat_map(|i| (0..5).map(move |k| noise(i * 5 + k) + if i < 40 { 0.0 } else { 20.0 })).collect();
        let at = lay_out(&values, 5).unwrap();
        let centre = |part: &[(f64, f64)]| {
            let n = part.len() as f64;
            (part.iter().map(|p| p.0).sum::<f64>() / n, part.iter().map(|p| p.1).sum::<f64>() / n)
        };
        let (a, b) = (centre(&at[..40]), centre(&at[40..]));
        let distance = |p: (f64, f64), q: (f64, f64)| ((p.0 - q.0).powi(2) + (p.1 - q.1).powi(2)).sqrt();
        let right = at.iter().enumerate().filter(|(i, p)| (distance(**p, a) < distance(**p, b)) == (*i < 40)).count();
        assert_eq!(right, 80);
        (0..5).for_each(|_| assert_eq!(at, lay_out(&values, 5).unwrap()));
    }
}
