use crate::host::Machine;
use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::{check, check_narrow};
use gpumem_core::graph::{Graph, Node, NodeId, Source};
use gpumem_core::program::functions::Function;
use gpumem_core::program::ops::Pointwise;
use gpumem_cuda::Kernel;

/// A function of a value, with arguments that are not those it has where they are left out.
fn of(graph: &mut Graph, input: NodeId, function: Function) -> NodeId {
    let value = graph.value(input);
    let arguments = function.row().arguments.iter().map(|argument| argument.default + 0.25).collect();
    let op = Pointwise { function, arguments, shape: value.shape };
    let source = Source::Op { op: op.into(), inputs: vec![input], buffers: Vec::new(), in_place: false };
    let row = graph.nodes[input].row;
    graph.nodes.push(Node { value, source, row, detached: false });
    graph.nodes.len() - 1
}

/// Every function of one value, side by side: one gradient is written, the others are added. Their sum, the loss, is of many terms: of a size at
/// which it is not near 0.
fn all(graph: &mut Graph) -> NodeId {
    several(graph, [7, 12], |_| true)
}

/// Those that jump, or whose slopes do, elsewhere than at 0.
const JUMP: [Function; 3] = [Function::Hardtanh, Function::Hardshrink, Function::Softshrink];

/// The others: in 16 bits, what is rounded to another number may be on the other side of a jump.
fn continuous(graph: &mut Graph) -> NodeId {
    several(graph, [7, 13], |function| !JUMP.contains(&function))
}

fn several(graph: &mut Graph, sizes: [u64; 2], is_meant: fn(Function) -> bool) -> NodeId {
    let input = graph.input(numbers(&sizes)).unwrap();
    let x = layer(graph, input, "Tanh");
    let positive = layer(graph, input, "Sigmoid");
    let results = Function::ALL.iter().copied().filter(|&function| is_meant(function)).map(|function| {
        let is_of_positive = matches!(function, Function::Sqrt | Function::Log | Function::Pow);
        of(graph, if is_of_positive { positive } else { x }, function)
    });
    let results: Vec<NodeId> = results.collect();
    join(graph, &results, "Concat")
}

#[test]
fn functions_of_one_number() {
    check("all", 3, all);
}

/// The gradient may take the place of the output's, and the output that of the input.
#[test]
fn functions_in_a_chain() {
    check("a chain", 3, |graph| {
        let input = graph.input(numbers(&[7, 13])).unwrap();
        let x = layer(graph, input, "Sigmoid");
        let chain =
            [Function::Tanh, Function::Affine, Function::Gelu, Function::Exp, Function::LeakyRelu, Function::Affine];
        chain.into_iter().fold(x, |x, function| of(graph, x, function))
    });
}

#[test]
fn sixteen_bits() {
    check_narrow("all", 3, continuous);
    // Of numbers that are the same on both sides.
    check_narrow("those that jump", 3, |graph| {
        let input = graph.input(numbers(&[7, 13])).unwrap();
        let results = JUMP.map(|function| of(graph, input, function));
        join(graph, &results, "Concat")
    });
}

/// Bounds that are rounded towards 0 in one format or the other: what is cut off there has no slope.
#[test]
fn bounds_that_16_bits_do_not_have() {
    for bound in [0.7, 0.9, 0.1, 0.4] {
        check_narrow(&format!("bounds of {bound}"), 3, |graph| {
            let input = graph.input(numbers(&[7, 13])).unwrap();
            chain(graph, input, &format!("Affine(8.0) | Hardtanh({}, {bound})", -bound))
        });
    }
}

#[test]
#[should_panic(expected = "NoSuchFunction")]
fn an_unknown_function_does_not_compile() {
    assert!(std::env::var_os("GPUMEM_SKIP_HOST").is_none(), "NoSuchFunction");
    let kernel = Kernel::new("pointwise.cu", "pointwise").with("REAL", "float").with("COUNT", "8ull");
    let kernel = kernel.with("FUNCTION", "NoSuchFunction").with("ARGUMENTS", "{}").with("ADD", 0);
    Machine::with_sources([kernel], |_, text| text.to_string());
}
