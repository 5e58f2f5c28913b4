//! Alternatives to the mean, for federations that cannot trust every client.
//!
//! Median and trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
//! Statistical Rates", ICML 2018, arXiv:1803.01498, Algorithm 1:
//!
//!   median:        w_k = median over the clients of w_{i,k}, for each coordinate k
//!   trimmed mean:  w_k = mean of what is left of w_{1,k}, ..., w_{n,k} without the floor(trim * n) largest and smallest
//!
//! Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
//! Descent", NeurIPS 2017, arXiv:1703.02757:
//!
//!   score(i) = sum over the n - f - 2 nearest other uploads j of ||w_i - w_j||^2;   Krum keeps the lowest score,
//!   Multi-Krum the `keep` lowest, and averages them; 2 f + 2 < n
//!
//! A single upload can move a mean anywhere; these rules resist as long as most clients are honest.
//!
//! Deviations: the papers' vectors are gradients, ours are weights; differences between weights of one round equal
//! those between the clients' updates. Median and trimmed mean do not weight clients, as in the paper: a client's size
//! is only a claim. The uploads that Krum keeps go to the method as usual, so their mean uses the federation's weights.
//! An upload with a non-finite number never gets here: the server rejects it.

use fedelity_fl::Received;
use fedelity_keys::keys;

/// How uploads are combined.
#[keys(tag = "rule", default = "mean")]
#[derive(Copy)]
pub enum Rule {
    /// The weighted mean, as in every method.
    Mean,
    /// The median of each coordinate.
    Median,
    /// The mean of each coordinate without its largest and smallest values.
    TrimmedMean {
        /// Share dropped at each end. At 0, this is the uniform mean.
        #[key(default = 0.1, min = 0, below = 0.5)]
        trim: f64,
    },
    /// The uploads closest to their neighbours.
    Krum {
        /// Number of untrusted uploads per round. A round needs at least 2 f + 3 uploads.
        #[key(symbol = "f", default = 1)]
        byzantine: usize,
        /// How many uploads to keep: 1 is Krum, more is Multi-Krum.
        #[key(symbol = "m", default = 1, min = 1)]
        keep: usize,
    },
}

impl Rule {
    /// The fewest uploads that a round can be closed with.
    pub fn least_uploads(self) -> usize {
        match self {
            Self::Mean | Self::Median | Self::TrimmedMean { .. } => 1,
            Self::Krum { byzantine, keep } => (2 * byzantine + 3).max(byzantine + keep),
        }
    }

    /// Whether a round with this many uploads can be closed; if not, why.
    pub fn check_uploads(self, uploads: usize) -> Result<(), String> {
        let Self::Krum { byzantine, keep } = self else { return Ok(()) };
        if uploads < 2 * byzantine + 3 {
            let least = 2 * byzantine + 3;
            let needs = format!("needs at least {least} uploads per round, but there are {uploads}");
            return Err(format!("the rule 'krum' with byzantine = {byzantine} {needs}"));
        }
        if keep > uploads - byzantine {
            let most = uploads - byzantine;
            return Err(format!("the rule 'krum' with keep = {keep} has only {most} uploads per round to choose from"));
        }
        Ok(())
    }

    /// Indices of the uploads the method sees, ascending.
    pub(super) fn choose(self, uploads: &[Received]) -> Result<Vec<usize>, String> {
        let counted: Vec<usize> = (0..uploads.len()).filter(|&k| uploads[k].weight > 0.0).collect();
        if counted.is_empty() {
            let name = self.name();
            return Err(format!("the rule '{name}': none of the {} uploads counts", uploads.len()));
        }
        self.check_uploads(counted.len())?;
        let Self::Krum { byzantine, keep } = self else { return Ok(counted) };
        let vectors: Vec<&[f32]> = counted.iter().map(|&k| &*uploads[k].params).collect();
        Ok(krum(&vectors, byzantine, keep).into_iter().map(|k| counted[k]).collect())
    }

    /// The replacement for the mean of these vectors, unless it is the mean itself.
    pub(super) fn estimate(self, vectors: &[&[f32]]) -> Option<Vec<f32>> {
        match self {
            Self::Mean | Self::Krum { .. } => None,
            Self::Median => Some(coordinates(vectors, median)),
            Self::TrimmedMean { trim } => {
                // The tolerance is for shares such as 0.29 of 100, which is 28.999999999999996.
                let each = (trim * vectors.len() as f64 + 1e-9) as usize;
                Some(coordinates(vectors, |values| trimmed_mean(values, each)))
            }
        }
    }
}

/// Applies `each` to the values of every coordinate.
fn coordinates(vectors: &[&[f32]], each: impl Fn(&mut [f32]) -> f32) -> Vec<f32> {
    let len = vectors.first().map_or(0, |vector| vector.len());
    let mut values = vec![0.0; vectors.len()];
    let at = |k: usize| {
        values.iter_mut().zip(vectors).for_each(|(value, vector)| *value = vector[k]);
        each(&mut values)
    };
    (0..len).map(at).collect()
}

/// The middle value, or the mean of the two in the middle.
fn median(values: &mut [f32]) -> f32 {
    let half = values.len() / 2;
    let odd = !values.len().is_multiple_of(2);
    let (below, &mut upper, _) = values.select_nth_unstable_by(half, f32::total_cmp);
    if odd {
        return upper;
    }
    let lower = below.iter().copied().max_by(f32::total_cmp).unwrap_or(upper);
    if lower.to_bits() == upper.to_bits() { upper } else { (f64::midpoint(f64::from(lower), f64::from(upper))) as f32 }
}

/// The mean without the `each` largest and `each` smallest values, always leaving at least one.
fn trimmed_mean(values: &mut [f32], each: usize) -> f32 {
    let each = each.min((values.len() - 1) / 2);
    values.sort_unstable_by(f32::total_cmp);
    let kept = &values[each..values.len() - each];
    if kept[0].to_bits() == kept[kept.len() - 1].to_bits() {
        return kept[0];
    }
    (kept.iter().map(|&value| f64::from(value)).sum::<f64>() / kept.len() as f64) as f32
}

/// The indices of the `keep` vectors with the lowest scores, ascending. Ties go to the earlier vector.
fn krum(vectors: &[&[f32]], byzantine: usize, keep: usize) -> Vec<usize> {
    let n = vectors.len();
    let mut apart = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..i {
            let distance = squared_distance(vectors[i], vectors[j]);
            (apart[i * n + j], apart[j * n + i]) = (distance, distance);
        }
    }
    let neighbours = n.saturating_sub(byzantine + 2).max(1).min(n - 1);
    let score = |i: usize| {
        let mut others: Vec<f64> = (0..n).filter(|&j| j != i).map(|j| apart[i * n + j]).collect();
        others.sort_unstable_by(f64::total_cmp);
        others[..neighbours].iter().sum::<f64>()
    };
    let mut scores: Vec<(f64, usize)> = (0..n).map(|i| (score(i), i)).collect();
    scores.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut kept: Vec<usize> = scores.into_iter().take(keep).map(|(_, i)| i).collect();
    kept.sort_unstable();
    kept
}

/// ||a - b||^2 in f64, which finite f32 numbers cannot overflow.
fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0_f64; LANES];
    let (a, b) = (a.chunks(LANES), b.chunks(LANES));
    for (a, b) in a.zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            let d = f64::from(*a) - f64::from(*b);
            *sum += d * d;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, -1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 1000.0]), 3.5);
        assert_eq!(median(&mut [5.0]), 5.0);
        assert_eq!(median(&mut [f32::MAX, f32::MAX]), f32::MAX);
        let rule = Rule::Median.estimate(&[&[1.0, 9.0], &[2.0, -7.0], &[30.0, 0.0]]);
        assert_eq!(rule, Some(vec![2.0, 0.0]));
    }

    #[test]
    fn trimmed_means_of_known_numbers() {
        let mut values = [10.0, 1.0, 2.0, -50.0, 3.0];
        assert_eq!(trimmed_mean(&mut values, 1), (1.0 + 2.0 + 3.0 + 10.0 - 10.0) / 3.0);
        assert_eq!(trimmed_mean(&mut values, 0), -34.0 / 5.0);
        assert_eq!(trimmed_mean(&mut values, 9), 2.0);
        let vectors: Vec<[f32; 1]> = (1..=10).map(|k| [k as f32 * k as f32]).collect();
        let vectors: Vec<&[f32]> = vectors.iter().map(|vector| &vector[..]).collect();
        // 9 + 16 + 25 + 36 + 49 + 64 over 6.
        assert_eq!(Rule::TrimmedMean { trim: 0.2 }.estimate(&vectors), Some(vec![199.0_f32 / 6.0]));
        assert_eq!(Rule::TrimmedMean { trim: 0.0 }.estimate(&vectors), Some(vec![38.5]));
    }

    #[test]
    fn krum_scores_by_hand() {
        // n = 5, f = 1: two nearest others. Scores: 1+4, 1+1, 1+4, 25+36, far.
        let vectors: [&[f32]; 5] = [&[0.0], &[1.0], &[2.0], &[7.0], &[1e20]];
        assert_eq!(krum(&vectors, 1, 1), [1]);
        assert_eq!(krum(&vectors, 1, 2), [0, 1]);
        assert_eq!(krum(&vectors, 1, 3), [0, 1, 2]);
        assert_eq!(krum(&[&[3.0]], 0, 1), [0]);
        let wide: Vec<f32> = (0..21).map(|k| k as f32).collect();
        let zeros = vec![0.0; 21];
        assert_eq!(squared_distance(&wide, &zeros), (20.0 * 21.0 * 41.0) / 6.0);
    }

    #[test]
    fn enough_uploads() {
        let krum = |byzantine, keep| Rule::Krum { byzantine, keep };
        assert!(krum(2, 1).check_uploads(7).is_ok() && krum(2, 5).check_uploads(7).is_ok());
        assert!(krum(2, 1).check_uploads(6).is_err() && krum(2, 6).check_uploads(7).is_err());
        assert!(Rule::Median.check_uploads(1).is_ok());
        for rule in [krum(2, 1), krum(2, 6), Rule::Median] {
            let least = rule.least_uploads();
            assert!(rule.check_uploads(least).is_ok() && (least == 1 || rule.check_uploads(least - 1).is_err()));
        }
    }
}
