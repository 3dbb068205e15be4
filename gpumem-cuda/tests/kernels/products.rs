use crate::host::harness::graphs::{again, chain, compile, join, layer, numbers, tokens};
use crate::host::{CAPABILITY, Machine};
use crate::{check, check_products, check_squares, check_trained, gradients};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::operation::Operations;
use gpumem_core::program::Class;
use gpumem_core::{Half, Precision};
use gpumem_cuda::operations::{Context, LaunchContext, calls};
use gpumem_cuda::{Call, Launch};
use std::ffi::c_void;

/// Rows, columns and terms that are multiples of nothing, and of 4, in one tile and in several.
#[test]
fn linear() {
    check("vectors", 3, |graph| {
        let input = graph.input(numbers(&[13])).unwrap();
        layer(graph, input, "Linear(7)")
    });
    check("sequences", 3, |graph| {
        let input = graph.input(numbers(&[23, 36])).unwrap();
        layer(graph, input, "Linear(68, bias = false)")
    });
    check("odd sequences", 3, |graph| {
        let input = graph.input(numbers(&[23, 37])).unwrap();
        layer(graph, input, "Linear(69)")
    });
}

/// Results large enough for tiles of 128 and 64, and for more rows of tiles than are worked on together.
#[test]
fn linear_in_large_tiles() {
    large(1027, "Linear(516)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn linear_in_larger_tiles() {
    large(1100, "Linear(1802)");
}

fn large(rows: u64, text: &str) {
    check(text, 1, |graph| {
        let input = graph.input(numbers(&[rows, 5])).unwrap();
        layer(graph, input, text)
    });
}

/// A weight that is left as it is, with a bias that is trained, and layers in front of a Gelu of which nothing is.
#[test]
fn frozen_weights() {
    for (features, text) in [(16, "Gelu(approximate = \"tanh\")"), (7, "Tanh")] {
        check_trained(text, 3, &[Precision::F32], |graph| {
            let words = graph.input(tokens(5)).unwrap();
            let embedded = layer(graph, words, &format!("Embedding(11, {features})"));
            graph.freeze(graph.nodes[embedded].row);
            let x = chain(graph, embedded, &format!("Linear({features}) | {text}"));
            let frozen = layer(graph, x, &format!("Linear({features})"));
            graph.freeze(graph.nodes[frozen].row);
            let x = layer(graph, frozen, text);
            again(graph, x, "Tied(bias = true)", 0)
        });
    }
}

/// An input and a layer that are used twice: gradients are added.
#[test]
fn linear_used_twice() {
    for (rows, features, text) in [(9, 7, "Linear(7)"), (9, 12, "Linear(12)")] {
        check(text, 5, |graph| {
            let input = graph.input(numbers(&[rows, features])).unwrap();
            let first = layer(graph, input, text);
            let second = again(graph, first, text, 0);
            let third = layer(graph, input, text);
            join(graph, &[second, third], "Add")
        });
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn linear_used_twice_in_large_tiles() {
    check("large tiles", 1, |graph| {
        let input = graph.input(numbers(&[1027, 516])).unwrap();
        let branches = ["Linear(3)", "Linear(3)"].map(|text| layer(graph, input, text));
        join(graph, &branches, "Add")
    });
}

/// The weight of a `Linear`, used as it is and transposed; that of an `Embedding`, whose rows are the output features.
#[test]
fn tied() {
    for features in [11, 44] {
        check(&format!("{features} features"), 2, |graph| {
            let input = graph.input(numbers(&[19, 5])).unwrap();
            let hidden = chain(graph, input, &format!("Linear({features}) | Tanh"));
            again(graph, hidden, "Tied", 0)
        });
    }
}

/// Two inputs and the product of their matrices.
fn values(graph: &mut Graph, [left, right]: [&[u64]; 2], text: &str) -> NodeId {
    let inputs = [left, right].map(|dims| graph.input(numbers(dims)).unwrap());
    join(graph, &inputs, text)
}

/// One and several matrices a sample; sizes that are multiples of nothing, and of 4, in one tile and in several.
#[test]
fn products_of_values() {
    for (right, text) in [([5, 4], "MatMul"), ([4, 5], "MatMul(transpose_b = true)")] {
        check(text, 3, |graph| values(graph, [&[3, 5], &right], text));
    }
    check("several", 3, |graph| values(graph, [&[2, 3, 7, 9], &[2, 3, 9, 5]], "MatMul"));
    for (right, text) in [([2, 36, 68], "MatMul"), ([2, 68, 36], "MatMul(transpose_b = true)")] {
        check(text, 2, |graph| values(graph, [&[2, 40, 36], &right], text));
    }
    check("odd", 2, |graph| values(graph, [&[2, 41, 37], &[2, 37, 67]], "MatMul"));
}

/// A value with itself, and gradients that are added to others.
#[test]
fn products_of_values_used_twice() {
    for size in [7, 12] {
        check("twice", 2, |graph| {
            let input = graph.input(numbers(&[size, size])).unwrap();
            let x = layer(graph, input, "Tanh");
            let square = join(graph, &[x, x], "MatMul");
            let gram = join(graph, &[x, square], "MatMul(transpose_b = true)");
            join(graph, &[x, gram], "MatMul")
        });
    }
}

#[test]
fn products_of_values_in_sixteen_bits() {
    for ([left, right], text) in [
        ([[2, 41, 37], [2, 37, 35]], "MatMul"),
        ([[2, 48, 72], [2, 72, 40]], "MatMul"),
        ([[2, 48, 64], [2, 40, 64]], "MatMul(transpose_b = true)"),
    ] {
        check_products(text, 2, |graph| values(graph, [&left, &right], text));
    }
}

#[test]
fn products_of_values_of_other_sizes_are_refused() {
    let mut graph = Graph::default();
    let output = values(&mut graph, [&[3, 5], &[5, 4]], "MatMul");
    let (training, optimizer) = gradients();
    let mut program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let read = &mut program.operations[0].reads;
    read[1].tensor = read[0].tensor;
    let placed = compile(&program, 3);
    let setting = LaunchContext {
        rank: 0,
        batch: 3,
        precision: Precision::F32,
        optimizer,
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32: false,
        deterministic: false,
        library: false,
        cudnn: false,
        operations: &Operations::NONE,
    };
    let context = Context { placed: &placed, operation: &placed.program.operations[0], setting };
    assert_eq!(calls(&context), Err(Error::Damaged("a product of matrices has a factor of another size")));
}

/// Halves add up without rounding in every format. Rows of 4 and of 3 times as many elements, in tiles that write four at once.
#[test]
fn linear_of_16_bits() {
    halves([(Half::Bf16, 8, CAPABILITY), (Half::F16, 7, (7, 5)), (Half::F16, 8, (6, 1))]);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn linear_of_16_bits_on_every_card() {
    let shapes = [(Half::Bf16, 8), (Half::F16, 8), (Half::F16, 7)];
    let cards = [CAPABILITY, (7, 5), (6, 1)];
    halves(shapes.into_iter().flat_map(|(half, inputs)| cards.map(|capability| (half, inputs, capability))));
}

fn halves(cases: impl IntoIterator<Item = (Half, usize, (i32, i32))>) {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let (rows, outputs) = (1030usize, 516usize);
    for (half, inputs, capability) in cases {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[rows as u64, inputs as u64])).unwrap();
        let output = layer(&mut graph, input, "Linear(516)");
        let (training, optimizer) = gradients();
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let placed = compile(&program, 1);
        let operation = &program.operations[0];
        let precision = Precision::Mixed(half);
        let (tf32, deterministic, library) = (false, false, false);
        let cudnn = library;
        let setting = LaunchContext {
            rank: 0,
            batch: 1,
            precision,
            optimizer,
            capability,
            multiprocessors: 132,
            tf32,
            deterministic,
            library,
            cudnn,
            operations: &Operations::NONE,
        };
        let calls = calls(&Context { placed: &placed, operation, setting }).unwrap();
        let launch = |call| match call {
            Call::Kernel(launch) => launch,
            Call::Product(product) => panic!("{product}"),
            Call::Convolution(convolution) => panic!("{convolution}"),
            Call::Attention(attention) => panic!("{attention}"),
            Call::Recurrence(recurrence) => panic!("{recurrence}"),
            Call::Passage(passage) => panic!("{passage:?}"),
            Call::Exchange(exchange) => panic!("{exchange:?}"),
        };
        let launches: Vec<Launch> = calls.into_iter().map(launch).collect();
        let value = |index: usize| ((index * 7919) % 5) as f32 / 2.0 - 1.0;
        let mut memory: Vec<Vec<u16>> = program
            .tensors
            .iter()
            .map(|tensor| {
                let count = tensor.elements(1).unwrap() as usize;
                match tensor.class {
                    Class::Transient => vec![u16::MAX; count],
                    _ => (0..count).map(|index| half.narrow(value(index))).collect(),
                }
            })
            .collect();
        let machine = Machine::new(launches.iter().map(|launch| launch.kernel.clone()));
        let addresses: Vec<usize> = memory.iter_mut().map(|tensor| tensor.as_mut_ptr() as usize).collect();
        for launch in &launches {
            let address =
                |id: &Option<u32>| id.map_or(std::ptr::null_mut(), |id| addresses[id as usize] as *mut c_void);
            machine.launch(launch, 0, launch.arguments.iter().map(address).collect());
        }
        let found = &memory[operation.writes[0].tensor as usize];
        for (index, &found) in found.iter().enumerate() {
            let (row, column) = (index / outputs, index % outputs);
            let products = (0..inputs).map(|k| value(row * inputs + k) * value(column * inputs + k));
            let expected = products.sum::<f32>() + value(column);
            assert_eq!(found, half.narrow(expected), "{half:?}, row {row}, column {column}: {expected}");
        }
    }
}

#[test]
fn sixteen_bits_backward() {
    check_products("Linear", 3, |graph| {
        let input = graph.input(numbers(&[7, 13])).unwrap();
        layer(graph, input, "Linear(5)")
    });
}

/// Several tiles along each dimension, in rows of eights and of odd lengths, with every way of reading them.
#[test]
fn sixteen_bits_in_several_tiles() {
    several_tiles(41, 72, "Linear(104)");
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_in_several_tiles_of_further_shapes() {
    several_tiles(39, 67, "Linear(101)");
    several_tiles(40, 72, "Linear(101)");
}

fn several_tiles(rows: u64, features: u64, text: &str) {
    check_squares(text, 3, |graph| {
        let input = graph.input(numbers(&[rows, features])).unwrap();
        let first = layer(graph, input, text);
        // The input's gradient is added to.
        let second = layer(graph, input, text);
        join(graph, &[first, second], "Add")
    });
}

/// Tiles of 128 and of 64, several along each dimension.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn sixteen_bits_in_large_tiles() {
    for (rows, features, text) in [(1100, 5, "Linear(1804)"), (1027, 40, "Linear(517)")] {
        check_products(text, 1, |graph| {
            let input = graph.input(numbers(&[rows, features])).unwrap();
            layer(graph, input, text)
        });
    }
}
