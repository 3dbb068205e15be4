//! Weights of 8 and of 4 bits: what the kernel makes of codes and scales is what the host does, bit for bit, and networks that have them
//! compute what the CPU backend computes.

use crate::check;
use crate::host::harness::graphs::{chain, numbers, plan};
use crate::host::{CAPABILITY, Simulated, narrow, prepare_programs, widen};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, Lora, NodeId, Source};
use gpumem_core::lower::{Options, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::number::Coding;
use gpumem_core::program::{Op, Program, Slot};
use gpumem_core::train::optim::{Optimizer, Sgd};

/// Layers with adapters, whose weights are in codes.
fn coded(coding: Coding, inputs: u64, layers: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(&[5, inputs])).unwrap();
        let output = chain(graph, input, layers);
        let rows = 0..graph.rows.len();
        let places = graph.adapt(&[Lora { rank: 2, alpha: 4.0, targets: Vec::new(), base: Some(coding), rows }]);
        places[output]
    }
}

/// A forward pass that is a weight made of its codes, of this many columns and rows.
fn made(coding: Coding, [inputs, outputs]: [u64; 2]) -> Program {
    let mut graph = Graph::default();
    let layers: &'static str = format!("Linear({outputs})").leak();
    coded(coding, inputs, layers)(&mut graph);
    let makes = |source: &Source| matches!(source, Source::Op { op: Op::Dequantize(_), .. });
    let made = graph.nodes.iter().position(|node| makes(&node.source)).unwrap();
    lower(&graph, &[made], &Options::default()).unwrap()
}

/// Blocks that are whole, and a last one that is not; weights that end inside what a thread takes, and inside a byte; several blocks of
/// threads.
#[test]
fn weights_are_what_codes_say() {
    let optimizer = Optimizer::Sgd(Sgd::DEFAULT);
    let sizes = [[64, 3], [61, 7], [4, 256], [1, 1], [3, 1], [77, 79]];
    for coding in Coding::ALL {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            let programs = sizes.map(|size| made(coding, size));
            prepare_programs(&[(precision, CAPABILITY)], &programs, 1, optimizer);
            for (program, size) in programs.iter().zip(sizes) {
                let label = format!("{coding:?} in {precision:?}, {size:?}");
                let compiled = plan(program, 1, precision);
                let arena = compiled.budget[Line::Arena];
                let format = (precision, CAPABILITY);
                let mut simulated = Simulated::new(place(&compiled).unwrap(), 1, arena, optimizer, format, 1);
                let makes = &program.operations[0];
                let [codes, scales] = [0, 1].map(|input| makes.read(Slot::Input(input)).unwrap());
                let count = |id| program.tensor(id).stored(1).unwrap() as usize;
                let bytes: Vec<u8> = (0..count(codes)).map(|index| (index * 37 + 11) as u8).collect();
                let of_blocks: Vec<f32> = (0..count(scales)).map(|index| 0.37 + index as f32 * 1.7e-3).collect();
                simulated.write(codes as usize, &bytes.iter().copied().map(u32::from).collect::<Vec<u32>>());
                simulated.write(scales as usize, &of_blocks.iter().map(|scale| scale.to_bits()).collect::<Vec<u32>>());
                simulated.step();
                let mut expected = vec![0.0; (size[0] * size[1]) as usize];
                coding.dequantize(&bytes, &of_blocks, &mut expected);
                let rounded = |value: &f32| match precision {
                    Precision::F32 => value.to_bits(),
                    _ => widen(precision, narrow(precision, value.to_bits())),
                };
                let found = simulated.read(makes.written(Slot::Output).unwrap() as usize);
                assert_eq!(found, expected.iter().map(rounded).collect::<Vec<u32>>(), "{label}");
            }
        }
    }
}

#[test]
fn networks_with_weights_in_codes() {
    for coding in Coding::ALL {
        check("odd sizes", 3, coded(coding, 9, "Linear(23) | Gelu | Linear(11, transposed = true) | Tanh | Linear(7)"));
        check("attention", 2, coded(coding, 8, "LayerNorm | CausalSelfAttention(2) | Linear(40)"));
    }
}
