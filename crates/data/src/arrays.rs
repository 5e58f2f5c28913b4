//! Data that a program holds in memory.

use std::path::Path;

use fedelity_keys::keys;

use crate::dataset::{Dataset, Inputs, Normalisation, Shape, Split};
use crate::deviation::population_deviation;
use crate::error::DataError;
use crate::folder::measure;
use crate::partition::hold_out;

/// Data in memory have no keys: the program gives them.
#[keys]
pub struct ArraySource {}

/// The name of the data in a configuration.
pub(crate) const NAME: &str = "arrays";

impl ArraySource {
    /// There is nothing to read.
    pub(crate) fn refuse() -> DataError {
        let reason = "the data are arrays of a program, which has to give them again: in Python, with data=...";
        DataError::unusable(Path::new(NAME), None, reason)
    }
}

/// Samples in memory, before they are divided and scaled.
#[derive(Clone, Debug)]
pub struct ArrayData {
    pub name: String,
    pub classes: Vec<String>,
    pub shape: Shape,
    /// Numbers are as they were measured.
    pub train: Split,
    /// If absent, a share of each class becomes the test samples.
    pub test: Option<Split>,
    pub test_fraction: f64,
    /// If absent, it is that of the training samples.
    pub normalisation: Option<Normalisation>,
}

impl ArrayData {
    /// Divides the samples, if need be, and scales numbers.
    pub fn dataset(self) -> Result<Dataset, DataError> {
        let Self { name, classes, shape, train, test, test_fraction, normalisation } = self;
        let wrong = |reason: String| Err(DataError::unusable(Path::new(NAME), None, reason));
        let (mut train, mut test) = match test {
            Some(test) => (train, test),
            None => {
                let held = hold_out(&train.labels, test_fraction);
                train.divide(&held)
            }
        };
        for (split, what) in [(&train, "training"), (&test, "test")] {
            if split.is_empty() {
                return wrong(format!("there are no {what} samples"));
            }
            if let Some(label) = split.labels.iter().find(|label| usize::from(**label) >= classes.len()) {
                let last = classes.len().saturating_sub(1);
                return wrong(format!("a {what} sample has label {label}, expected 0 to {last}"));
            }
        }
        let expected = match shape {
            Shape::Image(shape) => shape.channels,
            Shape::Numbers(width) => width,
            Shape::Text => 0,
        };
        let normalisation = match (normalisation, shape) {
            (Some(given), _) if given.mean.len() != expected || given.std.len() != expected => {
                let found = given.mean.len();
                return wrong(format!(
                    "the normalisation has {found} means, but there are {expected} channels or columns"
                ));
            }
            (Some(given), _) => given,
            (None, Shape::Image(shape)) => measure(&train, shape.channels),
            (None, Shape::Numbers(width)) => columns(&train, width),
            (None, Shape::Text) => Normalisation::default(),
        };
        if let Shape::Numbers(width) = shape {
            for split in [&mut train, &mut test] {
                standardise(split, width, &normalisation);
            }
        }
        Ok(Dataset { name, classes, shape, train, test, normalisation, table: None })
    }
}

/// Mean and standard deviation of each column; 1 for a column that does not vary.
fn columns(split: &Split, width: usize) -> Normalisation {
    let Inputs::Floats(values) = &split.inputs else { return Normalisation::default() };
    let (mut sums, mut squares) = (vec![0.0; width], vec![0.0; width]);
    for row in values.chunks_exact(width.max(1)) {
        for (i, &value) in row.iter().enumerate() {
            sums[i] += f64::from(value);
        }
    }
    let n = split.len() as f64;
    let means: Vec<f64> = sums.iter().map(|sum| sum / n).collect();
    for row in values.chunks_exact(width.max(1)) {
        for (i, &value) in row.iter().enumerate() {
            squares[i] += (f64::from(value) - means[i]) * (f64::from(value) - means[i]);
        }
    }
    let deviation = |square: f64| match population_deviation(square / n) as f32 {
        0.0 => 1.0,
        deviation => deviation,
    };
    Normalisation {
        mean: means.iter().map(|&mean| mean as f32).collect(),
        std: squares.into_iter().map(deviation).collect(),
    }
}

fn standardise(split: &mut Split, width: usize, normalisation: &Normalisation) {
    let Inputs::Floats(values) = &mut split.inputs else { return };
    for row in values.chunks_exact_mut(width.max(1)) {
        for ((value, mean), std) in row.iter_mut().zip(&normalisation.mean).zip(&normalisation.std) {
            *value = (*value - mean) / std;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: Vec<f32>, labels: Vec<u16>) -> ArrayData {
        ArrayData {
            name: NAME.to_string(),
            classes: vec!["a".to_string(), "b".to_string()],
            shape: Shape::Numbers(2),
            train: Split { inputs: Inputs::Floats(values), labels, keys: None },
            test: None,
            test_fraction: 0.5,
            normalisation: None,
        }
    }

    #[test]
    fn columns_are_scaled_by_the_training_rows() {
        let made = numbers(vec![1.0, 5.0, 3.0, 5.0, 1.0, 5.0, 3.0, 5.0], vec![0, 0, 1, 1]).dataset().unwrap();
        assert_eq!((made.train.len(), made.test.len()), (2, 2));
        let Inputs::Floats(values) = &made.train.inputs else { panic!("{made:?}") };
        // The second column does not vary.
        assert!(values.chunks(2).all(|row| row[1] == 0.0), "{values:?}");
        let (mean, std) = (made.normalisation.mean[0], made.normalisation.std[0]);
        assert!(values.chunks(2).all(|row| [1.0, 3.0].contains(&(row[0] * std + mean))), "{values:?} {mean} {std}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let text = |data: ArrayData| data.dataset().unwrap_err().to_string();
        assert_eq!(text(numbers(vec![1.0; 4], vec![0, 7])), "arrays: a training sample has label 7, expected 0 to 1");
        assert_eq!(text(numbers(vec![1.0; 4], vec![0, 1])), "arrays: there are no test samples");
        let normalisation = Some(Normalisation { mean: vec![0.0], std: vec![1.0] });
        let short = ArrayData { normalisation, ..numbers(vec![1.0; 8], vec![0, 0, 1, 1]) };
        assert!(text(short).ends_with("the normalisation has 1 means, but there are 2 channels or columns"));
    }
}
