//! The convolution against its plain version.

use fedelity_kernels::pool::Window;
use fedelity_kernels::{Conv, Isa, LANES};
use proptest::prelude::*;

use crate::common::*;
use crate::reference::{Convolution, Shape, channel_sums, to_lanes};

fn convolutions() -> impl Strategy<Value = Convolution> {
    let kernels = prop::sample::select(vec![1usize, 3, 5, 7]).prop_flat_map(|k| (Just(k), 0..=k / 2));
    (1usize..=19, 1usize..=70, 1usize..=70, sides(), kernels, 1usize..=2)
        .prop_map(|(samples, input, out_channels, (height, width), (kernel, pad), stride)| {
            // Bounds the work, as the plain version is slow.
            let budget = 2_000_000 / (samples * height * width * kernel * kernel);
            let out_channels = out_channels.min((budget / 2).max(1));
            let channels = input.min((budget / out_channels).max(1));
            let input = Shape { samples, channels, height, width };
            Convolution { input, out_channels, kernel, stride, pad }
        })
        .prop_filter("the kernel must fit", |conv| conv.output().is_some())
}

/// Convolutions that use square patches: 3x3 or 5x5, stride 1, even sides, many channels.
fn squares() -> impl Strategy<Value = Convolution> {
    (1usize..=11, 6usize..=30, 12usize..=30, 1usize..=4, 1usize..=8, any::<bool>(), any::<bool>(), 0usize..=1).prop_map(
        |(samples, channels, out, rows, columns, twice, five, less)| {
            let side = if twice && !five { 4 } else { 2 };
            let (kernel, pad) = if five { (5, 2 - 2 * less) } else { (3, 1) };
            let (height, width) = (side * rows + 4 - 2 * pad, side * columns + 4 - 2 * pad);
            let input = Shape { samples, channels, height, width };
            Convolution { input, out_channels: out, kernel, stride: 1, pad }
        },
    )
}

/// Convolutions that use line patches: 5x5, stride 1, any sides, few channels.
fn lines() -> impl Strategy<Value = Convolution> {
    (1usize..=19, 1usize..=12, 3usize..=12, 5usize..=33, 5usize..=33, 0usize..=4).prop_map(
        |(samples, channels, out_channels, height, width, pad)| {
            let input = Shape { samples, channels, height, width };
            Convolution { input, out_channels, kernel: 5, stride: 1, pad }
        },
    )
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn forward_and_gradients(
        conv in prop_oneof![2 => convolutions(), 2 => squares(), 1 => lines()], extra in 0usize..=1, out_halo in 0usize..=2, dx_halo in 0usize..=3,
        add in any::<bool>(), with_bias in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let output = conv.output().unwrap();
        let weights = conv.out_channels * conv.input.channels * conv.kernel * conv.kernel;
        let (x, w) = (random.vector(conv.input.len()), random.vector(weights));
        let (d_y, old) = (random.vector(output.len()), random.vector(conv.input.len()));
        let (old_w, old_b) = (random.vector(weights), random.vector(conv.out_channels));
        let bias = if with_bias { random.vector(conv.out_channels) } else { vec![0.0; conv.out_channels] };
        let y = conv.forward(&x, &w, &bias);
        let (mut d_x, mut d_w) = conv.backward(&d_y, &x, &w);
        let mut d_b = channel_sums(&d_y, output);
        if add {
            d_x.iter_mut().zip(&old).for_each(|(d, old)| *d += old);
        }
        d_w.iter_mut().zip(&old_w).for_each(|(d, old)| *d += old);
        d_b.iter_mut().zip(&old_b).for_each(|(d, old)| *d += old);

        let mut same = SameBits::default();
        for isa in Isa::available() {
            let (samples, lanes, groups) = (conv.input.samples, LANES, groups(output));
            let plane = conv.input.plane().with_halo(conv.pad + extra);
            let sizes = Window { kernel: conv.kernel, stride: conv.stride, pad: conv.pad };
            let fast = Conv::new(isa, (conv.input.channels, conv.out_channels), sizes, plane, out_halo)
                .unwrap()
                .with_input_gradient_halo(dx_halo);
            prop_assert_eq!((fast.output().height, fast.output().width), (output.height, output.width));
            prop_assert_eq!(fast.weights(), weights);
            // Only Winograd has an accumulator.
            prop_assert!(fast.sums() == 0 || conv.stride == 1 && matches!(conv.kernel, 3 | 5));
            let weights = single(&w);
            let mut packed = vec![0.0; fast.packed()];
            let (mut scratch, mut sums) = (vec![0.0; fast.scratch()], vec![0.0; fast.sums()]);

            let x = to_lanes(&x, conv.input, plane, lanes, 0.0, 3.25);
            let mut found = blank(output, out_halo);
            fast.pack_forward(&mut packed, &weights);
            let bias = single(&bias);
            fast.forward(&mut found.0, &x, &packed, with_bias.then_some(&bias[..]), samples, &mut scratch);
            close_lanes(&found, output, &y, CANARY, "output")?;
            same.check(&found.0, "output")?;
            // Empty lanes cost less, and change nothing.
            let mut full = blank(output, out_halo);
            fast.forward(&mut full.0, &x, &packed, with_bias.then_some(&bias[..]), groups * lanes, &mut scratch);
            same_lanes(&found, &full, output, "output")?;

            let d_y = to_lanes(&d_y, output, fast.output_gradient(), lanes, 0.0, 0.0);
            let target = conv.input.plane().with_halo(dx_halo);
            let mut found = (to_lanes(&old, conv.input, target, lanes, CANARY, 0.0), target);
            fast.pack_backward(&mut packed, &weights);
            fast.input_gradient(&mut found.0, &d_y, &packed, samples, add, &mut scratch);
            close_lanes(&found, conv.input, &d_x, CANARY, "input gradient")?;
            same.check(&found.0, "input gradient")?;
            missing_are_zero(&found, conv.input, "input gradient")?;
            let mut full = (to_lanes(&old, conv.input, target, lanes, CANARY, 0.0), target);
            fast.input_gradient(&mut full.0, &d_y, &packed, groups * lanes, add, &mut scratch);
            same_lanes(&found, &full, conv.input, "input gradient")?;

            let (mut found, mut found_b) = (single(&old_w), single(&old_b));
            let work = (&mut sums[..], &mut scratch[..]);
            fast.weight_gradient(&mut found, Some(&mut found_b), (&x, &d_y), samples, work);
            fast.settle(&mut found, &mut sums);
            let (mut full, mut full_b) = (single(&old_w), single(&old_b));
            let work = (&mut sums[..], &mut scratch[..]);
            fast.weight_gradient(&mut full, Some(&mut full_b), (&x, &d_y), groups * lanes, work);
            fast.settle(&mut full, &mut sums);
            prop_assert!(bits(&found) == bits(&full), "weight gradient: other bits than with full groups");
            close(&double(&found), &d_w, "weight gradient")?;
            same.check(&found, "weight gradient")?;
            close(&double(&found_b), &d_b, "bias gradient")?;
            same.check(&found_b, "bias gradient")?;
        }
    }
}
