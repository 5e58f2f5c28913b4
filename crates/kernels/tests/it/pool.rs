//! Pooling against its plain version.

use fedelity_kernels::pool::{self, MaxPool, PoolGradient, Window};
use fedelity_kernels::{Isa, LANES, Plane, Planes, PlanesMut};
use proptest::prelude::*;

use crate::common::*;
use crate::reference::{self, Shape};

fn windows() -> impl Strategy<Value = (Shape, Window)> {
    let window = (1usize..=5).prop_flat_map(|kernel| (Just(kernel), 1usize..=4, 0..=kernel / 2));
    (shapes(3000), window)
        .prop_map(|(shape, (kernel, stride, pad))| (shape, Window { kernel, stride, pad }))
        .prop_filter("the window must fit", |(shape, window)| window.output(shape.plane()).is_some())
}

/// Few distinct values, to produce ties.
fn coarse(random: &mut Random, len: usize, fine: bool) -> Vec<f64> {
    (0..len).map(|_| if fine { random.next() } else { (random.bits() % 5) as f64 - 3.0 }).collect()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn maximum(
        (shape, window) in windows(), halos in (0usize..=2, 0usize..=2, 0usize..=2, 0usize..=2),
        relu in any::<bool>(), fine in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let x = coarse(&mut random, shape.len(), fine);
        let output = shape.with(shape.channels, window.output(shape.plane()).unwrap());
        let d_y = random.vector(output.len());
        let (y, choice) = reference::max_pool(&x, shape, window, relu);
        let d_x = reference::max_pool_backward(&d_y, &choice, shape);
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let count = count(shape);
            let (x, mut found) = (laid(&x, shape, halos.0), blank(output, halos.1));
            let mut taps = blank(output, 0).0;
            let (y_lanes, x) = (planes_mut(&mut found), planes(&x));
            pool::max_forward(isa, MaxPool { y: y_lanes, choice: &mut taps, x, count, window, relu });
            close_lanes(&found, output, &y, CANARY, "maximum")?;
            same.check(&found.0, "maximum")?;
            let cut = reference::from_lanes(&taps, output, output.plane(), LANES);
            for (tap, choice) in cut.iter().zip(&choice) {
                prop_assert_eq!(*tap < 0.0, choice.is_none(), "relu cuts off what is not positive");
            }
            let (d_y, mut found) = (laid_gradient(&d_y, output, halos.2), blank(shape, halos.3));
            let (d_x_lanes, d_y, choice) = (planes_mut(&mut found), planes(&d_y), Some(&taps[..]));
            pool::backward(isa, PoolGradient { d_x: d_x_lanes, d_y, choice, count, window });
            close_lanes(&found, shape, &d_x, 0.0, "gradient of the maximum")?;
            same.check(&found.0, "gradient of the maximum")?;
            missing_are_zero(&found, shape, "gradient of the maximum")?;
        }
    }

    #[test]
    fn average(
        (shape, window) in windows(), halos in (0usize..=2, 0usize..=2, 0usize..=2, 0usize..=2), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let x = random.vector(shape.len());
        let output = shape.with(shape.channels, window.output(shape.plane()).unwrap());
        let d_y = random.vector(output.len());
        let y = reference::average_pool(&x, shape, window);
        let d_x = reference::average_pool_backward(&d_y, shape, window);
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let count = count(shape);
            let (x, mut found) = (laid(&x, shape, halos.0), blank(output, halos.1));
            pool::average_forward(isa, planes_mut(&mut found), planes(&x), count, window);
            close_lanes(&found, output, &y, CANARY, "average")?;
            same.check(&found.0, "average")?;
            let (d_y, mut found) = (laid_gradient(&d_y, output, halos.2), blank(shape, halos.3));
            let (d_x_lanes, d_y) = (planes_mut(&mut found), planes(&d_y));
            pool::backward(isa, PoolGradient { d_x: d_x_lanes, d_y, choice: None, count, window });
            close_lanes(&found, shape, &d_x, 0.0, "gradient of the average")?;
            same.check(&found.0, "gradient of the average")?;
            missing_are_zero(&found, shape, "gradient of the average")?;
        }
    }

    #[test]
    fn global(shape in shapes(3000), halos in (0usize..=2, 0usize..=2), seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let x = random.vector(shape.len());
        let y = reference::global_average(&x, shape);
        let d_y = random.vector(y.len());
        let pixels = shape.height * shape.width;
        let d_x: Vec<f64> = (0..shape.len()).map(|i| d_y[i / pixels] / pixels as f64).collect();
        let small = shape.with(shape.channels, (1, 1));
        let mut same = SameBits::default();
        for isa in Isa::available() {
            let count = count(shape);
            let (x, mut found) = (laid(&x, shape, halos.0), blank(small, 0));
            pool::global_forward(isa, &mut found.0, planes(&x), count);
            close_lanes(&found, small, &y, CANARY, "global average")?;
            same.check(&found.0, "global average")?;
            let (d_y, mut found) = (laid_gradient(&d_y, small, 0).0, blank(shape, halos.1));
            pool::global_backward(isa, planes_mut(&mut found), &d_y, count);
            close_lanes(&found, shape, &d_x, 0.0, "gradient of the global average")?;
            same.check(&found.0, "gradient of the global average")?;
            missing_are_zero(&found, shape, "gradient of the global average")?;
        }
    }
}

#[test]
fn the_first_of_equals_wins_and_nan_passes() {
    for isa in Isa::available() {
        let lanes = LANES;
        let (x_plane, y_plane) = (Plane::bare(2, 4), Plane::bare(1, 2));
        let window = Window { kernel: 2, stride: 2, pad: 0 };
        let values = [1.0, 7.0, f32::NAN, 5.0, 7.0, 7.0, 9.0, 2.0];
        let x: Vec<f32> = values.iter().flat_map(|&v| std::iter::repeat_n(v, lanes)).collect();
        for relu in [false, true] {
            let (mut y, mut choice) = (vec![0.0; 2 * lanes], vec![0.0; 2 * lanes]);
            let (to, from) = (PlanesMut { data: &mut y, plane: y_plane }, Planes { data: &x, plane: x_plane });
            pool::max_forward(isa, MaxPool { y: to, choice: &mut choice, x: from, count: 1, window, relu });
            assert!(y[..lanes].iter().all(|&v| v == 7.0) && choice[..lanes].iter().all(|&v| v == 1.0));
            assert!(y[lanes..].iter().all(|v| v.is_nan()) && choice[lanes..].iter().all(|&v| v == 0.0));
        }
    }
}

#[test]
fn impossible_windows_have_no_output() {
    let plane = Plane::bare(4, 3);
    assert_eq!(Window { kernel: 2, stride: 2, pad: 0 }.output(plane), Some((2, 1)));
    assert_eq!(Window { kernel: 3, stride: 2, pad: 1 }.output(plane), Some((2, 2)));
    for (kernel, stride, pad) in [(4, 1, 0), (2, 1, 2), (0, 1, 0), (2, 0, 0)] {
        assert_eq!(Window { kernel, stride, pad }.output(plane), None);
    }
}
