//! The test of the tests: a barrier that is deleted on purpose must show, and so must other mistakes with shared memory and with
//! instructions of a whole warp.

use crate::gradients;
use crate::host::harness::compile;
use crate::host::harness::graphs::{chain, layer, numbers, plan};
use crate::host::harness::layouts::arrange;
use crate::host::{CAPABILITY, HOPPER, Products, Simulated, is_apart, spread};
use crate::layouts;
use crate::warpgroups::packed;
use gpumem_core::Precision;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::program::Class;
use gpumem_cuda::SOURCES;
use std::process::Command;

/// The loss of a step with more elements than one block takes, which is summed over blocks of eight warps.
fn loss(order: i32, change: impl Fn(&str, &str) -> String) -> f32 {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2801])).unwrap();
    let output = layer(&mut graph, input, "Tanh");
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let mut simulated =
        Simulated::new(compile(&program, 3), 3, 1 << 20, optimizer, (Precision::F32, CAPABILITY), order);
    simulated.change(change);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(3).unwrap() as usize;
        match tensor.class {
            Class::Input | Class::Target => simulated.write(id, &spread(count, id + 1)),
            Class::State => simulated.write(id, &vec![1f32.to_bits(); count]),
            _ => {}
        }
    }
    simulated.step();
    f32::from_bits(simulated.read(program.results[0] as usize)[0])
}

#[test]
fn a_deleted_barrier_is_caught() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let right = loss(0, |_, text| text.to_string());
    assert!(right.is_finite());
    let write = "if (lane == 0) scratch[warp] = x;\n    __syncthreads();";
    let without = |_: &str, text: &str| text.replacen(write, "if (lane == 0) scratch[warp] = x;", 1);
    let found: Vec<f32> = (0..3).map(|order| loss(order, without)).collect();
    assert!(
        found.iter().any(|loss| loss.is_nan() || (loss - right).abs() > 1e-3 * right.abs()),
        "{found:?} beside {right}"
    );
    let unchanged: Vec<f32> = (1..3).map(|order| loss(order, |_, text| text.to_string())).collect();
    assert!(unchanged.iter().all(|loss| loss.to_bits() == right.to_bits()), "{unchanged:?} beside {right}");
}

/// The output of batch normalisation of maps whose channels lie side by side, in parts whose blocks wait for each other.
fn normalised(order: i32, change: impl Fn(&str, &str) -> String) -> Vec<f32> {
    let build = |graph: &mut Graph| {
        let input = graph.input(numbers(&[3, 27, 29])).unwrap();
        chain(graph, input, "Conv2d(24, 1, bias = false) | BatchNorm2d | Conv2d(3, 1)")
    };
    let mut program = layouts::program(build);
    arrange(&mut program, 0);
    let placed = compile(&program, 2);
    let format = (Precision::F32, CAPABILITY);
    let mut simulated = Simulated::new(placed, 2, 4 << 20, gradients().1, format, order);
    simulated.change(change);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(2).unwrap() as usize;
        match tensor.class {
            Class::Input | Class::Target | Class::Parameter => simulated.write(id, &spread(count, id + 1)),
            Class::State | Class::Buffer => simulated.write(id, &vec![0; count]),
            _ => {}
        }
    }
    simulated.step();
    let kept = (0..program.tensors.len()).filter(|&id| program.tensors[id].class == Class::Gradient);
    kept.flat_map(|id| simulated.read(id)).map(f32::from_bits).collect()
}

#[test]
fn blocks_that_do_not_wait_for_each_other_are_caught() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() || is_apart() {
        return;
    }
    let right = normalised(0, |_, text| text.to_string());
    assert!(!right.is_empty() && right.iter().all(|x| x.is_finite()), "{right:?}");
    for before in ["store_part(moments(x), partial);", "store_part(sums(rules, dy, x, y, masked), partial);"] {
        let from = format!("{before}\n    wait_for_grid(state);");
        assert!(SOURCES.iter().any(|(_, text)| text.contains(&from)), "{from}");
        let wrong = normalised(0, |_, text| text.replace(&from, before));
        let differs = |(wrong, right): (&f32, &f32)| wrong.is_nan() || (wrong - right).abs() > 1e-3;
        assert!(wrong.iter().zip(&right).any(differs), "{before}");
    }
    let again: Vec<Vec<f32>> = (1..3).map(|order| normalised(order, |_, text| text.to_string())).collect();
    assert!(again.iter().all(|again| *again == right));
}

/// The loss and the gradients of a layer in bf16, on tensor cores.
fn outcome(text: &str, input: [u64; 2], order: i32, change: impl Fn(&str, &str) -> String) -> Vec<f32> {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&input)).unwrap();
    let output = layer(&mut graph, input, text);
    let (training, optimizer) = gradients();
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let compiled = plan(&program, 1, Precision::Bf16);
    let placed = gpumem_core::memory::place::place(&compiled).unwrap();
    let format = (Precision::Bf16, CAPABILITY);
    let mut simulated = Simulated::new(placed, 1, compiled.budget[Line::Arena], optimizer, format, order);
    simulated.change(change);
    for (id, tensor) in program.tensors.iter().enumerate() {
        let count = tensor.elements(1).unwrap() as usize;
        match tensor.class {
            Class::Input | Class::Target | Class::Parameter => simulated.write(id, &spread(count, id + 1)),
            Class::State => simulated.write(id, &vec![1f32.to_bits(); count]),
            _ => {}
        }
    }
    simulated.step();
    let last = program.operations.len() as u32 - 1;
    let lives = |id: &usize| {
        let tensor = &program.tensors[*id];
        tensor.class == Class::Gradient || *id == program.results[0] as usize || tensor.last == last && tensor.first > 0
    };
    let living: Vec<usize> = (0..program.tensors.len()).filter(lives).collect();
    living.into_iter().flat_map(|id| simulated.read(id)).map(f32::from_bits).collect()
}

/// Whether a mistake shows in one of the orders of warps.
fn shows(text: &str, input: [u64; 2], (file, from, to): (&str, &str, &str)) -> bool {
    let right = outcome(text, input, 0, |_, text| text.to_string());
    assert!(right.len() > 1 && right.iter().all(|x| x.is_finite()), "{right:?}");
    let largest = right.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    (0..3).any(|order| {
        let change = |name: &str, text: &str| {
            assert!(name != file || text.contains(from), "{file} has no {from}");
            if name == file { text.replace(from, to) } else { text.to_string() }
        };
        let wrong = outcome(text, input, order, change);
        wrong.iter().zip(&right).any(|(wrong, right)| wrong.is_nan() || (wrong - right).abs() > 0.02 * largest)
    })
}

#[test]
fn mistakes_with_tensor_cores_are_caught() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let put = "b.put(tiles.operands.b[buffer]);";
    let barrier = ("tile_mma.cuh", &*format!("{put}\n        __syncthreads();"), put);
    let fragments = ("mma.cuh", "from + lane % 16 * pitch", "from + lane % 8 * pitch");
    let transposed = ("mma.cuh", "ldmatrix<4, TRANSPOSED>", "ldmatrix<4, !TRANSPOSED>");
    for mistake in [barrier, fragments, transposed] {
        assert!(shows("Linear(40)", [50, 72], mistake), "{mistake:?}");
    }
    let copies = ("attention_mma.cuh", "copies_done();\n        __syncthreads();", "__syncthreads();");
    let barrier = ("attention_mma.cuh", "copies_done();\n        __syncthreads();", "copies_done();");
    let weights = ("attention_rows.cuh", "values[i / 2].at[i % 2 * 2]", "values[i % 2].at[i / 2 * 2]");
    for mistake in [copies, barrier, weights] {
        assert!(shows("CausalAttention(1)", [130, 96], mistake), "{mistake:?}");
    }
}

/// A mistake: a file, a text in it and what is there instead.
type Mistake = (&'static str, &'static str, &'static str);

/// The output of attention on warpgroup instructions, in four tiles of keys.
fn attended(order: i32, mistake: Option<Mistake>) -> Vec<f32> {
    let mut graph = Graph::default();
    let output = packed(400, [1, 1, 64])(&mut graph);
    let program = lower(&graph, &[output], &Options { training: None }).unwrap();
    let compiled = plan(&program, 1, Precision::Bf16);
    let placed = gpumem_core::memory::place::place(&compiled).unwrap();
    let steps = Products::Warpgroups.steps(&placed, 1, (Precision::Bf16, HOPPER), gradients().1);
    let arena = compiled.budget[Line::Arena];
    let mut simulated = Simulated::with_steps(placed, steps, 1, arena, Precision::Bf16, order);
    if let Some((file, from, to)) = mistake {
        simulated.change(|name, text| {
            assert!(name != file || text.contains(from), "{file} has no {from}");
            if name == file { text.replace(from, to) } else { text.to_string() }
        });
    }
    let input = program.of_class(Class::Input).next().unwrap();
    simulated.write(input as usize, &spread(400 * 3 * 64, 1));
    simulated.step();
    simulated.read(program.results[0] as usize).into_iter().map(f32::from_bits).collect()
}

const KERNEL: &str = "attention_wgmma.cuh";

/// Mistakes at which the simulation of warpgroup instructions stops, each with its message.
const STOPS: [(Mistake, &str); 17] = [
    (
        (KERNEL, "fence_products();", "if (threadIdx.x % 32) fence_products();"),
        "an instruction of a whole warp lacks lanes",
    ),
    (
        (KERNEL, "further(queries, at), ", "further(queries, at + (threadIdx.x % 32 == 5 ? 32 : 0)), "),
        "lanes of a warp with different products",
    ),
    (
        (KERNEL, "further(queries, at), ", "further(queries, at + (threadIdx.x % 128 < 32 && d == 0 ? 32 : 0)), "),
        "warps of a warpgroup with different products",
    ),
    ((KERNEL, "fence_products();", ""), "a product without a fence before its group"),
    ((KERNEL, "        fence_async();\n", ""), "a product reads what was not shown to the asynchronous proxy"),
    (("wgmma.cuh", "1ull << 62", "2ull << 62"), "a descriptor of another layout than the 128-byte swizzle"),
    (
        (KERNEL, "describe(tiles.keys[0].at,", "describe(tiles.keys[0].at + PANEL_WIDTH,"),
        "a descriptor whose pattern begins elsewhere",
    ),
    (
        ("wgmma.cuh", "(u64)(EIGHT_ROWS >> 4)", "(u64)(EIGHT_ROWS >> 5)"),
        "a descriptor whose groups of eight rows overlap",
    ),
    (
        (KERNEL, "last * (int)sizeof(Stage)", "(last + 2) * (int)sizeof(Stage)"),
        "a product reads beyond the object in shared memory",
    ),
    ((KERNEL, "    await_products<0>();\n    settle(sums);\n}", "}"), "products that nobody waited for"),
    (
        (KERNEL, "    prepare(tiles.queries_loaded, WARPGROUP);\n", ""),
        "a barrier in shared memory that was not prepared",
    ),
    (
        (KERNEL, "prepare(tiles.queries_loaded, WARPGROUP)", "prepare(tiles.queries_loaded, 0)"),
        "a barrier in shared memory for no or too many threads",
    ),
    (
        (KERNEL, "prepare(tiles.queries_loaded, WARPGROUP)", "prepare(tiles.queries_loaded, WARPGROUP + 1)"),
        "a barrier in shared memory that not all threads reach",
    ),
    ((KERNEL, "    copies.announce<0>();\n}", "}"), "a barrier in shared memory that not all threads reach"),
    ((KERNEL, "await(tiles.queries_loaded, 0)", "await(tiles.queries_loaded, 2)"), "a parity that is neither 0 nor 1"),
    ((KERNEL, "PRODUCER_REGISTERS = 40", "PRODUCER_REGISTERS = 20"), "so many registers as no warpgroup can have"),
    (
        (KERNEL, "232, LAUNCH_REGISTERS = 65536 / WGMMA_THREADS / 8 * 8", "240, LAUNCH_REGISTERS = 176"),
        "more registers than the block has",
    ),
];

/// Set in a process whose kernel has the mistake of this number.
const MISTAKE: &str = "GPUMEM_TEST_MISTAKE";

#[test]
fn mistakes_with_warpgroup_instructions_stop_the_program() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() || is_apart() {
        return;
    }
    if let Ok(number) = std::env::var(MISTAKE) {
        let (mistake, _) = STOPS[number.parse::<usize>().unwrap()];
        (0..3).for_each(|order| drop(attended(order, Some(mistake))));
        return;
    }
    let name = "barriers::mistakes_with_warpgroup_instructions_stop_the_program";
    for (number, (mistake, message)) in STOPS.iter().enumerate() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args([name, "--exact", "--nocapture"]).env(MISTAKE, number.to_string());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let line = format!("simt: {message} in block");
        assert!(!output.status.success() && text.contains(&line), "{mistake:?} is not `{message}`:\n{text}");
    }
}

/// Numbers that are overwritten too early, read before they are there, or read from another place show in the results.
#[test]
fn mistakes_with_warpgroup_instructions_show() {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() || is_apart() {
        return;
    }
    let right = attended(0, None);
    assert!(right.iter().all(|x| x.is_finite()), "{right:?}");
    assert!((1..3).all(|order| attended(order, None) == right));
    let mistakes: [Mistake; 4] = [
        (
            KERNEL,
            "        await_products<1>();\n",
            "        tiles.values[before].at[threadIdx.x] = 0;\n        await_products<1>();\n",
        ),
        (KERNEL, "        await_products<1>();\n", ""),
        (
            KERNEL,
            "            if (key >= KEY_STEPS || (CAUSAL && key > step",
            "            if (key >= KEY_STEPS || (CAUSAL && key > 1 + step",
        ),
        ("wgmma.cuh", "((chunk ^ row % 8) * 8)", "(chunk * 8)"),
    ];
    for mistake in mistakes {
        let differs = |(wrong, right): (&f32, &f32)| wrong.is_nan() || (wrong - right).abs() > 0.02;
        let shows = |order| attended(order, Some(mistake)).iter().zip(&right).any(differs);
        assert!((0..3).any(shows), "{mistake:?}");
    }
}
