//! Golden vectors.

use std::path::PathBuf;
use std::sync::Arc;

use fedelity_fl::Method;
use fedelity_keys::toml::{Table, Value as Toml};
use fedelity_methods::build;
use serde_json::Value;

/// A file in the folder that `FEDELITY_GOLDEN` names, or in the workspace's own.
pub(crate) fn golden(file: &str) -> Value {
    let folder = std::env::var_os("FEDELITY_GOLDEN")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden"), PathBuf::from);
    serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
}

/// All numbers of nested arrays, in order.
pub(crate) fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

pub(crate) fn floats(value: &Value) -> Vec<f32> {
    flat(value).into_iter().map(|number| number as f32).collect()
}

pub(crate) fn wholes<T: TryFrom<u64>>(value: &Value) -> Vec<T> {
    let whole = |value: &Value| T::try_from(value.as_u64().unwrap()).ok().unwrap();
    value.as_array().unwrap().iter().map(whole).collect()
}

/// The method with this ID, the parameters of a case and further keys.
pub(crate) fn method(id: &str, params: &Value, more: &str) -> Arc<dyn Method> {
    let mut settings: Table = more.parse().unwrap();
    for (key, value) in params.as_object().unwrap() {
        let value = match value {
            Value::Bool(flag) => Toml::from(*flag),
            Value::String(word) => Toml::from(word.as_str()),
            number => Toml::from(number.as_f64().unwrap()),
        };
        settings.insert(key.replace('_', "-"), value);
    }
    build(id, &settings).unwrap().method
}

/// Within `tolerance` of the largest expected entry.
pub(crate) fn assert_near(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    for (i, (&got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            (f64::from(got) - expected).abs() <= tolerance * scale,
            "{what}[{i}]: {got} for {expected}, of {scale}"
        );
    }
}

/// splitmix64, as used by the vectors.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn symmetric(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    }
}
