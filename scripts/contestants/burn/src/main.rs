//! The contestant Burn: its steps on the CPU, for `scripts/compare_cpu.py`.

mod networks;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};
use networks::{Digits, Gpt, Perceptron, ResNet18, STEPS, WORDS};
use turns::{Case, Failure, answer};

fn main() -> Result<(), Failure> {
    let case = Case::from_arguments()?;
    let (batch, device) = (case.batch, Device::flex().autodiff());
    match case.name.as_str() {
        "digits" => {
            let input = normal([batch, 1, 8, 8], &device);
            let optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init();
            let targets = below(10, [batch], &device);
            train(&case, Digits::new(&device), (optimizer, 2e-3), targets, |net| net.forward(input.clone()))
        }
        "mlp" => {
            let input = normal([batch, 784], &device);
            let targets = below(10, [batch], &device);
            train(&case, Perceptron::new(&device), (sgd(None), 0.01), targets, |net| net.forward(input.clone()))
        }
        "resnet18" => {
            let input = normal([batch, 3, 64, 64], &device);
            let targets = below(10, [batch], &device);
            train(&case, ResNet18::new(&device), (sgd(Some(1e-4)), 0.01), targets, |net| net.forward(input.clone()))
        }
        "resnet18-inference" => infer(&case),
        "gpt" => {
            let input = below(WORDS, [batch, STEPS], &device);
            let decay = AdamWConfig::new().with_beta_1(0.9).with_beta_2(0.95).with_weight_decay(0.1);
            let optimizer = decay.with_epsilon(1e-8).init();
            let targets = below(WORDS, [batch * STEPS], &device);
            train(&case, Gpt::new(&device), (optimizer, 6e-4), targets, |net| net.forward(input.clone()))
        }
        _ => Err(case.unknown()),
    }
}

fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Returns random integers below a limit.
fn below<const D: usize>(limit: usize, shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::random(shape, Distribution::Uniform(0.0, limit as f64), device)
}

/// Returns SGD without dampening, as in PyTorch and gpumem.
fn sgd(decay: Option<f32>) -> ModuleOptimizer {
    let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false };
    let decay = decay.map(WeightDecayConfig::new);
    SgdConfig::new().with_momentum(Some(momentum)).with_weight_decay(decay).init()
}

/// Runs training steps and waits for the loss of each.
fn train<M: Module>(
    case: &Case,
    net: M,
    (mut optimizer, rate): (ModuleOptimizer, f64),
    targets: Tensor<1, Int>,
    forward: impl Fn(&M) -> Tensor<2>,
) -> Result<(), Failure> {
    case.check(parameters(&net))?;
    let criterion = CrossEntropyLossConfig::new().init(&targets.device());
    // A step takes the network and returns it, so that parameters can be updated in place.
    let mut net = Some(net);
    answer(|| {
        let before = net.take().ok_or("the step before failed")?;
        let loss = criterion.forward(forward(&before), targets.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &before);
        net = Some(optimizer.step(rate, before, gradients));
        Ok(loss.into_scalar())
    })
}

/// Runs forward passes on a device that keeps nothing for a backward pass.
fn infer(case: &Case) -> Result<(), Failure> {
    let device = Device::flex();
    case.check(parameters(&ResNet18::new(&device.clone().autodiff())))?;
    let net = ResNet18::new(&device);
    let input = normal([case.batch, 3, 64, 64], &device);
    answer(|| Ok(net.forward(input.clone()).slice([0..1, 0..1]).into_scalar()))
}

/// Returns the number of trained elements. Burn's `num_params` also counts the running statistics of batch normalisation.
fn parameters(net: &impl Module) -> usize {
    struct Trained(usize);
    impl ModuleVisitor for Trained {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            if tensor.is_require_grad() {
                self.0 += tensor.shape().num_elements();
            }
        }
    }
    let mut trained = Trained(0);
    net.visit(&mut trained);
    trained.0
}
