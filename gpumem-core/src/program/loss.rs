//! Losses. A new loss is a row here and a line in the CPU backend's match. One of elements also has a struct in the CUDA backend's `loss.cu`.

mod wire;

use super::encoding::wire_enum;
use crate::shape::Shape;
use alloc::borrow::Cow;
use alloc::vec::Vec;
pub(crate) use wire::Written;

/// The unit of a loss: the loss is the sum or the mean of one term for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Elements, each alone.
    Elements,
    /// Positions, each with the logits of all classes.
    Positions,
    /// Vectors of one value, each with the vector of another value at the same position.
    Pairs,
    /// Sequences, each as a whole.
    Sequences,
    /// Vectors of two values, each with the vectors of all samples in the batch.
    Batch,
    /// Vectors of one value, each with the vectors of two other values at the same position.
    Triples,
    /// Elements of one value, each with the element of another value at the same position.
    Rankings,
    /// Vectors of one value, each with a matching and a non-matching vector that the loss finds in the batch.
    Mined,
}

impl Over {
    /// Returns the number of values that the loss measures.
    pub const fn values(self) -> usize {
        match self {
            Over::Elements | Over::Positions | Over::Sequences | Over::Mined => 1,
            Over::Pairs | Over::Batch | Over::Rankings => 2,
            Over::Triples => 3,
        }
    }

    /// True if samples of a batch are compared with each other.
    pub const fn compares_samples(self) -> bool {
        matches!(self, Over::Batch | Over::Mined)
    }
}

/// The kind of target that a loss compares its value with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// Nothing.
    Nothing,
    /// A number for each element.
    Numbers,
    /// The number of a class for each position.
    Classes,
    /// 1 or -1 for each vector.
    Signs,
    /// Class indices in order, at most [`LossOptions::target_length`] of them.
    Labels,
    /// A number for each sample. Samples with equal numbers belong together.
    Ids,
}

/// The samples of the batch that a triplet loss picks for each vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mining {
    /// None: the network gives all three vectors.
    #[default]
    None,
    /// The farthest vector that belongs to it, and the nearest one that does not.
    Hardest,
}
wire_enum!(Mining { None, Hardest });

/// Factors that the terms of a loss are multiplied by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Weighting {
    /// Nothing.
    #[default]
    None,
    /// A number for each sample; the mean is divided as without it.
    Samples,
    /// A number for each term; the mean is divided by the sum of these numbers.
    Mask,
}
wire_enum!(Weighting { None, Samples, Mask });

/// A numeric option of a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossNumber {
    /// The name in the language, and in PyTorch.
    pub name: &'static str,
    /// The value if it is left out.
    pub default: f64,
    /// Least value allowed.
    pub least: f64,
    /// Largest value allowed.
    pub most: f64,
    /// True if the value must exceed `least`.
    pub above: bool,
}

/// The properties of a loss, other than its value and its gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossRow {
    /// The unit of its terms.
    pub over: Over,
    /// Its target, unless [`LossOptions::probabilities`] changes that.
    pub compares: Compares,
    /// Its numeric option, or `None`.
    pub number: Option<LossNumber>,
    /// Its second numeric option, or `None`.
    pub second: Option<LossNumber>,
    /// The name of its option with a number for each class, `weight` or `pos_weight`; `None` if it has no such option.
    pub weights: Option<&'static str>,
    /// True if it takes `log_target` (targets are logarithms) and `BatchMean` (a mean over samples).
    pub divergence: bool,
}

impl LossRow {
    /// The row of a loss of elements whose targets are numbers.
    const ELEMENTS: LossRow = LossRow {
        over: Over::Elements,
        compares: Compares::Numbers,
        number: None,
        second: None,
        weights: None,
        divergence: false,
    };
    /// The row of a loss that multiplies all vectors of a batch with each other and divides the products by a temperature.
    const BATCH: LossRow = LossRow { over: Over::Batch, compares: Compares::Nothing, ..LossRow::ELEMENTS };
    /// The row of a loss of positions whose targets are class indices.
    const CLASSES: LossRow =
        LossRow { over: Over::Positions, compares: Compares::Classes, weights: Some("weight"), ..LossRow::ELEMENTS };

    /// Returns the names of its options, in order.
    pub fn options(&self) -> Vec<&'static str> {
        if self.over == Over::Batch {
            let names = [self.number.map(|number| number.name), Some(SCALE), self.second.map(|number| number.name)];
            return names.into_iter().flatten().collect();
        }
        let mut names = Vec::from(["reduction"]);
        names.extend(self.number.map(|number| number.name));
        names.extend(self.weights);
        if self.compares == Compares::Classes {
            names.push("ignore_index");
        }
        if self.compares == Compares::Classes && self.number.is_some() {
            names.extend(["targets", "chunks"]);
        }
        if self.divergence {
            names.push("log_target");
        }
        if self.compares == Compares::Labels {
            names.extend(["target_length", "blank", "zero_infinity"]);
        }
        names.extend(self.second.map(|number| number.name));
        if self.over == Over::Triples {
            names.extend(["swap", "mining"]);
        }
        names
    }
}

/// The option that names a learned scale, which replaces a temperature.
pub const SCALE: &str = "scale";
/// The option with a number that is added to each product, or with the name of a learned one.
pub const BIAS: &str = "bias";

/// Returns the option by which products are divided.
const fn temperature(default: f64) -> Option<LossNumber> {
    Some(LossNumber { name: "temperature", default, least: 0.0, most: f64::MAX, above: true })
}

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident = $number:literal: $row:expr;)*) => {
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

const fn positive(name: &'static str, above: bool) -> Option<LossNumber> {
    Some(LossNumber { name, default: 1.0, least: 0.0, most: f64::MAX, above })
}

losses! {
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
    ///   rounding only, since that of the layer's weight is added up over the chunks.
    ///
    /// PyTorch: `torch.nn.CrossEntropyLoss(weight, ignore_index=.., label_smoothing=..)`; with `chunks`, Liger Kernel's
    /// `LigerFusedLinearCrossEntropyLoss`.
    CrossEntropy = 0: LossRow {
        number: Some(LossNumber { name: "label_smoothing", default: 0.0, least: 0.0, most: 1.0, above: false }),
        ..LossRow::CLASSES
    };
    /// `Mse`: `(x - target)^2` for each element.
    ///
    /// PyTorch: `torch.nn.MSELoss()`.
    Mse = 1: LossRow::ELEMENTS;
    /// `Mean`: `x` for each element, without a target.
    ///
    /// PyTorch: `x.mean()`.
    Mean = 2: LossRow { compares: Compares::Nothing, ..LossRow::ELEMENTS };
    /// `L1`: `|x - target|` for each element.
    ///
    /// PyTorch: `torch.nn.L1Loss()`.
    L1 = 4: LossRow::ELEMENTS;
    /// `SmoothL1`: of `d = x - target`, `d^2 / (2 * beta)` if `|d|` is below `beta`, else `|d| - beta / 2`, for each element.
    ///
    /// * Option: `beta = 1.0`, at least 0; with 0 it is `L1`.
    ///
    /// PyTorch: `torch.nn.SmoothL1Loss(beta=beta)`.
    SmoothL1 = 5: LossRow { number: positive("beta", false), ..LossRow::ELEMENTS };
    /// `Huber`: of `d = x - target`, `d^2 / 2` if `|d|` is at most `delta`, else `delta * (|d| - delta / 2)`, for each element.
    ///
    /// * Option: `delta = 1.0`, above 0.
    ///
    /// PyTorch: `torch.nn.HuberLoss(delta=delta)`.
    Huber = 6: LossRow { number: positive("delta", true), ..LossRow::ELEMENTS };
    /// `BceWithLogits`: binary cross entropy, `-(p * target * log(s(x)) + (1 - target) * log(1 - s(x)))` with the sigmoid `s`,
    /// for each element; `x` are logits, targets numbers from 0 to 1.
    ///
    /// * Option: `pos_weight`, the `p`: one number, or `[..]` with one for each class. Classes are the channels of a map and the
    ///   last axis of anything else. 1 if left out.
    ///
    /// PyTorch: `torch.nn.BCEWithLogitsLoss(pos_weight=pos_weight)`; for a map `pos_weight` has the shape [C, 1, 1].
    BceWithLogits = 7: LossRow { weights: Some("pos_weight"), ..LossRow::ELEMENTS };
    /// `Nll`: negative log-likelihood, `-x[target]` for each sample, token or pixel; `x` are logarithms of probabilities, targets
    /// class indices.
    ///
    /// * Options: `weight` and `ignore_index`, as of [`CrossEntropy`](Loss::CrossEntropy).
    ///
    /// PyTorch: `torch.nn.NLLLoss(weight, ignore_index=..)`.
    Nll = 8: LossRow::CLASSES;
    /// `KlDiv`: divergence of the target's distribution from that of `x`, `target * (log(target) - x)` for each element; `x` are
    /// logarithms of probabilities, targets probabilities.
    ///
    /// * Options: `log_target = true` for targets that are logarithms too: `exp(target) * (target - x)`. `reduction: BatchMean`
    ///   divides the sum by the samples, as the mathematical definition has it; `Mean`, the default, by the elements.
    ///
    /// PyTorch: `torch.nn.KLDivLoss(reduction, log_target)`.
    KlDiv = 9: LossRow { divergence: true, ..LossRow::ELEMENTS };
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
    Ctc = 11: LossRow { over: Over::Sequences, compares: Compares::Labels, ..LossRow::ELEMENTS };
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

/// The reduction of the terms of a loss to one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Reduction {
    /// Their sum over their number; if positions have weights or are left out, over the weights of those that count.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Their sum over the samples of the batch.
    BatchMean,
}
wire_enum!(Reduction { Mean, Sum, BatchMean });

/// The options of a loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossOptions {
    /// The reduction of the terms.
    pub reduction: Reduction,
    /// [`LossRow::number`]; `None` for its default.
    pub number: Option<f64>,
    /// [`LossRow::second`]; `None` for its default.
    pub second: Option<f64>,
    /// [`LossRow::weights`]: empty, one for each class, or, as `pos_weight` allows, one for all classes.
    pub weights: Cow<'static, [f64]>,
    /// The target of positions that do not count, as the bits of a `u32`; `None` if all count.
    pub ignored: Option<u32>,
    /// True if a target has a number for each class. By default it has class indices.
    pub probabilities: bool,
    /// True if targets are logarithms.
    pub log_target: bool,
    /// The blank class, which separates labels.
    pub blank: u32,
    /// Most labels in a target.
    pub target_length: u64,
    /// True if an infinite loss is replaced by 0.
    pub zero_infinity: bool,
    /// Number of chunks of time steps whose logits are computed one after another; 1 if all logits are in memory at once.
    pub chunks: u64,
    /// True if the negative's distance from the positive replaces that from the anchor if it is less.
    pub swap: bool,
    /// The samples that the loss picks from the batch.
    pub mining: Mining,
    /// The factors of the terms.
    pub weighting: Weighting,
    /// Time steps along the first axis of the value, if only the first `n` of each sample count; 0 if all count.
    pub counted: u64,
}

impl LossOptions {
    /// The options if none is written.
    pub const DEFAULT: LossOptions = LossOptions {
        reduction: Reduction::Mean,
        number: None,
        second: None,
        weights: Cow::Borrowed(&[]),
        ignored: None,
        probabilities: false,
        log_target: false,
        blank: 0,
        target_length: 0,
        zero_infinity: false,
        chunks: 1,
        swap: false,
        mining: Mining::None,
        weighting: Weighting::None,
        counted: 0,
    };

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
