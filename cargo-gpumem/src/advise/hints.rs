//! Hints that need no plan: sizes that tensor cores read slowly, layers that memory limits, and the smallest cards that a program fits.

use crate::Failure;
use crate::plan::PlannedProgram;
use gpumem_core::Precision;
use gpumem_core::cards::{self, Card};
use gpumem_core::memory::budget::Line;
use gpumem_core::program::{Action, Class, Op, Operation, Phase, Program, Slot};
use gpumem_core::report::Device;
use gpumem_core::report::roofline::Spent;
use serde_json::{Value, json};

/// Bytes that tensor cores load at once: rows whose length is no multiple of them are loaded one element at a time.
const LOAD: u64 = 16;

/// Bytes of a row of a whole tile.
const TILE: u64 = 128;

/// The most layers and cards that a hint names.
const MOST_NAMED: usize = 5;

/// The hints for a program on a card.
pub struct Hints {
    /// Sizes that are no multiple of what tensor cores load.
    pub sizes: Vec<Size>,
    /// The share of the least time in which memory is what a step waits for.
    pub memory_bound: f64,
    /// The layers with most of that, each with its share of the step's least time.
    pub layers: Vec<(String, f64)>,
    /// The smallest cards that the program fits, without a change.
    pub cards: Vec<&'static Card>,
}

/// A size of a layer that is no multiple of what tensor cores load.
pub struct Size {
    /// The first layer with it.
    pub layer: String,
    /// The name of the dimension, such as `out_features`.
    pub dimension: &'static str,
    pub size: u64,
    /// The number of elements of which the size should be a multiple.
    pub multiple: u64,
    /// The next sizes that are multiples: of that number, and of a whole tile.
    pub padded: [u64; 2],
    /// The number of layers with this size in this dimension.
    pub layers: usize,
}

impl Size {
    /// Returns the products that the next multiple adds, as a part of those now.
    pub fn added(&self) -> [f64; 2] {
        self.padded.map(|padded| padded as f64 / self.size.max(1) as f64 - 1.0)
    }
}

impl Hints {
    /// Looks at a program as it runs on a card that leaves `headroom` bytes to others. `spent` is its work there.
    pub fn new(step: &PlannedProgram, spent: &[Spent], card: &'static Card, headroom: u64) -> Result<Hints, Failure> {
        let total: f64 = spent.iter().map(|spent| spent.ms).sum();
        let share = |ms: f64| ms / total.max(f64::MIN_POSITIVE);
        let bound = spent.iter().filter(|spent| spent.memory_bound);
        let memory_bound = share(bound.clone().map(|spent| spent.ms).sum());
        let mut by_layer = vec![0.0; step.plan.layers.len()];
        bound.for_each(|spent| spent.layer.into_iter().for_each(|layer| by_layer[layer] += share(spent.ms)));
        let mut layers: Vec<(String, f64)> =
            step.plan.layers.iter().zip(by_layer).map(|(layer, share)| (layer.path.clone(), share)).collect();
        layers.retain(|(_, share)| *share > 0.0);
        layers.sort_by(|a, b| b.1.total_cmp(&a.1));
        layers.truncate(MOST_NAMED);
        let sizes = sizes(&step.plan.program, card, step.plan.precision);
        Ok(Hints { sizes, memory_bound, layers, cards: smallest_cards(step, headroom)? })
    }

    pub fn as_json(&self) -> Value {
        let size = |size: &Size| {
            json!({
                "layer": size.layer,
                "layers": size.layers,
                "dimension": size.dimension,
                "size": size.size,
                "multiple": size.multiple,
                "padded": size.padded,
                "added": size.added(),
            })
        };
        json!({
            "tensor_cores": self.sizes.iter().map(size).collect::<Vec<_>>(),
            "memory_bound": self.memory_bound,
            "memory_bound_layers": self.layers.iter().map(|(layer, share)| json!({ "layer": layer, "share": share })).collect::<Vec<_>>(),
            "smallest_cards": self.cards.iter().map(|card| card.slug).collect::<Vec<_>>(),
        })
    }
}

/// Returns the smallest cards that a program fits as it is written, planned for each.
fn smallest_cards(step: &PlannedProgram, headroom: u64) -> Result<Vec<&'static Card>, Failure> {
    let mut found = Vec::new();
    for card in cards::ALL.iter().filter(|card| card.runs() && !card.is_slice()) {
        let device = Device::Known(card);
        let (budget, _) = step.within(&[card], device, headroom)?;
        if budget[Line::Arena] <= step.room(device, headroom) {
            found.push(card);
        }
        if found.len() == MOST_NAMED {
            break;
        }
    }
    Ok(found)
}

/// Returns the elements that tensor cores of a card load at once, and those of a row of a tile. `None` if it has none for the format.
fn multiples(card: &Card, precision: Precision) -> Option<[u64; 2]> {
    let narrow = precision.narrow();
    let has = match narrow {
        gpumem_core::Format::F16 => card.compute_capability >= (7, 0),
        gpumem_core::Format::Bf16 => card.compute_capability >= (8, 0),
        _ => false,
    };
    has.then(|| [LOAD, TILE].map(|bytes| bytes / narrow.bytes()))
}

/// Returns the sizes of products and convolutions in the forward pass that tensor cores read slowly, those of most layers first.
fn sizes(program: &Program, card: &Card, precision: Precision) -> Vec<Size> {
    let Some([load, tile]) = multiples(card, precision) else { return Vec::new() };
    let mut found: Vec<Size> = Vec::new();
    for operation in program.operations.iter().filter(|operation| operation.phase() == Phase::Forward) {
        for (dimension, size) in dimensions(program, operation) {
            if size.is_multiple_of(load) {
                continue;
            }
            match found.iter_mut().find(|other| (other.dimension, other.size) == (dimension, size)) {
                Some(known) => known.layers += 1,
                None => found.push(Size {
                    layer: program.paths.get(operation.row as usize).cloned().unwrap_or_default(),
                    dimension,
                    size,
                    multiple: load,
                    padded: [load, tile].map(|multiple| size.next_multiple_of(multiple)),
                    layers: 1,
                }),
            }
        }
    }
    found.sort_by_key(|size| std::cmp::Reverse(size.layers));
    found
}

/// Returns the sizes of an operation that its author chooses. Those of the network's inputs are given.
fn dimensions(program: &Program, operation: &Operation) -> Vec<(&'static str, u64)> {
    let Action::Run { op, .. } = &operation.action else { return Vec::new() };
    let reads_input = operation.read(Slot::Input(0)).is_some_and(|input| program.tensor(input).class == Class::Input);
    let mut all = match op {
        Op::Product(product) => vec![("in_features", product.in_features), ("out_features", product.out_features)],
        Op::CodedProduct(coded) => {
            vec![("in_features", coded.product.in_features), ("out_features", coded.product.out_features)]
        }
        // A group of one channel is no product.
        Op::Convolution(conv) if conv.groups < conv.in_channels => vec![
            ("in_channels", conv.in_channels / conv.groups.max(1)),
            ("out_channels", conv.out_channels / conv.groups.max(1)),
        ],
        Op::Attention(attention) => vec![("elements of a head", attention.width)],
        _ => Vec::new(),
    };
    all.retain(|(dimension, _)| !(reads_input && dimension.starts_with("in_")));
    all
}
