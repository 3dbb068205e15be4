//! The losses of the language, and the program's losses that are made of them.
//!
//! A loss of elements is a row: what users write, what they may set, and the formulas of its term and of its slope. Both backends compute
//! these formulas. A loss of another unit is a row too, and has kernels of its own.
//!
//! A formula is written as that of a [function of one number](super::functions): an expression, or `if` and `else`. It is computed in `f64` on the
//! CPU and in `f32` on a card. Its words:
//!
//! | word | meaning |
//! | --- | --- |
//! | `x`, `t`, `d` | an element of the value, that of the target (0 if there is none), and `x - t` |
//! | `number` | [`LossRow::number`] |
//! | `weight` | the element's number in [`LossRow::weights`], or 1 |
//! | `log_target` | [`LossOptions::log_target`] |
//! | `abs`, `exp`, `log`, `log1p`, `sign`, `max`, `clamp` | as in PyTorch |

use super::encoding::wire_enum;
use super::loss::{BIAS, Compares, LossNumber, LossOptions, LossRow, Mining, Over, Takes, Weighting};
use crate::shape::Shape;

/// Calls a macro with the words of the formulas and all rows.
///
/// A row is a page, a name, a number that never changes in encoded programs, a [`LossRow`], and for a loss of elements two formulas:
///
/// ```text
/// callback! {
///     [x, t, d, number, weight, log_target]
///     /// `Mse`: `(x - target)^2` for each element.
///     Mse = 1: LossRow::ELEMENTS => { value: d * d, slope: 2.0 * d };
///     ..
/// }
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_loss {
    ($callback:ident) => {
        $callback! {
            [x, t, d, number, weight, log_target]

            /// `CrossEntropy`: `log(sum(exp(x))) - x[target]` for each sample, token or pixel; `x` are logits, targets class indices.
            ///
            /// * Options: `label_smoothing = 0.0`, from 0 to 1: this share of the target is spread evenly over the classes.
            ///   `weight: [..]`, one for each class: the mean is then divided by the sum of the weights of the targets.
            ///   `ignore_index: -100`: positions with this target have neither loss nor gradient and do not count in the mean. A target
            ///   is a `u32`, in which -100 is `-100i32 as u32`. Without the option every target must be a class, while PyTorch
            ///   always leaves out -100. If no position counts, the mean is NaN, as in PyTorch, and the gradient is 0.
            ///   `targets: Probabilities`: targets are a number for each class, of the shape of the logits.
            ///   `chunks: 8`: training computes logits for an eighth of the time steps at a time, and their gradient overwrites them. That needs a
            ///   linear layer that computes the logits of a sequence, which nothing else reads. The loss does not change, and gradients change by
            ///   rounding only, since that of the layer's weight is added up over the chunks. `chunks: Auto` takes as few as fit the cards.
            ///
            /// PyTorch: `torch.nn.CrossEntropyLoss(weight, ignore_index=.., label_smoothing=..)`; with `chunks`, Liger Kernel's
            /// `LigerFusedLinearCrossEntropyLoss`.
            CrossEntropy = 0: LossRow {
                takes: Takes::Logits,
                number: Some(LossNumber { name: "label_smoothing", default: 0.0, least: 0.0, most: 1.0, above: false }),
                ..LossRow::CLASSES
            };
            /// `Mse`: `(x - target)^2` for each element.
            ///
            /// PyTorch: `torch.nn.MSELoss()`.
            Mse = 1: LossRow::ELEMENTS => {
                value: d * d,
                slope: 2.0 * d,
            };
            /// `Mean`: `x` for each element, without a target.
            ///
            /// PyTorch: `x.mean()`.
            Mean = 2: LossRow { compares: Compares::Nothing, ..LossRow::ELEMENTS } => {
                value: x,
                slope: 1.0,
            };
            /// `L1`: `|x - target|` for each element.
            ///
            /// PyTorch: `torch.nn.L1Loss()`.
            L1 = 4: LossRow::ELEMENTS => {
                value: abs(d),
                slope: sign(d),
            };
            /// `SmoothL1`: of `d = x - target`, `d^2 / (2 * beta)` if `|d|` is below `beta`, else `|d| - beta / 2`, for each element.
            ///
            /// * Option: `beta = 1.0`, at least 0; with 0 it is `L1`.
            ///
            /// PyTorch: `torch.nn.SmoothL1Loss(beta=beta)`.
            SmoothL1 = 5: LossRow { number: positive("beta", false), ..LossRow::ELEMENTS } => {
                value: if abs(d) < number { 0.5 * d * d / number } else { abs(d) - 0.5 * number },
                slope: if abs(d) < number { d / number } else { sign(d) },
            };
            /// `Huber`: of `d = x - target`, `d^2 / 2` if `|d|` is at most `delta`, else `delta * (|d| - delta / 2)`, for each element.
            ///
            /// * Option: `delta = 1.0`, above 0.
            ///
            /// PyTorch: `torch.nn.HuberLoss(delta=delta)`.
            Huber = 6: LossRow { number: positive("delta", true), ..LossRow::ELEMENTS } => {
                value: if abs(d) <= number { 0.5 * d * d } else { number * (abs(d) - 0.5 * number) },
                slope: clamp(d, -number, number),
            };
            /// `BceWithLogits`: binary cross entropy, `-(p * target * log(s(x)) + (1 - target) * log(1 - s(x)))` with the sigmoid `s`,
            /// for each element; `x` are logits, targets numbers from 0 to 1.
            ///
            /// * Option: `pos_weight`, the `p`: one number, or `[..]` with one for each class. Classes are the channels of a map and the
            ///   last axis of anything else. 1 if left out.
            ///
            /// PyTorch: `torch.nn.BCEWithLogitsLoss(pos_weight=pos_weight)`; for a map `pos_weight` has the shape [C, 1, 1].
            BceWithLogits = 7: LossRow { takes: Takes::Logits, weights: Some("pos_weight"), ..LossRow::ELEMENTS } => {
                value: (1.0 - t) * x + (1.0 + (weight - 1.0) * t) * (log1p(exp(-abs(x))) + max(-x, 0.0)),
                slope: (1.0 + (weight - 1.0) * t) / (1.0 + exp(-x)) - weight * t,
            };
            /// `Nll`: negative log-likelihood, `-x[target]` for each sample, token or pixel; `x` are logarithms of probabilities, targets
            /// class indices.
            ///
            /// * Options: `weight` and `ignore_index`, as of [`CrossEntropy`](Loss::CrossEntropy).
            ///
            /// PyTorch: `torch.nn.NLLLoss(weight, ignore_index=..)`.
            Nll = 8: LossRow { takes: Takes::LogProbabilities, ..LossRow::CLASSES };
            /// `KlDiv`: divergence of the target's distribution from that of `x`, `target * (log(target) - x)` for each element; `x` are
            /// logarithms of probabilities, targets probabilities.
            ///
            /// * Options: `log_target = true` for targets that are logarithms too: `exp(target) * (target - x)`. `reduction: BatchMean`
            ///   divides the sum by the samples, as the mathematical definition has it; `Mean`, the default, by the elements.
            ///
            /// PyTorch: `torch.nn.KLDivLoss(reduction, log_target)`.
            KlDiv = 9: LossRow { takes: Takes::LogProbabilities, divergence: true, ..LossRow::ELEMENTS } => {
                value: if log_target { exp(t) * (t - x) } else if t == 0.0 { -t * x } else { t * log(t) - t * x },
                slope: if log_target { -exp(t) } else { -t },
            };
            /// `CosineEmbedding`: `1 - c` for two vectors that belong together, target 1, and `max(0, c - margin)` for two that do not,
            /// target -1. Here `c` is the cosine of the angle between the vectors `x` and `y`.
            ///
            /// The vectors are those of two values of one shape: the first two outputs, or two taps, `CosineEmbedding(from = (x, y))`. Each is a
            /// vector or a sequence of vectors. A target is a number for each vector; one that is neither 1 nor -1 has no loss. Squared lengths
            /// count 1e-12 more, so that a vector of zeros has a cosine.
            ///
            /// * Option: `margin = 0.0`, from -1 to 1.
            ///
            /// PyTorch: `torch.nn.CosineEmbeddingLoss(margin)`.
            CosineEmbedding = 10: LossRow {
                over: Over::Pairs,
                compares: Compares::Signs,
                number: Some(LossNumber { name: "margin", default: 0.0, least: -1.0, most: 1.0, above: false }),
                ..LossRow::ELEMENTS
            };
            /// `Ctc`: connectionist temporal classification, the negative logarithm of the probability of a sequence's target. It sums over all
            /// ways to spread the target's labels over the time steps, with blanks between them. `x` are logarithms of probabilities, `[T, C]`,
            /// so the network ends with `LogSoftmax`.
            ///
            /// The target of a sample is `S` class indices. It ends before the first that is negative, such as `-1i32 as u32`, or the blank.
            /// Indices after that do not count, and a target may be empty. `Ctc { target_length: S }(input_lengths = name)` asks for a second
            /// target, `name`: the number of time steps of each sample that count, a `u32` from 0 to T. Without it all count.
            ///
            /// * Options: `target_length`, the `S`, which has no default. `blank = 0`, the class between labels. `zero_infinity = false`: with
            ///   `true`, a target that is longer than its steps allow has neither loss nor gradient, in place of an infinite loss.
            /// * The mean divides each sample's loss by the length of its target, at least 1, and their sum by the samples.
            /// * The gradient is that of the logits before `LogSoftmax`, as in PyTorch.
            ///
            /// PyTorch: `torch.nn.CTCLoss(blank, zero_infinity=zero_infinity)(x.transpose(0, 1), targets, input_lengths, target_lengths)`.
            Ctc = 11: LossRow { takes: Takes::LogProbabilities, over: Over::Sequences, compares: Compares::Labels, ..LossRow::ELEMENTS };
            /// `Contrastive`: the loss of CLIP. Of vectors `x` and `y` of each sample, the cross entropy of `x[i] . y[j] / temperature` over all
            /// samples `j` of the batch, of which `i` is the right one, and the cross entropy over all `i`; the mean of both, over the samples.
            ///
            /// The vectors are those of two values of one shape: the first two outputs, or two taps, `Contrastive(from = (image, text))`. They are
            /// not normalised; `L2Norm` before the loss gives them length 1. There are no targets.
            ///
            /// * Options: `temperature = 0.07`, above 0. `scale: name` instead: the products are multiplied by the exponential of a learned number that
            ///   all samples share and that is tapped as `name`, as CLIP's `logit_scale`.
            /// * Products are computed in tiles, and no tensor has `B * B` elements: 4 numbers a sample are saved, or 6 with a scale, and the
            ///   gradients of `x` and `y` have tensors of their own.
            /// * `micro_batches` are refused, since they would compare only samples of one micro-batch. A batch of 1 is refused, too.
            ///
            /// PyTorch: `(F.cross_entropy(s, r) + F.cross_entropy(s.T, r)) / 2` with `s = x @ y.T / temperature` and `r = torch.arange(len(x))`;
            /// `open_clip.loss.ClipLoss()(x, y, log_scale.exp())`.
            Contrastive = 12: LossRow { number: temperature(0.07), ..LossRow::BATCH };
            /// `Siglip`: `-log(sigmoid(z * (x[i] . y[j] / temperature + bias)))` of vectors `x` and `y` of each sample, summed over all pairs of
            /// samples in the batch and divided by the samples. Here `z` is 1 for `i = j` and -1 otherwise.
            ///
            /// Values, shapes and bytes are as of [`Contrastive`](Loss::Contrastive), with 2 numbers a sample in place of 4, 4 with one learned
            /// number, 6 with two.
            ///
            /// * Options: `temperature = 0.1`, above 0, or `scale: name`, as there. `bias = -10.0`, a number, or the name of a tapped value of one
            ///   number that all samples share.
            ///
            /// PyTorch: `-F.logsigmoid(z * (x @ y.T / temperature + bias)).sum() / len(x)` with `z = 2 * torch.eye(len(x)) - 1`;
            /// `open_clip.loss.SigLipLoss()(x, y, log_scale.exp(), bias)`.
            Siglip = 13: LossRow {
                number: temperature(0.1),
                second: Some(LossNumber { name: BIAS, default: -10.0, least: f64::MIN, most: f64::MAX, above: false }),
                ..LossRow::BATCH
            };
            /// `NtXent`: the loss of SimCLR. Of two views `x` and `y` of each sample, the cross entropy of the products of a view with all other
            /// views of the batch, `2 * B - 1` of them, divided by `temperature`, of which the sample's other view is the right one; the mean over
            /// all views.
            ///
            /// Values, shapes and bytes are as of [`Contrastive`](Loss::Contrastive).
            ///
            /// * Options: `temperature = 0.5`, above 0, or `scale: name`, as there.
            ///
            /// PyTorch: `F.cross_entropy(s, torch.arange(2 * n).roll(n))` with `z = torch.cat([x, y])`, `n = len(x)` and
            /// `s = (z @ z.T / temperature).fill_diagonal_(-torch.inf)`; `lightly.loss.NTXentLoss(temperature)`, which scales vectors to length 1.
            NtXent = 14: LossRow { number: temperature(0.5), ..LossRow::BATCH };
            /// `TripletMargin`: `max(0, |a - p| - |a - n| + margin)` of three vectors, an anchor `a`, a positive `p` that belongs to it and a negative
            /// `n` that does not. As in PyTorch, 1e-6 is added to each element of a difference before its norm is taken.
            ///
            /// The vectors are those of three values of one shape: the first three outputs, or three taps, `TripletMargin(from = (a, p, n))`. Each is
            /// a vector or a sequence of vectors. There are no targets.
            ///
            /// * Options: `margin = 1.0`, at least 0; `p = 2.0`, the degree of the norm, at least 1; `swap = true`, with which `|p - n|` replaces
            ///   `|a - n|` if it is less.
            /// * `mining: Hardest` finds positives and negatives in the batch: of the vectors `x` of one value, `TripletMargin { mining: Hardest }(from
            ///   = x, target = ids)`, each is an anchor, its positive is the one farthest away with the same number in the target, a `u32` for each
            ///   sample, and its negative the nearest one with another. The mean is over the anchors that have both, and NaN if none has.
            ///   Distances are Euclidean: nothing is added to differences, and there is neither `p` nor `swap`. Six numbers a sample are in
            ///   memory, never `B * B`. `micro_batches` and a batch of 1 are refused.
            ///
            /// PyTorch: `torch.nn.TripletMarginLoss(margin, p, swap=swap)`; mined, `d = torch.cdist(x, x)` and
            /// `F.relu(d.where(same & ~eye, -inf).amax(1) - d.where(~same, inf).amin(1) + margin)` over the rows that have both, `.mean()`.
            TripletMargin = 15: LossRow {
                over: Over::Triples,
                compares: Compares::Nothing,
                number: positive("margin", false),
                second: Some(LossNumber { name: "p", default: 2.0, least: 1.0, most: f64::MAX, above: false }),
                ..LossRow::ELEMENTS
            };
            /// `MarginRanking`: `max(0, -target * (x - y) + margin)` for each element of two values of one shape. A target of 1 says that `x` should be
            /// larger, and -1 that `y` should be.
            ///
            /// The values are the first two outputs, or two taps, `MarginRanking(from = (x, y))`.
            ///
            /// * Option: `margin = 0.0`, any number.
            ///
            /// PyTorch: `torch.nn.MarginRankingLoss(margin)`.
            MarginRanking = 16: LossRow {
                over: Over::Rankings,
                number: Some(LossNumber { name: "margin", default: 0.0, least: f64::MIN, most: f64::MAX, above: false }),
                ..LossRow::ELEMENTS
            };
        }
    };
}

/// Declares the losses of the language, and those of programs.
macro_rules! declare {
    (
        [$($word:ident),*]
        $($(#[$doc:meta])* $name:ident = $number:literal: $row:expr $(=> { value: $value:expr, slope: $slope:expr, })?;)*
    ) => {
        /// A loss of the language. It is the mean over its terms unless its page says otherwise, and takes
        /// `reduction: Mean` or `reduction: Sum`.
        ///
        /// Losses that do not compare samples with each other take factors. `(weights = w)` multiplies each term by the number of its sample
        /// in a further target, `w`. The mean divides by the number of all terms, as `(loss * w).mean()` does. `(mask = m)` multiplies each term
        /// by a number of its own. The mean divides by the sum of these numbers, `(loss * m).sum() / m.sum()`, which is NaN if all are 0. A mask
        /// has a number for each element in a loss of elements, and for each position in a loss of classes or vectors.
        ///
        /// Losses of elements take an input of lengths, as in `Mse(lengths = n)`. Of each sample only elements of the first `n` time steps
        /// count, along the first axis of the value. A mean divides by their number in the batch. If there are none, it is NaN, as PyTorch's
        /// `mse_loss(x[mask], y[mask])` is, and the gradient is 0. A loss with lengths takes neither `weights` nor `mask`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Loss {
            $($(#[$doc])* $name,)*
        }

        impl Loss {
            /// Every loss.
            pub const ALL: &'static [Loss] = &[$(Loss::$name,)*];

            /// Returns the name in the language and in the backends.
            pub const fn name(self) -> &'static str {
                match self { $(Loss::$name => stringify!($name),)* }
            }

            /// Returns the properties of the loss.
            pub const fn row(self) -> LossRow {
                match self { $(Loss::$name => $row,)* }
            }

            /// Returns the texts of the formulas of its value and its slope. `None` unless it is a loss of elements.
            pub fn formulas(self) -> Option<[&'static str; 2]> {
                let formulas: &[[&str; 2]] = match self {
                    $(Loss::$name => &[$([stringify!($value), stringify!($slope)])?],)*
                };
                formulas.first().copied()
            }
        }

        /// The loss of a program: a [`Loss`], or [`Dot`](Measure::Dot).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Measure {
            $(#[doc = concat!("[`Loss::", stringify!($name), "`].")] $name = $number,)*
            /// Sum over elements of `x * target`. Its gradient is the target, so tests can feed any gradient to a network.
            Dot = 3,
        }
        wire_enum!(Measure { $($name,)* Dot });

        impl Measure {
            /// Returns the name in the backends.
            pub const fn name(self) -> &'static str {
                match self { $(Measure::$name => stringify!($name),)* Measure::Dot => "Dot" }
            }

            /// Returns the properties of the loss.
            pub const fn row(self) -> LossRow {
                match self { $(Measure::$name => Loss::$name.row(),)* Measure::Dot => LossRow::ELEMENTS }
            }
        }

        impl From<Loss> for Measure {
            fn from(loss: Loss) -> Measure {
                match loss { $(Loss::$name => Measure::$name,)* }
            }
        }
    };
}
for_each_loss!(declare);

/// Returns the option by which products are divided.
const fn temperature(default: f64) -> Option<LossNumber> {
    Some(LossNumber { name: "temperature", default, least: 0.0, most: f64::MAX, above: true })
}

/// Returns an option that is a number of at least 0, or above 0, and 1 by default.
const fn positive(name: &'static str, above: bool) -> Option<LossNumber> {
    Some(LossNumber { name, default: 1.0, least: 0.0, most: f64::MAX, above })
}

impl LossOptions {
    /// Returns the kind of target of a loss with these options.
    pub fn compares(&self, measure: Measure) -> Compares {
        match measure.row().compares {
            Compares::Classes if self.probabilities => Compares::Numbers,
            _ if self.over(measure) == Over::Mined => Compares::Ids,
            compares => compares,
        }
    }

    /// Returns the unit of the terms of a loss with these options.
    pub const fn over(&self, measure: Measure) -> Over {
        match (measure.row().over, self.mining) {
            (Over::Triples, Mining::Hardest) => Over::Mined,
            (over, _) => over,
        }
    }

    /// Returns the dimensions, for each sample, of the factors of a value's terms. `None` if the terms have no factors.
    pub fn weights_of(&self, measure: Measure, value: Shape) -> Option<Shape> {
        let dims = value.dims();
        match (self.weighting, self.over(measure)) {
            (Weighting::None, _) => None,
            (Weighting::Samples, _) => Some(Shape::new(&[])),
            (Weighting::Mask, Over::Positions) => match dims {
                &[_, height, width] => Some(Shape::new(&[height, width])),
                _ => Some(without_last(dims)),
            },
            (Weighting::Mask, Over::Elements | Over::Rankings) => Some(value),
            (Weighting::Mask, Over::Pairs | Over::Triples) => Some(without_last(dims)),
            (Weighting::Mask, Over::Sequences | Over::Batch | Over::Mined) => Some(Shape::new(&[])),
        }
    }

    /// Returns the target's dimensions for each sample, and true if it holds indices. `None` if the loss has no target.
    pub fn target(&self, measure: Measure, value: Shape) -> Option<(Shape, bool)> {
        let dims = value.dims();
        match self.compares(measure) {
            Compares::Nothing => None,
            Compares::Numbers => Some((value, false)),
            Compares::Classes => match dims {
                &[_, height, width] => Some((Shape::new(&[height, width]), true)),
                _ => Some((without_last(dims), true)),
            },
            Compares::Signs => Some((without_last(dims), false)),
            Compares::Labels => Some((Shape::new(&[self.target_length]), true)),
            Compares::Ids => Some((Shape::new(&[]), true)),
        }
    }
}

fn without_last(dims: &[u64]) -> Shape {
    Shape::new(dims.split_last().map_or(dims, |(_, rest)| rest))
}
