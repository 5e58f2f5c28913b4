//! Statistics over seeds: means, intervals, tests.

use fedelity_record::mean_and_sd;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// From this many pairs, differences are tested by ranks. With fewer, a rank test has hardly any power.
const RANKS_FROM: usize = 10;
/// Up to this many differences, the rank distribution is exact.
const EXACT: usize = 60;

/// Mean and spread of a number over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MeanSd {
    pub n: usize,
    pub mean: f64,
    /// The standard deviation, with divisor n - 1; `None` for one number.
    pub sd: Option<f64>,
}

impl MeanSd {
    /// Of these numbers; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (mean, sd) = mean_and_sd(values)?;
        Some(Self { n: values.len(), mean, sd })
    }
}

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// How differences were tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Student's t on the differences.
    PairedT,
    /// Wilcoxon's signed-rank test, exact for up to 60 differences.
    WilcoxonSignedRank,
}

impl Test {
    pub fn name(self) -> &'static str {
        match self {
            Self::PairedT => "paired t",
            Self::WilcoxonSignedRank => "Wilcoxon signed-rank",
        }
    }
}

/// Differences from the baseline on the same seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Difference {
    #[serde(flatten)]
    pub summary: MeanSd,
    /// The 95 % interval of the mean, for two or more seeds.
    pub interval: Option<Interval>,
    /// The two-sided p-value of no difference.
    pub p: Option<f64>,
    /// The same after Holm's correction over all methods of the table.
    pub p_holm: Option<f64>,
    pub test: Test,
}

/// The difference of two accuracies without the rounding error of subtraction, so that equal differences compare equal.
/// Accuracies are shares of at most a few million samples.
pub(crate) fn difference(a: f64, b: f64) -> f64 {
    const STEP: f64 = 1e-12;
    let rounded = ((a - b) / STEP).round() * STEP;
    if rounded.is_finite() { rounded } else { a - b }
}

/// The mean of differences, its 95 % interval (Student's t) and the two-sided p-value against zero.
///
/// A single difference has no interval or p-value; neither do differences that are all the same.
pub(crate) fn differ(differences: &[f64]) -> Option<Difference> {
    let summary = MeanSd::of(differences)?;
    let test = if summary.n >= RANKS_FROM { Test::WilcoxonSignedRank } else { Test::PairedT };
    let same = differences.windows(2).all(|pair| pair[0] == pair[1]);
    let spread = summary.sd.filter(|_| !same).and_then(|sd| {
        let error = sd / (summary.n as f64).sqrt();
        let t = StudentsT::new(0.0, 1.0, (summary.n - 1) as f64).ok()?;
        Some((error, t))
    });
    let interval = spread.map(|(error, t)| {
        let half = t.inverse_cdf(0.975) * error;
        Interval { low: summary.mean - half, high: summary.mean + half }
    });
    let p = match test {
        Test::PairedT => spread.map(|(error, t)| 2.0 * t.sf((summary.mean / error).abs())),
        Test::WilcoxonSignedRank => wilcoxon(differences),
    };
    Some(Difference { summary, interval, p, p_holm: None, test })
}

/// The two-sided p-value of Wilcoxon's signed-rank test. Zero differences are left out, ties share their ranks.
fn wilcoxon(differences: &[f64]) -> Option<f64> {
    let other: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if other.is_empty() {
        return None;
    }
    let sizes: Vec<f64> = other.iter().map(|d| d.abs()).collect();
    // Twice a rank is an integer, even if ranks are shared.
    let twice: Vec<usize> = ranks(&sizes, false).iter().map(|rank| (2.0 * rank).round() as usize).collect();
    let total: usize = twice.iter().sum();
    let positive: usize = twice.iter().zip(&other).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    let less = positive.min(total - positive);
    if other.len() <= EXACT {
        // The shares of sign combinations that give each sum.
        let mut shares = vec![0.0; total + 1];
        shares[0] = 1.0;
        for &rank in &twice {
            for sum in (0..=total).rev() {
                shares[sum] = 0.5 * (shares[sum] + if sum >= rank { shares[sum - rank] } else { 0.0 });
            }
        }
        return Some((2.0 * shares[..=less].iter().sum::<f64>()).min(1.0));
    }
    let mean = total as f64 / 2.0;
    let variance = twice.iter().map(|&rank| (rank * rank) as f64).sum::<f64>() / 4.0;
    let z = (less as f64 - mean) / variance.sqrt();
    // The normal distribution is the limit of Student's t.
    let normal = statrs::distribution::Normal::standard();
    Some((2.0 * normal.cdf(z)).min(1.0))
}

/// Ranks from 1; ties share their mean rank.
pub(crate) fn ranks(values: &[f64], largest_first: bool) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| {
        let order = values[a].total_cmp(&values[b]);
        if largest_first { order.reverse() } else { order }
    });
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let same = order[first..].iter().take_while(|&&i| values[i] == values[order[first]]).count();
        let shared = (first + 1 + first + same) as f64 / 2.0;
        order[first..first + same].iter().for_each(|&i| ranks[i] = shared);
        first += same;
    }
    ranks
}

/// Holm's correction for several p-values.
pub(crate) fn holm(p: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> = p.iter().enumerate().filter_map(|(i, p)| Some((i, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut adjusted, mut so_far) = (vec![None; p.len()], 0.0f64);
    for (at, &(i, p)) in order.iter().enumerate() {
        so_far = so_far.max((p * (order.len() - at) as f64).min(1.0));
        adjusted[i] = Some(so_far);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1e-3), "found {found}, expected {expected}");
    }

    /// 0.58 - 0.55 and 0.33 - 0.30 differ in the last bit without rounding.
    #[test]
    fn equal_differences_are_equal() {
        let tied = [difference(0.58, 0.55), difference(0.33, 0.30)];
        assert_eq!(tied[0], tied[1]);
        let found = differ(&tied).unwrap();
        assert!(found.interval.is_none() && found.p.is_none() && (found.summary.mean - 0.03).abs() < 1e-12);
        // Ten differences of 0.01 or -0.01, six of them positive: all ranks are shared, and p is that of a fair coin.
        let pairs = [(0.71, 0.70), (0.56, 0.55), (0.34, 0.33), (0.80, 0.79), (0.62, 0.61), (0.48, 0.47)];
        let other = [(0.70, 0.71), (0.55, 0.56), (0.33, 0.34), (0.79, 0.80)];
        let all: Vec<f64> = pairs.iter().chain(&other).map(|(a, b)| difference(*a, *b)).collect();
        near(differ(&all).unwrap().p.unwrap(), 772.0 / 1024.0);
        assert_eq!(difference(1e300, 0.0), 1e300);
    }

    /// `scipy.stats.ttest_rel` and its `confidence_interval(0.95)`, SciPy 1.
    #[test]
    fn paired_t_matches_scipy() {
        let (a, b) = ([0.78, 0.80, 0.77, 0.81, 0.79], [0.76, 0.77, 0.765, 0.78, 0.80]);
        let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        let found = differ(&differences).unwrap();
        assert_eq!((found.test, found.summary.n), (Test::PairedT, 5));
        near(found.summary.mean, 0.015);
        near(found.summary.sd.unwrap(), 0.017320508075688787);
        near(found.p.unwrap(), 0.12487982574290818);
        near(found.interval.unwrap().low, -0.006506251308180312);
        near(found.interval.unwrap().high, 0.03650625130818034);
    }

    /// `scipy.stats.wilcoxon(..., method="exact")`; the ties by enumerating all 1024 sign combinations.
    #[test]
    fn signed_ranks_match_scipy() {
        let twelve = [0.012, -0.003, 0.02, 0.007, 0.015, -0.001, 0.009, 0.011, 0.004, -0.006, 0.013, 0.018];
        let found = differ(&twelve).unwrap();
        assert_eq!(found.test, Test::WilcoxonSignedRank);
        near(found.p.unwrap(), 0.00927734375);
        near(wilcoxon(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap(), 0.03125);
        near(wilcoxon(&[-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap(), 0.0625);
        near(wilcoxon(&[1.0, 1.0, 2.0, -2.0, 3.0, 3.0, -1.0, 4.0, 4.0, 5.0]).unwrap(), 0.03515625);
        let sixty: Vec<f64> = (1..=60).map(|i| (f64::from(i) * 1.3).sin() + 0.2).collect();
        near(wilcoxon(&sixty).unwrap(), 0.016477661755250006);
        let many: Vec<f64> = sixty.iter().chain(&sixty).copied().collect();
        assert!(wilcoxon(&many).unwrap() < 0.01);
        assert_eq!(wilcoxon(&[0.0; 12]), None);
    }

    #[test]
    fn too_few_differences_give_no_test() {
        assert_eq!(differ(&[]), None);
        let one = differ(&[0.5]).unwrap();
        assert_eq!((one.interval, one.p, one.summary.sd), (None, None, None));
        let same = differ(&[0.5, 0.5]).unwrap();
        assert_eq!((same.interval, same.p), (None, None));
    }

    #[test]
    fn ranks_and_holm() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0], true), [1.5, 4.0, 1.5, 3.0]);
        assert_eq!(ranks(&[], true), Vec::<f64>::new());
        // statsmodels.stats.multitest.multipletests([0.01, 0.04, 0.03, 0.005], method="holm").
        let found = holm(&[Some(0.01), Some(0.04), None, Some(0.03), Some(0.005)]);
        let expected = [Some(0.03), Some(0.06), None, Some(0.06), Some(0.02)];
        for (found, expected) in found.iter().zip(expected) {
            match (found, expected) {
                (Some(found), Some(expected)) => near(*found, expected),
                (found, expected) => assert_eq!((found, expected), (&None, None)),
            }
        }
    }
}
