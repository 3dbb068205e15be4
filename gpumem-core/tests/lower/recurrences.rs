//! What recurrent layers keep, and what overwrites what.

use crate::common::{join, layer, numbers};
use crate::{infer, network, train};
use gpumem_core::graph::Graph;
use gpumem_core::lower::layer_table;
use gpumem_core::program::op::{Rule, Work};
use gpumem_core::program::ops::{Cell, Recurrence, WholeRecurrence};
use gpumem_core::program::{Op, Program, Slot};
use gpumem_core::report::roofline::flops;

/// The tensor that operations of recurrences read or write as a slot, in a forward or backward pass.
fn of_recurrences(program: &Program, backward: bool, slot: Slot) -> Vec<u32> {
    let passes = program.operations.iter().filter(|operation| {
        let op = if backward { operation.backward() } else { operation.forward() };
        matches!(op, Some(Op::Recurrence(_)))
    });
    passes.filter_map(|operation| operation.read(slot).or_else(|| operation.written(slot))).collect()
}

#[test]
fn gates_lie_where_the_mapped_input_was() {
    for (text, gates) in [("Lstm(5)", 4), ("Gru(5)", 3), ("Lstm(5, bidirectional = true)", 4)] {
        let (graph, output) = network(&[7, 3], &format!("{text} | Linear(2)"));
        let program = train(&graph, output, 0);
        let of = |backward, slot| of_recurrences(&program, backward, slot);
        let directions = if text.contains("bidirectional") { [0, 1].as_slice() } else { &[0] };
        for &direction in directions {
            let (mapped, saved) = (Slot::Input(3 * direction), Slot::Saved(direction));
            assert_eq!(of(false, mapped), of(false, saved), "{text}: the gates overwrite what arrives");
            assert_eq!(of(true, saved), of(false, saved), "{text}");
            assert_eq!(
                of(true, Slot::InputGradient(3 * direction)),
                of(true, saved),
                "{text}: and their gradient them"
            );
        }
        // Input, gates and output; the input of the network is none of the step's tensors.
        let layers = layer_table(&graph, &[output], &program);
        let width = 5 * directions.len() as u64;
        assert_eq!(layers[0].kept, [0, 7 * width * (gates + 1), 0, 0, 0, 0], "{text}");
        let (saved, inference) = (Slot::Saved(0), infer(&graph, output));
        assert_eq!(of_recurrences(&inference, false, saved), [0u32; 0]);
    }
}

/// Of a projection nothing is kept but its output.
#[test]
fn projections_keep_less() {
    let (graph, output) = network(&[7, 3], "Lstm(5, proj_size = 2, bidirectional = true) | Linear(2)");
    let program = train(&graph, output, 0);
    assert_eq!(layer_table(&graph, &[output], &program)[0].kept, [0, 2 * 7 * (4 * 5 + 2), 0, 0, 0, 0]);
    let op = Recurrence { cell: Cell::Lstm, steps: 7, hidden: 5, outputs: 2, directions: 2, bias: true, cudnn: false };
    assert_eq!(op.macs(), 2 * 7 * (20 * 2 + 2 * 5));
    let elements = |work| op.workspace(work).map(|room| room.shape.elements().unwrap());
    assert_eq!(elements(Work::Inference), Some(2 * 2 * 5));
    assert_eq!(elements(Work::Gradient(0)), Some(2 * (8 * 5 + 7 * 2)));
    assert!(!Recurrence { outputs: 6, ..op.clone() }.is_sound(), "more outputs than units");
    assert!(!Recurrence { outputs: 0, ..op.clone() }.is_sound());
    assert!(!Recurrence { cell: Cell::Gru, ..op }.is_sound(), "a cell that is not projected");
}

#[test]
fn plain_recurrences_work_in_place() {
    let (graph, output) = network(&[7, 3], "Rnn(5) | Linear(2)");
    let program = train(&graph, output, 0);
    let of = |backward, slot| of_recurrences(&program, backward, slot);
    assert_eq!(of(false, Slot::Input(0)), of(false, Slot::Output));
    assert_eq!(of(true, Slot::InputGradient(0)), of(true, Slot::Gradient));
    assert_eq!(layer_table(&graph, &[output], &program)[0].kept, [0, 7 * 5, 0, 0, 0, 0]);
}

/// What the gates would overwrite may be needed by somebody else.
#[test]
fn gates_leave_alone_what_is_read_again() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[7, 3])).unwrap();
    let once = layer(&mut graph, input, "Lstm(5)");
    let op = graph.nodes.iter().position(|node| node.inputs().len() == 3 && node.value.shape.last() == 20).unwrap();
    let gates = layer(&mut graph, op, "Linear(5)");
    let output = join(&mut graph, &[once, gates], "Add");
    let program = train(&graph, output, 0);
    assert_ne!(of_recurrences(&program, false, Slot::Input(0)), of_recurrences(&program, false, Slot::Saved(0)));
}

/// Where cuDNN is asked for, training has one operation for the map and the steps, with room for what cuDNN keeps and works with.
#[test]
fn training_for_cudnn_has_its_memory() {
    // Gates of a unit, what cuDNN keeps of it, outputs and directions.
    for (text, gates, kept, outputs, directions) in [
        ("Lstm(5", 4, 5 * 5, 5, 1),
        ("Gru(5", 3, 6 * 5, 5, 1),
        ("Rnn(5", 1, 5, 5, 1),
        ("Gru(5, bidirectional = true", 3, 6 * 5, 5, 2),
        ("Lstm(5, proj_size = 2", 4, 6 * 5 + 2, 2, 1),
        ("Lstm(5, bidirectional = true, proj_size = 2", 4, 6 * 5 + 2, 2, 2),
    ] {
        let (graph, output) = network(&[7, 3], &format!("{text}, cudnn = true) | Linear(2)"));
        let program = train(&graph, output, 0);
        let is_whole = |op: Option<&Op>| matches!(op, Some(Op::WholeRecurrence(_)));
        let forward = program.operations.iter().find(|it| is_whole(it.forward())).unwrap();
        let backward = program.operations.iter().find(|it| is_whole(it.backward())).unwrap();
        assert!(of_recurrences(&program, false, Slot::Output).is_empty(), "{text}");
        let size = |id: Option<u32>, batch| program.tensor(id.unwrap()).elements(batch).unwrap();
        let reserve = forward.written(Slot::Saved(0));
        assert_eq!(reserve, backward.read(Slot::Saved(0)), "{text}");
        assert_eq!(size(reserve, 2), 2 * (7 * directions * kept + 256), "{text}");
        // Input, reserve and output; the input of the network is none of the step's tensors.
        assert_eq!(
            layer_table(&graph, &[output], &program)[0].kept,
            [0, 7 * directions * (kept + outputs) + 256, 0, 0, 0, 0],
            "{text}"
        );
        // What there is once: the weights in an order of cuDNN's and in one piece, backward with their gradients, and room for products.
        let scratch = |it: &gpumem_core::program::Operation| it.written(Slot::Workspace);
        let room = directions * (8 << 20) + 4096;
        let projection = if outputs < 5 { outputs * 5 } else { 0 };
        let matrices = directions * (gates * 5 * (3 + outputs) + projection);
        let packed = matrices + directions * gates * 5 * 2;
        for (operation, copies) in [(forward, 1), (backward, 2)] {
            let once = 2 * size(scratch(operation), 1) - size(scratch(operation), 2);
            assert_eq!(once, matrices + copies * packed + room / 2, "{text}");
        }
        // A forward pass alone has the two operations, and less.
        let inference = infer(&graph, output);
        assert_eq!(of_recurrences(&inference, false, Slot::Output).len(), 1, "{text}");
        let whole = inference.operations.iter().any(|it| is_whole(it.forward()));
        assert!(!whole, "{text}");
    }
}

/// The kernels of the project, which run where cuDNN is not installed, need no more: the gates of each direction in a half of the reserve, in
/// the workspace f32 for each unit and step, and one step more.
#[test]
fn own_kernels_have_room_where_cudnn_does() {
    for cell in [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu] {
        for (steps, in_features, hidden) in [(1, 1, 1u64), (1, 64, 1), (9, 1, 33), (35, 650, 650), (700, 3, 512)] {
            for (directions, outputs) in [(1, hidden), (2, hidden), (1, hidden.div_ceil(3)), (2, hidden.div_ceil(3))] {
                let op = WholeRecurrence { cell, steps, in_features, hidden, outputs, directions, bias: true };
                let inner = op.recurrence();
                if !inner.is_sound() {
                    continue;
                }
                // A half in 16 bits begins at a multiple of 256 bytes.
                assert!(op.reserve() >= directions * steps * inner.width() + 256, "{op:?}");
                for work in [Work::Training, Work::Gradient(0)] {
                    let own = inner.workspace(work).map_or(0, |room| room.shape.elements().unwrap());
                    let room = op.workspace(work).unwrap().shape.elements().unwrap();
                    // In f32, beside numbers of 16 bits.
                    assert!(room >= 2 * own, "{op:?}: {room}, {own}");
                }
            }
        }
    }
}

/// What else changes the gates keeps the map apart.
#[test]
fn a_map_that_others_read_stays() {
    for (text, number) in [("Lstm(5, cudnn = true)", 0), ("Lstm(5, bidirectional = true, cudnn = true)", 1)] {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[7, 3])).unwrap();
        let once = layer(&mut graph, input, text);
        let is_map = |&id: &usize| graph.nodes[id].inputs().len() == 3 && graph.nodes[id].value.shape.last() == 20;
        let mapped = (0..graph.nodes.len()).filter(is_map).nth(number).unwrap();
        let width = graph.nodes[once].value.shape.last();
        let gates = layer(&mut graph, mapped, &format!("Linear({width})"));
        let output = join(&mut graph, &[once, gates], "Add");
        assert_eq!(of_recurrences(&train(&graph, output, 0), false, Slot::Output).len(), 1, "{text}");
    }
}

/// The table of the memory model has what is planned.
#[test]
fn the_memory_model_has_what_is_planned() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/memory-model.md");
    let text = std::fs::read_to_string(path).unwrap();
    for (name, cell, [batch, steps, units], [directions, outputs]) in [
        ("`Lstm`", Cell::Lstm, [20, 35, 650], [1, 650]),
        ("`Lstm`", Cell::Lstm, [64, 128, 512], [1, 512]),
        ("`Lstm`, both directions", Cell::Lstm, [64, 128, 512], [2, 512]),
        ("`Lstm` to 256", Cell::Lstm, [64, 128, 512], [1, 256]),
        ("`Lstm` to 256, both directions", Cell::Lstm, [64, 128, 512], [2, 256]),
        ("`Gru`", Cell::Gru, [20, 35, 650], [1, 650]),
        ("`Gru`", Cell::Gru, [64, 128, 512], [1, 512]),
        ("`Gru`, both directions", Cell::Gru, [64, 128, 512], [2, 512]),
        ("`Rnn`", Cell::Tanh, [64, 128, 512], [1, 512]),
    ] {
        let op = WholeRecurrence { cell, steps, in_features: units, hidden: units, outputs, directions, bias: true };
        let mib = |elements: u64| format!("{:.1}", (4 * elements) as f64 / f64::from(1u32 << 20));
        let workspace = |work| {
            let each = op.workspace(work).unwrap().shape.elements().unwrap();
            mib(batch * each + op.workspace_once(work))
        };
        let gates = if cell == Cell::Tanh { 0 } else { directions * batch * steps * op.recurrence().width() };
        let start = format!("| {name}, {batch} x {steps} x {units} |");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no `{start}`"));
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [forward, backward] = [Work::Training, Work::Gradient(0)].map(workspace);
        // The columns that cuDNN fills in are between them.
        assert_eq!(
            [cells[2], cells[4], cells[6], cells[7]],
            [mib(gates), mib(batch * op.reserve()), forward, backward]
        );
    }
}

/// What is multiplied is that of the two operations that stand there otherwise.
#[test]
fn training_for_cudnn_multiplies_as_much() {
    let layers = [
        "Lstm(5, layers = 2",
        "Gru(5",
        "Rnn(5",
        "Gru(5, bidirectional = true",
        "Lstm(5, bidirectional = true, proj_size = 2",
    ];
    for layer in layers {
        let count = |text: &str| -> u64 {
            let (graph, output) = network(&[7, 3], text);
            train(&graph, output, 0).operations.iter().map(|operation| flops(operation, 2)).sum()
        };
        assert_eq!(count(&format!("{layer}, cudnn = true)")), count(&format!("{layer})")), "{layer}");
    }
}
