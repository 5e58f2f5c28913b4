//! The standard deviation of all there is.

/// The standard deviation of a population, with divisor n, from its variance. These numbers are all there are: every
/// client of a partition, every pixel or row of a training split. For a sample of clients or seeds, `fedelity-record`
/// divides by n - 1.
pub(crate) fn population_deviation(variance: f64) -> f64 {
    // The difference of two moments may be negative by rounding.
    variance.max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divisor_is_n() {
        let numbers = [1.0, 3.0f64];
        let variance = numbers.iter().map(|number| (number - 2.0).powi(2)).sum::<f64>() / 2.0;
        assert_eq!(population_deviation(variance), 1.0);
        assert_eq!(population_deviation(-1e-18), 0.0);
    }
}
