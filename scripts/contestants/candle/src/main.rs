//! The contestant candle: its steps on the CPU, for `scripts/compare_cpu.py`.
//!
//! It does not train ResNet-18, because candle has no backward pass for max pooling with overlapping windows.

mod networks;
mod sgd;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::loss::cross_entropy;
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use networks::{Digits, Gpt, Perceptron, ResNet18, STEPS, WORDS};
use sgd::{Momentum, Sgd};
use turns::{Case, Failure, answer};

fn main() -> std::result::Result<(), Failure> {
    let case = Case::from_arguments()?;
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let batch = case.batch;
    match case.name.as_str() {
        "digits" => {
            let (net, input) = (Digits::new(builder)?, normal(&[batch, 1, 8, 8])?);
            let params = ParamsAdamW { lr: 2e-3, weight_decay: 0.01, ..Default::default() };
            train::<AdamW>(&case, &map, params, below(10, &[batch])?, || net.forward(&input))
        }
        "mlp" => {
            let (net, input) = (Perceptron::new(builder)?, normal(&[batch, 784])?);
            let params = Momentum { rate: 0.01, momentum: 0.9 };
            train::<Sgd>(&case, &map, params, below(10, &[batch])?, || net.forward(&input))
        }
        "resnet18-inference" => {
            let (net, input) = (ResNet18::new(builder)?, normal(&[batch, 3, 64, 64])?);
            case.check(size(&parameters(&map)))?;
            answer(|| Ok(net.forward(&input)?.get(0)?.get(0)?.to_scalar()?))
        }
        "gpt" => {
            let (net, input) = (Gpt::new(builder)?, below(WORDS, &[batch, STEPS])?);
            let params = ParamsAdamW { lr: 6e-4, beta1: 0.9, beta2: 0.95, weight_decay: 0.1, ..Default::default() };
            train::<AdamW>(&case, &map, params, below(WORDS, &[batch * STEPS])?, || net.forward(&input))
        }
        _ => Err(case.unknown()),
    }
}

fn normal(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(0f32, 1f32, shape, &Device::Cpu)
}

/// Returns random integers below a limit.
fn below(limit: usize, shape: &[usize]) -> Result<Tensor> {
    Tensor::rand(0f32, limit as f32, shape, &Device::Cpu)?.to_dtype(DType::U32)
}

/// Returns the trained parameters. The map also has the running statistics of batch normalisation.
fn parameters(map: &VarMap) -> Vec<Var> {
    let data = map.data().lock().expect("no thread has failed");
    let trained = data.iter().filter(|(name, _)| !name.contains("running_"));
    trained.map(|(_, var)| var.clone()).collect()
}

fn size(parameters: &[Var]) -> usize {
    parameters.iter().map(|var| var.elem_count()).sum()
}

/// Runs training steps and waits for the loss of each.
fn train<O: Optimizer>(
    case: &Case,
    map: &VarMap,
    config: O::Config,
    targets: Tensor,
    forward: impl Fn() -> Result<Tensor>,
) -> std::result::Result<(), Failure> {
    let parameters = parameters(map);
    case.check(size(&parameters))?;
    // Some of candle's functions have no backward pass and end the graph silently, which would save much time.
    let gradients = cross_entropy(&forward()?, &targets)?.backward()?;
    if parameters.iter().any(|var| gradients.get(var).is_none()) {
        return Err("a parameter has no gradient".into());
    }
    let mut optimizer = O::new(parameters, config)?;
    answer(|| {
        let loss = cross_entropy(&forward()?, &targets)?;
        optimizer.backward_step(&loss)?;
        Ok(loss.to_scalar()?)
    })
}
