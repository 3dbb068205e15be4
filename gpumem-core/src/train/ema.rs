use crate::program::encoding::{Reader, Wire};
use alloc::vec::Vec;

/// Moving averages of the parameters: `ema: 0.999` in `TRAIN`, or `ema: Ema { decay: 0.9999, warmup: true, every: 1 }`. They often give
/// better results in evaluation than the last parameters.
///
/// For each element `w` of a parameter that is trained the network keeps an f32 `a`, at every precision: the budget's line `ema`. After the
/// update of a step
///
/// ```text
/// a = w                           the first time
/// a = a + (1 - decay) (w - a)     later
/// ```
///
/// A step that is skipped averages nothing. Running statistics are not averaged: evaluations with averages use those of the network.
///
/// [`Net::averaged`](crate::run::net::Net::averaged) evaluates with the averages,
/// [`Net::copy_average_from`](crate::run::net::Net::copy_average_from) hands them to another network, and
/// [`Net::reset_averages`](crate::run::net::Net::reset_averages) begins anew.
///
/// PyTorch: `torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))`, with `update_parameters(model)` after
/// each `optimizer.step()`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    /// Share of the averages that a step keeps, from 0 to below 1. 0.999 if left out.
    pub decay: f64,
    /// True if early averages forget faster: after `n` averages, `decay` is at most `(1 + n) / (10 + n)`. `false` if left out.
    pub warmup: bool,
    /// Steps from one average to the next. 1 if left out.
    pub every: u64,
}

impl Ema {
    /// The value of every field that is left out.
    pub const DEFAULT: Ema = Ema { decay: 0.999, warmup: false, every: 1 };

    /// The names of its fields.
    pub const FIELDS: [&'static str; 3] = ["decay", "warmup", "every"];

    /// Returns the field that is wrong, and why.
    pub fn mistake(self) -> Option<(&'static str, &'static str)> {
        if !(0.0..1.0).contains(&self.decay) {
            return Some(("decay", "is the share of the averages that a step keeps; it must be from 0 to below 1"));
        }
        if self.every == 0 {
            return Some(("every", "is 0 steps; use at least 1"));
        }
        None
    }

    /// True if the step after so many others ends with an average.
    pub const fn is_due(self, step: u64) -> bool {
        step.wrapping_add(1).is_multiple_of(if self.every > 0 { self.every } else { 1 })
    }

    /// Returns the share of the parameters in the next average, after `averaged` others. It is 1 the first time.
    pub fn share(self, averaged: u64) -> f64 {
        let n = averaged as f64;
        let most = if self.warmup { (1.0 + n) / (10.0 + n) } else { 1.0 };
        match averaged {
            0 => 1.0,
            _ => 1.0 - if self.decay < most { self.decay } else { most },
        }
    }

    /// Returns an average after one more parameter, as `torch.lerp` computes it. With a share of 1 it is the parameter, whatever the
    /// average was before.
    pub fn averaged(average: f32, parameter: f32, share: f32) -> f32 {
        if share == 1.0 {
            return parameter;
        }
        let way = parameter - average;
        if share < 0.5 { average + share * way } else { parameter - way * (1.0 - share) }
    }
}

impl Wire for Ema {
    fn put(&self, out: &mut Vec<u8>) {
        self.decay.put(out);
        self.warmup.put(out);
        self.every.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Ema> {
        let ema = Ema { decay: Wire::take(from)?, warmup: Wire::take(from)?, every: Wire::take(from)? };
        Some(ema).filter(|ema| ema.mistake().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_read_as_they_were_written() {
        for ema in [Ema::DEFAULT, Ema { decay: 0.0, warmup: true, every: 1 << 40 }] {
            assert_eq!(ema.mistake(), None);
            let mut bytes = Vec::new();
            ema.put(&mut bytes);
            assert_eq!(Ema::take(&mut Reader::new(&bytes)), Some(ema));
        }
        for (ema, field) in [
            (Ema { decay: 1.0, ..Ema::DEFAULT }, "decay"),
            (Ema { decay: -0.1, ..Ema::DEFAULT }, "decay"),
            (Ema { decay: f64::NAN, ..Ema::DEFAULT }, "decay"),
            (Ema { every: 0, ..Ema::DEFAULT }, "every"),
        ] {
            assert_eq!(ema.mistake().map(|(field, _)| field), Some(field));
            let mut bytes = Vec::new();
            ema.put(&mut bytes);
            assert_eq!(Ema::take(&mut Reader::new(&bytes)), None);
        }
    }

    #[test]
    fn shares_of_early_and_late_averages() {
        let plain = Ema { decay: 0.9, ..Ema::DEFAULT };
        assert_eq!([plain.share(0), plain.share(1)], [1.0, 1.0 - 0.9]);
        let warm = Ema { warmup: true, ..plain };
        assert_eq!([warm.share(0), warm.share(1), warm.share(1000)], [1.0, 1.0 - 2.0 / 11.0, 1.0 - 0.9]);
    }

    #[test]
    fn averages_are_due_after_so_many_steps() {
        let every = Ema { every: 3, ..Ema::DEFAULT };
        let due: Vec<u64> = (0..9).filter(|&step| every.is_due(step)).collect();
        assert_eq!(due, [2, 5, 8]);
        assert!((0..3).all(|step| Ema::DEFAULT.is_due(step)));
    }

    #[test]
    fn an_average_ends_where_the_parameter_is() {
        // a + (w - a) loses the last digits of w.
        let (a, w) = (1e8, 0.123_456_79);
        assert_eq!(Ema::averaged(a, w, 1.0), w);
        assert_eq!(Ema::averaged(f32::NAN, w, 1.0), w);
        assert_eq!(Ema::averaged(0.0, 1.0, 0.25), 0.25);
    }
}
