//! What operations multiply and move, counted by hand.

use super::common::compile;
use super::{Options, again, chain, join, layer, lower, numbers, tokens, training};
use gpumem_core::graph::Graph;
use gpumem_core::lower::with_normalized_convolutions;
use gpumem_core::program::{Op, Slot};
use gpumem_core::report::roofline::{flops, traffic};

/// Products of the weight or the gradient with x, and of x with itself once.
#[test]
fn a_normalised_convolution_multiplies_its_input_with_itself_once() {
    let (inner, outer, pixels, batch) = (8, 24, 5 * 7, 3);
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[inner, 5, 7])).unwrap();
    let before = layer(&mut graph, input, "BatchNorm2d");
    let made = [(); 2].map(|()| chain(&mut graph, before, &format!("Conv2d({outer}, 1, bias = false) | BatchNorm2d")));
    let output = join(&mut graph, &made, "Add");
    let graph = with_normalized_convolutions(&graph, &[output]);
    let program = lower(&graph, &[output], &training(0)).unwrap();
    let all: Vec<u64> = (program.operations.iter())
        .filter(|it| matches!(it.forward().or(it.backward()), Some(Op::NormalizedConvolution(_))))
        .map(|it| flops(it, batch))
        .collect();
    let of = |macs: u64| 2 * macs * pixels * batch;
    let forward = of(outer * inner + inner * inner);
    let backward = of(2 * outer * inner + inner * inner);
    assert_eq!(all, [forward, forward, backward, backward]);
    // From statistics that are known nothing is multiplied with itself.
    let known = lower(&graph, &[output], &Options::default()).unwrap();
    let all = known.operations.iter().filter(|it| matches!(it.forward(), Some(Op::NormalizedConvolution(_))));
    assert!(all.map(|it| flops(it, batch)).eq([of(outer * inner); 2]));
}

/// The gradient of a table that has one is read and written where there are tokens; a first one is written as a whole.
#[test]
fn rows_of_a_table_are_added_to_where_there_are_tokens() {
    for (rows, added) in [(1000, 7 * 12), (5, 5 * 12)] {
        let mut graph = Graph::default();
        let input = graph.input(tokens(7)).unwrap();
        let text = format!("Embedding({rows}, 12)");
        let first = layer(&mut graph, input, &text);
        let second = again(&mut graph, input, &text, 0);
        let output = join(&mut graph, &[first, second], "Add");
        let placed = compile(&lower(&graph, &[output], &training(0)).unwrap(), 1);
        let table = |all: &[(u32, u64)], id| all.iter().find(|(tensor, _)| *tensor == id).map(|(_, bytes)| *bytes);
        let moved: Vec<_> = (placed.program.operations.iter())
            .filter(|it| matches!(it.backward(), Some(Op::Gather(_))))
            .map(|it| {
                let [reads, writes] = traffic(&placed, it);
                let id = it.written(Slot::InputGradient(1)).unwrap();
                (table(&reads, id), table(&writes, id))
            })
            .collect();
        assert_eq!(moved, [(None, Some(4 * 12 * rows)), (Some(4 * added), Some(4 * added))]);
    }
}
