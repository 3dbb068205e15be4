//! Words that losses are described with: their units, targets, factors and options. The losses themselves are [rows](super::losses).

mod wire;

use super::encoding::wire_enum;
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

/// The kind of numbers that a loss measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Any numbers.
    Numbers,
    /// Scores of classes. The loss has a softmax or a sigmoid of its own.
    Logits,
    /// Logarithms of probabilities.
    LogProbabilities,
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
    /// The numbers that it measures. Layers that spoil them are refused before it.
    pub takes: Takes,
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
    pub(super) const ELEMENTS: LossRow = LossRow {
        over: Over::Elements,
        takes: Takes::Numbers,
        compares: Compares::Numbers,
        number: None,
        second: None,
        weights: None,
        divergence: false,
    };
    /// The row of a loss that multiplies all vectors of a batch with each other and divides the products by a temperature.
    pub(super) const BATCH: LossRow = LossRow { over: Over::Batch, compares: Compares::Nothing, ..LossRow::ELEMENTS };
    /// The row of a loss of positions whose targets are class indices.
    pub(super) const CLASSES: LossRow =
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

/// The number of chunks of time steps whose logits are computed one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// As many as this, from 1 on. With 1, all logits are in memory at once.
    Count(u64),
    /// As few as it takes to fit the cards. A program never has this value: lowering replaces it by a number.
    Auto,
    /// As many as this, with logits that are computed twice if the head shares its weight with another layer. The gradient of that weight then begins
    /// late in the backward pass instead of at the loss. One of the values that lowering replaces [`Chunks::Auto`] by.
    Twice(u64),
}

impl Chunks {
    /// All logits at once.
    pub const WHOLE: Chunks = Chunks::Count(1);

    /// Returns the number of chunks of the step that is tried first: 1 for [`Chunks::Auto`].
    pub const fn at_first(self) -> u64 {
        match self {
            Chunks::Count(count) | Chunks::Twice(count) => count,
            Chunks::Auto => 1,
        }
    }
}

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
    /// The chunks of time steps whose logits are computed one after another.
    pub chunks: Chunks,
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
        chunks: Chunks::WHOLE,
        swap: false,
        mining: Mining::None,
        weighting: Weighting::None,
        counted: 0,
    };
}
