//! The rules of the optimizers for one element, with the factors of one step.

use super::elements::{self, Rule, one, three, two};
use gpumem_core::train::optim::{Adadelta, Adagrad, Adamax, Lion, NAdam, Optimizer, RAdam, RmsProp, Sgd};

/// Returns `1 - beta^t`.
fn correction(beta: f64, t: f64) -> f64 {
    1.0 - beta.powf(t)
}

/// Returns the factor of the weight, and the share of the weight in the gradient. It serves rules with both kinds of weight decay.
fn decays(lr: f64, weight_decay: f64, is_decoupled: bool) -> [f32; 2] {
    if is_decoupled { [(1.0 - lr * weight_decay) as f32, 0.0] } else { [1.0, weight_decay as f32] }
}

/// Returns the share of a running mean that is kept, and the share of the new value.
fn shares(kept: f64) -> [f32; 2] {
    [kept as f32, (1.0 - kept) as f32]
}

/// Adam's rule with the factors of one step.
pub(super) struct AdamStep {
    /// The factor that the weight is multiplied by first: decoupled weight decay.
    shrink: f32,
    /// The share of the weight that is added to the gradient: L2 regularisation.
    decay: f32,
    betas: [f32; 2],
    /// `1 - beta`.
    rest: [f32; 2],
    /// The factor of the momentum: `lr / (1 - beta1^t)`.
    rate: f32,
    /// The factor of the gradient itself in Nesterov's momentum; 0 without Nesterov's momentum.
    ahead: f32,
    /// `1 / sqrt(1 - beta2^t)`.
    root: f32,
    eps: f32,
}

impl AdamStep {
    fn new(lr: f64, betas: (f64, f64), eps: f64, t: f64) -> AdamStep {
        AdamStep {
            shrink: 1.0,
            decay: 0.0,
            betas: [betas.0 as f32, betas.1 as f32],
            rest: [(1.0 - betas.0) as f32, (1.0 - betas.1) as f32],
            rate: (lr / correction(betas.0, t)) as f32,
            ahead: 0.0,
            root: (1.0 / correction(betas.1, t).sqrt()) as f32,
            eps: eps as f32,
        }
    }

    /// Returns the step with Nesterov's momentum.
    fn ahead(nadam: &NAdam, t: f64) -> AdamStep {
        let NAdam { lr, betas, eps, weight_decay, decoupled_weight_decay, .. } = *nadam;
        let mu = |t: f64| betas.0 * (1.0 - 0.5 * 0.96f64.powf(t * nadam.momentum_decay));
        let product = momenta(nadam, t);
        let [shrink, decay] = decays(lr, weight_decay, decoupled_weight_decay);
        AdamStep {
            shrink,
            decay,
            rate: (lr * mu(t + 1.0) / (1.0 - product * mu(t + 1.0))) as f32,
            ahead: (lr * (1.0 - mu(t)) / (1.0 - product)) as f32,
            ..AdamStep::new(lr, betas, eps, t)
        }
    }
}

impl AdamStep {
    /// Updates a weight. The step is divided by the root of `square(v)`, where `v` is the mean square.
    #[inline(always)]
    fn step(&self, w: &mut f32, gradient: f32, [m, v]: [&mut f32; 2], square: impl FnOnce(f32) -> f32) {
        let g = gradient + self.decay * *w;
        *m = self.betas[0] * *m + self.rest[0] * g;
        *v = self.betas[1] * *v + self.rest[1] * g * g;
        *w = *w * self.shrink - (self.rate * *m + self.ahead * g) / (square(*v).sqrt() * self.root + self.eps);
    }
}

impl Rule<2> for AdamStep {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, means: [&mut f32; 2]) {
        self.step(w, gradient, means, |v| v);
    }
}

/// The rule with `amsgrad`: the third state is the largest mean square of all steps.
impl Rule<3> for AdamStep {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [m, v, largest]: [&mut f32; 3]) {
        self.step(w, gradient, [m, v], |v| {
            *largest = largest.max(v);
            *largest
        });
    }
}

/// Returns the product of NAdam's momenta from the first step to step `t`. It depends on the step number alone, so that a resumed training
/// needs no further state, as with any other rule.
fn momenta(nadam: &NAdam, t: f64) -> f64 {
    let ratio = 0.96f64.powf(nadam.momentum_decay);
    let (mut product, mut left, mut at) = (1.0, 1.0, 0.0);
    // A number below this changes neither a sum with 1 nor a momentum.
    const NOTHING: f64 = 1e-18;
    while at < t && product > NOTHING {
        if left <= NOTHING {
            return product * nadam.betas.0.powf(t - at);
        }
        at += 1.0;
        left *= ratio;
        product *= nadam.betas.0 * (1.0 - 0.5 * left);
    }
    product
}

/// SGD's rule: `g = gradient + weight_decay * w`, `v = momentum * v + (1 - dampening) * g` (in the first step `v = g`), and
/// `w -= lr * v`, or with `nesterov` `w -= lr * (g + momentum * v)`.
struct Descend {
    rate: f32,
    decay: f32,
    momentum: f32,
    /// The shares of the velocity and of the gradient in the new velocity.
    shares: [f32; 2],
    nesterov: bool,
}

impl Rule<0> for Descend {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, []: [&mut f32; 0]) {
        *w -= self.rate * (gradient + self.decay * *w);
    }
}

impl Rule<1> for Descend {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [v]: [&mut f32; 1]) {
        let g = gradient + self.decay * *w;
        *v = self.shares[0] * *v + self.shares[1] * g;
        *w -= self.rate * if self.nesterov { g + self.momentum * *v } else { *v };
    }
}

/// Applies SGD's rule. Without a velocity, the momentum is 0.
pub(super) fn descend(sgd: &Sgd, first_step: bool, w: &mut [f32], gradient: &[f32], velocity: Option<&mut [f32]>) {
    let [rate, decay, momentum] = [sgd.lr, sgd.weight_decay, sgd.momentum].map(|x| x as f32);
    let shares = if first_step { [0.0, 1.0] } else { [momentum, (1.0 - sgd.dampening) as f32] };
    let rule = Descend { rate, decay, momentum, shares, nesterov: sgd.nesterov };
    match velocity {
        Some(velocity) if sgd.momentum != 0.0 => one(&rule, w, gradient, velocity),
        _ => elements::none(&rule, w, gradient),
    }
}

/// Lion's rule: `w = w * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * gradient)`, then `m = beta2 * m + (1 - beta2) * gradient`.
struct Sign {
    rate: f32,
    shrink: f32,
    /// The shares of the momentum and the gradient in the step. The next field has their shares in the new momentum.
    towards: [f32; 2],
    shares: [f32; 2],
}

impl Rule<1> for Sign {
    #[inline(always)]
    fn change(&self, w: &mut f32, g: f32, [m]: [&mut f32; 1]) {
        let towards = self.towards[0] * *m + self.towards[1] * g;
        // The step is 0 for 0, but `signum` returns 1.
        let sign = if towards == 0.0 { 0.0 } else { towards.signum() };
        *w = *w * self.shrink - self.rate * sign;
        *m = self.shares[0] * *m + self.shares[1] * g;
    }
}

pub(super) fn step_by_sign(lion: &Lion, w: &mut [f32], gradient: &[f32], m: &mut [f32]) {
    let [rate, shrink] = [lion.lr, 1.0 - lion.lr * lion.weight_decay].map(|x| x as f32);
    let [towards, shares] = [lion.betas.0, lion.betas.1].map(shares);
    one(&Sign { rate, shrink, towards, shares }, w, gradient, m);
}

/// RMSprop's rule, with or without momentum, centered or not.
struct RmsStep<const MOMENTUM: bool, const CENTERED: bool> {
    rate: f32,
    /// The share of both means that is kept, and the share of the new value.
    shares: [f32; 2],
    eps: f32,
    decay: f32,
    momentum: f32,
}

impl<const MOMENTUM: bool, const CENTERED: bool> RmsStep<MOMENTUM, CENTERED> {
    fn new(rms: &RmsProp) -> Self {
        let [rate, eps, decay, momentum] = [rms.lr, rms.eps, rms.weight_decay, rms.momentum].map(|x| x as f32);
        RmsStep { rate, shares: shares(rms.alpha), eps, decay, momentum }
    }

    #[inline(always)]
    fn step(&self, w: &mut f32, gradient: f32, v: &mut f32, buffer: &mut f32, mean: &mut f32) {
        let [kept, added] = self.shares;
        let g = gradient + self.decay * *w;
        *v = kept * *v + added * g * g;
        let mut variance = *v;
        if CENTERED {
            *mean = kept * *mean + added * g;
            // Only rounding makes it negative.
            variance = (*v - *mean * *mean).max(0.0);
        }
        let mut towards = g / (variance.sqrt() + self.eps);
        if MOMENTUM {
            *buffer = self.momentum * *buffer + towards;
            towards = *buffer;
        }
        *w -= self.rate * towards;
    }
}

impl Rule<1> for RmsStep<false, false> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [v]: [&mut f32; 1]) {
        self.step(w, gradient, v, &mut 0.0, &mut 0.0);
    }
}

impl Rule<2> for RmsStep<true, false> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [v, buffer]: [&mut f32; 2]) {
        self.step(w, gradient, v, buffer, &mut 0.0);
    }
}

impl Rule<2> for RmsStep<false, true> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [v, mean]: [&mut f32; 2]) {
        self.step(w, gradient, v, &mut 0.0, mean);
    }
}

impl Rule<3> for RmsStep<true, true> {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [v, buffer, mean]: [&mut f32; 3]) {
        self.step(w, gradient, v, buffer, mean);
    }
}

/// Applies RMSprop's rule. After the mean square, the states are the momentum and the mean, if they exist, in this order.
pub(super) fn root_mean_square(rms: &RmsProp, w: &mut [f32], gradient: &[f32], states: [Option<&mut [f32]>; 3]) {
    match (states, rms.momentum != 0.0, rms.centered) {
        ([Some(v), ..], false, false) => one(&RmsStep::<false, false>::new(rms), w, gradient, v),
        ([Some(v), Some(b), _], true, false) => two(&RmsStep::<true, false>::new(rms), w, gradient, [v, b]),
        ([Some(v), Some(m), _], false, true) => two(&RmsStep::<false, true>::new(rms), w, gradient, [v, m]),
        ([Some(v), Some(b), Some(m)], true, true) => three(&RmsStep::<true, true>::new(rms), w, gradient, [v, b, m]),
        _ => {}
    }
}

/// Adagrad's rule: `s += g^2`, `w -= rate * g / (sqrt(s) + eps)`.
struct SumOfSquares {
    rate: f32,
    eps: f32,
    decay: f32,
}

impl Rule<1> for SumOfSquares {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [sum]: [&mut f32; 1]) {
        let g = gradient + self.decay * *w;
        *sum += g * g;
        *w -= self.rate * g / (sum.sqrt() + self.eps);
    }
}

pub(super) fn sum_of_squares(adagrad: &Adagrad, t: f64, w: &mut [f32], gradient: &[f32], sum: &mut [f32]) {
    let rate = (adagrad.lr / (1.0 + (t - 1.0) * adagrad.lr_decay)) as f32;
    let [eps, decay] = [adagrad.eps, adagrad.weight_decay].map(|x| x as f32);
    one(&SumOfSquares { rate, eps, decay }, w, gradient, sum);
}

/// Adadelta's rule: `v = rho * v + (1 - rho) * g^2`, `d = sqrt(u + eps) / sqrt(v + eps) * g`, `u = rho * u + (1 - rho) * d^2`, `w -= lr * d`.
struct AsFarAsBefore {
    rate: f32,
    eps: f32,
    decay: f32,
    shares: [f32; 2],
}

impl Rule<2> for AsFarAsBefore {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [v, u]: [&mut f32; 2]) {
        let [kept, added] = self.shares;
        let g = gradient + self.decay * *w;
        *v = kept * *v + added * g * g;
        let d = (*u + self.eps).sqrt() / (*v + self.eps).sqrt() * g;
        *u = kept * *u + added * d * d;
        *w -= self.rate * d;
    }
}

pub(super) fn as_far_as_before(adadelta: &Adadelta, w: &mut [f32], gradient: &[f32], states: [&mut [f32]; 2]) {
    let [rate, eps, decay] = [adadelta.lr, adadelta.eps, adadelta.weight_decay].map(|x| x as f32);
    two(&AsFarAsBefore { rate, eps, decay, shares: shares(adadelta.rho) }, w, gradient, states);
}

/// Adamax's rule: `m = beta1 * m + (1 - beta1) * g`, `u = max(beta2 * u, |g| + eps)`, `w -= rate * m / u`.
struct RunningMaximum {
    rate: f32,
    eps: f32,
    decay: f32,
    shares: [f32; 2],
    /// The factor of the maximum in each step.
    falls: f32,
}

impl Rule<2> for RunningMaximum {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [m, u]: [&mut f32; 2]) {
        let g = gradient + self.decay * *w;
        *m = self.shares[0] * *m + self.shares[1] * g;
        *u = (self.falls * *u).max(g.abs() + self.eps);
        *w -= self.rate * *m / *u;
    }
}

pub(super) fn running_maximum(adamax: &Adamax, t: f64, w: &mut [f32], gradient: &[f32], states: [&mut [f32]; 2]) {
    let rate = (adamax.lr / correction(adamax.betas.0, t)) as f32;
    let [eps, decay, falls] = [adamax.eps, adamax.weight_decay, adamax.betas.1].map(|x| x as f32);
    two(&RunningMaximum { rate, eps, decay, shares: shares(adamax.betas.0), falls }, w, gradient, states);
}

/// Returns RAdam's factor `r(t) * sqrt(1 - beta2^t)` of `m / (sqrt(v) + eps)`. `None` as long as the mean square covers too few steps.
fn rectified(beta2: f64, t: f64) -> Option<f64> {
    let correction = correction(beta2, t);
    let most = 2.0 / (1.0 - beta2) - 1.0;
    let length = most - 2.0 * t * beta2.powf(t) / correction;
    let share = (length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length);
    (length > 5.0).then(|| share.sqrt() * correction.sqrt())
}

/// RAdam's rule with the factors of one step.
struct Rectify {
    shrink: f32,
    decay: f32,
    /// The shares for `m` and for `v`.
    shares: [[f32; 2]; 2],
    rate: f32,
    eps: f32,
    /// The result of [`rectified`].
    factor: Option<f32>,
}

impl Rule<2> for Rectify {
    #[inline(always)]
    fn change(&self, w: &mut f32, gradient: f32, [m, v]: [&mut f32; 2]) {
        let [[kept, added], [stays, enters]] = self.shares;
        let g = gradient + self.decay * *w;
        *m = kept * *m + added * g;
        *v = stays * *v + enters * g * g;
        let towards = match self.factor {
            Some(factor) => *m * factor / (v.sqrt() + self.eps),
            None => *m,
        };
        *w = *w * self.shrink - self.rate * towards;
    }
}

pub(super) fn rectify(radam: &RAdam, t: f64, w: &mut [f32], gradient: &[f32], states: [&mut [f32]; 2]) {
    let RAdam { lr, betas, weight_decay, decoupled_weight_decay, .. } = *radam;
    let [shrink, decay] = decays(lr, weight_decay, decoupled_weight_decay);
    let rule = Rectify {
        shrink,
        decay,
        shares: [shares(betas.0), shares(betas.1)],
        rate: (lr / correction(betas.0, t)) as f32,
        eps: radam.eps as f32,
        factor: rectified(betas.1, t).map(|factor| factor as f32),
    };
    two(&rule, w, gradient, states);
}

/// Applies one of the Adam rules, with the third state for `amsgrad`. Returns false if the optimizer has no such rule.
pub(super) fn adams(
    optimizer: &Optimizer,
    t: f64,
    (w, gradient): (&mut [f32], &[f32]),
    [m, v]: [&mut [f32]; 2],
    largest: Option<&mut [f32]>,
) -> bool {
    let Some(rule) = adam(optimizer, t) else { return false };
    let is_amsgrad = match optimizer {
        Optimizer::Adam(adam) => adam.amsgrad,
        Optimizer::AdamW(adam) => adam.amsgrad,
        _ => false,
    };
    match largest {
        Some(largest) if is_amsgrad => three(&rule, w, gradient, [m, v, largest]),
        _ => two(&rule, w, gradient, [m, v]),
    }
    true
}

/// Returns the step of an optimizer with one of the Adam rules. `None` for all others.
pub(super) fn adam(optimizer: &Optimizer, t: f64) -> Option<AdamStep> {
    Some(match optimizer {
        Optimizer::Adam(adam) => {
            AdamStep { decay: adam.weight_decay as f32, ..AdamStep::new(adam.lr, adam.betas, adam.eps, t) }
        }
        Optimizer::AdamW(adam) => AdamStep {
            shrink: (1.0 - adam.lr * adam.weight_decay) as f32,
            ..AdamStep::new(adam.lr, adam.betas, adam.eps, t)
        },
        Optimizer::AdamW8bit(adam) => AdamStep {
            shrink: (1.0 - adam.lr * adam.weight_decay) as f32,
            ..AdamStep::new(adam.lr, adam.betas, adam.eps, t)
        },
        Optimizer::NAdam(nadam) => AdamStep::ahead(nadam, t),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the product with PyTorch's, factor by factor, also if the loop ends early.
    #[test]
    fn momenta_are_multiplied() {
        for (beta, decay) in [(0.9, 4e-3), (0.0, 4e-3), (0.9, 0.0), (0.999, 0.05), (0.9999, 2.0), (0.5, 100.0)] {
            let nadam = NAdam { betas: (beta, 0.999), momentum_decay: decay, ..NAdam::DEFAULT };
            let mut product = 1.0;
            for t in 1..5000 {
                let t = f64::from(t);
                product *= beta * (1.0 - 0.5 * 0.96f64.powf(t * decay));
                let found = momenta(&nadam, t);
                assert!((found - product).abs() <= 1e-12, "{beta} {decay} {t}: {found} is not {product}");
            }
        }
    }

    /// Tests that with a `beta2` of 0.999 the first five steps are not divided.
    #[test]
    fn the_first_steps_are_not_rectified() {
        let first = (1..20).find(|&t| rectified(0.999, f64::from(t)).is_some());
        assert_eq!(first, Some(6));
        assert!((rectified(0.999, 1e6).unwrap() - 1.0).abs() < 1e-12);
        // Never with so short a mean.
        assert!((1..100).all(|t| rectified(0.5, f64::from(t)).is_none()));
    }
}
