//! Statistics of the global model on the server's auxiliary samples.

use fedelity_fl::{FlError, Named, Result, Server};
use fedelity_nn::loss;

/// Per true class, the mean over its samples of what `each` adds to a row of `width` numbers. `each` gets the row, the
/// class, and the model's logits and probabilities. A class without samples gets zeros.
pub(crate) fn class_means(
    method: &dyn Named,
    server: &mut Server<'_>,
    width: usize,
    mut each: impl FnMut(&mut [f64], usize, &[f32], &[f32]),
) -> Result<Vec<f64>> {
    let what = "labelled auxiliary samples on the server";
    let samples = server.auxiliary.ok_or(FlError::Needs { method: method.name(), what })?;
    let classes = server.model.classes();
    let (mut sums, mut totals, mut p) = (vec![0.0; classes * width], vec![0_u32; classes], Vec::new());
    server.trainer.evaluate(server.global, samples, &mut |outputs, labels| {
        p.resize(outputs.logits.len(), 0.0);
        loss::softmax_rows(&mut p, outputs.logits, classes, 1.0);
        for ((logits, p), &label) in outputs.logits.chunks_exact(classes).zip(p.chunks_exact(classes)).zip(labels) {
            let label = usize::from(label);
            totals[label] += 1;
            each(&mut sums[label * width..][..width], label, logits, p);
        }
    });
    Ok(sums.iter().enumerate().map(|(i, sum)| sum / f64::from(totals[i / width].max(1))).collect())
}
