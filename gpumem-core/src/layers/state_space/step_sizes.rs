use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::{Role, inverse_sqrt};
use crate::program::Init;
use crate::program::functions::Function;
use crate::program::ops::{Pointwise, Product};
use alloc::format;
use alloc::vec::Vec;

/// `StepSizes(out_features, min = 0.001, max = 0.1)`: the step sizes of a [`SelectiveScan`](super::SelectiveScan): an affine map of the
/// last axis, followed by `log(1 + exp(x))`.
///
/// * Options: `min = 0.001` and `max = 0.1`, the range of the step sizes of an input of 0 before training.
/// * Input `[in_features]` or `[T, in_features]`, output `[out_features]` or `[T, out_features]`.
/// * Parameters: `weight` `[out_features, in_features]`, uniform within `1 / sqrt(in_features)`, and `bias` `[out_features]`, drawn so that
///   logarithms of step sizes are uniform between those of `min` and `max`.
/// * Backward keeps the input and the output.
///
/// PyTorch: `torch.nn.functional.softplus(dt_proj(x))` of `transformers.models.mamba.modeling_mamba.MambaMixer`, whose `time_step_min`
/// and `time_step_max` are `min` and `max`.
#[derive(Clone, Debug)]
pub struct StepSizes {
    out_features: u64,
    min: f64,
    max: f64,
}

impl Layer for StepSizes {
    const NAME: &'static str = "StepSizes";

    fn read(from: &mut Arguments<'_>) -> StepSizes {
        StepSizes {
            out_features: from.required("out_features").positive(),
            min: from.option("min").number_above(0.001, 0.0),
            max: from.option("max").number_above(0.1, 0.0),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let StepSizes { out_features, min, max } = *self;
        let [rows, in_features] = x[0].rows(None)?;
        if min > max {
            let text = format!("has min = {min}, which is above max = {max}; write the smaller one as `min`");
            b.report(Mistake::of("min", text));
        }
        let within = Init::Uniform(inverse_sqrt(in_features));
        let weight = b.parameter("weight", &[out_features, in_features], Role::Weight, within);
        let bias = b.parameter("bias", &[out_features], Role::Weight, Init::StepSizes { min, max });
        let shape = x[0].shape.with_last(out_features);
        let map = Product { rows, in_features, out_features, bias: true, transposed: false, shape };
        let mapped = b.op(map, &[x[0], weight, bias])?;
        b.op(Pointwise { function: Function::StepSize, arguments: Vec::new(), shape }, &[mapped])
    }
}
