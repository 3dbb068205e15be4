//! What recurrent layers keep, and what overwrites what.

use crate::common::{join, layer, numbers};
use crate::{infer, network, train};
use gpumem_core::graph::Graph;
use gpumem_core::lower::layer_table;
use gpumem_core::program::op::{Rule, Work};
use gpumem_core::program::ops::{Cell, Recurrence};
use gpumem_core::program::{Op, Program, Slot};

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
        let layers = layer_table(&graph, &program);
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
    assert_eq!(layer_table(&graph, &program)[0].kept, [0, 2 * 7 * (4 * 5 + 2), 0, 0, 0, 0]);
    let op = Recurrence { cell: Cell::Lstm, steps: 7, hidden: 5, outputs: 2, directions: 2, bias: true };
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
    assert_eq!(layer_table(&graph, &program)[0].kept, [0, 7 * 5, 0, 0, 0, 0]);
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
