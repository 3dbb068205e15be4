use crate::number::random::cos_of_pi;
use crate::program::encoding::{Reader, Wire};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

/// A learning-rate schedule: `schedule: Cosine { warmup: 100, total: 5000, min: 1e-5 }` in `TRAIN`.
///
/// The device computes the rate from the optimizer's `lr` and the number `s` of steps made before. No graph is captured again when the rate
/// changes. A training that is resumed from a checkpoint, with [`set_steps`](crate::run::net::Net::set_steps), goes on at the same point of
/// its schedule. A step that is skipped does not count. Rates of groups of parameters change in the same proportion.
/// [`set_lr`](crate::run::net::Net::set_lr) sets the `lr` that the schedule begins with, from the next step on.
///
/// Leave `total` out if only the running program knows it, and set it with [`set_total`](crate::run::net::Net::set_total) before the first
/// step. A `total` that is written can be replaced this way too.
///
/// In the first `warmup` steps the rate rises to `lr`: it is `lr * (s + 1) / (warmup + 1)`. The schedule proper counts its steps from the
/// end of the warm-up. `warmup` is 0 if left out. In PyTorch each schedule is an object whose `step()` is called after the optimizer's, and
/// the warm-up is
///
/// ```text
/// SequentialLR(o, [LinearLR(o, 1 / (warmup + 1), total_iters=warmup), schedule], milestones=[warmup])
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Schedule {
    /// The rate `lr` in every step after the warm-up.
    ///
    /// PyTorch: `torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)`.
    Constant {
        /// Steps in which the rate rises to `lr`.
        warmup: u64,
    },
    /// Half a period of a cosine from `lr` to `min`, which the rate has from step `total` on:
    /// `min + (lr - min) * (1 + cos(pi * s / total)) / 2`, where both count from the end of the warm-up.
    ///
    /// PyTorch: `torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total - warmup, eta_min=min)`, whose rate rises again after
    /// `total`. Its `eta_min` holds for every group, whereas `min` is scaled like a group's `lr`.
    Cosine {
        /// Steps in which the rate rises to `lr`.
        warmup: u64,
        /// Steps until the rate is `min`, including those of the warm-up. 0 if left out: it must be set before the first step.
        total: u64,
        /// The last rate. 0 if left out.
        min: f64,
    },
    /// A straight line from `lr` to `min`, which the rate has from step `total` on.
    ///
    /// PyTorch: `torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, min / lr, total_iters=total - warmup)`.
    Linear {
        /// Steps in which the rate rises to `lr`.
        warmup: u64,
        /// Steps until the rate is `min`, including those of the warm-up. 0 if left out: it must be set before the first step.
        total: u64,
        /// The last rate. 0 if left out.
        min: f64,
    },
    /// A rate that is multiplied by `factor` after every `every` steps from the end of the warm-up.
    ///
    /// PyTorch: `torch.optim.lr_scheduler.StepLR(optimizer, step_size=every, gamma=factor)`.
    Step {
        /// Steps in which the rate rises to `lr`.
        warmup: u64,
        /// Steps with one rate.
        every: u64,
        /// The factor of the rate. 0.1 if left out.
        factor: f64,
    },
    /// Half a period of a cosine from `lr / div_factor` up to `lr`, and another one down. The last rate is
    /// `lr / (div_factor * final_div_factor)`, from the last of `total` steps on.
    ///
    /// PyTorch: `torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=total, pct_start, div_factor, final_div_factor,
    /// cycle_momentum=False)`.
    OneCycle {
        /// Steps of the cycle. 0 if left out: it must be set before the first step.
        total: u64,
        /// The share of them in which the rate rises. 0.3 if left out.
        pct_start: f64,
        /// The quotient of `lr` and the rate of the first step. 25 if left out.
        div_factor: f64,
        /// The quotient of the first and the last rate. 1e4 if left out.
        final_div_factor: f64,
    },
}

/// A number of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// True if it counts steps.
    pub is_whole: bool,
    /// The value if it is left out. `None` if it must be written.
    pub default: Option<f64>,
}

impl Field {
    /// True if a schedule is rarely written without it: it must be written, or is the number of all steps.
    pub fn is_usual(&self) -> bool {
        self.default.is_none() || self.name == "total"
    }
}

const fn steps(name: &'static str, default: Option<f64>) -> Field {
    Field { name, is_whole: true, default }
}

const fn number(name: &'static str, default: f64) -> Field {
    Field { name, is_whole: false, default: Some(default) }
}

/// The most steps that an f64 counts without rounding: 2^53.
const MOST_STEPS: f64 = 9_007_199_254_740_992.0;

impl Schedule {
    /// A constant rate without a warm-up.
    pub const PLAIN: Schedule = Schedule::Constant { warmup: 0 };

    /// The name of each schedule, with its fields.
    pub const ROWS: &'static [(&'static str, &'static [Field])] = {
        const WARMUP: Field = steps("warmup", Some(0.0));
        const TOTAL: Field = steps("total", Some(0.0));
        const TO_MIN: &[Field] = &[WARMUP, TOTAL, number("min", 0.0)];
        &[
            ("Constant", &[WARMUP]),
            ("Cosine", TO_MIN),
            ("Linear", TO_MIN),
            ("Step", &[WARMUP, steps("every", None), number("factor", 0.1)]),
            (
                "OneCycle",
                &[TOTAL, number("pct_start", 0.3), number("div_factor", 25.0), number("final_div_factor", 1e4)],
            ),
        ]
    };

    /// Returns the number of its row in [`Schedule::ROWS`].
    fn kind(self) -> usize {
        match self {
            Schedule::Constant { .. } => 0,
            Schedule::Cosine { .. } => 1,
            Schedule::Linear { .. } => 2,
            Schedule::Step { .. } => 3,
            Schedule::OneCycle { .. } => 4,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Schedule::ROWS[self.kind()].0
    }

    /// Returns its fields, in the order of its row.
    pub fn fields(self) -> &'static [Field] {
        Schedule::ROWS[self.kind()].1
    }

    /// Returns its numbers, in the order of its row.
    pub fn numbers(self) -> Vec<f64> {
        match self {
            Schedule::Constant { warmup } => vec![warmup as f64],
            Schedule::Cosine { warmup, total, min } | Schedule::Linear { warmup, total, min } => {
                vec![warmup as f64, total as f64, min]
            }
            Schedule::Step { warmup, every, factor } => vec![warmup as f64, every as f64, factor],
            Schedule::OneCycle { total, pct_start, div_factor, final_div_factor } => {
                vec![total as f64, pct_start, div_factor, final_div_factor]
            }
        }
    }

    /// Returns the schedule of this name with these numbers, in the order of its row. `None` if there is none with this name and as many
    /// numbers.
    pub fn named(name: &str, numbers: &[f64]) -> Option<Schedule> {
        let steps = |number: f64| number as u64;
        Some(match (name, numbers) {
            ("Constant", &[warmup]) => Schedule::Constant { warmup: steps(warmup) },
            ("Cosine", &[warmup, total, min]) => Schedule::Cosine { warmup: steps(warmup), total: steps(total), min },
            ("Linear", &[warmup, total, min]) => Schedule::Linear { warmup: steps(warmup), total: steps(total), min },
            ("Step", &[warmup, every, factor]) => Schedule::Step { warmup: steps(warmup), every: steps(every), factor },
            ("OneCycle", &[total, pct_start, div_factor, final_div_factor]) => {
                Schedule::OneCycle { total: steps(total), pct_start, div_factor, final_div_factor }
            }
            _ => return None,
        })
    }

    /// The words of 32 bits that the numbers of a schedule take in the state: two for each.
    pub const WORDS: usize = 8;

    /// Returns its numbers as [`StateWord::Schedule`](crate::program::StateWord::Schedule) has them.
    pub fn words(self) -> [u32; Schedule::WORDS] {
        let mut words = [0; Schedule::WORDS];
        for (pair, number) in words.chunks_exact_mut(2).zip(self.numbers()) {
            let bits = number.to_bits();
            (pair[0], pair[1]) = (bits as u32, (bits >> 32) as u32);
        }
        words
    }

    /// Returns the schedule of this kind with other numbers: `words` are those that [`Schedule::words`] returned.
    pub fn with_words(self, words: &[u32]) -> Schedule {
        let number = |pair: &[u32]| f64::from_bits(u64::from(pair[0]) | u64::from(pair[1]) << 32);
        // A step on the CPU calls this for each parameter, and allocates nothing.
        let (mut numbers, mut count) = ([0.0; Schedule::WORDS / 2], 0);
        for (to, pair) in numbers.iter_mut().zip(words.chunks_exact(2)).take(self.fields().len()) {
            *to = number(pair);
            count += 1;
        }
        Schedule::named(self.name(), &numbers[..count]).unwrap_or(self)
    }

    /// Returns its `total`; 0 if it was left out. `None` if this kind of schedule has no `total`.
    pub const fn total(self) -> Option<u64> {
        match self {
            Schedule::Cosine { total, .. } | Schedule::Linear { total, .. } | Schedule::OneCycle { total, .. } => {
                Some(total)
            }
            Schedule::Constant { .. } | Schedule::Step { .. } => None,
        }
    }

    /// True if its `total` was left out, and nothing has set it.
    pub const fn is_open(self) -> bool {
        matches!(self.total(), Some(0))
    }

    /// Returns the schedule with this `total`; unchanged if it has none.
    #[must_use]
    pub const fn with_total(mut self, steps: u64) -> Schedule {
        match &mut self {
            Schedule::Cosine { total, .. } | Schedule::Linear { total, .. } | Schedule::OneCycle { total, .. } => {
                *total = steps;
            }
            Schedule::Constant { .. } | Schedule::Step { .. } => {}
        }
        self
    }

    /// Returns the number that is wrong with this `total`, and why. `None` if none is. The total was written or set.
    pub fn mistake_of_total(self, total: u64) -> Option<(&'static str, String)> {
        if total == 0 {
            return Some(("total", "is 0 steps; use at least 1, or leave it out and call `set_total`".to_string()));
        }
        self.with_total(total).mistake()
    }

    /// Returns the number that is wrong, and why. `None` if none is. A `total` of 0 was left out.
    pub fn mistake(self) -> Option<(&'static str, String)> {
        let rows = self.fields().iter().zip(self.numbers());
        let large = rows.into_iter().find(|(field, number)| field.is_whole && *number >= MOST_STEPS);
        if let Some((field, _)) = large {
            return Some((field.name, "is more steps than can be counted".to_string()));
        }
        let is_factor = |number: f64| number > 0.0 && number <= f64::from(f32::MAX);
        let is_divisor = |number: f64| number >= 1.0 && number <= f64::from(f32::MAX);
        match self {
            Schedule::Cosine { warmup, total, .. } | Schedule::Linear { warmup, total, .. }
                if total > 0 && total <= warmup =>
            {
                let rule = format!("is {total} steps, the {warmup} of `warmup` among them; it must be more than these");
                Some(("total", rule))
            }
            Schedule::Cosine { min, .. } | Schedule::Linear { min, .. }
                if !(0.0..=f64::from(f32::MAX)).contains(&min) =>
            {
                Some(("min", "is a learning rate; it must be 0 or more and finite".to_string()))
            }
            Schedule::Step { every: 0, .. } => Some(("every", "is 0 steps; use at least 1".to_string())),
            Schedule::Step { factor, .. } if !is_factor(factor) => {
                Some(("factor", "must be above 0 and finite".to_string()))
            }
            Schedule::OneCycle { total: 1, .. } => Some(("total", "must be at least 2 steps".to_string())),
            Schedule::OneCycle { total: 0, pct_start, .. } if !(pct_start > 0.0 && pct_start < 1.0) => {
                Some(("pct_start", "is a share of the steps; it must be above 0 and below 1".to_string()))
            }
            Schedule::OneCycle { total: 1.., pct_start, .. }
                if !(pct_start * self.total().unwrap_or(0) as f64 > 1.0 && pct_start < 1.0) =>
            {
                let total = self.total().unwrap_or(0);
                let rule = format!("is a share of the {total} steps; it must be more than one of them, and below 1");
                Some(("pct_start", rule))
            }
            Schedule::OneCycle { div_factor, .. } if !is_divisor(div_factor) => {
                Some(("div_factor", "must be 1 or more and finite".to_string()))
            }
            Schedule::OneCycle { final_div_factor, .. } if !is_divisor(final_div_factor) => {
                Some(("final_div_factor", "must be 1 or more and finite".to_string()))
            }
            _ => None,
        }
    }

    /// Returns the steps of the warm-up.
    pub const fn warmup(self) -> u64 {
        match self {
            Schedule::Constant { warmup }
            | Schedule::Cosine { warmup, .. }
            | Schedule::Linear { warmup, .. }
            | Schedule::Step { warmup, .. } => warmup,
            Schedule::OneCycle { .. } => 0,
        }
    }

    /// Returns the field `min`; 0 for a schedule without one.
    pub const fn min(self) -> f64 {
        match self {
            Schedule::Cosine { min, .. } | Schedule::Linear { min, .. } => min,
            Schedule::Constant { .. } | Schedule::Step { .. } | Schedule::OneCycle { .. } => 0.0,
        }
    }

    /// Returns the rate of the step after `step` others, for an optimizer with the learning rate `lr`.
    pub fn rate(self, lr: f64, step: u64) -> f64 {
        let warmup = self.warmup();
        if step < warmup {
            return lr * ((step + 1) as f64 / (warmup as f64 + 1.0));
        }
        let after = (step - warmup) as f64;
        let share = |total: u64| (after / total.saturating_sub(warmup) as f64).min(1.0);
        match self {
            Schedule::Constant { .. } => lr,
            Schedule::Cosine { total, min, .. } => between(lr, min, share(total)),
            Schedule::Linear { total, min, .. } => lr + (min - lr) * share(total),
            Schedule::Step { every, factor, .. } => lr * power(factor, (step - warmup) / every.max(1)),
            Schedule::OneCycle { total, pct_start, div_factor, final_div_factor } => {
                let (first, last) = (lr / div_factor, lr / div_factor / final_div_factor);
                let (highest, end) = (pct_start * total as f64 - 1.0, total as f64 - 1.0);
                if after <= highest {
                    between(first, lr, after / highest)
                } else {
                    between(lr, last, ((after - highest) / (end - highest)).min(1.0))
                }
            }
        }
    }
}

/// Returns the point between two numbers at a share of half a period of a cosine.
fn between(from: f64, to: f64, share: f64) -> f64 {
    to + (from - to) * (0.5 * (1.0 + cos_of_pi(share)))
}

/// Returns a power of a number, by squaring.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result *= base;
        }
        base *= base;
        exponent /= 2;
    }
    result
}

impl Wire for Schedule {
    fn put(&self, out: &mut Vec<u8>) {
        self.kind().put(out);
        self.numbers().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Schedule> {
        let (name, _) = Schedule::ROWS.get(usize::take(from)?)?;
        Schedule::named(name, &Vec::<f64>::take(from)?).filter(|schedule| schedule.mistake().is_none())
    }
}

/// Fails to compile if a schedule ends at a higher rate than the optimizer's.
#[track_caller]
pub const fn assert_falls(schedule: Schedule, lr: f64) {
    assert!(
        schedule.min() <= lr || schedule.min() == 0.0,
        "`min` is the last rate of the schedule; it must not be above the optimizer's `lr`"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Schedule; 5] = [
        Schedule::Constant { warmup: 3 },
        Schedule::Cosine { warmup: 10, total: 40, min: 0.01 },
        Schedule::Linear { warmup: 0, total: 40, min: 0.0 },
        Schedule::Step { warmup: 0, every: 7, factor: 0.5 },
        Schedule::OneCycle { total: 45, pct_start: 0.3, div_factor: 25.0, final_div_factor: 1e4 },
    ];

    #[test]
    fn schedules_are_read_as_they_were_written() {
        assert_eq!(ALL.map(Schedule::name).as_slice(), Schedule::ROWS.iter().map(|row| row.0).collect::<Vec<_>>());
        for schedule in ALL {
            assert_eq!(schedule.mistake(), None);
            assert_eq!(schedule.numbers().len(), Schedule::ROWS[schedule.kind()].1.len());
            let mut bytes = Vec::new();
            schedule.put(&mut bytes);
            assert_eq!(Schedule::take(&mut Reader::new(&bytes)), Some(schedule));
        }
    }

    #[test]
    fn nonsense_is_named() {
        let cosine = |warmup, total, min| Schedule::Cosine { warmup, total, min };
        let cycle = |total, pct_start, div_factor| Schedule::OneCycle {
            total,
            pct_start,
            div_factor,
            final_div_factor: f64::NAN,
        };
        for (schedule, field) in [
            (cosine(5, 5, 0.0), "total"),
            (cosine(0, 5, -1.0), "min"),
            (cosine(u64::MAX, 5, 0.0), "warmup"),
            (Schedule::Linear { warmup: 0, total: 5, min: f64::NAN }, "min"),
            (Schedule::Step { warmup: 0, every: 0, factor: 0.5 }, "every"),
            (Schedule::Step { warmup: 0, every: 1, factor: 0.0 }, "factor"),
            (cycle(1, 0.3, 25.0), "total"),
            (cycle(0, 1.0, 25.0), "pct_start"),
            (cycle(0, f64::NAN, 25.0), "pct_start"),
            (cycle(3, 0.3, 25.0), "pct_start"),
            (cycle(30, 1.0, 25.0), "pct_start"),
            (cycle(30, 0.5, 0.5), "div_factor"),
            (cycle(30, 0.5, 1.0), "final_div_factor"),
        ] {
            assert_eq!(schedule.mistake().map(|(field, _)| field), Some(field), "{schedule:?}");
            let mut bytes = Vec::new();
            schedule.put(&mut bytes);
            assert_eq!(Schedule::take(&mut Reader::new(&bytes)), None);
        }
    }

    #[test]
    fn a_total_is_set_later() {
        for schedule in ALL {
            let has_total = schedule.total().is_some();
            let open = schedule.with_total(0);
            assert_eq!(open.is_open(), has_total);
            assert_eq!(open.mistake(), None, "{open:?}");
            assert_eq!(open.with_total(schedule.total().unwrap_or(7)), schedule);
            let zero = schedule.mistake_of_total(0).map(|(field, rule)| format!("`{field}` {rule}"));
            let rule = "`total` is 0 steps; use at least 1, or leave it out and call `set_total`";
            assert_eq!(zero.as_deref(), Some(rule));
        }
        let cosine = Schedule::Cosine { warmup: 10, total: 0, min: 0.0 };
        assert_eq!(cosine.mistake_of_total(10).map(|(field, _)| field), Some("total"));
        assert_eq!(cosine.mistake_of_total(11), None);
    }

    #[test]
    fn a_schedule_is_read_from_the_words_of_a_state() {
        for schedule in ALL {
            let other = schedule.with_total(1000);
            assert_eq!(other.with_words(&schedule.words()), schedule, "{schedule:?}");
        }
        assert_eq!(ALL[3].words()[2..4], [0, 0x401c_0000], "7 as the bits of an f64, low word first");
    }

    #[test]
    fn rates_go_where_they_should() {
        let rates =
            |schedule: Schedule, steps: &[u64]| steps.iter().map(|&s| schedule.rate(0.1, s)).collect::<Vec<_>>();
        let are_near = |found: &[f64], expected: &[f64]| {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15)
        };
        for (schedule, steps, expected) in [
            (ALL[0], &[0u64, 2, 3, 1 << 60][..], &[0.025, 0.075, 0.1, 0.1][..]),
            (ALL[1], &[0, 9, 10, 25, 40, 1 << 60], &[0.1 / 11.0, 1.0 / 11.0, 0.1, 0.055, 0.01, 0.01]),
            (ALL[2], &[0, 10, 40, u64::MAX], &[0.1, 0.075, 0.0, 0.0]),
            (ALL[3], &[0, 6, 7, 13, 14, 1 << 62], &[0.1, 0.1, 0.05, 0.05, 0.025, 0.0]),
            (ALL[4], &[0, 44, 45, 1 << 60], &[0.004, 4e-7, 4e-7, 4e-7]),
        ] {
            let found = rates(schedule, steps);
            assert!(are_near(&found, expected), "{schedule:?}: {found:?} are not {expected:?}");
        }
    }
}
