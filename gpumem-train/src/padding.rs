//! Padding of a last batch, and its effect on the loss of a network.

use gpumem_core::network::Trains;
use gpumem_core::number::Format;
use gpumem_core::program::Measure;
use gpumem_core::program::loss::{Compares, Weighting};
use gpumem_core::{LossTerm, Reduction};
use gpumem_data::Batched;

/// The padding that the loss of a network ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padding {
    /// The label that every term of the loss ignores. `None` if there is none.
    label: Option<u32>,
    /// True if every term is the mean over the positions that it does not ignore.
    is_mean: bool,
}

impl Padding {
    pub fn of<N: Trains>() -> Padding {
        Padding::of_terms(N::TRAIN.map_or(&[], |train| train.loss))
    }

    fn of_terms(terms: &[LossTerm]) -> Padding {
        let ignored = |term: &LossTerm| {
            let is_of_classes = term.options.compares(Measure::from(term.loss)) == Compares::Classes;
            // With weights, the mean is still over all positions.
            let is_plain = term.options.weighting == Weighting::None;
            term.options.ignored.filter(|_| is_of_classes && is_plain)
        };
        let label =
            terms.first().and_then(ignored).filter(|&label| terms.iter().all(|term| ignored(term) == Some(label)));
        Padding { label, is_mean: terms.iter().all(|term| term.options.reduction == Reduction::Mean) }
    }

    /// True if there is a label that every term of the loss ignores.
    pub fn leaves_out(&self) -> bool {
        self.label.is_some()
    }

    /// True if the loss ignores all samples of a batch of `batch` except the first `len`.
    ///
    /// A training step then equals one without these samples.
    pub fn is_left_out<T: Batched>(&self, target: &T, len: usize, batch: usize) -> bool {
        let Some(label) = self.label.filter(|_| T::is_ignorable() && batch > 0) else { return false };
        let mut is_left_out = true;
        let looked_at = T::put(target.given(), &mut |_, elements, put| {
            // All targets have elements of `u32`.
            let mut bytes = vec![0; elements * 4];
            put(Format::U32, 0, &mut bytes);
            let words = bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word));
            is_left_out &= words.skip(elements / batch * len).all(|word| word == label);
            Ok(())
        });
        is_left_out && looked_at.is_ok()
    }

    /// True if [`Padding::has_mean`] is, for a target whose padding the loader has filled.
    pub fn has_mean_of<T: Batched>(&self) -> bool {
        self.is_mean && self.leaves_out() && T::is_ignorable()
    }

    /// True if, in addition to [`Padding::is_left_out`], the loss is the mean over the remaining samples.
    pub fn has_mean<T: Batched>(&self, target: &T, len: usize, batch: usize) -> bool {
        self.is_mean && self.is_left_out(target, len, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::{Padding, Weighting};
    use gpumem_core::run::tensor::Tensor;
    use gpumem_core::train::Train;
    use gpumem_core::typed::D;
    use gpumem_core::{Loss, LossOptions, LossTerm, Reduction};

    fn term(loss: Loss, options: LossOptions) -> LossTerm {
        LossTerm { loss, options, ..Train::DEFAULT.loss[0].clone() }
    }

    #[test]
    fn padding_is_left_out_if_every_term_leaves_it_out() {
        let ignoring = |label| term(Loss::CrossEntropy, LossOptions { ignored: Some(label), ..LossOptions::DEFAULT });
        let counting = term(Loss::CrossEntropy, LossOptions::DEFAULT);
        let of = |terms: &[LossTerm]| Padding::of_terms(terms);
        assert_eq!(of(&[ignoring(7)]), Padding { label: Some(7), is_mean: true });
        assert_eq!(of(&[ignoring(7), ignoring(7)]).label, Some(7));
        assert_eq!(of(&[ignoring(7), ignoring(8)]).label, None);
        assert_eq!(of(&[ignoring(7), counting.clone()]).label, None);
        assert_eq!(of(&[counting]).label, None);
        assert_eq!(of(&[term(Loss::Mse, LossOptions { ignored: Some(7), ..LossOptions::DEFAULT })]).label, None);
        let probabilities = LossOptions { ignored: Some(7), probabilities: true, ..LossOptions::DEFAULT };
        assert_eq!(of(&[term(Loss::CrossEntropy, probabilities)]).label, None);
        let weighted = LossOptions { ignored: Some(7), weighting: Weighting::Samples, ..LossOptions::DEFAULT };
        assert_eq!(of(&[term(Loss::CrossEntropy, weighted)]).label, None);
        let sum = LossOptions { ignored: Some(7), reduction: Reduction::Sum, ..LossOptions::DEFAULT };
        assert_eq!(of(&[term(Loss::CrossEntropy, sum)]), Padding { label: Some(7), is_mean: false });
    }

    #[test]
    fn padding_is_looked_at_in_the_target() {
        type Labels = Tensor<u32, (D<3>, D<2>)>;
        let padding = Padding { label: Some(7), is_mean: true };
        let target: Labels = Tensor::from([[1, 2], [7, 7], [7, 7]]);
        assert!(padding.is_left_out(&target, 1, 3) && padding.is_left_out(&target, 2, 3));
        assert!(!padding.is_left_out(&target, 0, 3));
        assert!(!padding.is_left_out(&Labels::from([[1, 2], [3, 4], [7, 8]]), 2, 3));
        let numbers: Tensor<f32, (D<3>,)> = Tensor::from([7.0; 3]);
        assert!(!padding.is_left_out(&numbers, 1, 3));
        let sum = Padding { is_mean: false, ..padding };
        assert!(sum.is_left_out(&target, 1, 3) && !sum.has_mean(&target, 1, 3));
    }
}
