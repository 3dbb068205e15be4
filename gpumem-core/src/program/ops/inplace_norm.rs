use super::BatchNorm;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule, Saved, TrainingOnly, Work, Workspace};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// [`BatchNorm`] and then `x` if it is not negative, else `slope * x`. The backward pass inverts both, so no input is saved.
    ///
    /// * Inputs, buffers and saved tensors are those of [`BatchNorm`].
    /// * The gradients read the output, the saved statistics, factors and summands. A recomputation of the output reads the input.
    ///
    /// Source: S. Rota Bulo, L. Porzi, P. Kontschieder, In-Place Activated BatchNorm for Memory-Optimized Training of DNNs, 2018, the
    /// first of its two ways.
    pub struct InplaceNorm {
        /// Channels.
        pub channels: u64,
        /// Height and width.
        pub size: [u64; 2],
        /// Added to the variance.
        pub eps: f64,
        /// Share of the batch's statistics in the running ones.
        pub momentum: f64,
        /// True if there are factors and summands.
        pub affine: bool,
        /// Factor of negative elements, above 0.
        pub slope: f64,
    }
}

impl InplaceNorm {
    /// The least slope at which f32 gradients equal those of separate norm and activation to 1e-4.
    pub const EXACT_FROM: f64 = 0.001;

    /// Returns the batch norm in it.
    pub fn norm(&self) -> BatchNorm {
        let InplaceNorm { channels, size, eps, momentum, affine, .. } = *self;
        BatchNorm { channels, size, eps, momentum, affine, within: 0, activation: None, eval: false }
    }
}

impl Rule for InplaceNorm {
    fn output(&self) -> Shape {
        self.norm().output()
    }

    fn gradients(&self) -> Vec<Gradient> {
        let (inputs, of): (&[u8], &[u8]) = if self.affine { (&[1, 2], &[1, 2, 0]) } else { (&[], &[0]) };
        let reads = Reads { output: true, saved: true, ..Reads::inputs(inputs) };
        let of: Vec<(u8, Reads)> = of.iter().map(|&input| (input, reads)).collect();
        vec![Gradient::in_place(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        self.norm().saved()
    }

    fn always_saves(&self) -> bool {
        self.norm().always_saves()
    }

    fn runs_again_from_saved(&self) -> bool {
        true
    }

    fn workspace(&self, work: Work) -> Option<Workspace> {
        self.norm().workspace(work)
    }

    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        self.norm().layouts()
    }

    fn training_only(&self) -> Option<TrainingOnly> {
        Some(TrainingOnly::Undone)
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        self.norm().edges(inputs)
    }
}
