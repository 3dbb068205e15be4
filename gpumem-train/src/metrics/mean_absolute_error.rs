//! The mean absolute error.

use super::{Goal, Metric};
use crate::error::Result;
use gpumem_core::run::tensor::{HostShape, Tensor};

/// The mean absolute difference between output and target over all elements, summed in double precision.
#[derive(Clone, Debug, Default)]
pub struct MeanAbsoluteError {
    sum: f64,
    count: u64,
}

impl MeanAbsoluteError {
    /// Returns the metric: `val_mae` in logs.
    pub fn new() -> MeanAbsoluteError {
        MeanAbsoluteError::default()
    }
}

impl<S: HostShape> Metric<Tensor<f32, S>, Tensor<f32, S>> for MeanAbsoluteError {
    fn name(&self) -> String {
        "mae".into()
    }

    fn goal(&self) -> Goal {
        Goal::Lowest
    }

    fn add(&mut self, outputs: &Tensor<f32, S>, targets: &Tensor<f32, S>, len: usize) -> Result<()> {
        for (outputs, targets) in outputs.samples().zip(targets.samples()).take(len) {
            let distances = outputs.iter().zip(targets).map(|(&output, &target)| f64::from(output) - f64::from(target));
            self.sum += distances.map(f64::abs).sum::<f64>();
            self.count += outputs.len() as u64;
        }
        Ok(())
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    fn reset(&mut self) {
        (self.sum, self.count) = (0.0, 0);
    }
}
