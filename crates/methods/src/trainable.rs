//! The trainable part of the flat buffer, packed: how control variates, Fisher diagonals and momenta are kept.

use std::ops::Range;

use fedelity_nn::Layout;

/// The trainable parts, ascending: where each stands in the buffer, and where in the packed array.
pub(crate) fn parts(layout: &Layout) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
    layout.trainable().iter().scan(0, |at, range| {
        let packed = *at..*at + range.len();
        *at = packed.end;
        Some((range.clone(), packed))
    })
}

/// The sum of `each` over all trainable numbers. It gets where a number stands in the buffer and in the packed array.
///
/// Four sums run side by side, so that an addition need not wait for the one before it.
pub(crate) fn sum(layout: &Layout, mut each: impl FnMut(usize, usize) -> f32) -> f64 {
    let mut sums = [0.0_f64; 4];
    for (range, packed) in parts(layout) {
        for k in 0..range.len() {
            sums[k % 4] += f64::from(each(range.start + k, packed.start + k));
        }
    }
    sums.iter().sum()
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
        let whole = |at: usize, part: usize| full[at] + 1000.0 * packed[part];
        let expected: f64 = packed.iter().map(|&value| 1001.0 * f64::from(value)).sum();
        assert_eq!(sum(layout, whole), expected);
        let rest = rest(layout);
        assert!(!rest.is_empty());
        let mut all: Vec<Range<usize>> = rest.into_iter().chain(layout.trainable().iter().cloned()).collect();
        all.sort_by_key(|range| range.start);
        assert_eq!((all[0].start, all[all.len() - 1].end), (0, layout.len()));
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}
