//! The update of a parameter from its gradient, and the step counter. The rules are those of `gpumem_core::train::optim`; scalars
//! are computed in double precision, elements in single.

use super::mask::{STATE_WORDS, step_and_seed};
use super::{Bound, kernel};
use crate::operands::Operands;
use crate::simd::wide;
use gpumem_core::program::{Slot, StateWord};
use gpumem_core::train::optim::{Lion, Optimizer, Sgd};
use rayon::prelude::*;

/// Elements that one task updates.
const PIECE: usize = 1 << 13;

/// Adam's rule with the factors of one step.
struct AdamStep {
    /// What the weight is multiplied by first: decoupled weight decay.
    shrink: f32,
    /// What of the weight is added to the gradient: L2 regularisation.
    decay: f32,
    betas: [f32; 2],
    /// `1 - beta`.
    rest: [f32; 2],
    /// `lr / (1 - beta1^t)`.
    rate: f32,
    /// `1 / sqrt(1 - beta2^t)`.
    root: f32,
    eps: f32,
}

impl AdamStep {
    fn new(lr: f64, betas: (f64, f64), eps: f64, step: u64) -> AdamStep {
        let correction = |beta: f64| 1.0 - beta.powf(step as f64 + 1.0);
        AdamStep {
            shrink: 1.0,
            decay: 0.0,
            betas: [betas.0 as f32, betas.1 as f32],
            rest: [(1.0 - betas.0) as f32, (1.0 - betas.1) as f32],
            rate: (lr / correction(betas.0)) as f32,
            root: (1.0 / correction(betas.1).sqrt()) as f32,
            eps: eps as f32,
        }
    }

    fn update(&self, w: &mut [f32], gradient: &[f32], m: &mut [f32], v: &mut [f32]) {
        let moments = m.par_chunks_mut(PIECE).zip(v.par_chunks_mut(PIECE));
        let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(moments);
        pieces.for_each(|((w, gradient), (m, v))| {
            wide(|| {
                for ((w, gradient), (m, v)) in w.iter_mut().zip(gradient).zip(m.iter_mut().zip(v)) {
                    let g = gradient + self.decay * *w;
                    *m = self.betas[0] * *m + self.rest[0] * g;
                    *v = self.betas[1] * *v + self.rest[1] * g * g;
                    *w = *w * self.shrink - self.rate * *m / (v.sqrt() * self.root + self.eps);
                }
            });
        });
    }
}

/// `g = gradient + weight_decay * w`, `v = momentum * v + (1 - dampening) * g` (in the first step `v = g`), and
/// `w -= lr * v`, or with `nesterov` `w -= lr * (g + momentum * v)`. Without velocity, momentum is 0.
fn descend(sgd: &Sgd, first_step: bool, w: &mut [f32], gradient: &[f32], velocity: Option<&mut [f32]>) {
    let [rate, decay, momentum] = [sgd.lr, sgd.weight_decay, sgd.momentum].map(|x| x as f32);
    let (kept, added) = if first_step { (0.0, 1.0) } else { (momentum, (1.0 - sgd.dampening) as f32) };
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE));
    match velocity {
        Some(velocity) if sgd.momentum != 0.0 => {
            pieces.zip(velocity.par_chunks_mut(PIECE)).for_each(|((w, gradient), velocity)| {
                wide(|| {
                    for ((w, gradient), v) in w.iter_mut().zip(gradient).zip(velocity) {
                        let g = gradient + decay * *w;
                        *v = kept * *v + added * g;
                        *w -= rate * if sgd.nesterov { g + momentum * *v } else { *v };
                    }
                });
            });
        }
        _ => pieces.for_each(|(w, gradient)| {
            wide(|| w.iter_mut().zip(gradient).for_each(|(w, gradient)| *w -= rate * (gradient + decay * *w)));
        }),
    }
}

/// `w = w * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * gradient)`, then `m = beta2 * m + (1 - beta2) * gradient`.
fn step_by_sign(lion: &Lion, w: &mut [f32], gradient: &[f32], m: &mut [f32]) {
    let [rate, shrink] = [lion.lr, 1.0 - lion.lr * lion.weight_decay].map(|x| x as f32);
    let [(kept, added), (stays, enters)] = [lion.betas.0, lion.betas.1].map(|beta| (beta as f32, (1.0 - beta) as f32));
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(m.par_chunks_mut(PIECE));
    pieces.for_each(|((w, gradient), m)| {
        wide(|| {
            for ((w, g), m) in w.iter_mut().zip(gradient).zip(m) {
                let towards = kept * *m + added * g;
                // Zero has no sign.
                let sign = if towards == 0.0 { 0.0 } else { towards.signum() };
                *w = *w * shrink - rate * sign;
                *m = stays * *m + enters * g;
            }
        });
    });
}

/// An optimizer's rule with the factors of one step.
enum Rule<'a> {
    Descend(&'a Sgd),
    Adam(AdamStep),
    Sign(&'a Lion),
}

/// The rule of step number `step`; `None` for an optimizer that has none here.
fn rule(optimizer: &Optimizer, step: u64) -> Option<Rule<'_>> {
    Some(match optimizer {
        Optimizer::Sgd(sgd) => Rule::Descend(sgd),
        Optimizer::Adam(adam) => Rule::Adam(AdamStep {
            decay: adam.weight_decay as f32,
            ..AdamStep::new(adam.lr, adam.betas, adam.eps, step)
        }),
        Optimizer::AdamW(adam) => Rule::Adam(AdamStep {
            shrink: (1.0 - adam.lr * adam.weight_decay) as f32,
            ..AdamStep::new(adam.lr, adam.betas, adam.eps, step)
        }),
        Optimizer::Lion(lion) => Rule::Sign(lion),
        _ => return None,
    })
}

/// Whether there is a rule for an optimizer.
pub(crate) fn is_known(optimizer: &Optimizer) -> bool {
    rule(optimizer, 0).is_some()
}

/// Binds the update of one parameter. The session refuses an optimizer without a rule, or one that needs more moments than
/// there are, before anything runs.
pub(super) fn update(operands: &mut Operands<'_>) -> Bound {
    let length = operands.length(Slot::ParameterGradient)?;
    let gradient = operands.source(Slot::ParameterGradient, length)?;
    let mut parameter = operands.target(Slot::Parameter, length)?;
    let mut first = operands.target_if_any(Slot::Moment(0), length)?;
    let mut second = operands.target_if_any(Slot::Moment(1), length)?;
    let state = operands.words(Slot::State, STATE_WORDS)?;
    kernel(move |frame| {
        let words = state.get();
        if words[StateWord::Overflow as usize] != 0 {
            return;
        }
        let (step, _) = step_and_seed(words);
        let (w, gradient) = (parameter.get(), gradient.get());
        let (m, v) = (first.as_mut().map(|m| m.get()), second.as_mut().map(|v| v.get()));
        match (rule(frame.optimizer, step), m, v) {
            (Some(Rule::Descend(sgd)), velocity, _) => descend(sgd, step == 0, w, gradient, velocity),
            (Some(Rule::Adam(rule)), Some(m), Some(v)) => rule.update(w, gradient, m, v),
            (Some(Rule::Sign(lion)), Some(m), _) => step_by_sign(lion, w, gradient, m),
            _ => {}
        }
    })
}

/// Binds the look at a gradient: whether it is finite.
pub(super) fn check(operands: &mut Operands<'_>) -> Bound {
    let length = operands.length(Slot::ParameterGradient)?;
    let gradient = operands.source(Slot::ParameterGradient, length)?;
    let mut state = operands.word_target(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        if !gradient.get().par_chunks(PIECE).all(|piece| piece.iter().all(|x| x.is_finite())) {
            state.get()[StateWord::Overflow as usize] = 1;
        }
    })
}

/// Binds the increment of the step counter. A step that was skipped does not count.
pub(super) fn advance(operands: &mut Operands<'_>) -> Bound {
    let mut state = operands.word_target(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        let words = state.get();
        if std::mem::take(&mut words[StateWord::Overflow as usize]) != 0 {
            return;
        }
        let next = step_and_seed(words).0.wrapping_add(1);
        (words[0], words[1]) = (next as u32, (next >> 32) as u32);
    })
}
