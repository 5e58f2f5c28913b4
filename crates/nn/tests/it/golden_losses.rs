//! Every loss on logits or features against values and gradients computed in float64 by PyTorch autograd.

use std::collections::BTreeMap;

use fedelity_nn::loss::{self, Alpha, Groups, Kl};
use serde_json::Value;

use crate::golden::golden;

/// All numbers in nested arrays, in order.
fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        Value::Bool(flag) => vec![f64::from(u8::from(*flag))],
        other => vec![other.as_f64().unwrap()],
    }
}

struct LossCase<'a> {
    name: &'a str,
    value: &'a Value,
    labels: Vec<u16>,
    z: Vec<f32>,
    classes: usize,
}

impl<'a> LossCase<'a> {
    fn new(value: &'a Value) -> Self {
        let input = |name: &str| value["inputs"].get(name).map(flat).unwrap_or_default();
        let z: Vec<f32> = input("student_logits").iter().map(|&v| v as f32).collect();
        let labels: Vec<u16> = input("labels").iter().map(|&v| v as u16).collect();
        let classes = z.len() / labels.len().max(1);
        Self { name: value["name"].as_str().unwrap(), value, labels, z, classes }
    }

    fn input(&self, name: &str) -> Vec<f32> {
        flat(&self.value["inputs"][name]).iter().map(|&v| v as f32).collect()
    }

    fn param(&self, name: &str) -> f32 {
        self.value["params"][name].as_f64().unwrap() as f32
    }

    fn is(&self, name: &str, word: &str) -> bool {
        self.value["params"][name] == *word
    }

    fn alpha(&self, name: &str) -> Alpha {
        if self.is(name, "pnt") { Alpha::NotTrue } else { Alpha::Fixed(self.param(name)) }
    }

    fn ce(&self, d: &mut [f32]) -> f32 {
        loss::cross_entropy(&self.z, &self.labels, self.classes, 1.0, d)
    }

    fn kl(&self, teacher: &[f32], how: &Kl<'_>, d: &mut [f32]) -> f32 {
        loss::kl(&self.z, teacher, self.classes, how, d)
    }

    /// (1 - alpha_i) CE + alpha_i KL.
    fn mixed(&self, alpha: &[f32], d: &mut [f32]) -> f32 {
        let keep: Vec<f32> = alpha.iter().map(|alpha| 1.0 - alpha).collect();
        let tau_squared = self.value["params"]["tau_squared"].as_bool().unwrap();
        let how = Kl { tau: self.param("tau"), tau_squared, weights: Some(alpha), ..Kl::default() };
        loss::weighted_cross_entropy(&self.z, &self.labels, self.classes, &keep, d)
            + self.kl(&self.input("teacher_logits"), &how, d)
    }

    fn rich(&self) -> Vec<bool> {
        let counts = self.input("label_counts");
        let even = counts.iter().sum::<f32>() / counts.len() as f32;
        counts.iter().map(|&count| count > even).collect()
    }

    fn groups<'b>(&self, weight: f32, rich: &'b [bool]) -> Groups<'b> {
        let alpha_true = self.alpha("alpha_true");
        Groups {
            weight,
            alpha_true,
            alpha_rich: self.alpha("alpha_rich"),
            alpha_few: self.alpha("alpha_few"),
            exact: false,
            rich,
        }
    }

    /// M of FedSSD from the credibility matrix, linear or squared.
    fn credible(&self) -> Vec<f32> {
        let (matrix, teacher, k) = (self.input("credibility"), self.input("teacher_logits"), self.classes);
        let column = |c: usize| (0..k).filter(move |&j| j != c).map(move |j| j * k + c);
        let by_class: Vec<f32> =
            (0..k).map(|c| matrix[c * k + c] * (1.0 - column(c).map(|i| matrix[i]).fold(0.0, f32::max))).collect();
        let mut p = vec![0.0; teacher.len()];
        loss::softmax_rows(&mut p, &teacher, k, 1.0);
        let rows = p.chunks_exact(k).zip(&self.labels);
        rows.flat_map(|(p, &label)| {
            let by_sample = 1.0 - (1.0 - p[usize::from(label)]).max(0.0).sqrt();
            by_class.iter().map(move |by_class| (by_class * by_sample - 0.1).max(0.0)).collect::<Vec<_>>()
        })
        .map(|m| m * self.param("m_max"))
        .map(|m| if self.is("weight", "squared") { m * m } else { m })
        .collect()
    }

    /// The loss, and its gradients by name.
    fn run(&self) -> (f64, Vec<(&'static str, Vec<f32>)>) {
        let (k, labels) = (self.classes, &self.labels[..]);
        let mut d = vec![0.0; self.z.len()];
        let value = match self.value["method"].as_str().unwrap() {
            "ce" => self.ce(&mut d),
            "fedlsd" => self.mixed(&vec![self.param("alpha"); labels.len()], &mut d),
            "fedcad" => {
                let by_class = self.input("class_alpha");
                let alpha: Vec<f32> = labels.iter().map(|&label| by_class[usize::from(label)]).collect();
                self.mixed(&alpha, &mut d)
            }
            "fedntd" => {
                let (weight, tau) = (self.param("beta"), self.param("tau"));
                let how = Kl { weight, tau, tau_squared: true, exclude: Some(labels), ..Kl::default() };
                self.ce(&mut d) + self.kl(&self.input("teacher_logits"), &how, &mut d)
            }
            "fedssd" => {
                let ce = self.ce(&mut d);
                ce + loss::squares(&self.z, &self.input("teacher_logits"), k, &self.credible(), &mut d)
            }
            "fedgkd" => {
                let how = Kl { weight: self.param("gamma") / 2.0, ..Kl::default() };
                self.ce(&mut d) + self.kl(&self.input("teacher_logits"), &how, &mut d)
            }
            "fedgkd-mse" => {
                // The vectors sum over the classes; the kernel takes the mean.
                let (teacher, weight) = (self.input("teacher_logits"), self.param("alpha") * k as f32);
                let ce = self.ce(&mut d);
                ce + loss::mse(&self.z, &teacher, weight, &mut d)
            }
            "fedgkd-vote" => {
                let teachers = self.input("teachers_logits");
                let mut sum = self.ce(&mut d);
                for (teacher, weight) in teachers.chunks_exact(d.len()).zip(flat(&self.value["params"]["half_gammas"]))
                {
                    sum += self.kl(teacher, &Kl { weight: weight as f32, ..Kl::default() }, &mut d);
                }
                sum
            }
            "feddistill-plus" => {
                let has = self.input("table_has_class");
                let weights: Vec<f32> = labels.iter().map(|&label| has[usize::from(label)]).collect();
                let weight = self.param("coefficient");
                let how = Kl { weight, weights: Some(&weights), rows: Some(labels), ..Kl::default() };
                self.ce(&mut d) + self.kl(&self.input("logit_table"), &how, &mut d)
            }
            "group-distillation" => {
                let (teacher, rich) = (self.input("teacher_logits"), self.rich());
                loss::group_distillation(&self.z, &teacher, labels, k, &self.groups(1.0, &rich), &mut d)
            }
            "moon" => {
                let [z, g, p] = ["features", "global_features", "previous_features"].map(|name| self.input(name));
                let width = self.value["inputs"]["features"][0].as_array().unwrap().len();
                d.resize(z.len(), 0.0);
                let value = loss::contrast(&z, &g, &p, width, self.param("tau"), self.param("mu"), &mut d);
                return (f64::from(value), vec![("grad_features", d)]);
            }
            "feddistill-gd" => return self.distil_by_parts(),
            other => panic!("no loss for {other}"),
        };
        (f64::from(value), vec![("grad_student_logits", d)])
    }

    /// FedDistill with its two heads written out.
    fn distil_by_parts(&self) -> (f64, Vec<(&'static str, Vec<f32>)>) {
        let [e_l, e_g] = ["features", "global_features"].map(|name| self.input(name));
        let [w_l, b_l, w_g, b_g] =
            ["head_weight", "head_bias", "global_head_weight", "global_head_bias"].map(|name| self.input(name));
        let (labels, k, n, rich) = (&self.labels[..], b_l.len(), self.labels.len(), self.rich());
        let width = e_l.len() / n;
        let head = |e: &[f32], w: &[f32], b: &[f32]| -> Vec<f32> {
            let row = |e: &[f32], c: usize| {
                let sum: f64 = e.iter().zip(&w[c * width..]).map(|(&e, &w)| f64::from(e) * f64::from(w)).sum();
                (sum + f64::from(b[c])) as f32
            };
            e.chunks_exact(width).flat_map(|e| (0..k).map(move |c| row(e, c))).collect()
        };
        let (y_gg, y_ll) = (head(&e_g, &w_g, &b_g), head(&e_l, &w_l, &b_l));
        let (y_lg, y_gl) = (head(&e_l, &w_g, &b_g), head(&e_g, &w_l, &b_l));
        let [mut d_ll, mut d_lg, mut d_gl] = [(); 3].map(|()| vec![0.0; n * k]);
        let [logits, extractor, classifier] =
            ["beta_logits", "beta_extractor", "beta_classifier"].map(|name| self.param(name));
        let value = f64::from(loss::cross_entropy(&y_ll, labels, k, 1.0, &mut d_ll))
            + f64::from(loss::group_distillation(&y_ll, &y_gg, labels, k, &self.groups(logits, &rich), &mut d_ll))
            + f64::from(loss::cross_entropy(&y_lg, labels, k, extractor, &mut d_lg))
            + f64::from(loss::group_distillation(&y_gl, &y_gg, labels, k, &self.groups(classifier, &rich), &mut d_gl));
        let (mut d_e, mut d_w, mut d_b) = (vec![0.0; e_l.len()], vec![0.0; w_l.len()], vec![0.0; k]);
        for i in 0..n {
            for c in 0..k {
                let at = i * k + c;
                d_b[c] += d_ll[at] + d_gl[at];
                for f in 0..width {
                    d_e[i * width + f] += d_ll[at] * w_l[c * width + f] + d_lg[at] * w_g[c * width + f];
                    d_w[c * width + f] += d_ll[at] * e_l[i * width + f] + d_gl[at] * e_g[i * width + f];
                }
            }
        }
        (value, vec![("grad_features", d_e), ("grad_head_weight", d_w), ("grad_head_bias", d_b)])
    }
}

#[test]
fn golden_losses() {
    let file = golden("losses.json");
    let mut seen = BTreeMap::<String, usize>::new();
    for value in file["cases"].as_array().unwrap() {
        if value["method"] == "fedelity" {
            // A sum of two that are here, with weights from the client's samples: tested with the method.
            continue;
        }
        let case = LossCase::new(value);
        *seen.entry(value["method"].as_str().unwrap().to_owned()).or_default() += 1;
        // Logits are rounded to f32; for entries of 40 the error is already 2e-6.
        let largest = case.z.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let tolerance = if largest > 20.0 { 1e-4 } else { 1e-5 };
        let (loss, gradients) = case.run();
        let expected = value["expect"]["loss"].as_f64().unwrap();
        assert!(
            (loss - expected).abs() <= tolerance * expected.abs().max(1e-8),
            "{}: {loss}, not {expected}",
            case.name
        );
        for (name, got) in gradients {
            let expected = flat(&value["expect"][name]);
            assert_eq!(got.len(), expected.len(), "{}: {name}", case.name);
            let scale = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (i, (&got, expected)) in got.iter().zip(expected).enumerate() {
                let error = (f64::from(got) - expected).abs();
                assert!(error <= tolerance * scale, "{}: {name}[{i}]: {got}, not {expected} (of {scale})", case.name);
            }
        }
    }
    assert!(seen.len() >= 12, "the file lacks losses, it has {seen:?}");
}
