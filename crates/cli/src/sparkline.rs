//! A curve in one line of text.

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values as blocks, at most `width` of them: each block is the mean of its part. The scale is from the least to the
/// most; equal values stand in the middle.
pub(crate) fn sparkline(values: &[f64], width: usize) -> String {
    let cells = values.len().min(width);
    let mean = |cell: usize| {
        let part = &values
            [cell * values.len() / cells..((cell + 1) * values.len() / cells).max(cell * values.len() / cells + 1)];
        part.iter().sum::<f64>() / part.len() as f64
    };
    let means: Vec<f64> = (0..cells).map(mean).collect();
    let (low, high) = means.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let level = |x: f64| if high > low { ((x - low) / (high - low) * 7.0).round() as usize } else { 3 };
    means.iter().map(|&x| LEVELS[level(x).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_least_to_the_most() {
        assert_eq!(sparkline(&[0.0, 0.5, 1.0], 20), "▁▅█");
        assert_eq!(sparkline(&[0.3, 0.3], 20), "▄▄");
        assert_eq!(sparkline(&[], 20), "");
        let long: Vec<f64> = (0..500).map(f64::from).collect();
        let line = sparkline(&long, 16);
        assert_eq!((line.chars().count(), line.chars().next(), line.chars().last()), (16, Some('▁'), Some('█')));
    }
}
