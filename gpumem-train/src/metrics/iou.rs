//! Intersection over union.

use super::classes::{ClassCounts, Options, class_options, for_each_label};
use super::{Goal, Metric};
use crate::error::{Error, Result};
use gpumem_core::run::tensor::{HostShape, Tensor};

/// The mean intersection over union of all classes that are a label or a prediction somewhere in the validation set.
///
/// For a class, it is the number of positions with that label and prediction, divided by the number with that label or prediction. Counts
/// are over the whole validation set, as in benchmarks of segmentation, rather than a mean over images.
#[derive(Clone, Debug)]
pub struct MeanIou {
    pub(super) options: Options,
    counts: ClassCounts,
}

impl MeanIou {
    /// Returns the metric: `val_mean_iou` in logs.
    #[expect(clippy::new_without_default, reason = "other metrics have no default either")]
    pub fn new() -> MeanIou {
        MeanIou { options: Options::DEFAULT, counts: ClassCounts::default() }
    }
}
class_options!(MeanIou);

impl<S: HostShape, L: HostShape> Metric<Tensor<f32, S>, Tensor<u32, L>> for MeanIou {
    fn name(&self) -> String {
        "mean_iou".into()
    }

    fn goal(&self) -> Goal {
        Goal::Highest
    }

    fn add(&mut self, outputs: &Tensor<f32, S>, labels: &Tensor<u32, L>, len: usize) -> Result<()> {
        let counts = &mut self.counts;
        let labels = (labels.as_slice(), L::DIMS);
        for_each_label((outputs.as_slice(), S::DIMS), labels, len, self.options, |label, logits| {
            counts.add(label, logits.argmax());
        })
        .map_err(|what| Error::measure("mean_iou", what))
    }

    fn value(&self) -> Option<f64> {
        self.counts.mean(|[labels, predictions, both]| both as f64 / (labels + predictions - both) as f64)
    }

    fn reset(&mut self) {
        self.counts.reset();
    }
}
