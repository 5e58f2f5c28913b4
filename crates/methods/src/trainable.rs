//! The trainable part of the flat buffer, packed: the format of control variates, Fisher diagonals and moments.

use std::ops::Range;

use fedelity_nn::Layout;

/// The trainable parts, ascending: the range of each in the full buffer, and in the packed array.
pub(crate) fn parts(layout: &Layout) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
    layout.trainable().iter().scan(0, |at, range| {
        let packed = *at..*at + range.len();
        *at = packed.end;
        Some((range.clone(), packed))
    })
}

/// A loss that is a sum over all trainable numbers; adds its gradient.
///
/// `each` returns one number's contribution to the loss. It gets the gradient to add to, the number, its starting
/// value, and its entries in the packed arrays.
pub(crate) fn penalty<const P: usize>(
    layout: &Layout,
    grad: &mut [f32],
    w: &[f32],
    start: &[f32],
    packed: [&[f32]; P],
    each: impl Fn(&mut f32, f32, f32, [f32; P]) -> f32,
) -> f64 {
    let mut total = 0.0;
    for (range, part) in parts(layout) {
        let (grad, w, start) = (&mut grad[range.clone()], &w[range.clone()], &start[range]);
        total += part_penalty(grad, w, start, packed.map(|values| &values[part.clone()]), &each);
    }
    total
}

/// Parallel partial sums, and how many numbers each takes before it is added to the total.
const LANES: usize = 8;
const RUN: usize = 64;

fn part_penalty<const P: usize>(
    grad: &mut [f32],
    w: &[f32],
    start: &[f32],
    packed: [&[f32]; P],
    each: impl Fn(&mut f32, f32, f32, [f32; P]) -> f32,
) -> f64 {
    let (grad, grad_rest) = grad.as_chunks_mut::<LANES>();
    let ((w, w_rest), (start, start_rest)) = (w.as_chunks::<LANES>(), start.as_chunks::<LANES>());
    let whole = packed.map(|values| values.as_chunks::<LANES>().0);
    let rest = packed.map(|values| values.as_chunks::<LANES>().1);
    let (mut total, mut sums) = (0.0_f64, [0.0_f32; LANES]);
    for (at, ((grad, w), start)) in grad.iter_mut().zip(w).zip(start).enumerate() {
        let packed = whole.map(|values| values[at]);
        for lane in 0..LANES {
            sums[lane] += each(&mut grad[lane], w[lane], start[lane], packed.map(|values| values[lane]));
        }
        if at % RUN == RUN - 1 {
            total += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
            sums = [0.0; LANES];
        }
    }
    for (at, ((grad, w), start)) in grad_rest.iter_mut().zip(w_rest).zip(start_rest).enumerate() {
        sums[at] += each(grad, *w, *start, rest.map(|values| values[at]));
    }
    total + sums.iter().map(|&sum| f64::from(sum)).sum::<f64>()
}

/// The trainable numbers of a full buffer.
pub(crate) fn pack(layout: &Layout, full: &[f32]) -> Vec<f32> {
    layout.trainable().iter().flat_map(|range| &full[range.clone()]).copied().collect()
}

/// The parts that no optimiser moves, ascending: running statistics.
pub(crate) fn rest(layout: &Layout) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut rest = Vec::new();
    for range in layout.trainable().iter().cloned().chain(std::iter::once(layout.len()..layout.len())) {
        if at < range.start {
            rest.push(at..range.start);
        }
        at = range.end;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;

    #[test]
    fn parts_and_rest_cover_the_buffer() {
        let model = trial::model(true);
        let layout = model.layout();
        let full: Vec<f32> = (0..layout.len()).map(|i| i as f32).collect();
        let packed = pack(layout, &full);
        assert_eq!(packed.len(), layout.trainable_len());
        for (range, part) in parts(layout) {
            assert_eq!(full[range], packed[part]);
        }
        // Integers: every sum is exact.
        let mut grad = vec![0.0; layout.len()];
        let start: Vec<f32> = full.iter().map(|value| 2.0 * value).collect();
        let found = penalty(layout, &mut grad, &full, &start, [&packed, &packed], |grad, w, start, [a, b]| {
            assert_eq!((start, a, b), (2.0 * w, w, w));
            *grad += w;
            w
        });
        assert_eq!(found, packed.iter().map(|&value| f64::from(value)).sum::<f64>());
        assert_eq!(pack(layout, &grad), packed);
        let rest = rest(layout);
        assert!(!rest.is_empty());
        let mut all: Vec<Range<usize>> = rest.into_iter().chain(layout.trainable().iter().cloned()).collect();
        all.sort_by_key(|range| range.start);
        assert_eq!((all[0].start, all[all.len() - 1].end), (0, layout.len()));
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}
