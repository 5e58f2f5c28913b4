//! Distillation losses shared by several methods.

use fedelity_fl::{Local, Step, Terms};
use fedelity_nn::loss::{self, Kl};

/// weight * tau^2 * KL(teacher || student), both at temperature tau.
pub(crate) fn softened(weight: f64, tau: f64) -> Kl<'static> {
    Kl { weight: weight as f32, tau: tau as f32, tau_squared: true, ..Kl::default() }
}

/// (1 - alpha_y) L_c + alpha_y L_d, with L_d the divergence from teacher 0 and alpha a weight per class.
pub(crate) fn mixed(local: &mut Local<'_>, step: &mut Step<'_>, how: &Kl<'_>, alpha: impl Fn(usize) -> f32) -> Terms {
    let (for_label, for_teacher) = local.scratch.typed::<(Vec<f32>, Vec<f32>)>(Default::default);
    for_teacher.clear();
    for_teacher.extend(step.labels.iter().map(|&label| alpha(usize::from(label))));
    for_label.clear();
    for_label.extend(for_teacher.iter().map(|alpha| 1.0 - alpha));
    let ce = loss::weighted_cross_entropy(step.student.logits, step.labels, step.classes, for_label, step.d_logits);
    Terms::of("ce", ce).with("kd", step.distil(0, &Kl { weights: Some(for_teacher), ..*how }))
}
