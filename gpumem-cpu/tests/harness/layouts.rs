//! Programs whose maps and weights lie in other layouts than the one that lowering chooses, and networks that show what comes of it.

use super::graphs::{chain, images, join, layer, numbers};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::program::op::Layouts;
use gpumem_core::program::{Action, ChannelOrder, Class, Layout, Op, Operand, Operation, Program, Slot, Tensor};

/// Ways in which [`arrange`] lays maps and weights out.
pub const WAYS: usize = 9;

/// Dense, channels last, and either with a pitch of the last axis; a weight has none.
fn layout(kind: usize, tensor: &Tensor) -> Layout {
    let last = kind % 2 == 1;
    let order = if last { ChannelOrder::ChannelsLast } else { ChannelOrder::ChannelsFirst };
    let Some([channels, _, width]) = tensor.shape.as_map() else { return Layout { order, pitch: 0 } };
    let inner = if last { channels } else { width };
    Layout { order, pitch: if kind < 2 { 0 } else { inner + 3 } }
}

/// The layouts that an operation takes.
fn taken(operation: &Operation) -> Layouts {
    match &operation.action {
        Action::Run { op, .. } => op.layouts(),
        Action::Accumulate
        | Action::Collect
        | Action::Copy
        | Action::SumBatch
        | Action::Check
        | Action::Squares(_)
        | Action::Update => Layouts::Alike,
        _ => Layouts::Dense,
    }
}

/// Which of the kinds of [`layout`] a tensor has that is the leader of those that lie alike.
fn kind(way: usize, leader: usize, is_map: bool) -> usize {
    match way {
        0..3 => way + 1,
        // Maps channels last and weights not, and the other way round.
        7 => usize::from(is_map),
        8 => usize::from(!is_map),
        _ => leader * 5 / 3 + leader + way,
    }
}

/// Whether its elements have channels: a map, or the weight of a convolution, or what belongs to one.
fn has_channels(tensor: &Tensor) -> bool {
    let is_weight = !tensor.batched && tensor.shape.dims().len() == 4;
    tensor.shape.as_map().is_some() && tensor.class == Class::Transient || is_weight
}

/// Lays out every map and every weight that may lie in another layout: in the first three ways all channels last, or with a pitch,
/// or both; in the last two either maps or weights channels last; in the others each in a layout of its own. How many there are.
pub fn arrange(program: &mut Program, way: usize) -> usize {
    // Tensors that must lie alike have one leader.
    let mut leaders: Vec<usize> = (0..program.tensors.len()).collect();
    let mut fixed: Vec<bool> = program.tensors.iter().map(|it| !has_channels(it)).collect();
    program.results.iter().for_each(|&id| fixed[id as usize] = true);
    fn leader(leaders: &[usize], id: usize) -> usize {
        if leaders[id] == id { id } else { leader(leaders, leaders[id]) }
    }
    for operation in &program.operations {
        let layouts = taken(operation);
        let tensor = |operand: &Operand| (operand.slot != Slot::State).then_some(operand.tensor as usize);
        let all: Vec<usize> = operation.reads.iter().chain(&operation.writes).filter_map(tensor).collect();
        for &id in &all {
            let shape = program.tensors[id].shape;
            match &layouts {
                // Scratch memory lies as it likes.
                Layouts::Alike if operation.written(Slot::Workspace) == Some(id as u32) => {}
                Layouts::Alike => {
                    let (one, other) = (leader(&leaders, all[0]), leader(&leaders, id));
                    leaders[other] = one;
                    fixed[id] |= shape != program.tensors[all[0]].shape;
                }
                Layouts::Filters(filter) if shape == *filter => {
                    let first = all.iter().copied().find(|&other| program.tensors[other].shape == *filter);
                    let (one, other) = (leader(&leaders, first.unwrap_or(id)), leader(&leaders, id));
                    leaders[other] = one;
                }
                Layouts::Filters(_) => fixed[id] = true,
                Layouts::Maps(maps) => fixed[id] |= !maps.contains(&shape),
                // Rows have gaps where lowering gives them some.
                Layouts::Dense | Layouts::Rows(_) => fixed[id] = true,
            }
        }
    }
    for id in 0..fixed.len() {
        let own = leader(&leaders, id);
        fixed[own] |= fixed[id];
    }
    let mut count = 0;
    for (id, tensor) in program.tensors.iter_mut().enumerate() {
        let own = leader(&leaders, id);
        if !fixed[own] {
            let kind = kind(way, own, tensor.shape.as_map().is_some());
            tensor.layout = layout(kind % 4, tensor);
            count += usize::from(!tensor.layout.is_dense());
        }
    }
    let refused = program.operations.iter().find(|operation| !program.takes_layouts(operation));
    assert!(refused.is_none(), "{:?}", refused.map(|operation| &operation.action));
    count
}

/// The elements of a tensor in the order that its shape is written in.
pub fn dense<T: Copy>(tensor: &Tensor, stored: &[T]) -> Vec<T> {
    let ([channels, height, width], strides) = tensor.layout.places(tensor.shape).unwrap();
    let mut elements = Vec::new();
    for sample in stored.chunks(strides.sample as usize) {
        for (c, y) in (0..channels).flat_map(|c| (0..height).map(move |y| (c, y))) {
            let first = c * strides.channel + y * strides.row;
            elements.extend((0..width).map(|x| sample[(first + x * strides.column) as usize]));
        }
    }
    elements
}

/// Whether the host has a tensor in another order than it is stored in.
pub fn is_turned(tensor: &Tensor) -> bool {
    tensor.class != Class::Transient && tensor.is_turned()
}

/// The elements of a weight that lies channels last, from the order that its shape is written in.
pub fn turned<T: Copy>(tensor: &Tensor, seen: &[T]) -> Vec<T> {
    let numbers: Vec<usize> = (0..seen.len()).collect();
    let mut stored = seen.to_vec();
    dense(tensor, &numbers).into_iter().zip(seen).for_each(|(to, value)| stored[to] = *value);
    stored
}

/// A name, and what makes a network on a graph.
pub type Case = (&'static str, fn(&mut Graph) -> NodeId);

/// Layers between two convolutions of one pixel, whose other sides the host sees. The first has no bias: behind it, a BatchNorm would
/// leave its gradient nothing but rounding errors.
macro_rules! between {
    ($([$($dims:literal),*] $text:literal,)*) => {
        [$(($text, |graph: &mut Graph| {
            let input = graph.input(numbers(&[$($dims),*])).unwrap();
            chain(graph, input, concat!("Conv2d(4, 1, bias = false) | ", $text, " | Conv2d(3, 1)"))
        }),)*]
    };
}

/// Networks of images of bytes.
macro_rules! images {
    ($([$($dims:literal),*] $numbers:literal),*) => {
        [$((concat!("bytes, ", $numbers), |graph: &mut Graph| {
            let input = graph.input(images(&[$($dims),*])).unwrap();
            chain(graph, input, concat!("Normalize(", $numbers, ") | Conv2d(4, 1) | Conv2d(3, 1)"))
        }),)*]
    };
}

/// Networks whose maps may lie in any layout.
pub fn cases() -> Vec<Case> {
    let layers: [Case; 34] = between![
        [3, 7, 6] "Conv2d(5, 3, stride = 2, padding = 1)",
        [3, 6, 5] "Conv2d(6, [3; 2], groups = 2, dilation = [2; 1], bias = false)",
        [3, 8, 8] "Conv2d(8, 1, groups = 2)",
        [3, 7, 5] "Conv2d(8, 3, groups = 4, padding = 1)",
        [2, 31, 29] "Conv2d(4, 3, padding = 1)",
        [2, 37, 41] "Conv2d(4, 3, groups = 4)",
        [3, 6, 5] "Conv2d(6, [3; 2], groups = 2, standardized = true, gamma = 1.5)",
        [3, 5, 4] "ConvTranspose2d(6, 3, weight_norm = true)",
        [3, 5, 4] "ConvTranspose2d(6, 3, stride = 2, padding = 1, output_padding = 1)",
        [3, 5, 4] "ConvTranspose2d(4, 3, groups = 4, stride = 2)",
        [3, 9, 8] "MaxPool2d([3; 2], stride = [2; 3], padding = [1; 0], dilation = [2; 1], ceil_mode = true)",
        [3, 7, 5] "AvgPool2d(3, 2, padding = 1, ceil_mode = true)",
        [3, 7, 5] "AdaptiveAvgPool2d([3; 2])",
        [3, 5, 6] "AdaptiveAvgPool2d(1)",
        [3, 17, 11] "AdaptiveAvgPool2d(2)",
        [3, 5, 4] "Upsample([3; 2])",
        [3, 6, 8] "BatchNorm2d",
        [3, 5, 7] "BatchNorm2d(affine = false) | Relu",
        [3, 47, 53] "BatchNorm2d",
        [3, 6, 8] "InplaceAbn",
        [3, 47, 53] "InplaceAbn(affine = false, activation_param = 0.25)",
        [3, 6, 5] "Gelu | Tanh",
        [3, 6, 5] "Relu | AvgPool2d(2, 1)",
        [3, 6, 5] "Normalize([0.5; -0.25; 0.125; 1], [2; 0.5; 1.5; 0.75])",
        [3, 6, 5] "Dropout(0.4)",
        [3, 6, 8] "Sigmoid | Dropout(0.3) | Relu(inplace = true)",
        [3, 5, 4] "Upsample(size = [7; 9])",
        [3, 5, 4] "Upsample([1.5; 0.75], mode = \"bilinear\")",
        [3, 5, 4] "Upsample(size = [3; 9], mode = \"bilinear\", align_corners = true)",
        [3, 5, 4] "Upsample(2, mode = \"bicubic\")",
        [3, 5, 4] "Pad([-1; 2; 3; 0], value = 0.5)",
        [3, 5, 4] "Pad([3; 2; 1; 4], mode = \"reflect\")",
        [3, 5, 4] "Pad([3; 2; 1; 6], mode = \"replicate\")",
        [3, 5, 4] "Pad([4; 2; 1; 5], mode = \"circular\")",
    ];
    // Four pixels at a time where channels lie side by side, then single ones.
    let images: [Case; 3] = images![[3, 6, 8] "[0.5; 0.25; 0.75]", [3, 5, 7] "0.5, 0.25", [8, 3, 4] "0.1"];
    let joins: [Case; 4] = [
        ("Concat", |graph| {
            let input = graph.input(numbers(&[3, 6, 4])).unwrap();
            let branches = ["Conv2d(4, 1)", "Conv2d(8, 3, padding = 1)", "Conv2d(3, 1)"];
            let branches = branches.map(|text| layer(graph, input, text));
            let all = join(graph, &branches, "Concat");
            // The first two parts are used again: gradients are added.
            let again = join(graph, &[branches[1], all, branches[0]], "Concat");
            layer(graph, again, "Conv2d(2, 1)")
        }),
        ("Add", |graph| {
            let input = graph.input(numbers(&[3, 5, 7])).unwrap();
            let x = layer(graph, input, "Conv2d(4, 1)");
            let y = chain(graph, x, "Conv2d(4, 3, padding = 1) | Tanh");
            let sum = join(graph, &[x, y, x], "Add");
            layer(graph, sum, "Conv2d(2, 3)")
        }),
        ("Mul", |graph| {
            let input = graph.input(numbers(&[3, 5, 7])).unwrap();
            let branches = ["Conv2d(4, 1) | Sigmoid", "Conv2d(4, 1)"].map(|text| chain(graph, input, text));
            let product = join(graph, &branches, "Mul");
            layer(graph, product, "Conv2d(2, 1)")
        }),
        ("a value that every kind of operation reads", |graph| {
            let input = graph.input(numbers(&[3, 6, 8])).unwrap();
            let x = layer(graph, input, "Conv2d(4, 1)");
            let texts = [
                "MaxPool2d(3, 1, padding = 1)",
                "AvgPool2d(3, 1, padding = 1)",
                "BatchNorm2d",
                "Conv2d(4, 3, padding = 1)",
                "Conv2d(4, 3, padding = 1, groups = 4)",
                "AdaptiveAvgPool2d([3; 4]) | Upsample(2)",
            ];
            let branches = texts.map(|text| chain(graph, x, text));
            let sum = join(graph, &branches, "Add");
            layer(graph, sum, "Conv2d(2, 1)")
        }),
    ];
    layers.into_iter().chain(images).chain(joins).collect()
}

/// The first operation that is one of these, and its number.
pub fn first(program: &Program, is: impl Fn(&Op) -> bool) -> usize {
    let found = program.operations.iter().position(|operation| operation.forward().is_some_and(&is));
    found.expect("the program has such an operation")
}
