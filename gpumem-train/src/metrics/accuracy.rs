//! Accuracy, of the first prediction or of the first k.

use super::classes::{Options, class_options, for_each_label};
use super::{Goal, Metric};
use crate::error::{Error, Result};
use gpumem_core::run::tensor::{HostShape, Tensor};

/// The share of positions whose label is among the `k` largest logits.
///
/// Of equal logits the first class comes first, so that `top(1)` agrees with [`Tensor::argmax`].
#[derive(Clone, Debug)]
pub struct Accuracy {
    k: usize,
    pub(super) options: Options,
    right: u64,
    count: u64,
}

impl Accuracy {
    /// Returns the accuracy of the largest logit: `val_accuracy` in logs.
    #[expect(clippy::new_without_default, reason = "`Accuracy::default()` would not say of how many logits")]
    pub fn new() -> Accuracy {
        Accuracy::top(1)
    }

    /// Returns the accuracy of the `k` largest logits: `val_top5` in logs, or `val_accuracy` for 1.
    pub fn top(k: usize) -> Accuracy {
        Accuracy { k, options: Options::DEFAULT, right: 0, count: 0 }
    }
}
class_options!(Accuracy);

impl<S: HostShape, L: HostShape> Metric<Tensor<f32, S>, Tensor<u32, L>> for Accuracy {
    fn name(&self) -> String {
        if self.k == 1 { "accuracy".into() } else { format!("top{}", self.k) }
    }

    fn goal(&self) -> Goal {
        Goal::Highest
    }

    fn add(&mut self, outputs: &Tensor<f32, S>, labels: &Tensor<u32, L>, len: usize) -> Result<()> {
        let Accuracy { k, options, right, count } = self;
        let name = if *k == 1 { "accuracy".into() } else { format!("top{k}") };
        if *k == 0 {
            return Err(Error::measure(name, "no label is among no logits; take `Accuracy::top(1)` or more"));
        }
        let labels = (labels.as_slice(), L::DIMS);
        for_each_label((outputs.as_slice(), S::DIMS), labels, len, *options, |label, logits| {
            *right += u64::from(logits.rank(label) < *k);
            *count += 1;
        })
        .map_err(|what| Error::measure(name, what))
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.right as f64 / self.count as f64)
    }

    fn reset(&mut self) {
        (self.right, self.count) = (0, 0);
    }
}
