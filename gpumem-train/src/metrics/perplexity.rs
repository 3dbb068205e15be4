//! Perplexity of language models.

use super::classes::{Options, class_options, for_each_label};
use super::{Goal, Metric};
use crate::error::{Error, Result};
use gpumem_core::run::tensor::{HostShape, Tensor};

/// The exponential of the mean cross entropy over all tokens that count, computed in double precision.
#[derive(Clone, Debug)]
pub struct Perplexity {
    pub(super) options: Options,
    sum: f64,
    count: u64,
}

impl Perplexity {
    /// Returns the perplexity of logits: `val_perplexity` in logs.
    #[expect(clippy::new_without_default, reason = "other metrics have no default either")]
    pub fn new() -> Perplexity {
        Perplexity { options: Options::DEFAULT, sum: 0.0, count: 0 }
    }
}
class_options!(Perplexity);

impl<S: HostShape, L: HostShape> Metric<Tensor<f32, S>, Tensor<u32, L>> for Perplexity {
    fn name(&self) -> String {
        "perplexity".into()
    }

    fn goal(&self) -> Goal {
        Goal::Lowest
    }

    fn add(&mut self, outputs: &Tensor<f32, S>, labels: &Tensor<u32, L>, len: usize) -> Result<()> {
        let Perplexity { options, sum, count } = self;
        let labels = (labels.as_slice(), L::DIMS);
        for_each_label((outputs.as_slice(), S::DIMS), labels, len, *options, |label, logits| {
            let largest = f64::from(logits.of(logits.argmax()));
            let total: f64 = logits.iter().map(|logit| (f64::from(logit) - largest).exp()).sum();
            *sum += total.ln() - (f64::from(logits.of(label)) - largest);
            *count += 1;
        })
        .map_err(|what| Error::measure("perplexity", what))
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.sum / self.count as f64).exp())
    }

    fn reset(&mut self) {
        (self.sum, self.count) = (0.0, 0);
    }
}
