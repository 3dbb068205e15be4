//! Rules that update each element by itself: those of `gpumem_core::train::optim`, with the factors of one step.

use super::elements::{self, Rule};
use super::scalar::{F32, F64};
use gpumem_core::train::optim::{ElementRule, Optimizer, RuleVisitor, STATES, StepScalars};

/// A rule with the factors of one step. `KEPT` has a bit for each of its states that is kept.
pub(super) struct ElementStep<R, const FACTORS: usize, const KEPT: u8> {
    rule: R,
    factors: [F32; FACTORS],
}

impl<R: ElementRule<FACTORS>, const FACTORS: usize, const KEPT: u8> ElementStep<R, FACTORS, KEPT> {
    pub(super) fn new(rule: R, step: StepScalars<F64>) -> Self {
        ElementStep { rule, factors: rule.factors(step).map(|factor| F32(factor.0 as f32)) }
    }
}

impl<R: ElementRule<FACTORS>, const FACTORS: usize, const KEPT: u8> ElementStep<R, FACTORS, KEPT> {
    #[inline(always)]
    fn update(&self, w: &mut f32, gradient: f32, [a, b, c]: [&mut f32; STATES]) {
        let (mut weight, mut first, mut second, mut third) = (F32(*w), F32(*a), F32(*b), F32(*c));
        self.rule.update(self.factors, &mut weight, F32(gradient), [&mut first, &mut second, &mut third]);
        (*w, *a, *b, *c) = (weight.0, first.0, second.0, third.0);
    }
}

impl<R: ElementRule<FACTORS>, const FACTORS: usize> Rule<0> for ElementStep<R, FACTORS, 0b000> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, []: [&mut f32; 0]) {
        self.update(w, gradient, [&mut 0.0, &mut 0.0, &mut 0.0]);
    }
}

impl<R: ElementRule<FACTORS>, const FACTORS: usize> Rule<1> for ElementStep<R, FACTORS, 0b001> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [a]: [&mut f32; 1]) {
        self.update(w, gradient, [a, &mut 0.0, &mut 0.0]);
    }
}

impl<R: ElementRule<FACTORS>, const FACTORS: usize> Rule<2> for ElementStep<R, FACTORS, 0b011> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [a, b]: [&mut f32; 2]) {
        self.update(w, gradient, [a, b, &mut 0.0]);
    }
}

impl<R: ElementRule<FACTORS>, const FACTORS: usize> Rule<2> for ElementStep<R, FACTORS, 0b101> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [a, c]: [&mut f32; 2]) {
        self.update(w, gradient, [a, &mut 0.0, c]);
    }
}

impl<R: ElementRule<FACTORS>, const FACTORS: usize> Rule<3> for ElementStep<R, FACTORS, 0b111> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, states: [&mut f32; 3]) {
        self.update(w, gradient, states);
    }
}

/// Returns the numbers of step `t`, counted from 1.
pub(super) fn step_of(optimizer: &Optimizer, t: f64) -> StepScalars<F64> {
    StepScalars {
        lr: F64(optimizer.lr()),
        weight_decay: F64(optimizer.weight_decay()),
        corrections: optimizer.corrections(F64(t)),
        t: F64(t),
        is_first: t == 1.0,
    }
}

/// The tensors of an update, and the states that the optimizer keeps.
struct Update<'a> {
    step: StepScalars<F64>,
    kept: u8,
    w: &'a mut [f32],
    gradient: &'a [f32],
    states: [Option<&'a mut [f32]>; Optimizer::MOST_STATES],
}

impl RuleVisitor for Update<'_> {
    type Output = ();

    fn visit<const FACTORS: usize>(self, rule: impl ElementRule<FACTORS>) {
        let Update { step, kept, w, gradient, states } = self;
        match (kept, states) {
            (0b000, _) => elements::none(&ElementStep::<_, FACTORS, 0b000>::new(rule, step), w, gradient),
            (0b001, [Some(a), ..]) => elements::one(&ElementStep::<_, FACTORS, 0b001>::new(rule, step), w, gradient, a),
            (0b011, [Some(a), Some(b), ..]) => {
                elements::two(&ElementStep::<_, FACTORS, 0b011>::new(rule, step), w, gradient, [a, b]);
            }
            (0b101, [Some(a), Some(c), ..]) => {
                elements::two(&ElementStep::<_, FACTORS, 0b101>::new(rule, step), w, gradient, [a, c]);
            }
            (0b111, [Some(a), Some(b), Some(c), ..]) => {
                elements::three(&ElementStep::<_, FACTORS, 0b111>::new(rule, step), w, gradient, [a, b, c]);
            }
            _ => unreachable!("a session refuses an optimizer with more states than its program"),
        }
    }
}

/// Applies step `t` of an optimizer to all elements of a parameter.
pub(super) fn update<'a>(
    optimizer: &Optimizer,
    t: f64,
    (w, gradient): (&'a mut [f32], &'a [f32]),
    states: [Option<&'a mut [f32]>; Optimizer::MOST_STATES],
) {
    let kept = (0..).zip(optimizer.kept_states()).fold(0, |kept, (index, is_kept)| kept | u8::from(is_kept) << index);
    optimizer.visit(Update { step: step_of(optimizer, t), kept, w, gradient, states });
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::train::optim::{NAdam, RAdam};

    /// Compares the product of NAdam's momenta with PyTorch's, factor by factor, also if the loop ends early.
    #[test]
    fn momenta_are_multiplied() {
        for (beta, decay) in [(0.9, 4e-3), (0.0, 4e-3), (0.9, 0.0), (0.999, 0.05), (0.9999, 2.0), (0.5, 100.0)] {
            let nadam = NAdam { betas: (beta, 0.999), momentum_decay: decay, ..NAdam::DEFAULT };
            let mut product = 1.0;
            for t in 1..5000 {
                let t = f64::from(t);
                product *= beta * (1.0 - 0.5 * 0.96f64.powf(t * decay));
                let [F64(found), _] = Optimizer::NAdam(nadam).corrections(F64(t));
                assert!((found - product).abs() <= 1e-12, "{beta} {decay} {t}: {found} is not {product}");
            }
        }
    }

    /// Tests that with a `beta2` of 0.999 the first five steps of RAdam are not divided.
    #[test]
    fn the_first_steps_are_not_rectified() {
        let rectified = |beta2: f64, t: u32| {
            let radam = RAdam { betas: (0.9, beta2), ..RAdam::DEFAULT };
            let [_, F64(factor)] = Optimizer::RAdam(radam).corrections(F64(f64::from(t)));
            (factor != 0.0).then_some(factor)
        };
        let first = (1..20).find(|&t| rectified(0.999, t).is_some());
        assert_eq!(first, Some(6));
        assert!((rectified(0.999, 1_000_000).unwrap() - 1.0).abs() < 1e-12);
        // Never with so short a mean.
        assert!((1..100).all(|t| rectified(0.5, t).is_none()));
    }
}
