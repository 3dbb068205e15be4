//! Weights of 8 and of 4 bits: the kernel multiplies by what the host says that codes and scales are, bit for bit, and networks that have them
//! compute what the CPU backend computes.

use crate::host::harness::graphs::{chain, join, layer, numbers, plan};
use crate::host::{CAPABILITY, Format, Simulated, narrow, prepare_programs, widen};
use crate::{check, check_formats, check_products};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, Lora, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::number::Coding;
use gpumem_core::program::{Op, Program, Slot};
use gpumem_core::train::optim::{Optimizer, Sgd};

/// The linear maps so far have weights in codes, with adapters or without: where the graph's values are then.
fn keep_in_codes(graph: &mut Graph, coding: Coding, adapters: bool) -> Vec<NodeId> {
    let targets = if adapters { Vec::new() } else { vec!["none".into()] };
    let rows = 0..graph.rows.len();
    graph.adapt(&[Lora { rank: 2, alpha: 4.0, targets, base: Some(coding), rows }])
}

/// Layers whose weights are in codes.
fn coded(
    coding: Coding,
    adapters: bool,
    dims: &'static [u64],
    layers: &'static str,
) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        let output = chain(graph, input, layers);
        keep_in_codes(graph, coding, adapters)[output]
    }
}

/// A product of a matrix of as many rows as columns with a weight in codes.
fn product(coding: Coding, [inputs, outputs]: [u64; 2], transposed: bool) -> Program {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[inputs, inputs])).unwrap();
    let output = layer(&mut graph, input, &format!("Linear({outputs}, bias = false, transposed = {transposed})"));
    let output = keep_in_codes(&mut graph, coding, false)[output];
    lower(&graph, &[output], &Options::default()).unwrap()
}

/// The bits of W where `product` is given a matrix of ones in its diagonal, row by row of the inputs; and what they should be.
fn transposed_weight(
    program: &Program,
    coding: Coding,
    [inputs, outputs]: [usize; 2],
    transposed: bool,
    format: Format,
) -> [Vec<u32>; 2] {
    let compiled = plan(program, 1, format.0);
    let (arena, optimizer) = (compiled.budget[Line::Arena], Optimizer::Sgd(Sgd::DEFAULT));
    let mut simulated = Simulated::new(place(&compiled).unwrap(), 1, arena, optimizer, format, 1);
    let operation = &program.operations[0];
    assert!(matches!(operation.forward(), Some(Op::CodedProduct(_))), "{program}");
    let [x, codes, scales] = [0, 1, 2].map(|input| operation.read(Slot::Input(input)).unwrap());
    let count = |id| program.tensor(id).stored(1).unwrap() as usize;
    let bytes: Vec<u8> = (0..count(codes)).map(|index| (index * 37 + 11) as u8).collect();
    let of_blocks: Vec<f32> = (0..count(scales)).map(|index| 0.37 + index as f32 * 1.7e-3).collect();
    let words = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
    let ones: Vec<f32> = (0..inputs * inputs).map(|at| f32::from(at % (inputs + 1) == 0)).collect();
    simulated.write(x as usize, &words(&ones));
    simulated.write(codes as usize, &bytes.iter().copied().map(u32::from).collect::<Vec<u32>>());
    simulated.write(scales as usize, &words(&of_blocks));
    simulated.step();
    let mut said = vec![0.0; inputs * outputs];
    coding.dequantize(&bytes, &of_blocks, &mut said);
    let rounded = |value: f32| match format.0 {
        Precision::F32 => value.to_bits(),
        precision => widen(precision, narrow(precision, value.to_bits())),
    };
    let place = |at: usize| if transposed { at } else { at % outputs * inputs + at / outputs };
    let expected = (0..inputs * outputs).map(|at| rounded(said[place(at)])).collect();
    [simulated.read(operation.written(Slot::Output).unwrap() as usize), expected]
}

/// Rows that are whole units of what a thread carries, in one tile and in several, with blocks that end inside a row; rows that are none, and
/// end inside a byte and inside a block. All codes are among them.
#[test]
fn weights_are_what_codes_say() {
    let optimizer = Optimizer::Sgd(Sgd::DEFAULT);
    let sizes = [[48, 32], [16, 144], [61, 7], [1, 1], [77, 79]];
    for coding in Coding::ALL {
        for transposed in [false, true] {
            let programs = sizes.map(|size| product(coding, size, transposed));
            let formats = [
                (Precision::F32, CAPABILITY),
                (Precision::Bf16, CAPABILITY),
                (Precision::F16, (7, 5)),
                (Precision::Bf16, (7, 5)),
            ];
            prepare_programs(&formats, &programs, 1, optimizer);
            for format in formats {
                for (program, size) in programs.iter().zip(sizes) {
                    let label = format!("{coding:?} in {format:?}, {size:?}, transposed: {transposed}");
                    let size = size.map(|size| size as usize);
                    let [found, expected] = transposed_weight(program, coding, size, transposed, format);
                    assert_eq!(found, expected, "{label}");
                }
            }
        }
    }
}

#[test]
fn networks_with_weights_in_codes() {
    for coding in Coding::ALL {
        let layers = "Linear(23) | Gelu | Linear(11, transposed = true) | Tanh | Linear(7)";
        check("odd sizes", 3, coded(coding, true, &[5, 9], layers));
        check("attention", 2, coded(coding, true, &[5, 8], "LayerNorm | CausalSelfAttention(2) | Linear(40)"));
        check("whole units", 2, coded(coding, false, &[5, 48], "Linear(32) | Gelu | Linear(64, transposed = true)"));
    }
}

/// An input that two maps read: the gradient of one is added to that of the other.
#[test]
fn gradients_are_added() {
    for coding in Coding::ALL {
        check("two readers", 2, |graph| {
            let input = graph.input(numbers(&[5, 32])).unwrap();
            let x = layer(graph, input, "Tanh");
            let branches = ["Linear(16)", "Linear(16, transposed = true)"].map(|text| layer(graph, x, text));
            let output = join(graph, &branches, "Mul");
            keep_in_codes(graph, coding, false)[output]
        });
    }
}

/// On tensor cores and without. The CPU backend multiplies by numbers that are not rounded to 16 bits: in bfloat16 that comes to more than a
/// hundredth of a loss whose terms cancel, and what the kernel multiplies by is compared above.
#[test]
fn products_in_sixteen_bits() {
    for coding in Coding::ALL {
        check_products("one map", 2, coded(coding, false, &[23, 80], "Linear(48)"));
        let way = [((Precision::F16, CAPABILITY), 0..1)];
        check_formats("odd sizes", &way, 2, coded(coding, false, &[37, 61], "Linear(33, transposed = true)"));
    }
}

/// Results large enough for tiles of 64, and for more rows of tiles than are worked on together.
#[test]
fn products_in_large_tiles() {
    large(&[1040, 16], "Linear(528)");
}

/// The same for tiles of 128.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn products_in_larger_tiles() {
    large(&[2048, 32], "Linear(1040)");
}

fn large(dims: &'static [u64], text: &'static str) {
    check(text, 1, coded(Coding::Nf4, false, dims, text));
    let way = [((Precision::F16, CAPABILITY), 0..1)];
    check_formats(text, &way, 1, coded(Coding::Int8, false, dims, text));
}
