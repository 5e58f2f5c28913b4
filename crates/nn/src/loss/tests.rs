//! Derivatives by finite differences, identities, extreme logits.

use proptest::prelude::*;

use super::*;

/// Numbers in [-size, size), by splitmix64.
fn numbers(seed: u64, len: usize, size: f32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) >> 40
    };
    (0..len).map(|_| size * (next() as f32 / (1 << 23) as f32 - 1.0)).collect()
}

fn labels(samples: usize, classes: usize) -> Vec<u16> {
    (0..samples).map(|i| ((i * i + 1) % classes) as u16).collect()
}

/// Compares the gradient with fourth-order finite differences.
fn check(what: &str, z: &[f32], loss: &dyn Fn(&[f32], &mut [f32]) -> f32) {
    let mut d = vec![1.0; z.len()];
    loss(z, &mut d);
    let scale = d.iter().fold(0.0f32, |m, d| m.max((d - 1.0).abs()));
    for i in 0..z.len() {
        let at = |h: f32| {
            let mut moved = z.to_vec();
            moved[i] += h;
            f64::from(loss(&moved, &mut vec![0.0; z.len()]))
        };
        let h = 0.03f32;
        let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * f64::from(h));
        let got = f64::from(d[i] - 1.0);
        assert!((got - slope).abs() < 3e-4 * f64::from(scale.max(0.1)), "{what}: entry {i}: {got}, not {slope}");
    }
}

const SIZES: [(usize, usize); 4] = [(4, 3), (1, 2), (3, 10), (1, 5)];

#[test]
fn gradients_match_finite_differences() {
    for (seed, (n, k)) in SIZES.into_iter().enumerate() {
        let seed = 10 * seed as u64;
        let (z, t) = (numbers(seed, n * k, 2.0), numbers(seed + 1, n * k, 2.0));
        let (y, weights) = (labels(n, k), numbers(seed + 2, n, 1.0));
        check("weighted cross-entropy", &z, &|z, d| weighted_cross_entropy(z, &y, k, &weights, d));
        for tau in [0.5, 1.0, 2.0, 3.0] {
            for tau_squared in [false, true] {
                let how = Kl { weight: 0.7, tau, tau_squared, ..Kl::default() };
                check("kl", &z, &|z, d| kl(z, &t, k, &how, d));
                let how = Kl { weights: Some(&weights), exclude: Some(&y), ..how };
                check("kl without a class", &z, &|z, d| kl(z, &t, k, &how, d));
            }
        }
        let table = numbers(seed + 3, k * k, 2.0);
        check("kl by rows", &z, &|z, d| kl(z, &table, k, &Kl { rows: Some(&y), ..Kl::default() }, d));
        check("mse", &z, &|z, d| mse(z, &t, 0.3, d));
        let entry_weights = numbers(seed + 4, n * k, 1.0);
        check("squares", &z, &|z, d| squares(z, &t, k, &entry_weights, d));
        for rich in [vec![true; k], vec![false; k], (0..k).map(|c| c % 2 == 0).collect()] {
            for exact in [false, true] {
                for (alpha_rich, alpha_few) in [
                    (Alpha::Fixed(0.3), Alpha::Fixed(1.0)),
                    (Alpha::NotTrue, Alpha::NotTrue),
                    (Alpha::NotTrue, Alpha::Fixed(0.2)),
                ] {
                    let alpha_true = Alpha::Fixed(0.4);
                    let how = Groups { weight: 0.8, alpha_true, alpha_rich, alpha_few, exact, rich: &rich };
                    check("group distillation", &z, &|z, d| group_distillation(z, &t, &y, k, &how, d));
                }
            }
        }
        let previous = numbers(seed + 5, n * k, 2.0);
        for tau in [0.5, 1.0] {
            check("contrast", &z, &|z, d| contrast(z, &t, &previous, k, tau, 1.3, d));
        }
    }
}

fn groups(alphas: (Alpha, Alpha, Alpha), exact: bool, rich: &[bool]) -> Groups<'_> {
    Groups { weight: 1.0, alpha_true: alphas.0, alpha_rich: alphas.1, alpha_few: alphas.2, exact, rich }
}

/// p_nt * D with p_nt from the teacher, in plain arithmetic.
fn split_of(z: &[f32], t: &[f32], label: usize, rich: &[bool]) -> f64 {
    let shares = |row: &[f32]| {
        let e = |c: usize| f64::from(row[c]).exp();
        let others = || (0..row.len()).filter(|&c| c != label);
        let sum: f64 = others().map(e).sum();
        (others().filter(|&c| rich[c]).map(e).sum::<f64>() / sum, sum / (sum + e(label)))
    };
    let ((from, not_true), (to, _)) = (shares(t), shares(z));
    let part = |p: f64, q: f64| if p > 0.0 { p * (p / q).ln() } else { 0.0 };
    not_true * (part(from, to) + part(1.0 - from, 1.0 - to))
}

#[test]
fn group_distillation_counts_the_split_twice_unless_exact() {
    let all = (Alpha::Fixed(1.0), Alpha::NotTrue, Alpha::NotTrue);
    for seed in 0..50 {
        let k = 6;
        let (z, t, y) = (numbers(seed, k, 3.0), numbers(seed + 100, k, 3.0), [(seed % 6) as u16]);
        for rich in [[true, false, true, false, true, true], [false; 6], [true; 6]] {
            let (mut d_kl, mut d_gd, mut d_exact) = ([0.0; 6], [0.0; 6], [0.0; 6]);
            let plain = kl(&z, &t, k, &Kl::default(), &mut d_kl);
            let published = group_distillation(&z, &t, &y, k, &groups(all, false, &rich), &mut d_gd);
            let split = split_of(&z, &t, usize::from(y[0]), &rich);
            assert!((f64::from(published - plain) - split).abs() < 1e-5, "{published} {plain} {split}");
            let exact = group_distillation(&z, &t, &y, k, &groups(all, true, &rich), &mut d_exact);
            assert!((exact - plain).abs() < 1e-6 * (1.0 + plain));
            assert!(d_kl.iter().zip(d_exact).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}

#[test]
fn not_true_distillation_is_group_distillation_with_one_group() {
    let (n, k) = (5, 7);
    let (z, t, y) = (numbers(1, n * k, 3.0), numbers(2, n * k, 3.0), labels(n, k));
    let (mut d_ntd, mut d_gd) = (vec![0.0; n * k], vec![0.0; n * k]);
    let ntd = kl(&z, &t, k, &Kl { exclude: Some(&y), ..Kl::default() }, &mut d_ntd);
    for rich in [[true; 7], [false; 7]] {
        d_gd.fill(0.0);
        let alphas = (Alpha::Fixed(0.0), Alpha::Fixed(1.0), Alpha::Fixed(1.0));
        let gd = group_distillation(&z, &t, &y, k, &groups(alphas, false, &rich), &mut d_gd);
        assert!((ntd - gd).abs() < 1e-6 * ntd);
        assert!(d_ntd.iter().zip(&d_gd).all(|(a, b)| (a - b).abs() < 1e-7));
    }
}

#[test]
fn the_true_logit_gets_nothing_from_the_others() {
    let (n, k) = (6, 4);
    let (z, t, y) = (numbers(3, n * k, 9.0), numbers(4, n * k, 9.0), labels(n, k));
    for tau in [1.0, 2.5] {
        let mut d = vec![0.1; n * k];
        kl(&z, &t, k, &Kl { tau, exclude: Some(&y), ..Kl::default() }, &mut d);
        for (row, &label) in d.chunks_exact(k).zip(&y) {
            assert_eq!(row[usize::from(label)].to_bits(), 0.1f32.to_bits());
            assert!(row.iter().enumerate().all(|(c, &d)| c == usize::from(label) || d != 0.1));
        }
    }
}

#[test]
fn a_row_of_weight_zero_is_left_alone() {
    let (z, t, y, weights) = (numbers(5, 6, 1.0), numbers(6, 6, 1.0), [0, 1], [0.0, 1.0]);
    let mut d = [-0.0; 6];
    weighted_cross_entropy(&z, &y, 3, &weights, &mut d);
    kl(&z, &t, 3, &Kl { weights: Some(&weights), ..Kl::default() }, &mut d);
    assert!(d[..3].iter().all(|d| d.to_bits() == (-0.0f32).to_bits()) && d[3..].iter().all(|&d| d != 0.0));
}

#[test]
fn equal_logits_have_no_divergence() {
    let (z, y) = (numbers(7, 12, 5.0), labels(3, 4));
    let mut d = vec![0.0; 12];
    assert!(kl(&z, &z, 4, &Kl { tau: 2.0, ..Kl::default() }, &mut d).abs() < 1e-7);
    assert!(mse(&z, &z, 1.0, &mut d) == 0.0);
    let rich = [true, false, true, false];
    let all = (Alpha::Fixed(1.0), Alpha::Fixed(1.0), Alpha::Fixed(1.0));
    assert!(group_distillation(&z, &z, &y, 4, &groups(all, false, &rich), &mut d).abs() < 1e-7);
    assert!(d.iter().all(|d| d.abs() < 1e-7));
    assert!((contrast(&z, &z, &z, 4, 0.5, 1.0, &mut d) - 2f32.ln()).abs() < 1e-6);
}

/// Losses that take a student, a teacher, labels and classes.
fn each_loss(z: &[f32], t: &[f32], y: &[u16], k: usize, d: &mut [f32]) -> Vec<f32> {
    let weights = vec![0.5; y.len()];
    let rich: Vec<bool> = (0..k).map(|c| c % 2 == 0).collect();
    let mut values = vec![weighted_cross_entropy(z, y, k, &weights, d), mse(z, t, 1.0, d)];
    for tau in [0.5, 1.0, 3.0] {
        values.push(kl(z, t, k, &Kl { tau, tau_squared: true, ..Kl::default() }, d));
        values.push(kl(z, t, k, &Kl { tau, exclude: Some(y), ..Kl::default() }, d));
    }
    for rich in [&rich, &vec![true; k], &vec![false; k]] {
        for exact in [false, true] {
            let all = (Alpha::NotTrue, Alpha::Fixed(1.0), Alpha::NotTrue);
            values.push(group_distillation(z, t, y, k, &groups(all, exact, rich), d));
        }
    }
    values.push(squares(z, t, k, &vec![0.5; z.len()], d));
    values.push(contrast(z, t, t, k, 0.5, 1.0, d));
    values
}

#[test]
fn extreme_logits_stay_finite() {
    for size in [80.0, 500.0, 1e4] {
        for k in [1, 2, 3, 10] {
            for turn in 0..6 {
                let z: Vec<f32> = (0..3 * k).map(|i| if (i + turn) % 3 == 0 { size } else { -size }).collect();
                let t: Vec<f32> = (0..3 * k).map(|i| if (i * 7 + turn) % 4 < 2 { size } else { -size }).collect();
                let y: Vec<u16> = (0..3).map(|i| ((i + turn) % k) as u16).collect();
                let mut d = vec![0.0; 3 * k];
                let values = each_loss(&z, &t, &y, k, &mut d);
                assert!(values.iter().chain(&d).all(|v| v.is_finite()), "{size} {k}: {values:?} {d:?}");
                assert!(values.iter().all(|&v| v > -1e-4 * size), "{size} {k}: {values:?}");
            }
        }
    }
}

#[test]
fn zero_features_have_no_direction() {
    let (zero, other) = ([0.0; 4], [1.0, -2.0, 0.5, 3.0]);
    for (z, g, p) in [(zero, other, other), (other, zero, other), (other, other, zero), (zero, zero, zero)] {
        let mut d = [0.0; 4];
        let value = contrast(&z, &g, &p, 4, 0.5, 1.0, &mut d);
        assert!(value.is_finite() && d.iter().all(|d| d.is_finite()));
        assert!(z != zero || (value == 2f32.ln() && d == zero), "{value} {d:?}");
    }
    let mut d = [0.0; 4];
    contrast(&[1e-20; 4], &other, &[1e30; 4], 4, 0.5, 1.0, &mut d);
    assert!(d.iter().all(|d| d.is_finite()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_divergence_is_at_least_0_and_0_between_equals(
        pairs in prop::collection::vec((-60.0f32..60.0, -60.0f32..60.0), 12),
        classes in prop::sample::select(vec![2usize, 3, 4, 6, 12]),
        tau in 0.2f32..8.0,
        tau_squared: bool,
        leave_out: bool,
    ) {
        let (z, t): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
        let out = labels(12 / classes, classes);
        let how = Kl { tau, tau_squared, exclude: leave_out.then_some(&out), ..Kl::default() };
        let of = |z: &[f32], t: &[f32]| kl(z, t, classes, &how, &mut [0.0; 12]);
        // Terms are up to 1e3 and are summed in f64.
        prop_assert!(of(&z, &t) >= -1e-9, "{}", of(&z, &t));
        prop_assert!(of(&z, &z).abs() <= 1e-9, "{}", of(&z, &z));
    }
}
