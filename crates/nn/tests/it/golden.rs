//! Six SGD steps of whole models against trajectories computed in float64 by PyTorch from the equations.
//!
//! `FEDELITY_GOLDEN` names another folder of vectors in the same format.

use std::path::PathBuf;
use std::sync::Arc;

use fedelity_nn::{Batch, Engine, InputShape, Model, ModelSpec, OptimizerKind, Params, engines, loss, zoo};
use serde_json::Value;

pub(crate) fn golden(file: &str) -> Value {
    let folder = std::env::var_os("FEDELITY_GOLDEN")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden"), PathBuf::from);
    serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
}

/// splitmix64, as specified by the vectors.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn symmetric(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    }
}

fn parameters(model: &Model, names: &[Value], seed: u64) -> Params {
    let mut params = Params(vec![0.0; model.layout().len()]);
    for (i, tensor) in model.layout().tensors().iter().enumerate() {
        let (name, shape) = (names[i][0].as_str().unwrap(), &tensor.shape);
        let expected: Vec<usize> =
            names[i][1].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect();
        assert_eq!(*shape, expected, "{name} is our {}", tensor.name);
        let is_norm = tensor.name.contains("bn") || tensor.name.contains("downsample.1");
        let part = &mut params[tensor.range()];
        if is_norm {
            part.fill(if tensor.name.ends_with("weight") { 1.0 } else { 0.0 });
            continue;
        }
        let fan_in = if shape.len() > 1 { shape[1..].iter().product() } else { 50 };
        let bound = 1.0 / (fan_in as f64).sqrt();
        let mut rng = SplitMix(seed + i as u64);
        part.fill_with(|| (rng.symmetric() * bound) as f32);
    }
    params
}

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap()
}

fn close(got: f64, expected: f64, tolerance: f64) -> bool {
    (got - expected).abs() <= tolerance * expected.abs().max(1.0)
}

fn follow(case: &Value, engine: &Arc<dyn Engine>) {
    let (setup, name) = (&case["setup"], case["name"].as_str().unwrap());
    let side = number(setup, "side") as usize;
    let input = InputShape::Image { channels: number(setup, "channels") as usize, height: side, width: side };
    let classes = number(setup, "classes") as usize;
    let model_name = case["model"].as_str().unwrap().trim_end_matches("-28").to_owned();
    let arch = zoo::build(&ModelSpec::new(model_name, false), input, classes).unwrap();
    let model = Model::compile(&arch, Arc::clone(engine)).unwrap();
    let mut params = parameters(&model, case["tensors"].as_array().unwrap(), setup["seed_student"].as_u64().unwrap());
    let batch = number(setup, "batch") as usize;
    let mut rng = SplitMix(setup["seed_inputs"].as_u64().unwrap());
    let inputs: Vec<f32> = (0..batch * input.len()).map(|_| rng.symmetric() as f32).collect();
    let mut rng = SplitMix(setup["seed_labels"].as_u64().unwrap());
    let labels: Vec<u16> = (0..batch).map(|_| (rng.next() % classes as u64) as u16).collect();
    let kind = OptimizerKind::Sgd { momentum: number(setup, "momentum") as f32 };
    let mut optimizer = model.optimizer(kind, number(setup, "weight_decay") as f32);
    let mut workspace = model.session();
    let mut grad = vec![0.0; model.layout().len()];
    for (step, expected) in case["expect"]["losses"].as_array().unwrap().iter().enumerate() {
        let mut d_logits = vec![0.0; batch * classes];
        let out = workspace.train(&mut params, &Batch::Floats { rows: &inputs }, 0);
        let got = loss::cross_entropy(out.logits, &labels, classes, 1.0, &mut d_logits);
        assert!(
            close(f64::from(got), expected.as_f64().unwrap(), 1e-4),
            "{name}, {}: loss {step}: {got}",
            engine.name()
        );
        grad.fill(0.0);
        workspace.backward(&params, &d_logits, None, &mut grad);
        optimizer.step(&mut params, &grad, number(setup, "lr") as f32);
    }
    let out = workspace.evaluate(&params, &Batch::Floats { rows: &inputs });
    let expected = case["expect"]["logits_first_two"].as_array().unwrap();
    let expected = expected.iter().flat_map(|row| row.as_array().unwrap()).map(|v| v.as_f64().unwrap());
    for (i, (got, expected)) in out.logits.iter().zip(expected).enumerate() {
        assert!(close(f64::from(*got), expected, 1e-3), "{name}, {}: logit {i}: {got}, not {expected}", engine.name());
    }
    for (i, tensor) in model.layout().tensors().iter().enumerate() {
        let norm = params[tensor.range()].iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let expected = case["expect"]["tensor_norms"][i].as_f64().unwrap();
        assert!(close(norm, expected, 1e-3), "{name}, {}: {}: norm {norm}, not {expected}", engine.name(), tensor.name);
    }
}

#[test]
fn golden_trajectories_of_plain_training() {
    let file = golden("trajectories.json");
    let cases: Vec<&Value> =
        file["cases"].as_array().unwrap().iter().filter(|case| case["method"] == "fedavg").collect();
    assert!(cases.len() >= 3, "the file lacks fedavg cases");
    for case in cases {
        engines().iter().for_each(|engine| follow(case, engine));
    }
}
