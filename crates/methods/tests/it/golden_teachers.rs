//! FedGKD, FedGKD-VOTE and FedDistill+ against golden vectors, through the real training step.

use std::sync::Arc;

use crate::golden::{assert_near, flat, floats, golden, wholes};
use crate::scene::{Scene, columns};
use fedelity_fl::{Method, Payload};
use fedelity_methods::{Distance, FedDistillPlus, FedGkd, FedGkdVote};
use serde_json::Value;

/// The method of a case, and what it received beyond the weights; `weights` makes a model that outputs given logits.
fn method_of(case: &Value, weights: &dyn Fn(&Value) -> Vec<f32>) -> Option<(Arc<dyn Method>, Payload)> {
    let (inputs, params) = (&case["inputs"], &case["params"]);
    let number = |key: &str| params[key].as_f64().unwrap();
    Some(match case["method"].as_str().unwrap() {
        "fedgkd" => (Arc::new(FedGkd { gamma: number("gamma"), ..FedGkd::default() }), Payload::new()),
        "fedgkd-mse" => {
            let method = FedGkd { gamma: 2.0 * number("alpha"), loss: Distance::Mse, ..FedGkd::default() };
            (Arc::new(method), Payload::new())
        }
        "fedgkd-vote" => {
            let mut down = Payload::new().with("half-gammas", floats(&params["half_gammas"]));
            for (m, teacher) in inputs["teachers_logits"].as_array().unwrap().iter().enumerate().skip(1) {
                down.put(format!("model-{m}"), weights(teacher));
            }
            (Arc::new(FedGkdVote::default()), down)
        }
        "feddistill-plus" => {
            // One other client has reported.
            let has = inputs["table_has_class"].as_array().unwrap().iter();
            let held: Vec<f32> = has.map(|has| if has.as_bool().unwrap() { 1.0 } else { 0.0 }).collect();
            let down = Payload::new().with("logits", floats(&inputs["logit_table"])).with("classes-held", held);
            let method = FedDistillPlus { coefficient: number("coefficient"), ..FedDistillPlus::default() };
            (Arc::new(method), down)
        }
        _ => return None,
    })
}

#[test]
fn golden_losses_through_the_training_step() {
    let mut seen = 0;
    for case in golden("losses.json")["cases"].as_array().unwrap() {
        let (name, inputs, expect) = (case["name"].as_str().unwrap(), &case["inputs"], &case["expect"]);
        let Some(first) = inputs["student_logits"].get(0) else { continue };
        let classes = first.as_array().unwrap().len();
        let weights = |logits: &Value| [columns(&floats(logits), classes), vec![0.0; classes]].concat();
        let Some((method, down)) = method_of(case, &weights) else { continue };
        let scene = Scene { down, ..Scene::one_hot(None, wholes(&inputs["labels"]), classes) };
        let student = weights(&inputs["student_logits"]);
        let teacher = inputs.get("teacher_logits").or_else(|| inputs["teachers_logits"].get(0));
        let scene = Scene { global: teacher.map_or_else(|| student.clone(), weights), ..scene };
        let largest = student.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let tolerance = if largest > 20.0 { 1e-4 } else { 1e-5 };
        let (loss, grad) = scene.gradient(&*method, &student);
        assert_near(&format!("{name}: loss"), &[loss], &[expect["loss"].as_f64().unwrap()], tolerance);
        let got = columns(&grad[scene.model.layout().tensors()[0].range()], scene.labels.len());
        assert_near(&format!("{name}: gradient"), &got, &flat(&expect["grad_student_logits"]), tolerance);
        seen += 1;
    }
    assert!(seen >= 20, "the file lacks some cases: {seen}");
}
