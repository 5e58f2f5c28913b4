//! Plain f64 versions of the kernels of text models.

use super::erf::erf;

/// x * Phi(x).
pub(crate) fn gelu(x: f64) -> f64 {
    x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// Derivative of [`gelu`].
pub(crate) fn gelu_derivative(x: f64) -> f64 {
    0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)) + x * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// Layer normalisation of one row.
pub(crate) fn layer_norm(x: &[f64], gamma: &[f64], beta: &[f64], eps: f64) -> Vec<f64> {
    let (mean, rstd) = moments(x, eps);
    x.iter().zip(gamma.iter().zip(beta)).map(|(x, (g, b))| (x - mean) * rstd * g + b).collect()
}

/// The gradients of a row, of gamma and of beta.
pub(crate) fn layer_norm_backward(d_y: &[f64], x: &[f64], gamma: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mean, rstd) = moments(x, eps);
    let n = x.len() as f64;
    let norm: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
    let d: Vec<f64> = d_y.iter().zip(gamma).map(|(d, g)| d * g).collect();
    let plain = d.iter().sum::<f64>() / n;
    let along = d.iter().zip(&norm).map(|(d, x)| d * x).sum::<f64>() / n;
    let d_x = d.iter().zip(&norm).map(|(d, x)| rstd * (d - plain - x * along)).collect();
    (d_x, d_y.iter().zip(&norm).map(|(d, x)| d * x).collect(), d_y.to_vec())
}

fn moments(x: &[f64], eps: f64) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (variance + eps).sqrt())
}

/// One head: the context `[query][size]` and the probabilities `[query][token]`, for queries, keys and values as rows.
/// `keep` multiplies the probabilities.
pub(crate) fn attention(q: &[Vec<f64>], k: &[Vec<f64>], v: &[Vec<f64>], keep: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let scale = 1.0 / (q[0].len() as f64).sqrt();
    let mut all = Vec::new();
    let mut context = Vec::new();
    for (i, q) in q.iter().enumerate() {
        let scores: Vec<f64> = k.iter().map(|k| scale * dot(q, k)).collect();
        let p: Vec<f64> = super::log_softmax(&scores, 1.0).iter().map(|p| p.exp()).collect();
        let keep = &keep[i * k.len()..(i + 1) * k.len()];
        let weight = |j: usize| p[j] * keep[j];
        context.push((0..v[0].len()).map(|c| (0..v.len()).map(|j| weight(j) * v[j][c]).sum()).collect());
        all.extend(p);
    }
    (context, all)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// One step of an LSTM cell for one row: the new cell and hidden state.
pub(crate) fn lstm_cell(sums: &[f64], before: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = before.len();
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let cell: Vec<f64> =
        (0..n).map(|i| logistic(sums[n + i]) * before[i] + logistic(sums[i]) * sums[2 * n + i].tanh()).collect();
    let hidden = (0..n).map(|i| logistic(sums[3 * n + i]) * cell[i].tanh()).collect();
    (cell, hidden)
}
