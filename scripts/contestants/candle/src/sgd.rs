//! Stochastic gradient descent with momentum, which candle lacks, in the style of candle's optimizers.

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};
use candle_nn::Optimizer;

pub struct Momentum {
    pub rate: f64,
    pub momentum: f64,
}

pub struct Sgd {
    /// The parameters and their velocities, which are `None` before the first step.
    parameters: Vec<(Var, Option<Tensor>)>,
    config: Momentum,
}

impl Optimizer for Sgd {
    type Config = Momentum;

    fn new(vars: Vec<Var>, config: Momentum) -> Result<Self> {
        Ok(Self { parameters: vars.into_iter().map(|var| (var, None)).collect(), config })
    }

    fn step(&mut self, gradients: &GradStore) -> Result<()> {
        let Momentum { rate, momentum } = self.config;
        for (var, velocity) in &mut self.parameters {
            let Some(gradient) = gradients.get(var) else { continue };
            let next = match velocity {
                Some(before) => ((&*before * momentum)? + gradient)?,
                None => gradient.clone(),
            };
            var.set(&var.sub(&(&next * rate)?)?)?;
            *velocity = Some(next);
        }
        Ok(())
    }

    fn learning_rate(&self) -> f64 {
        self.config.rate
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.config.rate = rate;
    }
}
