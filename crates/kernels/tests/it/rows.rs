//! Layout conversions, elementwise kernels and kernels on rows, against plain formulas.

use fedelity_kernels::affine::DenseSizes;
use fedelity_kernels::lanes::ByteImages;
use fedelity_kernels::{Isa, LANES, Planes, PlanesMut, affine, dense, dropout, elementwise, lanes, softmax};
use proptest::prelude::*;

use crate::common::*;
use crate::reference::{self, Shape};

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn rows_to_lanes_and_back(shape in shapes(3000), halo in 0usize..=2, seed in any::<u64>()) {
        let x = Random::new(seed).vector(shape.len());
        for isa in Isa::available() {
            let mut found = blank(shape, halo);
            lanes::from_rows(isa, planes_mut(&mut found), shape.channels, &single(&x), shape.samples);
            let expected = reference::to_lanes(&x, shape, found.1, LANES, CANARY, 0.0);
            prop_assert_eq!(&found.0, &expected);
            let mut rows = vec![CANARY; x.len()];
            lanes::to_rows(isa, &mut rows, planes(&found), shape.channels, shape.samples);
            prop_assert_eq!(&rows, &single(&x));
        }
    }

    #[test]
    fn images_to_lanes_and_rows(shape in shapes(3000), halo in 0usize..=2, seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let (images, pixels) = (7, shape.height * shape.width);
        let bytes: Vec<u8> = (0..images * shape.channels * pixels).map(|_| random.bits() as u8).collect();
        let indices: Vec<u32> = (0..shape.samples).map(|_| (random.bits() % images as u64) as u32).collect();
        let (scale, shift) = (random.vector(shape.channels), random.vector(shape.channels));
        let (scale, shift) = (single(&scale), single(&shift));
        let mut expected = Vec::new();
        for &index in &indices {
            for i in 0..shape.channels * pixels {
                let byte = bytes[index as usize * shape.channels * pixels + i];
                expected.push(f64::from(f32::from(byte) * scale[i / pixels] + shift[i / pixels]));
            }
        }
        let mut rows = vec![CANARY; shape.len()];
        let picked = ByteImages { pixels: &bytes, indices: &indices, scale: &scale, shift: &shift };
        lanes::gather_u8_rows(&mut rows, picked, pixels);
        prop_assert_eq!(&double(&rows), &expected);
        for isa in Isa::available() {
            let mut found = blank(shape, halo);
            lanes::gather_u8(isa, planes_mut(&mut found), picked);
            prop_assert_eq!(&found.0, &reference::to_lanes(&expected, shape, found.1, LANES, CANARY, 0.0));
        }
    }

    #[test]
    fn relu_and_sums(
        shape in shapes(3000), halos in [0usize..=2, 0usize..=2, 0usize..=2], relu in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let (a, b) = (random.vector(shape.len()), random.vector(shape.len()));
        let add = |a: f64, b: f64| f64::from(a as f32 + b as f32);
        let sum: Vec<f64> = a.iter().zip(&b).map(|(a, b)| add(*a, *b)).collect();
        let relu_sum = if relu { reference::relu(&sum) } else { sum.clone() };
        let rectified = reference::relu(&a);
        let masked = reference::relu_backward(&b, &rectified);
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let count = count(shape);
            let a_lanes = laid_gradient(&a, shape, halos[0]);
            let b_lanes = laid_gradient(&b, shape, halos[1]);
            let mut y = blank(shape, halos[2]);
            elementwise::relu_forward(isa, planes_mut(&mut y), planes(&a_lanes), count);
            close_lanes(&y, shape, &rectified, CANARY, "relu")?;
            same.check(&y.0, "relu")?;
            let y = laid(&rectified, shape, halos[2]);
            let mut d_x = blank(shape, halos[0]);
            elementwise::relu_backward(isa, planes_mut(&mut d_x), planes(&b_lanes), planes(&y), count);
            close_lanes(&d_x, shape, &masked, 0.0, "gradient of relu")?;
            same.check(&d_x.0, "gradient of relu")?;
            missing_are_zero(&d_x, shape, "gradient of relu")?;
            let mut y = blank(shape, halos[2]);
            elementwise::add_forward(isa, planes_mut(&mut y), planes(&a_lanes), planes(&b_lanes), count, relu);
            close_lanes(&y, shape, &relu_sum, CANARY, "sum")?;
            same.check(&y.0, "sum")?;
            let mut y = a_lanes.clone();
            elementwise::add_to(isa, planes_mut(&mut y), planes(&b_lanes), count);
            close_lanes(&y, shape, &sum, CANARY, "sum in place")?;
            same.check(&y.0, "sum in place")?;
        }
        let mut y = single(&a);
        elementwise::relu_rows(&mut y);
        prop_assert_eq!(&double(&y), &rectified);
        let mut d = single(&b);
        elementwise::relu_rows_backward(&mut d, &y);
        prop_assert_eq!(&double(&d), &masked);
    }

    #[test]
    fn dense_layers(
        n in 1usize..=19, inputs in prop_oneof![1usize..=90, (1usize..=20).prop_map(|k| 16 * k)], outputs in 1usize..=140,
        add in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let (x, w, b) = (random.vector(n * inputs), random.vector(outputs * inputs), random.vector(outputs));
        let (d_y, old) = (random.vector(n * outputs), random.vector(n * inputs));
        let old_w = random.vector(w.len());
        let mut y = reference::product((n, outputs, inputs), |i, k| x[i * inputs + k], |k, j| w[j * inputs + k]);
        y.iter_mut().enumerate().for_each(|(i, y)| *y += b[i % outputs]);
        let mut d_x = reference::product((n, inputs, outputs), |i, k| d_y[i * outputs + k], |k, j| w[k * inputs + j]);
        if add {
            d_x.iter_mut().zip(&old).for_each(|(d, old)| *d += old);
        }
        let mut d_w =
            reference::product((outputs, inputs, n), |i, k| d_y[k * outputs + i], |k, j| x[k * inputs + j]);
        let d_w_alone = d_w.clone();
        d_w.iter_mut().zip(&old_w).for_each(|(d, old)| *d += old);
        let d_b: Vec<f64> = (0..outputs).map(|o| b[o] + (0..n).map(|i| d_y[i * outputs + o]).sum::<f64>()).collect();

        let (x, w, b, d_y) = (single(&x), single(&w), single(&b), single(&d_y));
        let sizes = DenseSizes { samples: n, inputs, outputs };
        let mut found = b.clone();
        dense::bias_gradient(&mut found, &d_y, n, outputs);
        close(&double(&found), &d_b, "bias gradient")?;
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let mut found = vec![CANARY; n * outputs];
            affine::forward(isa, &mut found, &x, &w, &b, sizes);
            close(&double(&found), &y, "output")?;
            same.check(&found, "output")?;
            // A sample's outputs do not depend on the batch.
            let mut alone = vec![CANARY; outputs];
            let (last, one) = (&x[(n - 1) * inputs..], DenseSizes { samples: 1, ..sizes });
            affine::forward(isa, &mut alone, last, &w, &b, one);
            prop_assert_eq!(&found[(n - 1) * outputs..], &alone[..]);
            let mut found = vec![CANARY; n * outputs];
            dense::forward(isa, &mut found, &x, &w, &b, sizes);
            close(&double(&found), &y, "output of a product")?;
            same.check(&found, "output of a product")?;
            dense::forward(isa, &mut alone, last, &w, &b, one);
            prop_assert_eq!(&found[(n - 1) * outputs..], &alone[..]);

            let mut found = single(&old);
            affine::input_gradient(isa, &mut found, &d_y, &w, sizes, add);
            close(&double(&found), &d_x, "input gradient")?;
            same.check(&found, "input gradient")?;
            // Nor does the gradient of its inputs.
            let mut alone = single(&old[(n - 1) * inputs..]);
            affine::input_gradient(isa, &mut alone, &d_y[(n - 1) * outputs..], &w, one, add);
            prop_assert_eq!(bits(&found[(n - 1) * inputs..]), bits(&alone));
            let mut found = single(&old);
            dense::input_gradient(isa, &mut found, &d_y, &w, sizes, add);
            close(&double(&found), &d_x, "input gradient of a product")?;
            same.check(&found, "input gradient of a product")?;

            let mut found = single(&old_w);
            affine::weight_gradient(isa, &mut found, &d_y, &x, sizes, add);
            close(&double(&found), if add { &d_w } else { &d_w_alone }, "weight gradient")?;
            same.check(&found, "weight gradient")?;
            let mut found = single(&old_w);
            dense::weight_gradient(isa, &mut found, &d_y, &x, sizes);
            close(&double(&found), &d_w, "weight gradient of a product")?;
            same.check(&found, "weight gradient of a product")?;
        }
    }

    #[test]
    fn softmax_and_cross_entropy(
        n in 1usize..=20, classes in 1usize..=40, size in prop::sample::select(vec![1.0, 80.0, 1e4]),
        temperature in prop::sample::select(vec![0.5, 1.0, 4.0]), weight in 0.1f32..2.0, seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let z: Vec<f64> = random.vector(n * classes).iter().map(|v| f64::from((v * size) as f32)).collect();
        let labels: Vec<u16> = (0..n).map(|_| (random.bits() % classes as u64) as u16).collect();
        let rows = |t: f64| -> Vec<f64> { z.chunks(classes).flat_map(|z| reference::log_softmax(z, t)).collect() };
        let (log, plain) = (rows(temperature), rows(1.0));
        let z_single = single(&z);
        let mut found = vec![CANARY; z.len()];
        softmax::log_softmax_rows(&mut found, &z_single, classes, temperature as f32);
        close(&double(&found), &log, "log softmax")?;
        softmax::softmax_rows(&mut found, &z_single, classes, temperature as f32);
        close(&double(&found), &log.iter().map(|v| v.exp()).collect::<Vec<_>>(), "softmax")?;

        let mut d_z = vec![0.5f32; z.len()];
        let loss = softmax::cross_entropy(&z_single, &labels, classes, weight, &mut d_z);
        let share = f64::from(weight) / n as f64;
        let expected: f64 = (0..n).map(|i| -share * plain[i * classes + usize::from(labels[i])]).sum();
        prop_assert!((f64::from(loss) - expected).abs() <= 1e-4 * expected.max(1.0), "loss {loss}, not {expected}");
        let gradient: Vec<f64> = (0..z.len())
            .map(|i| {
                let hit = usize::from(labels[i / classes]) == i % classes;
                0.5 + share * (plain[i].exp() - f64::from(u8::from(hit)))
            })
            .collect();
        close(&double(&d_z), &gradient, "gradient of the loss")?;
    }

    #[test]
    fn dropped_elements(len in 1usize..3000, p in 0.0f32..0.95, key in any::<u64>()) {
        let x: Vec<f32> = (0..len).map(|i| 1.0 + i as f32).collect();
        let (mut y, mut d) = (vec![CANARY; len], vec![CANARY; len]);
        let mut same = SameBits::default();
        for isa in Isa::available() {
            dropout::forward(isa, &mut y, &x, p, key);
            dropout::backward(isa, &mut d, &vec![1.0; len], p, key);
            same.check(&y, "dropped")?;
        }
        for i in 0..len {
            prop_assert!(d[i] == 0.0 || d[i] == 1.0 / (1.0 - p), "{i}: {}", d[i]);
            prop_assert_eq!(y[i], x[i] * d[i]);
        }
        // Five standard deviations: one case in a million fails by chance, and the cases are fixed.
        let (kept, n) = (d.iter().filter(|d| **d > 0.0).count() as f64, len as f64);
        let (p, q) = (f64::from(p), 1.0 - f64::from(p));
        prop_assert!((kept - n * q).abs() <= 5.0 * (n * p * q).sqrt() + 1.0, "{kept} of {n} kept at {p}");
    }
}

#[test]
fn dropout_depends_on_the_key_and_keeps_all_at_zero() {
    let x = vec![1.0; 1000];
    let (mut a, mut b) = (vec![0.0; 1000], vec![0.0; 1000]);
    dropout::forward(Isa::detect(), &mut a, &x, 0.5, 1);
    dropout::forward(Isa::detect(), &mut b, &x, 0.5, 2);
    let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
    assert!((400..600).contains(&same), "{same} of 1000 agree between two keys");
    // Neighbours are independent too: half of the pairs agree.
    let same = a.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!((400..600).contains(&same), "{same} of 999 neighbours agree");
    dropout::forward(Isa::detect(), &mut a, &x, 0.0, 1);
    assert_eq!(a, x);
}

#[test]
fn nan_passes_through_relu() {
    for isa in Isa::available() {
        let shape = Shape { samples: LANES, channels: 1, height: 1, width: 1 };
        let (x, mut y) = (vec![f32::NAN; LANES], vec![0.0; LANES]);
        let plane = shape.plane();
        elementwise::relu_forward(isa, PlanesMut { data: &mut y, plane }, Planes { data: &x, plane }, 1);
        assert!(y.iter().all(|v| v.is_nan()));
        elementwise::relu_rows(&mut y);
        assert!(y.iter().all(|v| v.is_nan()));
    }
}

#[test]
fn dense_layers_larger_than_a_block() {
    let (n, inputs, outputs) = (101, 1100, 402);
    let mut random = Random::new(1);
    let (x, w, d_y) = (random.vector(n * inputs), random.vector(outputs * inputs), random.vector(n * outputs));
    let y = reference::product((n, outputs, inputs), |i, k| x[i * inputs + k], |k, j| w[j * inputs + k]);
    let d_x = reference::product((n, inputs, outputs), |i, k| d_y[i * outputs + k], |k, j| w[k * inputs + j]);
    let d_w = reference::product((outputs, inputs, n), |i, k| d_y[k * outputs + i], |k, j| x[k * inputs + j]);
    let (x, w, d_y) = (single(&x), single(&w), single(&d_y));
    let sizes = DenseSizes { samples: n, inputs, outputs };
    let (bias, mut same) = (vec![0.0; outputs], SameBits::default());
    for isa in Isa::available() {
        let mut check = |found: &[f32], expected: &[f64], what| {
            close(&double(found), expected, what).unwrap();
            same.check(found, what).unwrap();
        };
        let mut found = vec![CANARY; n * outputs];
        affine::forward(isa, &mut found, &x, &w, &bias, sizes);
        check(&found, &y, "output");
        dense::forward(isa, &mut found, &x, &w, &bias, sizes);
        check(&found, &y, "output of a product");
        let mut found = vec![CANARY; n * inputs];
        affine::input_gradient(isa, &mut found, &d_y, &w, sizes, false);
        check(&found, &d_x, "input gradient");
        dense::input_gradient(isa, &mut found, &d_y, &w, sizes, false);
        check(&found, &d_x, "input gradient of a product");
        let mut found = vec![0.0; outputs * inputs];
        affine::weight_gradient(isa, &mut found, &d_y, &x, sizes, true);
        check(&found, &d_w, "weight gradient");
        let mut found = vec![0.0; outputs * inputs];
        dense::weight_gradient(isa, &mut found, &d_y, &x, sizes);
        check(&found, &d_w, "weight gradient of a product");
    }
}
