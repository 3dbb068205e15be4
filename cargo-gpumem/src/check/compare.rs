//! The difference between two outputs, as a share of how much the recorded one varies.

/// The most that a number may differ, as a share of its output's deviation.
pub const BOUND: f64 = 1e-4;
/// The least scale, as a share of an output's greatest number. A ten-thousandth of it is what rounding to f32 changes.
const LEAST_SCALE: f64 = 1e-3;

/// The greatest difference of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The difference as a share of the scale. Infinite if only one of both is a number.
    pub share: f64,
    /// The scale, in words.
    pub of: &'static str,
    /// The index of the number, with the batch outermost.
    pub place: usize,
    /// The number of the network, and the one that was recorded.
    pub found: f32,
    pub recorded: f32,
}

/// Compares an output with the recorded one. `None` if they have different lengths, or no numbers.
///
/// The scale is the standard deviation of the recorded numbers, or a thousandth of the greatest of them if that is more. Numbers that are
/// not finite must be equal.
pub fn difference(found: &[f32], recorded: &[f32]) -> Option<Difference> {
    if found.len() != recorded.len() {
        return None;
    }
    let (scale, of) = scale(recorded);
    let all = found.iter().zip(recorded).enumerate().map(|(place, (&found, &recorded))| {
        let is_equal = found == recorded || found.is_nan() && recorded.is_nan();
        let apart = (f64::from(found) - f64::from(recorded)).abs() / scale;
        let share = match is_equal {
            true => 0.0,
            false if apart.is_nan() => f64::INFINITY,
            false => apart,
        };
        Difference { share, of, place, found, recorded }
    });
    all.reduce(|worst, next| if next.share > worst.share { next } else { worst })
}

/// Returns what a difference is a share of, with its name.
fn scale(recorded: &[f32]) -> (f64, &'static str) {
    let finite = || recorded.iter().filter(|number| number.is_finite()).map(|&number| f64::from(number));
    let count = finite().count().max(1) as f64;
    let mean = finite().sum::<f64>() / count;
    let deviation = (finite().map(|number| (number - mean).powi(2)).sum::<f64>() / count).sqrt();
    let least = finite().fold(0.0, |most: f64, number| most.max(number.abs())) * LEAST_SCALE;
    match () {
        () if deviation == 0.0 && least == 0.0 => (1.0, "1"),
        () if deviation >= least => (deviation, "its standard deviation"),
        () => (least, "a thousandth of its greatest number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shares_of_the_deviation() {
        // The deviation of the recorded numbers is 2.
        let worst = difference(&[1.0, 5.0, 1.5, 5.0], &[1.0, 5.0, 1.0, 5.0]).unwrap();
        assert_eq!((worst.share, worst.of, worst.place), (0.25, "its standard deviation", 2));
        assert_eq!((worst.found, worst.recorded), (1.5, 1.0));
        assert_eq!(difference(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(difference(&[], &[]), None);
    }

    #[test]
    fn outputs_that_hardly_vary_have_a_scale() {
        let worst = difference(&[1000.0, 1000.5], &[1000.0, 1000.0]).unwrap();
        assert_eq!((worst.share, worst.of), (0.5, "a thousandth of its greatest number"));
        let worst = difference(&[0.0, 2.0], &[0.0, 0.0]).unwrap();
        assert_eq!((worst.share, worst.of), (2.0, "1"));
    }

    #[test]
    fn numbers_that_are_not_finite_are_equal_or_wrong() {
        let (nan, infinite) = (f32::NAN, f32::INFINITY);
        assert_eq!(difference(&[nan, infinite, 1.0], &[nan, infinite, 1.0]).unwrap().share, 0.0);
        for (found, recorded) in [(nan, 1.0), (1.0, nan), (infinite, 1.0), (1.0, -infinite), (infinite, -infinite)] {
            assert_eq!(
                difference(&[found, 1.0], &[recorded, 2.0]).unwrap().share,
                f64::INFINITY,
                "{found} for {recorded}"
            );
        }
    }
}
