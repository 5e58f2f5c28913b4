//! The metrics and the mean against golden vectors.

use std::path::PathBuf;

use fedelity_fl::Mean;
use fedelity_fl::metrics::{Forgetting, class_accuracy_cosine, in_out_local};
use fedelity_fl::observe::{Diversity, drift};
use serde_json::Value;

fn rules(name: &str) -> Vec<(Value, Value)> {
    let default = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden"));
    let folder = std::env::var_os("FEDELITY_GOLDEN").map_or(default, PathBuf::from);
    let text = std::fs::read_to_string(folder.join("rules.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let found: Vec<_> = file["rules"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["name"] == name)
        .map(|rule| (rule["inputs"].clone(), rule["expect"].clone()))
        .collect();
    assert!(!found.is_empty(), "no rule '{name}'");
    found
}

fn vector(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().unwrap().iter().map(vector).collect()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "found {found}, expected {expected}");
}

fn all_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).for_each(|(&found, &expected)| near(found, expected));
}

#[test]
fn golden_weighted_average() {
    for (inputs, expect) in rules("weighted-average") {
        let mut mean = Mean::default();
        for (weight, values) in vector(&inputs["weights"]).into_iter().zip(matrix(&inputs["vectors"])) {
            let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            mean.add(weight, &values).unwrap();
        }
        let found = mean.finish().unwrap();
        for (&found, expected) in found.iter().zip(vector(&expect["average"])) {
            assert!((f64::from(found) - expected).abs() < 1e-6, "found {found}, expected {expected}");
        }
    }
}

#[test]
fn golden_in_out_local() {
    for (inputs, expect) in rules("in-out-local") {
        let counts: Vec<usize> = vector(&inputs["label_counts"]).into_iter().map(|count| count as usize).collect();
        let found = in_out_local(&counts, &vector(&inputs["class_accuracy"])).unwrap();
        all_near(&found.in_local, &vector(&expect["in_local"]));
        all_near(&found.out_local, &vector(&expect["out_local"]));
        near(found.in_accuracy, expect["in_accuracy"].as_f64().unwrap());
        near(found.out_accuracy, expect["out_accuracy"].as_f64().unwrap());
    }
}

#[test]
fn golden_class_accuracy_cosine() {
    for (inputs, expect) in rules("class-accuracy-cosine") {
        let found = class_accuracy_cosine(&vector(&inputs["a"]), &vector(&inputs["b"])).unwrap();
        near(found, expect["cosine"].as_f64().unwrap());
    }
}

#[test]
fn golden_gradient_diversity() {
    for (inputs, expect) in rules("gradient-diversity") {
        let gradients = matrix(&inputs["gradients"]);
        let mut found = Diversity::default();
        let width = gradients[0].len();
        let (from, all) = (vec![0.0; width], 0..width);
        let trainable = std::slice::from_ref(&all);
        for gradient in &gradients {
            let to: Vec<f32> = gradient.iter().map(|&value| value as f32).collect();
            found.add(&from, &to, trainable, drift(&from, &to, trainable));
        }
        let (found, expected) = (found.take().unwrap(), expect["diversity"].as_f64().unwrap());
        assert!((found - expected).abs() < 1e-6 * expected, "found {found}, expected {expected}");
    }
}

#[test]
fn golden_forgetting_is_the_mean_over_classes() {
    for (inputs, expect) in rules("forgetting") {
        let (mut so_far, mut last) = (Forgetting::default(), None);
        for round in matrix(&inputs["class_accuracy_by_round"]) {
            last = so_far.push(&round.into_iter().map(Some).collect::<Vec<_>>());
        }
        near(last.unwrap(), expect["forgetting"].as_f64().unwrap());
        let by_class: Vec<f64> = so_far.by_class().iter().map(|class| class.unwrap()).collect();
        near(by_class.iter().sum::<f64>() / by_class.len() as f64, expect["forgetting"].as_f64().unwrap());
    }
}
