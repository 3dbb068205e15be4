//! Whole networks to train for 20 steps: four against PyTorch's curves, and the digits network.

use super::graphs::{again, chain, join, layer, numbers, parse, sound, tokens};
use super::{Loaded, Truth, assert_close, plan};
use gpumem_core::Update;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::layers::Entry;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Budget;
use gpumem_core::program::Measure;
use gpumem_core::run::device::{Device, Runner};
use gpumem_core::train::optim::{Adam, AdamW, Optimizer, Sgd};
use gpumem_cpu::Cpu;

/// A network with its optimizer and batch.
pub struct Network {
    pub name: &'static str,
    pub graph: Graph,
    pub output: NodeId,
    pub optimizer: Optimizer,
    pub batch: u64,
}

impl Network {
    pub fn training(&self) -> Training<'static> {
        let moments = self.optimizer.moments();
        Training {
            loss: &[Term::CROSS_ENTROPY],
            moments,
            update: Update::Fused,
            skips_overflow: false,
            input_gradient: false,
            descent: gpumem_core::train::Descent::PLAIN,
        }
    }

    /// What it needs, with a reserve of 0.
    pub fn budget(&self) -> Budget {
        let program = lower(&self.graph, &[self.output], &Options { training: Some(self.training()) }).unwrap();
        plan(&program, self.batch).budget
    }

    /// Images and labels for a step: one of as many patterns as there are classes, by the label, under noise. The same in
    /// every run.
    pub fn batch_of(&self, step: u64) -> (Vec<u32>, Vec<u32>) {
        let [pixels, classes] = [0, self.output].map(|node| self.graph.value(node).shape.elements().unwrap());
        let labels: Vec<u32> = (0..self.batch).map(|sample| ((sample * 7 + step * 3 + 1) % classes) as u32).collect();
        let noise = |index: u64| ((index * 7919 + step * 104_729) % 2003) as f32 / 2003.0;
        let pattern = |label: u64, pixel: u64| ((label * 31 + pixel * 17) % 13) as f32 / 13.0;
        let label = |index: u64| u64::from(labels[(index / pixels) as usize]);
        let pixel = |index: u64| 0.6 * pattern(label(index), index % pixels) + 0.4 * noise(index);
        ((0..self.batch * pixels).map(|index| pixel(index).to_bits()).collect(), labels)
    }

    pub fn on<D: Device>(&self, device: &D) -> Result<Loaded<D::Runner>, Error> {
        Loaded::on(device, &self.graph, self.output, Some(self.training()), self.batch, self.optimizer)
    }
}

/// What can be trained on a curve's data.
pub trait Trained {
    fn set(&mut self, name: &str, words: &[u32]);
    fn get(&mut self, name: &str) -> Option<Vec<f32>>;
    fn step(&mut self) -> f32;
}

impl<R: Runner> Trained for Loaded<R> {
    fn set(&mut self, name: &str, words: &[u32]) {
        Loaded::set(self, name, words);
    }

    fn get(&mut self, name: &str) -> Option<Vec<f32>> {
        Loaded::get(self, name)
    }

    fn step(&mut self) -> f32 {
        Loaded::step(self).unwrap()
    }
}

/// A network, and 20 training steps that PyTorch made: every loss, and all parameters and statistics at the end.
pub struct Curve {
    pub network: Network,
    truth: Truth,
    /// Our name of PyTorch's parameter; empty for a second name of the same one.
    rename: fn(&str) -> String,
}

impl Curve {
    /// Every curve.
    pub fn all() -> [Curve; 4] {
        [residual_network(), transformer(), recurrent_network(), volumes()]
    }

    /// The network's parameters and statistics before the first step.
    pub fn begin(&self, trained: &mut impl Trained) {
        let mut set = 0;
        for name in self.truth.names() {
            let given = name.strip_prefix("init.").or_else(|| name.strip_prefix("init_buffer."));
            let own = given.filter(|name| !name.ends_with("num_batches_tracked")).map(self.rename);
            if let Some(own) = own.filter(|name| !name.is_empty()) {
                trained.set(&own, self.truth.words(name));
                set += 1;
            }
        }
        let graph = &self.network.graph;
        assert_eq!(set, graph.parameters.len() + graph.buffers.len(), "every parameter and statistic is given");
    }

    /// Input and target of a step: four batches in turn.
    pub fn feed(&self, trained: &mut impl Trained, step: usize) {
        for (own, name) in [("input", "data.x"), ("target", "data.y")] {
            let words = self.truth.words(name);
            let each = words.len() / 4;
            trained.set(own, &words[step % 4 * each..(step % 4 + 1) * each]);
        }
    }

    /// Trains for all steps and compares with PyTorch's.
    pub fn check(&self, trained: &mut impl Trained) {
        let file = self.network.name;
        self.begin(trained);
        for (step, expected) in self.truth.floats("loss").iter().enumerate() {
            self.feed(trained, step);
            let loss = trained.step();
            assert_close(&format!("{file} loss {step}"), &[loss], &[*expected], 1e-5);
        }
        for name in self.truth.names() {
            let own = name.strip_prefix("final.").or_else(|| name.strip_prefix("final_buffer."));
            let own = own.filter(|name| !name.ends_with("num_batches_tracked")).map(self.rename);
            let Some(own) = own.filter(|name| !name.is_empty()) else { continue };
            let mut found = trained.get(&own).unwrap_or_else(|| panic!("nothing is called {own}"));
            let mut expected = self.truth.floats(name);
            if own.ends_with("qkv.bias") {
                // Softmax does not feel what is added to all keys, so the gradient of their bias is 0, and Adam divides
                // rounding errors by rounding errors.
                let third = expected.len() / 3;
                found.drain(third..2 * third);
                expected.drain(third..2 * third);
            }
            // Twenty steps let rounding grow; the losses above are held to 1e-5.
            assert_close(&format!("{file} {name}"), &found, &expected, 1e-4);
        }
    }
}

/// Adds one layer called `name`, so that parameters have PyTorch's names.
fn named(graph: &mut Graph, input: NodeId, name: &str, text: &str) -> NodeId {
    let (kind, written) = parse(text);
    let entry = Entry::find(kind).unwrap_or_else(|| panic!("no layer is called {kind}"));
    sound(graph.layer(&entry, &written, &[input], name.into(), None)).unwrap()
}

/// The residual network of `truth/train`.
pub fn residual_network() -> Curve {
    let mut graph = Graph::default();
    let g = &mut graph;
    let input = g.input(numbers(&[3, 12, 12])).unwrap();
    let x = named(g, input, "conv", "Conv2d(8, 3, padding = 1, bias = false)");
    let x = named(g, x, "bn", "BatchNorm2d");
    let mut x = layer(g, x, "Relu(inplace = true)");
    for (block, channels, stride) in [("block1", 8, 1), ("block2", 16, 2)] {
        let conv = format!("Conv2d({channels}, 3, stride = {stride}, padding = 1, bias = false)");
        let y = named(g, x, &format!("{block}.conv1"), &conv);
        let y = named(g, y, &format!("{block}.bn1"), "BatchNorm2d");
        let y = layer(g, y, "Relu");
        let conv = format!("Conv2d({channels}, 3, padding = 1, bias = false)");
        let y = named(g, y, &format!("{block}.conv2"), &conv);
        let y = named(g, y, &format!("{block}.bn2"), "BatchNorm2d");
        let mut shortcut = x;
        if stride != 1 {
            let conv = format!("Conv2d({channels}, 1, stride = {stride}, bias = false)");
            shortcut = named(g, x, &format!("{block}.down.0"), &conv);
            shortcut = named(g, shortcut, &format!("{block}.down.1"), "BatchNorm2d");
        }
        let sum = join(g, &[y, shortcut], "Add");
        x = layer(g, sum, "Relu(inplace = true)");
    }
    let x = layer(g, x, "GlobalAvgPool");
    let output = named(g, x, "fc", "Linear(5)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.05, momentum: 0.9, weight_decay: 5e-4, ..Sgd::DEFAULT });
    let truth = Truth::parse(include_bytes!("../truth/train/0_resnet_a.safetensors"));
    let batch = truth.shape("data.x")[1];
    Curve { network: Network { name: "resnet_a", graph, output, optimizer, batch }, truth, rename: str::to_string }
}

/// The transformer with a tied head of `truth/train`.
pub fn transformer() -> Curve {
    let mut graph = Graph::default();
    let g = &mut graph;
    let input = g.input(tokens(12)).unwrap();
    let words = named(g, input, "wte", "Embedding(29, 24)");
    let positions = named(g, input, "wpe", "PositionEmbedding(12, 24)");
    let mut x = join(g, &[words, positions], "Add");
    for block in ["block1", "block2"] {
        let y = named(g, x, &format!("{block}.ln1"), "LayerNorm");
        let y = named(g, y, block, "CausalSelfAttention(3)");
        x = join(g, &[x, y], "Add");
        let y = named(g, x, &format!("{block}.ln2"), "LayerNorm");
        let y = named(g, y, &format!("{block}.fc"), "Linear(96)");
        let y = chain(g, y, "Gelu(approximate = \"tanh\")");
        let y = named(g, y, &format!("{block}.out"), "Linear(24)");
        x = join(g, &[x, y], "Add");
    }
    let x = named(g, x, "lnf", "LayerNorm");
    let output = again(g, x, "Tied", 0);
    let optimizer =
        Optimizer::AdamW(AdamW { lr: 3e-3, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1, ..AdamW::DEFAULT });
    let truth = Truth::parse(include_bytes!("../truth/train/2_gpt_a.safetensors"));
    let batch = truth.shape("data.x")[1];
    // The tied head appears in PyTorch's state as a second name of the embedding.
    let rename = |name: &str| if name == "head.weight" { String::new() } else { name.into() };
    Curve { network: Network { name: "gpt_a", graph, output, optimizer, batch }, truth, rename }
}

/// The LSTM of `truth/train`.
pub fn recurrent_network() -> Curve {
    let mut graph = Graph::default();
    let truth = Truth::parse(include_bytes!("../truth/train/4_lstm_a.safetensors"));
    let [_, batch, steps] = <[u64; 3]>::try_from(truth.shape("data.x")).unwrap();
    let input = graph.input(tokens(steps)).unwrap();
    let x = named(&mut graph, input, "emb", "Embedding(20, 8)");
    let x = named(&mut graph, x, "lstm", "Lstm(12)");
    let x = layer(&mut graph, x, "Select(-1)");
    let output = named(&mut graph, x, "fc", "Linear(3)");
    let optimizer = Optimizer::Adam(Adam { lr: 0.02, ..Adam::DEFAULT });
    Curve { network: Network { name: "lstm_a", graph, output, optimizer, batch }, truth, rename: str::to_string }
}

/// The network of volumes of `truth/train`.
pub fn volumes() -> Curve {
    let mut graph = Graph::default();
    let g = &mut graph;
    let input = g.input(numbers(&[2, 4, 10, 9])).unwrap();
    let x = named(g, input, "conv1", "Conv3d(6, 3, padding = 1, bias = false)");
    let x = named(g, x, "bn1", "BatchNorm3d");
    let x = chain(g, x, "MaxPool3d(3, [1; 2; 2], padding = 1) | Relu");
    let conv = "Conv3d(8, [1; 3; 3], stride = [1; 2; 2], padding = [0; 1; 1], groups = 2)";
    let x = named(g, x, "conv2", conv);
    let x = named(g, x, "conv3", "Conv3d(8, [3; 1; 1], padding = [1; 0; 0], bias = false)");
    let x = named(g, x, "bn3", "BatchNorm3d");
    let x = layer(g, x, "Relu(inplace = true)");
    let x = named(g, x, "up", "ConvTranspose3d(4, 2, stride = 2)");
    let x = chain(g, x, "Tanh | AvgPool3d([2; 1; 1]) | AdaptiveAvgPool3d([1; 2; 2]) | Flatten");
    let output = named(g, x, "fc", "Linear(5)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.05, momentum: 0.9, weight_decay: 5e-4, ..Sgd::DEFAULT });
    let truth = Truth::parse(include_bytes!("../truth/train/volumes.safetensors"));
    let batch = truth.shape("data.x")[1];
    Curve { network: Network { name: "volumes", graph, output, optimizer, batch }, truth, rename: str::to_string }
}

/// The network of `examples/digits.rs`.
pub fn digits(batch: u64) -> Network {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[1, 8, 8])).unwrap();
    let output = chain(
        &mut graph,
        input,
        "Conv2d(32, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | \
         Conv2d(32, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | \
         Conv2d(64, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | \
         Flatten | Dropout(0.3) | Linear(10)",
    );
    let optimizer = Optimizer::AdamW(AdamW { lr: 2e-3, weight_decay: 0.01, ..AdamW::DEFAULT });
    Network { name: "digits", graph, output, optimizer, batch }
}

/// torchvision's `vgg16`: large enough that a card's rounding is small beside it.
pub fn vgg16(batch: u64) -> Network {
    let mut graph = Graph::default();
    let mut output = graph.input(numbers(&[3, 224, 224])).unwrap();
    for (depth, channels) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        for _ in 0..depth {
            output = chain(&mut graph, output, &format!("Conv2d({channels}, 3, padding = 1) | Relu(inplace = true)"));
        }
        output = layer(&mut graph, output, "MaxPool2d(2)");
    }
    let dense = "Linear(4096) | Relu(inplace = true) | Dropout(0.5)";
    let output = chain(&mut graph, output, &format!("Flatten | {dense} | {dense} | Linear(1000)"));
    let optimizer = Optimizer::Sgd(Sgd { lr: 1e-3, momentum: 0.9, weight_decay: 5e-4, ..Sgd::DEFAULT });
    Network { name: "vgg16", graph, output, optimizer, batch }
}

/// Trains the digits network for 20 steps beside the CPU backend, which begins with the same parameters. Returns the losses.
pub fn check_digits(network: &Network, trained: &mut impl Trained) -> Vec<f32> {
    let mut cpu = network.on(&Cpu::with_threads(2).unwrap()).unwrap();
    cpu.initialise(1);
    for (name, words) in cpu.carried() {
        trained.set(&name, &words);
    }
    let mut losses = Vec::new();
    for step in 0..20 {
        let (images, labels) = network.batch_of(step);
        for (name, words) in [("input", &images), ("target", &labels)] {
            trained.set(name, words);
            cpu.set(name, words);
        }
        let expected = cpu.step().unwrap();
        losses.push(trained.step());
        assert_close(&format!("digits loss {step}"), &losses[step as usize..], &[expected], 1e-4);
    }
    for (name, words) in cpu.carried() {
        let expected: Vec<f32> = words.into_iter().map(f32::from_bits).collect();
        // Adam divides by the gradient's own size: rounding differences of small gradients show in the parameters.
        assert_close(&format!("digits {name}"), &trained.get(&name).unwrap(), &expected, 1e-3);
    }
    losses
}
