//! Networks with several inputs and outputs, losses of several terms and frozen parameters: shapes, gradients against finite
//! differences, and what training needs that inference does not.

#[path = "structure/classics.rs"]
mod classics;

use classics::{GoogLeNet, ResNet18, ResNet50Frozen, ResNet50Trained, Several, Siamese, Vae};
use gpumem::__private::train::optim::Optimizer;
use gpumem::prelude::*;
use gpumem::{Cpu, Error, HostShape, Line};

/// Numbers around 0 that look random.
fn spread(index: usize, salt: usize) -> f32 {
    ((index * 7919 + salt * 104_729) % 1009) as f32 / 504.5 - 1.0
}

fn numbers<S: HostShape>(salt: usize) -> Tensor<f32, S> {
    Tensor::from_fn(|index| spread(index, salt))
}

/// One training step.
type Step<'n, N> = dyn Fn(&mut Net<N, Cpu>) -> Result<f32, Error> + 'n;

/// A network whose gradients are read off its updates.
struct Checked<'n, N: Network> {
    net: Net<N, Cpu>,
    step: &'n Step<'n, N>,
    /// Parameters and running statistics before the first step.
    start: Vec<(String, Vec<f32>)>,
}

impl<'n, N: Network> Checked<'n, N> {
    /// The optimizer is plain gradient descent, so that a step is the gradient times the learning rate.
    fn new(step: &'n Step<'n, N>) -> Checked<'n, N> {
        assert!(matches!(N::TRAIN.unwrap().optimizer, Optimizer::Sgd(sgd) if sgd.momentum == 0.0));
        let mut net = Net::<N, Cpu>::load(&Cpu::with_threads(2).unwrap()).unwrap();
        let names: Vec<String> = net.names().map(String::from).collect();
        let start = names.into_iter().map(|name| (name.clone(), net.get(&name).unwrap())).collect();
        Checked { net, step, start }
    }

    /// The loss where parameter `index` is `values` and all others are as at the start; the step is taken back.
    fn loss(&mut self, index: usize, values: &[f32]) -> f64 {
        self.net.set_steps(0).unwrap();
        for (at, (name, start)) in self.start.iter().enumerate() {
            self.net.set(name, if at == index { values } else { start }).unwrap();
        }
        f64::from((self.step)(&mut self.net).unwrap())
    }

    /// The change of each parameter in one step.
    fn changes(&mut self) -> Vec<Vec<f32>> {
        let start = self.start[0].1.clone();
        self.loss(0, &start);
        let change = |(name, start): &(String, Vec<f32>)| {
            let end = self.net.get(name).unwrap();
            start.iter().zip(end).map(|(start, end)| start - end).collect()
        };
        self.start.clone().iter().map(change).collect()
    }

    /// Compares the gradient of each parameter that changes with the slope of the loss along it. Returns their names.
    fn check(&mut self, tolerance: f64) -> Vec<String> {
        self.check_those(tolerance, |_| true)
    }

    /// The same for those parameters of which `chosen` is true.
    fn check_those(&mut self, tolerance: f64, chosen: impl Fn(&str) -> bool) -> Vec<String> {
        let rate = N::TRAIN.unwrap().optimizer.lr();
        let changes = self.changes();
        let mut trained = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            let (name, start) = self.start[index].clone();
            let norm = change.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            if name.contains("running_") || norm == 0.0 || !chosen(&name) {
                continue;
            }
            let gradient = norm / rate;
            let at = |step: f64| -> Vec<f32> {
                let moved = start.iter().zip(change).map(|(x, d)| f64::from(*x) + step * f64::from(*d) / norm);
                moved.map(|x| x as f32).collect()
            };
            // Narrow steps where the loss is curved; not only those, for rounding blurs them where it is flat.
            let slopes = [4e-2, 1e-2, 2.5e-3].map(|width| {
                let width = width / gradient.max(1.0);
                (self.loss(index, &at(width)) - self.loss(index, &at(-width))) / (2.0 * width)
            });
            let near = |slope: f64| (slope - gradient).abs() <= tolerance * gradient + 2e-4;
            assert!(slopes.into_iter().any(near), "{name}: gradient {gradient}, slopes {slopes:?}");
            trained.push(name);
        }
        trained
    }
}

#[test]
fn a_siamese_network_shares_its_tower() {
    let (left, right, distance) = (numbers(1), numbers(2), numbers(3));
    let step = |net: &mut Net<Siamese, Cpu>| net.train_step((&left, &right), &distance);
    let trained = Checked::new(&step).check(5e-3);
    assert_eq!(trained, ["tower[0].linear[0].weight", "tower[0].linear[0].bias", "tower[0].linear[1].weight"]);
    let mut net = Siamese::on(&Cpu::new()).unwrap();
    let same = net.forward((&left, &left)).unwrap();
    assert!(same.as_slice().iter().all(|&x| x == 0.0));
    let there = net.forward((&left, &right)).unwrap();
    let back = net.forward((&right, &left)).unwrap();
    assert!(there.as_slice().iter().zip(back.as_slice()).all(|(a, b)| *a == -*b && *a != 0.0));
}

#[test]
fn a_variational_autoencoder_has_two_terms() {
    let (images, noise) = (numbers(1), numbers(2));
    let step = |net: &mut Net<Vae, Cpu>| net.train_step((&images, &noise), &images);
    let trained = Checked::new(&step).check(5e-3);
    assert_eq!(trained.len(), 10, "{trained:?}");
    // The divergence is part of the loss and of nothing else.
    let paths = |program: &gpumem::Compiled| program.tables.operations;
    assert!(paths(Vae::INFERENCE) < paths(Vae::TRAINING.unwrap()) / 2);
    let rows = Vae::INFERENCE.tables.operation_tags.chunks(4).map(|tag| u16::from_le_bytes([tag[2], tag[3]]));
    let rows: Vec<&str> = rows.map(|row| Vae::LAYERS[usize::from(row)].path).collect();
    assert!(!rows.iter().any(|path| path.starts_with("divergence")), "{rows:?}");
    let mut net = Vae::on(&Cpu::new()).unwrap();
    let first = net.train_step((&images, &noise), &images).unwrap();
    let last = (0..30).map(|_| net.train_step((&images, &noise), &images).unwrap()).last().unwrap();
    assert!(last < 0.7 * first, "{first} {last}");
    let (decoded, latent) = net.forward((&images, &noise)).unwrap();
    assert_eq!((decoded.dims(), latent.dims()), (&[4, 16][..], &[4, 3][..]));
}

#[test]
fn googlenet_has_auxiliary_heads() {
    // torchvision's count, with both heads.
    assert_eq!(GoogLeNet::LAYERS.iter().map(|layer| layer.parameters).sum::<u64>(), 13_004_888);
    // Without them what torchvision loads for inference.
    let inferred: u64 = GoogLeNet::INFERENCE.tables.parameters.iter().map(|row| row[1] * row[3]).sum();
    assert_eq!(inferred, 6_624_904);
    let images = numbers(1);
    let labels = Tensor::from_fn(|index| index as u32 * 7);
    let step = |net: &mut Net<GoogLeNet, Cpu>| net.train_step(&images, &labels);
    // The last weights of each head, and the first of all, which every term reaches.
    let kept = [
        "head[0].fc2.weight",
        "head[1].fc2.weight",
        "head[0].fc1.bias",
        "fc.weight",
        "fc.bias",
        "conv[0].conv2d.weight",
    ];
    let checked = Checked::new(&step).check_those(2e-2, |name| kept.contains(&name));
    assert_eq!(checked.len(), kept.len(), "{checked:?}");
}

#[test]
fn a_frozen_backbone_stays() {
    let images = numbers(1);
    let labels = Tensor::from_fn(|index| index as u32);
    let step = |net: &mut Net<ResNet18, Cpu>| net.train_step(&images, &labels);
    let mut checked = Checked::new(&step);
    assert_eq!(checked.check(5e-3), ["fc.weight", "fc.bias"]);
    // torchvision's `resnet18` but for its last layer, which has 10 classes here.
    assert_eq!(ResNet18::LAYERS.iter().map(|layer| layer.parameters).sum::<u64>(), 11_689_512 - 513_000 + 5130);
}

/// Memory of a step with Adam: its states are those of what is trained.
#[test]
fn a_frozen_backbone_needs_little_more_than_inference() {
    let all = ResNet50Trained::TRAINING.unwrap().budget;
    let frozen = ResNet50Frozen::TRAINING.unwrap().budget;
    let inference = ResNet50Frozen::EVALUATION.budget;
    assert_eq!(frozen[Line::Weights], all[Line::Weights]);
    assert_eq!(frozen[Line::Optimizer], 2 * 4 * (2048 * 1000 + 1000));
    assert_eq!(all[Line::Optimizer], 2 * all[Line::Weights]);
    assert!(frozen[Line::Activations] * 5 < all[Line::Activations], "{frozen:?} {all:?}");
    // No layer keeps anything.
    assert!(frozen[Line::Activations] < inference[Line::Activations] * 11 / 10, "{frozen:?} {inference:?}");
}

#[test]
fn a_network_has_several_inputs_outputs_and_targets() {
    let (image, wave, side) = (numbers(1), numbers(2), numbers(3));
    let tokens = Tensor::from_fn(|index| (index as u32 * 7) % 11);
    let labels = Tensor::from_fn(|index| index as u32);
    let step = |net: &mut Net<Several, Cpu>| net.train_step((&image, &tokens, &wave), (&labels, &side));
    let trained = Checked::new(&step).check(5e-3);
    // Every parameter: two of each layer, and one of the embedding.
    assert_eq!(trained.len(), 11, "{trained:?}");
    let mut net = Several::on(&Cpu::new()).unwrap();
    let (logits, signal) = net.forward((&image, &tokens, &wave)).unwrap();
    assert_eq!((logits.dims(), signal.dims()), (&[3, 4][..], &[3, 2, 6][..]));
}
