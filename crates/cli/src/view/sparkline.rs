//! A curve in one line of text.

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Maximum blocks of a curve in a table of results, so that a run has the same curve in all of them.
pub(crate) const CURVE_WIDTH: usize = 16;

/// The minimum and maximum of values.
pub(crate) fn scale(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values.into_iter().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)))
}

/// Values as at most `width` blocks: each block is the mean of its part. On a scale without extent, all are in the
/// middle.
pub(crate) fn sparkline(values: &[f64], width: usize, (low, high): (f64, f64)) -> String {
    let cells = values.len().min(width);
    let mean = |cell: usize| {
        let part = &values
            [cell * values.len() / cells..((cell + 1) * values.len() / cells).max(cell * values.len() / cells + 1)];
        part.iter().sum::<f64>() / part.len() as f64
    };
    let means: Vec<f64> = (0..cells).map(mean).collect();
    let level = |x: f64| if high > low { ((x - low) / (high - low) * 7.0).round() as usize } else { 3 };
    means.iter().map(|&x| LEVELS[level(x).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_from_minimum_to_maximum() {
        assert_eq!(sparkline(&[0.0, 0.5, 1.0], 20, (0.0, 1.0)), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.5], 20, (0.0, 1.0)), "▁▅");
        assert_eq!(sparkline(&[0.3, 0.3], 20, (0.3, 0.3)), "▄▄");
        assert_eq!(sparkline(&[], 20, scale([])), "");
        let long: Vec<f64> = (0..500).map(f64::from).collect();
        let line = sparkline(&long, 16, scale(long.iter().copied()));
        assert_eq!((line.chars().count(), line.chars().next(), line.chars().last()), (16, Some('▁'), Some('█')));
    }
}
