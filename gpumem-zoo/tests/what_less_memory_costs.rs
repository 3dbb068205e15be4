//! The tables of `docs/guide/what-less-memory-costs.md`: lines of the budget, largest batch and least time of a step, without a technique and with it.

mod digits;
mod pages;

use digits::grouped;
use gpumem_core::cards::{Card, RTX_3090};
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::program::Phase;
use gpumem_core::report::{Device, Planned};
use gpumem_language::source::{Overrides, Text};
use std::fmt::Write as _;

const PAGE: &str = "../docs/guide/what-less-memory-costs.md";

/// The card of all tables.
const CARD: &Card = &RTX_3090;

/// A network of the zoo, by its source, with a batch that people train it with on one card.
struct Network {
    name: &'static str,
    source: &'static str,
    batch: u64,
}

const RESNET50: Network = Network { name: "ResNet50", source: include_str!("../src/resnet.rs"), batch: 64 };
const UNET: Network = Network { name: "UNet", source: include_str!("../src/unet.rs"), batch: 8 };
const GPT2: Network = Network { name: "Gpt2", source: include_str!("../src/gpt2.rs"), batch: 8 };
const GPT2_XL: Network = Network { name: "Gpt2Xl", source: include_str!("../src/gpt2.rs"), batch: 1 };

/// Fields of `TRAIN` as they are written there, such as `micro_batches: 4`.
type Fields = [&'static str];

/// A planned step, with its price on the card.
struct Step {
    /// The fields that differ from those of the first step of the same network. Empty for that one.
    change: String,
    batch: u64,
    budget: Budget,
    largest_batch: u64,
    /// The least milliseconds of its operations, and those of its copies over the bus.
    ms: [f64; 2],
}

impl Network {
    /// Returns the program of a step with these fields, for AdamW.
    fn plan(&self, ranks: u64, fields: &Fields) -> Planned {
        let mut overrides = Overrides::default();
        let batch = format!("batch: {}", self.batch * ranks);
        for field in [batch.as_str(), "optimizer: AdamW { lr: 1e-3 }"].iter().chain(fields) {
            let (name, value) = field.split_once(": ").unwrap();
            overrides.set(name, value).unwrap();
        }
        overrides.set_cards(&[CARD]);
        let mut declared = Text::read(self.source).unwrap().declared(Some(self.name), &overrides).unwrap();
        declared.blueprint.order_for(None);
        declared.plan().unwrap()
    }

    /// Plans a step with fields that all steps of a table have, and with a change. `checkpoint: Auto` recomputes all that lowers the peak.
    fn step(&self, common: &Fields, change: &Fields) -> Step {
        let ranks = change.iter().find_map(|field| field.strip_prefix("ranks: ")).map_or(1, |n| n.parse().unwrap());
        let plan = self.plan(ranks, &[common, change].concat());
        // A step that must leave the whole card to others is the leanest one.
        let headroom = if change.contains(&"checkpoint: Auto") { CARD.usable() } else { 0 };
        let device = Device::Known(CARD);
        let (budget, _) = plan.within(&[CARD], device, headroom).unwrap();
        let budget = budget.with_reserve(device.reserve()).with_communication(device.communication(plan.ranks()));
        let (_, largest_batch) = plan.within(&[CARD], device, 0).unwrap();
        let cost = plan.adviser(&[CARD], Some(device), headroom).now().unwrap();
        assert_eq!(cost.total(), budget[Line::Total], "{} with {change:?}", self.name);
        let change = change.join(", ");
        Step { change, batch: cost.batch, budget, largest_batch, ms: [cost.ms, cost.bus_ms] }
    }
}

/// A column of a table.
struct Column {
    name: &'static str,
    of: fn(&Step) -> f64,
}

const fn column(name: &'static str, of: fn(&Step) -> f64) -> Column {
    Column { name, of }
}

const MIB: f64 = 1048576.0;

/// The columns of figures. A table leaves out those that are 0 in all of its rows.
const COLUMNS: [Column; 10] = [
    column("weights", |step| step.budget[Line::Weights] as f64 / MIB),
    column("master", |step| step.budget[Line::Master] as f64 / MIB),
    column("gradients", |step| step.budget[Line::Gradients] as f64 / MIB),
    column("optimizer", |step| step.budget[Line::Optimizer] as f64 / MIB),
    column("batch_io", |step| step.budget[Line::BatchIo] as f64 / MIB),
    column("activations", |step| step.budget[Line::Activations] as f64 / MIB),
    column("needs", |step| step.budget[Line::Total] as f64 / MIB),
    column("host", |step| step.budget.host as f64 / MIB),
    column("largest batch", |step| step.largest_batch as f64),
    column("bus, ms", |step| step.ms[1]),
];

/// Returns the least time of a step's operations, and how much longer that is than the time of `first`.
fn time(step: &Step, first: &Step) -> String {
    let more = (100.0 * (step.ms[0] / first.ms[0] - 1.0)).round();
    let ms = grouped(step.ms[0]);
    match (step.change.is_empty(), more == 0.0) {
        (true, _) => ms,
        (false, true) => format!("{ms} (0 %)"),
        (false, false) => format!("{ms} ({more:+} %)"),
    }
}

/// Returns the steps of a network: with the common fields alone, and with each change.
fn steps(network: &Network, common: &Fields, changes: &[&Fields]) -> Vec<Step> {
    std::iter::once(&[] as &Fields).chain(changes.iter().copied()).map(|change| network.step(common, change)).collect()
}

/// Compares a table of the page with the steps of each network. `plain` are the common fields, as the first row of a network names them.
fn check(name: &str, plain: &str, networks: &[(&Network, Vec<Step>)]) {
    let page = std::fs::read_to_string(format!("{}/{PAGE}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let code: String = page.split("```").skip(1).step_by(2).collect();
    let is_shown = |step: &Step| !step.change.is_empty() && step.change.split(", ").all(|field| code.contains(field));
    let rows = || networks.iter().flat_map(|(_, steps)| steps);
    assert!(rows().any(is_shown), "no code on the page turns a step of the table `{name}` on");
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| rows().any(|step| (column.of)(step) > 0.0)).collect();
    let names: String = columns.iter().map(|column| format!(" {} |", column.name)).collect();
    let mut text = format!(
        "| network, batch | step |{names} time, ms |\n| --- | --- |{} ---: |\n",
        " ---: |".repeat(columns.len())
    );
    for (network, steps) in networks {
        for step in steps {
            let label = if step.change.is_empty() { plain.into() } else { format!("`{}`", step.change) };
            let figures: String = columns.iter().map(|column| format!(" {} |", grouped((column.of)(step)))).collect();
            text += &format!("| `{}`, {} | {label} |{figures} {} |\n", network.name, step.batch, time(step, &steps[0]));
        }
    }
    pages::check(PAGE, name, &text);
}

/// Returns a line of one step as a part of that of another.
fn share(of: &Step, all: &Step, line: Line) -> f64 {
    of.budget[line] as f64 / all.budget[line] as f64
}

#[test]
fn precision() {
    let changes: [&Fields; 2] = [&["precision: Mixed(Bf16)"], &["precision: Bf16"]];
    let networks = [&RESNET50, &UNET, &GPT2, &GPT2_XL].map(|network| (network, steps(network, &[], &changes)));
    for (network, steps) in &networks {
        let [single, mixed, narrow] = steps.as_slice() else { unreachable!() };
        // GPT-2 XL has more weights than activations.
        let has_many_weights = network.name == GPT2_XL.name;
        assert_eq!(has_many_weights, share(mixed, single, Line::Total) > 0.68, "{}", network.name);
        assert!(has_many_weights || mixed.largest_batch as f64 > 1.9 * single.largest_batch as f64, "{}", network.name);
        // Activations are half, weights are half, and master copies are what weights were.
        assert!((0.45..0.6).contains(&share(mixed, single, Line::Activations)));
        assert!(mixed.budget[Line::Weights] + mixed.budget[Line::Master] > single.budget[Line::Weights]);
        assert!((0.45..0.6).contains(&share(narrow, single, Line::Total)));
    }
    check("precision", "`precision: F32`", &networks);
}

#[test]
fn recomputation() {
    let changes: [&Fields; 3] = [&["checkpoint: Norms"], &["checkpoint: Budget(0.5)"], &["checkpoint: Auto"]];
    let networks = [&RESNET50, &UNET, &GPT2].map(|network| (network, steps(network, &["checkpoint: None"], &changes)));
    for (_, steps) in &networks {
        let [all, norms, half, least] = steps.as_slice() else { unreachable!() };
        assert!(share(half, all, Line::Activations) <= 0.5);
        assert!((norms.ms[0] / all.ms[0] - 1.0).abs() < 0.05);
        assert!(norms.ms[0] < half.ms[0] && half.ms[0] < least.ms[0]);
        assert!(half.ms[0] < 1.15 * all.ms[0] && least.ms[0] < 1.5 * all.ms[0], "{} {}", half.ms[0], least.ms[0]);
    }
    check("recomputation", "`checkpoint: None`", &networks);
}

/// Returns the least milliseconds of the phases of a step: forward, recompute, and all others.
fn phases(network: &Network, checkpoint: &'static str) -> [f64; 3] {
    let headroom = if checkpoint == "checkpoint: Auto" { CARD.usable() } else { 0 };
    let plan = network.plan(1, &[checkpoint]);
    let spent = plan.adviser(&[CARD], Some(Device::Known(CARD)), headroom).spent().unwrap();
    let ms = |wanted: &dyn Fn(Phase) -> bool| spent.iter().filter(|it| wanted(it.phase)).map(|it| it.ms).sum();
    let is_other = |phase| !matches!(phase, Phase::Forward | Phase::Again);
    [ms(&|phase| phase == Phase::Forward), ms(&|phase| phase == Phase::Again), ms(&is_other)]
}

#[test]
fn passes() {
    let mut text = String::from(
        "| network, batch | forward, ms | the rest, ms | forward, % of the step | recomputed in the leanest step, ms |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
    );
    for network in [&RESNET50, &UNET, &GPT2] {
        let [forward, none, rest] = phases(network, "checkpoint: None");
        let [_, again, _] = phases(network, "checkpoint: Auto");
        assert_eq!(none, 0.0);
        let share = 100.0 * forward / (forward + rest);
        assert!((20.0..40.0).contains(&share), "{}: {share}", network.name);
        let (name, batch) = (network.name, network.batch);
        writeln!(text, "| `{name}`, {batch} | {forward:.0} | {rest:.0} | {share:.0} | {again:.0} |").unwrap();
    }
    pages::check(PAGE, "passes", &text);
}

#[test]
fn accumulation() {
    let changes: [&Fields; 2] = [&["micro_batches: 2"], &["micro_batches: 4"]];
    let networks = [&RESNET50, &UNET, &GPT2].map(|network| (network, steps(network, &[], &changes)));
    for (_, steps) in &networks {
        for parts in &steps[1..] {
            // The price: a gradient that is stored for each parameter.
            assert_eq!(steps[0].budget[Line::Gradients], 0);
            assert_eq!(parts.budget[Line::Gradients], parts.budget[Line::Weights]);
            assert!(parts.budget[Line::Total] < steps[0].budget[Line::Total]);
        }
    }
    check("accumulation", "the whole batch", &networks);
}

#[test]
fn offload() {
    let changes: [&Fields; 3] = [&["offload: OptimizerState"], &["offload: Activations"], &["offload: All"]];
    let networks =
        [&RESNET50, &GPT2, &GPT2_XL].map(|network| (network, steps(network, &["precision: Mixed(Bf16)"], &changes)));
    for (_, steps) in &networks {
        for away in &steps[1..] {
            assert!(away.budget[Line::Total] <= steps[0].budget[Line::Total]);
            assert!(away.budget.host > 0 && away.ms[1] > 0.0);
        }
    }
    check("offload", "all on the card", &networks);
}

#[test]
fn sharding() {
    let changes: [&Fields; 3] = [&["ranks: 8"], &["ranks: 8", "shard: Optimizer"], &["ranks: 8", "shard: Parameters"]];
    let networks = [&GPT2, &GPT2_XL].map(|network| (network, steps(network, &["precision: Mixed(Bf16)"], &changes)));
    for (_, steps) in &networks {
        let [_, whole, optimizer, parameters] = steps.as_slice() else { unreachable!() };
        // An eighth of what is divided, but for small tensors, which are whole everywhere, and padding.
        assert!((0.125..0.13).contains(&share(optimizer, whole, Line::Optimizer)));
        assert!((0.125..0.14).contains(&share(parameters, whole, Line::Weights)));
    }
    check("sharding", "one card", &networks);
}
