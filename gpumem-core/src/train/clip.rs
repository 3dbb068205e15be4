use crate::program::encoding::{Reader, Wire};
use crate::shape::Shape;
use alloc::vec::Vec;

/// Gradient clipping before an update: `clip: GlobalNorm(1.0)` or `clip: Value(0.5)` in `TRAIN`.
///
/// If the loss is scaled, gradients are clipped after the scale has been divided out. Weight decay is not part of a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Clip {
    /// Scales all gradients by one factor, so that their common norm is at most `c`. All parameters that are trained count, whichever group
    /// they are in:
    ///
    /// ```text
    /// norm = sqrt(sum of g^2 over all gradients)
    /// g = g * min(1, c / (norm + 1e-6))
    /// ```
    ///
    /// The norm is known only after every gradient, so all of them live until the end of the step: updates are `Separate`, and the budget
    /// has a line of gradients. The norm needs one number of scratch memory for each 1024 elements.
    ///
    /// An infinite norm makes every finite gradient 0 and every infinite one NaN; a norm that is NaN makes all gradients NaN. If a step
    /// with such gradients is skipped, as in `F16` and `Mixed(F16)`, it is skipped here too.
    ///
    /// PyTorch: `torch.nn.utils.clip_grad_norm_(model.parameters(), c, error_if_nonfinite=False)`.
    GlobalNorm(f64),
    /// Clips each element by itself to the range from `-c` to `c`. It needs no memory.
    ///
    /// PyTorch: `torch.nn.utils.clip_grad_value_(model.parameters(), c)`.
    Value(f64),
}

impl Clip {
    /// The names of both kinds of clipping.
    pub const NAMES: [&'static str; 2] = ["GlobalNorm", "Value"];

    /// Elements whose squares are added up at once for the norm.
    pub const PIECE: u64 = 1024;

    /// The number that is added to the norm before it divides.
    pub const EPS: f64 = 1e-6;

    /// Returns the number of partial sums for the squares of a gradient of this shape.
    pub fn pieces(gradient: Shape) -> u64 {
        gradient.elements().unwrap_or(u64::MAX).div_ceil(Clip::PIECE)
    }

    /// Returns the clipping of this name with this number. `None` if there is none of this name.
    pub fn named(name: &str, number: f64) -> Option<Clip> {
        match name {
            "GlobalNorm" => Some(Clip::GlobalNorm(number)),
            "Value" => Some(Clip::Value(number)),
            _ => None,
        }
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Clip::GlobalNorm(_) => Clip::NAMES[0],
            Clip::Value(_) => Clip::NAMES[1],
        }
    }

    /// Returns the number that it clips to.
    pub const fn number(self) -> f64 {
        match self {
            Clip::GlobalNorm(number) | Clip::Value(number) => number,
        }
    }

    /// Returns the mistake in its number. `None` if there is none.
    pub const fn mistake(self) -> Option<&'static str> {
        let number = self.number();
        if number > 0.0 && number <= f32::MAX as f64 {
            return None;
        }
        Some("must be above 0 and finite")
    }

    /// Returns the factor of all gradients if `norm` is their common norm. Clipping by value has the factor 1.
    pub fn factor(self, norm: f64) -> f64 {
        match self {
            Clip::GlobalNorm(most) => {
                let factor = most / (norm + Clip::EPS);
                // NaN stays NaN.
                if factor > 1.0 { 1.0 } else { factor }
            }
            Clip::Value(_) => 1.0,
        }
    }
}

impl Wire for Clip {
    fn put(&self, out: &mut Vec<u8>) {
        let kind: u64 = match self {
            Clip::GlobalNorm(_) => 0,
            Clip::Value(_) => 1,
        };
        kind.put(out);
        self.number().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Clip> {
        let name = Clip::NAMES.get(usize::take(from)?)?;
        Clip::named(name, f64::take(from)?).filter(|clip| clip.mistake().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_are_read_as_they_were_written() {
        for clip in [Clip::GlobalNorm(1.0), Clip::Value(0.5)] {
            let mut bytes = Vec::new();
            clip.put(&mut bytes);
            assert_eq!(Clip::take(&mut Reader::new(&bytes)), Some(clip));
        }
        for damaged in [Clip::GlobalNorm(0.0), Clip::Value(-1.0), Clip::Value(f64::NAN), Clip::GlobalNorm(1e39)] {
            let mut bytes = Vec::new();
            damaged.put(&mut bytes);
            assert_eq!(Clip::take(&mut Reader::new(&bytes)), None);
        }
    }

    #[test]
    fn a_norm_that_is_no_number_stays_none() {
        let clip = Clip::GlobalNorm(2.0);
        assert_eq!([clip.factor(0.0), clip.factor(1.0), clip.factor(f64::INFINITY)], [1.0, 1.0, 0.0]);
        assert!((clip.factor(8.0) - 0.25).abs() < 1e-6 && clip.factor(f64::NAN).is_nan());
    }
}
