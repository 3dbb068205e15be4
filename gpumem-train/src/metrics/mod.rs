//! Metrics: measures of the quality of outputs, computed on the host over a validation set.

mod accuracy;
mod classes;
mod confusion;
mod f1;
mod iou;
mod mean_absolute_error;
mod perplexity;
mod select;

pub use accuracy::Accuracy;
pub use confusion::ConfusionMatrix;
pub use f1::F1;
pub use iou::MeanIou;
pub use mean_absolute_error::MeanAbsoluteError;
pub use perplexity::Perplexity;
pub use select::{Selected, select};

use crate::error::Result;

/// The direction in which a value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Higher is better, as of an accuracy.
    Highest,
    /// Lower is better, as of a loss.
    Lowest,
}

impl Goal {
    /// True if `value` is better than `best`. A NaN is never better, and any number is better than a NaN.
    pub fn is_better(self, value: f64, best: f64) -> bool {
        if value.is_nan() || best.is_nan() {
            return best.is_nan() && !value.is_nan();
        }
        match self {
            Goal::Highest => value > best,
            Goal::Lowest => value < best,
        }
    }
}

/// A table of counts, such as a confusion matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name in logs.
    pub name: String,
    /// Number of columns.
    pub columns: usize,
    /// The counts, row after row.
    pub counts: Vec<u64>,
}

impl Table {
    /// Returns the rows.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.columns.max(1))
    }
}

/// A metric over the samples of a validation set. `O` and `T` are the network's output and target.
///
/// ```
/// use gpumem_core::run::tensor::Tensor;
/// use gpumem_core::typed::D;
/// use gpumem_train::metrics::{Goal, Metric};
///
/// type Output = Tensor<f32, (D<4>, D<1>)>;
///
/// /// The largest error of all samples.
/// #[derive(Default)]
/// struct LargestError(f32);
///
/// impl Metric<Output, Output> for LargestError {
///     fn name(&self) -> String {
///         "largest_error".into()
///     }
///
///     fn goal(&self) -> Goal {
///         Goal::Lowest
///     }
///
///     fn add(&mut self, outputs: &Output, targets: &Output, len: usize) -> gpumem_train::Result<()> {
///         for (output, target) in outputs.samples().zip(targets.samples()).take(len) {
///             self.0 = self.0.max((output[0] - target[0]).abs());
///         }
///         Ok(())
///     }
///
///     fn value(&self) -> Option<f64> {
///         Some(self.0.into())
///     }
///
///     fn reset(&mut self) {
///         self.0 = 0.0;
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no metric of a network whose output is `{O}` and whose target is `{T}`",
    label = "does not fit the output and the target",
    note = "metrics of classes compare a `Tensor` of `f32` with one of `u32` labels, `MeanAbsoluteError` two tensors of `f32` of one shape",
    note = "of several outputs or targets, `select(metric, |outputs| &outputs.0, |targets| targets)` takes one"
)]
pub trait Metric<O, T> {
    /// Returns the name in logs, without the prefix `val_`.
    fn name(&self) -> String;

    /// Returns the direction in which [`Metric::value`] is better.
    fn goal(&self) -> Goal;

    /// Adds the first `len` samples of a batch. Those after them are padding.
    ///
    /// # Errors
    /// Data for which the metric cannot be computed, such as a label beyond the last class.
    fn add(&mut self, outputs: &O, targets: &T, len: usize) -> Result<()>;

    /// Returns the value over all samples since [`Metric::reset`]. `None` if there were none, or if the metric is a table alone.
    fn value(&self) -> Option<f64>;

    /// Returns the counts of a metric that is a table. `None` if it is a number alone.
    fn table(&self) -> Option<Table> {
        None
    }

    /// Forgets all samples.
    fn reset(&mut self);
}
