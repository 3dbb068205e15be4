//! Predicts what PyTorch itself would need for a training step of a model, without PyTorch and without a run.
//!
//! No formula is exact, since the peak depends on when autograd lets each tensor go. So the step is run on tensors that have a shape,
//! strides, a type and a counted storage, but no data. A storage lives while a Python name, a saved tensor, a gradient or a view holds it.
//!
//! [`predict`] answers for one batch, and [`largest_batch`] searches the largest one.

mod allocator;
mod autocast;
mod autograd;
mod call;
mod curve;
mod frames;
mod largest;
mod layout;
mod meta;
mod ops;
mod optimizer;
mod report;
mod sizes;
mod step;
mod trace;

pub use allocator::{Reserved, replay, smallest_capacity};
pub use curve::CurvePoint;
pub use largest::{MOST_SAMPLES, largest_batch};
pub use optimizer::{Algorithm, Optimizer, Update};
pub use report::{Place, Report, UnknownOperation};
pub use step::{Refusal, differences, predict, without_idle_masks};
pub use trace::{Event, Phase, Purpose, Site, Storage, Trace};

use crate::model::{Dtype, Model};

/// The device on which PyTorch runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Device {
    /// A card.
    Cuda,
    /// The CPU.
    Cpu,
}

/// The lower type of `torch.autocast`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Autocast {
    F16,
    Bf16,
}

impl Autocast {
    fn dtype(self) -> Dtype {
        match self {
            Autocast::F16 => Dtype::F16,
            Autocast::Bf16 => Dtype::Bf16,
        }
    }
}

/// The kernels of scaled dot-product attention.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attention {
    /// Those that PyTorch chooses: fused ones on cards of compute capability 8.0 and later.
    Fused,
    /// Products and a softmax, as on cards and builds without fused kernels.
    Math,
}

/// The rules by which memory is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    /// The device.
    pub device: Device,
    /// True for what a tracker of tensors sees: each byte that was asked for, dropout masks of one byte an element, and a new tensor for
    /// each sum of gradients. False for what PyTorch's allocator counts.
    pub tracker: bool,
    /// The lower type of autocast. `None` for f32 throughout.
    pub autocast: Option<Autocast>,
    /// The kernels of attention.
    pub attention: Attention,
}

impl Rules {
    /// Returns the rules of a card: `torch.cuda.max_memory_allocated()`.
    pub fn cuda() -> Rules {
        Rules { device: Device::Cuda, tracker: false, autocast: None, attention: Attention::Fused }
    }

    /// Returns the rules of a tracker on the CPU, such as `torch.distributed._tools.mem_tracker.MemTracker`.
    pub fn tracker() -> Rules {
        Rules { device: Device::Cpu, tracker: true, ..Rules::cuda() }
    }

    fn grain(&self) -> u64 {
        if self.tracker { 1 } else { 512 }
    }
}

/// The loss of the step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loss {
    /// Cross entropy of one class a sample: outputs `[N, C]`.
    Classes,
    /// Cross entropy of one class a pixel: outputs `[N, C, ..]`.
    Pixels,
    /// Cross entropy of one class a token: outputs `[N, .., C]`.
    Tokens,
    /// The sum over outputs of the mean of their squares.
    Squares,
}

impl Loss {
    /// Returns the loss with which a model is most likely trained, by the shapes of what it reads and returns.
    pub fn of(model: &Model) -> Loss {
        let shape_of = |&value: &usize| model.values.get(value).map(|value| &value.shape[..]).unwrap_or_default();
        let is_float = |value: &&usize| model.values.get(**value).is_some_and(|value| value.dtype.is_float());
        let outputs: Vec<&[u64]> = model.outputs.iter().filter(is_float).map(shape_of).collect();
        let inputs: Vec<&[u64]> = model.inputs.iter().map(shape_of).collect();
        let Some(first) = outputs.first() else { return Loss::Squares };
        let reads_tokens = model
            .inputs
            .first()
            .and_then(|&input| model.values.get(input))
            .is_some_and(|value| !value.dtype.is_float());
        let is_uniform = outputs.iter().all(|shape| shape == first);
        match (first, inputs.first()) {
            (_, Some(input)) if !reads_tokens && input[..] == first[..] => Loss::Squares,
            ([_, classes], _) if *classes > 1 && (is_uniform || reads_tokens) => Loss::Classes,
            ([_, _, .., classes], _) if reads_tokens && *classes > 1 => Loss::Tokens,
            ([_, classes, height, width], Some(&[_, channels, rows, columns]))
                if inputs.len() == 1 && is_uniform && classes != channels && height <= rows && width <= columns =>
            {
                Loss::Pixels
            }
            _ => Loss::Squares,
        }
    }
}

/// A request for a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The samples of a step. `None` for those with which the model was exported.
    pub batch: Option<u64>,
    /// The rules.
    pub rules: Rules,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The loss. `None` for the likely one: see [`Loss::of`].
    pub loss: Option<Loss>,
    /// True if operations of which nothing is known are taken as such that keep what they read and return. Then bounds are reported.
    pub partial: bool,
}

impl Default for Request {
    /// Asks for AdamW on a card in f32, at the exported batch.
    fn default() -> Request {
        Request { batch: None, rules: Rules::cuda(), optimizer: Optimizer::default(), loss: None, partial: false }
    }
}
