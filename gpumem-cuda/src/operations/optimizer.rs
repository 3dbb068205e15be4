//! Updates of parameters, and the step counter: `kernels/optimizer.cu`, `kernels/state.cu`.

use super::Context;
use crate::launch::Launch;
use gpumem_core::error::Error;
use gpumem_core::optim::Optimizer;
use gpumem_core::program::Slot;

pub(super) fn update(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let parameter = context.written(Slot::Parameter(0))?;
    let gradient = context.read(Slot::ParameterGradient(0))?;
    let state = context.read(Slot::State)?;
    let moments = [0, 1].map(|index| context.operation.written(Slot::Moment(index)));
    let count = context.elements(parameter);
    let kernel = context.kernel("optimizer.cu", "update").with("COUNT", format!("{count}ull"));
    let kernel = match context.setting.optimizer {
        Optimizer::Sgd(sgd) => kernel
            .with("OPTIMIZER", 0)
            .with_float("MOMENTUM", sgd.momentum)
            .with_float("DAMPENING", sgd.dampening)
            .with_float("WEIGHT_DECAY", sgd.weight_decay)
            .with("NESTEROV", u8::from(sgd.nesterov))
            .with("HAS_MOMENTUM", u8::from(moments[0].is_some())),
        Optimizer::Adam(adam) => kernel
            .with("OPTIMIZER", 1)
            .with_float("BETA1", adam.betas.0)
            .with_float("BETA2", adam.betas.1)
            .with_float("EPS", adam.eps)
            .with_float("WEIGHT_DECAY", adam.weight_decay),
        Optimizer::AdamW(adam) => kernel
            .with("OPTIMIZER", 2)
            .with_float("BETA1", adam.betas.0)
            .with_float("BETA2", adam.betas.1)
            .with_float("EPS", adam.eps)
            .with_float("WEIGHT_DECAY", adam.weight_decay),
    };
    let arguments = vec![Some(parameter), Some(gradient), moments[0], moments[1], Some(state)];
    Ok(vec![Launch::elementwise(kernel, count, arguments)])
}

pub(super) fn advance(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let state = context.written(Slot::State)?;
    let kernel = context.kernel("state.cu", "advance");
    Ok(vec![Launch { kernel, grid: [1, 1, 1], block: [32, 1, 1], arguments: vec![Some(state)] }])
}
