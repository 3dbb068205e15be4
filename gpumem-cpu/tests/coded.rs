//! Products with a weight in codes, of which there is a panel at a time in numbers, against those of the whole weight in numbers, and against
//! differences.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::{Graph, Lora, SCALES};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::number::Coding;
use gpumem_core::number::random::Stream;
use gpumem_core::program::{Op, Program};
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cpu::Cpu;
use harness::filled::words;
use harness::graphs::{layer, numbers};
use harness::{Loaded, assert_close};

const BATCH: u64 = 2;

const SGD: Optimizer = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });

/// Numbers around 0.
fn drawn(count: usize, seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, 1);
    (0..count).map(|_| stream.uniform() as f32 - 0.5).collect()
}

/// One linear map that is not trained, and reads codes if there is a coding: forward pass, and with a training the gradient of its input.
fn program(text: &str, dims: &[u64], base: Option<Coding>, training: Option<Training>) -> Program {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let output = layer(&mut graph, input, text);
    // None has an adapter of this name.
    let lora = Lora { rank: 1, alpha: 1.0, targets: vec!["none".into()], base, rows: 0..graph.rows.len() };
    let output = graph.adapt(&[lora])[output];
    lower(&graph, &[output], &Options { training }).unwrap()
}

const TRAINING: Training = Training {
    // The gradient of the output is the target.
    loss: &[Term::DOT],
    moments: 0,
    update: Update::Separate,
    skips_overflow: false,
    input_gradient: true,
    descent: Descent::PLAIN,
};

/// A program with numbers in its tensors: the weight those that codes say.
fn loaded(program: &Program, coding: Coding, threads: usize) -> Loaded {
    let cpu = Cpu::with_threads(threads).unwrap().with_poison(true);
    let mut loaded = Loaded::of(&cpu, program, BATCH, SGD).unwrap();
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(BATCH).unwrap() as usize;
        match tensor.name.as_str() {
            "linear0.weight" if tensor.role.coding().is_some() => loaded.set_coded(id, &drawn(count, 50)),
            "linear0.weight" => {
                let (codes, scales) = coding.quantize(&drawn(count, 50));
                let mut said = vec![0.0; count];
                coding.dequantize(&codes, &scales, &mut said);
                loaded.set("linear0.weight", &words(&said));
            }
            name @ ("linear0.bias" | "input" | "target") => loaded.set(name, &words(&drawn(count, name.len() as u64))),
            // Scales are set with their codes.
            name => assert!(!name.starts_with("linear0") || name.ends_with(SCALES), "{name}"),
        }
    }
    loaded
}

/// The output, and the gradient of the input.
fn results(text: &str, dims: &[u64], coding: Coding, is_coded: bool, threads: usize) -> [Vec<f32>; 2] {
    let base = is_coded.then_some(coding);
    let (forward, backward) = (program(text, dims, base, None), program(text, dims, base, Some(TRAINING)));
    for program in [&forward, &backward] {
        let reads_codes = |op: Option<&Op>| matches!(op, Some(Op::CodedProduct(_)));
        assert_eq!(program.operations.iter().any(|operation| reads_codes(operation.forward())), is_coded);
    }
    let y = loaded(&forward, coding, threads).infer().unwrap();
    let mut step = loaded(&backward, coding, threads);
    step.step().unwrap();
    [y, step.get("input.gradient").unwrap()]
}

/// Sums of more terms than a panel has, and results of more columns, either way; rows that end inside a block and inside a byte; weights that
/// are one panel or less.
const CASES: [(&str, &[u64]); 6] = [
    ("Linear(300)", &[3, 701]),
    ("Linear(1030, bias = false)", &[2, 259]),
    ("Linear(523, transposed = true)", &[5, 258]),
    ("Linear(260, bias = false, transposed = true)", &[600]),
    ("Linear(7)", &[300, 33]),
    ("Linear(1)", &[1]),
];

#[test]
fn panels_give_what_the_whole_weight_gives() {
    for coding in Coding::ALL {
        for (text, dims) in CASES {
            let [found, expected] = [true, false].map(|is_coded| results(text, dims, coding, is_coded, 2));
            for (what, (found, expected)) in ["output", "gradient"].iter().zip(found.iter().zip(&expected)) {
                assert!(found.iter().any(|value| *value != 0.0));
                assert_close(&format!("{what} of {text}, {coding:?}"), found, expected, 1e-6);
            }
        }
    }
}

/// Where one panel is all of a weight, sums are the same, and so are all bits.
#[test]
fn one_panel_gives_the_same_bits() {
    for coding in Coding::ALL {
        for (text, dims) in [("Linear(256)", &[3, 200][..]), ("Linear(65, transposed = true)", &[40, 255])] {
            let bits = |is_coded| results(text, dims, coding, is_coded, 2).map(|values| words(&values));
            assert_eq!(bits(true), bits(false), "{text}, {coding:?}");
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for (text, dims) in CASES {
        let bits = |threads| results(text, dims, Coding::Nf4, true, threads).map(|values| words(&values));
        assert_eq!(bits(1), bits(3), "{text}");
    }
}

/// The gradient of the input along a direction is the difference of the loss: the map is linear, so that a step may be as wide as any.
#[test]
fn gradients_are_slopes() {
    for coding in Coding::ALL {
        for (text, dims) in CASES {
            let mut step = loaded(&program(text, dims, Some(coding), Some(TRAINING)), coding, 2);
            step.step().unwrap();
            let (x, gradient) = (step.get("input").unwrap(), step.get("input.gradient").unwrap());
            for salt in 1..4 {
                let direction = drawn(x.len(), 97 * salt);
                let mut at = |width: f32| {
                    let moved: Vec<f32> = x.iter().zip(&direction).map(|(x, d)| x + width * d).collect();
                    step.set("input", &words(&moved));
                    f64::from(step.step().unwrap())
                };
                let slope = (at(1.0) - at(-1.0)) / 2.0;
                let terms = gradient.iter().zip(&direction).map(|(&g, &d)| f64::from(g) * f64::from(d));
                let (found, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                assert!((found - slope).abs() <= 1e-5 * size, "{text}, {coding:?}: {found} beside {slope}, of {size}");
            }
        }
    }
}
