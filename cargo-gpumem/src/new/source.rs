//! The Rust files of a new crate.

use super::WEIGHTS;
use crate::Failure;
use crate::files;
use gpumem_core::number::Role;
use gpumem_core::program::{Class, Tensor};
use gpumem_language::source::{Mistake, Overrides, declared};

/// The network of a new crate.
pub struct Network {
    /// The `network!`, with the `use` that it needs.
    text: String,
    name: String,
    /// The expressions that fill inputs and targets.
    inputs: Vec<String>,
    targets: Vec<String>,
    /// True if it begins with the weights of a model.
    has_weights: bool,
}

/// A small network, and data with something to learn: the class is the quarter of the features with the largest sum.
const SMALL: &str = r"use gpumem::prelude::*;

network! {
    /// Maps 16 numbers to one of 4 classes.
    pub struct Net;

    const TRAIN: Train = Train { batch: 64, optimizer: AdamW { lr: 3e-3 }, loss: CrossEntropy, seed: 1 };

    fn forward(features: Features<16>) -> Logits<4> {
        [Linear(64), Relu, Linear(64), Relu, Linear(4)]
    }
}
";

const SMALL_DATA: &str = r"
/// Samples of a step.
pub const BATCH: usize = Net::TRAIN.batch;

/// Returns the samples of a step with their labels: made-up numbers, whose class is the quarter with the largest sum. Put your data here.
pub fn batch(step: usize) -> (Tensor<f32, (D<BATCH>, D<16>)>, Tensor<u32, (D<BATCH>,)>) {
    let number = |index: usize| {
        // The bits of a counter, mixed as in splitmix64.
        let mut bits = ((step * BATCH * 16 + index) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let sum = |sample: usize, quarter: usize| (0..4).map(|index| number(sample * 16 + quarter * 4 + index)).sum::<f32>();
    let label = |sample: usize| (0..4).max_by(|&a, &b| sum(sample, a).total_cmp(&sum(sample, b))).unwrap_or(0);
    (Tensor::from_fn(number), Tensor::from_fn(|sample| label(sample) as u32))
}
";

impl Network {
    /// Returns a small network with data of its own.
    pub fn small() -> Network {
        Network { text: SMALL.into(), name: "Net".into(), inputs: Vec::new(), targets: Vec::new(), has_weights: false }
    }

    /// Returns the network of a model. `text` is its source.
    pub fn of_model(text: &str) -> Result<Network, Failure> {
        let failed = |mistakes: Vec<Mistake>| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let network = files::network("src/lib.rs", declared(text, &Overrides::default()).map_err(failed)?);
        let precision = network.train.as_ref().map_or(gpumem_core::Precision::F32, |train| train.precision);
        let program = network.blueprint.training(precision).map_err(|error| error.message)?;
        let program = program.ok_or_else(|| format!("`{}` has no training step", network.name))?;
        let filled =
            |class: Class| -> Vec<String> { program.of_class(class).map(|id| filling(program.tensor(id))).collect() };
        let (inputs, targets) = (filled(Class::Input), filled(Class::Target));
        Ok(Network { text: text.into(), name: network.name, inputs, targets, has_weights: true })
    }

    /// Returns `src/lib.rs`.
    pub fn library(&self) -> String {
        let data = if self.has_weights { "" } else { SMALL_DATA };
        format!(
            "//! The network. The compiler refuses it if a training step does not fit the cards that Cargo features name.\n\n{}{data}",
            self.text
        )
    }

    /// Returns the lines that make `input` and `target`, and what a training step is called with.
    fn data(&self, step: &str) -> (String, String) {
        if !self.has_weights {
            return (format!("let (features, labels) = batch({step});"), "&features, &labels".into());
        }
        let named = |name: &str, all: &[String]| -> (Vec<String>, String) {
            let number = |index: usize| if all.len() == 1 { name.into() } else { format!("{name}_{index}") };
            let lines = all.iter().enumerate().map(|(index, with)| format!("let {} = {with};", number(index)));
            let names: Vec<String> = (0..all.len()).map(|index| format!("&{}", number(index))).collect();
            let names = if names.len() == 1 { names.concat() } else { format!("({})", names.join(", ")) };
            (lines.collect(), names)
        };
        let (mut lines, inputs) = named("input", &self.inputs);
        let (more, targets) = named("target", &self.targets);
        lines.extend(more);
        (lines.join("\n    "), format!("{inputs}, {targets}"))
    }

    /// Returns the line that loads weights.
    fn loads(&self) -> String {
        if self.has_weights { format!("    net.load_weights(\"{WEIGHTS}\")?;\n") } else { String::new() }
    }

    /// Returns the error type of its functions. Files of weights have errors of their own.
    fn error(&self) -> &'static str {
        if self.has_weights { "Box<dyn std::error::Error>" } else { "gpumem::Error" }
    }

    /// Returns `src/main.rs`.
    pub fn program(&self, library: &str) -> String {
        let (name, loads, error) = (&self.name, self.loads(), self.error());
        let (data, arguments) = self.data("step");
        let (once, each, steps) = match self.has_weights {
            true => (format!("    // Made-up numbers: put your data here.\n    {data}\n"), String::new(), 10),
            false => (String::new(), format!("        {data}\n"), 200),
        };
        let imports = if self.has_weights { name.clone() } else { format!("{{{name}, batch}}") };
        let line = "println!(\"step {step}: loss {loss}\");\n";
        let told = match self.has_weights {
            true => format!("        {line}"),
            false => format!("        if step % 20 == 0 {{\n            {line}        }}\n"),
        };
        format!(
            r#"//! Trains the network on a card with the feature `cuda`, else on the CPU.

use gpumem::prelude::*;
use {library}::{imports};

fn main() -> Result<(), {error}> {{
    let device = gpumem::default_device()?;
    let mut net = {name}::on(&device)?;
{loads}    println!("{{}}", net.summary());
{once}    for step in 0..{steps} {{
{each}        let loss = net.train_step({arguments})?;
{told}    }}
    Ok(())
}}
"#
        )
    }

    /// Returns `tests/trains.rs`.
    pub fn test(&self, library: &str) -> String {
        let (name, loads, error) = (&self.name, self.loads(), self.error());
        let (data, arguments) = self.data("0");
        let imports = if self.has_weights { name.clone() } else { format!("{{{name}, batch}}") };
        // The other test has its tensors from the crate.
        let prelude = if self.has_weights { "use gpumem::prelude::*;\n" } else { "" };
        let body = match self.has_weights {
            true => format!(
                "    let first = net.train_step({arguments})?;\n    let second = net.train_step({arguments})?;\n    \
                 assert!(first.is_finite() && second.is_finite() && first != second, \"{{first}}, {{second}}\");\n"
            ),
            false => format!(
                "    let first = net.train_step({arguments})?;\n    let mut last = first;\n    for step in 1..100 {{\n        \
                 let (features, labels) = batch(step);\n        last = net.train_step(&features, &labels)?;\n    }}\n    \
                 assert!(last < 0.6 * first, \"{{first}}, then {{last}}\");\n"
            ),
        };
        format!(
            r#"//! The network learns on the CPU.

use gpumem::Cpu;
{prelude}use {library}::{imports};

#[test]
fn a_step_changes_the_loss() -> Result<(), {error}> {{
    let mut net = {name}::on(&Cpu::new())?;
{loads}    {data}
{body}    Ok(())
}}
"#
        )
    }
}

/// Returns the expression that fills an input or a target. Small integers are below every number of classes and tokens.
fn filling(tensor: &Tensor) -> String {
    match tensor.role {
        Role::Index => "Tensor::from_fn(|index| index as u32 % 2)".into(),
        Role::Byte => "Tensor::from_fn(|index| (index % 251) as u8)".into(),
        _ => "Tensor::from_fn(|index| (index % 17) as f32 / 17.0)".into(),
    }
}
