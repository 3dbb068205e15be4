//! The machine code of every kernel that whole networks launch, on cards of six architectures, without a card: registers, blocks that
//! fit a multiprocessor, instructions of the tensor cores and the width of loads, kept in a file. `UPDATE_FIGURES=1` writes it. The
//! test needs NVRTC 13.0, which `scripts/kernel-check` installs.

#[path = "../../gpumem-core/tests/common/mod.rs"]
mod graphs;
#[path = "../../gpumem-cpu/tests/harness/layouts.rs"]
#[allow(dead_code)]
mod layouts;
#[path = "../../tests/networks/mod.rs"]
mod networks;
mod planned;

use gpumem::cards::{A100_80GB, B200, Card, H200, RTX_4090, RTX_5090, T4};
use gpumem::{Network, Precision};
use gpumem_core::graph::{Graph, Lora, Type};
use gpumem_core::lower::{Cached, Options, lower, lower_cached};
use gpumem_core::memory::place::place;
use gpumem_core::number::Coding;
use gpumem_core::operation::Operations;
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cuda::cache::Cache;
use gpumem_cuda::compile::compile_all;
use gpumem_cuda::operations::LaunchContext;
use gpumem_cuda::program_calls::steps;
use gpumem_cuda::progress::Progress;
use gpumem_cuda::{Call, Kernel, Launch, preflight};
use object::{Object, ObjectSection, ObjectSymbol, SymbolIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/figures/machine_code.txt");

/// The compiler that the file is of: others choose other registers.
const COMPILER: (i32, i32) = (13, 0);

const CARDS: [Card; 6] = [T4, A100_80GB, RTX_4090, H200, B200, RTX_5090];

/// 32-bit registers of a multiprocessor.
const REGISTERS: u32 = 65_536;

/// Kernels that go through tensors from one end to the other: 16 bytes a thread, on every card, in whatever network.
const STREAMING: [&str; 7] =
    ["chain", "normalize", "normalize_backward", "normalize_gradients", "pointwise_backward", "sum", "sum_batch"];

/// Kernels with a grid barrier of which a multiprocessor has one block. Of others it has two.
const ALONE: [&str; 1] = ["normalize_gradients"];

/// Kernels beside the products of the same files, which add up what is no product.
const NO_PRODUCTS: [&str; 7] = [
    "column_sums",
    "convolution_backward_bias",
    "convolution_backward_bias_sum",
    "convolution_backward_filter_sum",
    "convolution_transposed_backward_bias",
    "convolution_transposed_backward_bias_sum",
    "convolution_transposed_backward_filter_sum",
];

/// The launches of a network's training step on a card.
fn launches<N: Network>(card: &Card, precision: Precision, batch: u64) -> Vec<Launch> {
    let (placed, setting, _) = planned::training::<N>(card, Some(precision), Some(batch), true).unwrap();
    let calls = steps(&placed, setting).unwrap().into_iter().flat_map(|step| step.calls);
    calls.filter_map(|call| if let Call::Kernel(launch) = call { Some(launch) } else { None }).collect()
}

/// Those of a file under another setting, in which the libraries do not compute what they otherwise do.
fn of_file<N: Network>(
    (card, precision, batch): (&Card, Precision, u64),
    file: &str,
    change: impl Fn(LaunchContext) -> LaunchContext,
) -> Vec<Launch> {
    let (placed, setting, _) = planned::training::<N>(card, Some(precision), Some(batch), true).unwrap();
    let calls = steps(&placed, change(setting)).unwrap().into_iter().flat_map(|step| step.calls);
    let own = |call| if let Call::Kernel(launch) = call { Some(launch) } else { None };
    calls.filter_map(own).filter(|launch| launch.kernel.file == file).collect()
}

/// Those of attention where every run must give the same bits: cuDNN computes it otherwise, where it is installed.
fn attention<N: Network>(card: &Card, precision: Precision, batch: u64) -> Vec<Launch> {
    of_file::<N>((card, precision, batch), "attention.cu", |setting| LaunchContext { deterministic: true, ..setting })
}

/// Those of transposed convolutions where there is no cuDNN.
fn transposes<N: Network>(card: &Card, precision: Precision, batch: u64) -> Vec<Launch> {
    of_file::<N>((card, precision, batch), "convolution_transposed.cu", |setting| LaunchContext {
        cudnn: false,
        ..setting
    })
}

/// Those of a language model of Llama's sizes that takes one token behind others, whose positions are rotary and of a table.
fn cached(card: &Card, precision: Precision) -> Vec<Launch> {
    let mut graph = Graph::default();
    let tokens = graph.input(Type::indices(Shape::new(&[4096]))).unwrap();
    let x = graphs::layer(&mut graph, tokens, "Embedding(100, 2048)");
    let positions = graphs::layer(&mut graph, x, "PositionEmbedding(4096)");
    let sum = graphs::join(&mut graph, &[x, positions], "Add");
    let output = graphs::layer(&mut graph, sum, "CausalSelfAttention(32, kv_heads = 8, rotary = 10000.0)");
    let program = lower_cached(&graph, &[output], Cached { steps: 4096, chunk: 1 }).unwrap();
    let placed = place(&graphs::plan(&program, 1, precision)).unwrap();
    let (major, minor) = card.compute_capability;
    let setting = LaunchContext { library: true, ..own(1, precision, (i32::from(major), i32::from(minor))) };
    let calls = steps(&placed, setting).unwrap().into_iter().flat_map(|step| step.calls);
    calls.filter_map(|call| if let Call::Kernel(launch) = call { Some(launch) } else { None }).collect()
}

/// Those of row norms where no blocks wait for each other.
fn norms_apart<N: Network>(card: &Card, precision: Precision, batch: u64) -> Vec<Launch> {
    of_file::<N>((card, precision, batch), "normalize.cu", |setting| LaunchContext { multiprocessors: 0, ..setting })
}

/// Those of row norms of Llama's widths, of 512 tokens.
fn wide_norms(card: &Card, precision: Precision) -> Vec<Launch> {
    let mut graph = Graph::default();
    let input = graph.input(graphs::numbers(&[512, 4096])).unwrap();
    let output = graphs::chain(&mut graph, input, "RmsNorm | Linear(8192) | LayerNorm | Linear(8)");
    let program = lower(&graph, &[output], &graphs::training(0)).unwrap();
    let placed = place(&graphs::plan(&program, 1, precision)).unwrap();
    let (major, minor) = card.compute_capability;
    let own = own(1, precision, (i32::from(major), i32::from(minor)));
    let setting = LaunchContext { library: true, multiprocessors: card.multiprocessors.unwrap_or(0), ..own };
    let calls = steps(&placed, setting).unwrap().into_iter().flat_map(|step| step.calls);
    let own = |call| if let Call::Kernel(launch) = call { Some(launch) } else { None };
    calls.filter_map(own).filter(|launch| launch.kernel.file == "normalize.cu").collect()
}

/// Products with weights in codes of Llama's sizes, of 512 tokens, forward and backward; the weight lies either way.
fn coded(card: &Card, precision: Precision, coding: Coding) -> Vec<Launch> {
    let mut graph = Graph::default();
    let input = graph.input(graphs::numbers(&[512, 2048])).unwrap();
    let x = graphs::layer(&mut graph, input, "LayerNorm");
    let first = graph.rows.len();
    let output = graphs::chain(&mut graph, x, "Linear(8192) | Gelu | Linear(2048, bias = false, transposed = true)");
    let targets = vec!["none".into()];
    let rows = first..graph.rows.len();
    let output = graph.adapt(&[Lora { rank: 1, alpha: 1.0, targets, base: Some(coding), rows }])[output];
    let program = lower(&graph, &[output], &graphs::training(0)).unwrap();
    let placed = place(&graphs::plan(&program, 1, precision)).unwrap();
    let (major, minor) = card.compute_capability;
    let setting = own(1, precision, (i32::from(major), i32::from(minor)));
    let calls = steps(&placed, setting).unwrap().into_iter().flat_map(|step| step.calls);
    let own = |call| if let Call::Kernel(launch) = call { Some(launch) } else { None };
    calls.filter_map(own).filter(|launch| launch.kernel.file == "coded_product.cu").collect()
}

/// Those of seven networks, and products with weights in codes, in the 16 bits that the card has.
fn all_launches(card: &Card) -> Vec<Launch> {
    let narrow = if card.compute_capability.0 < 8 { Precision::F16 } else { Precision::Bf16 };
    let each = [
        launches::<networks::ResNet50>(card, narrow, 256),
        launches::<networks::Gpt2>(card, narrow, 16),
        attention::<networks::Gpt2>(card, narrow, 16),
        norms_apart::<networks::Gpt2>(card, narrow, 16),
        wide_norms(card, narrow),
        launches::<networks::Vgg16>(card, narrow, 64),
        launches::<networks::UNet>(card, narrow, 16),
        transposes::<networks::UNet>(card, narrow, 16),
        launches::<networks::LstmLm>(card, narrow, 20),
        launches::<planned::Digits>(card, Precision::F32, 32),
        cached(card, narrow),
        coded(card, narrow, Coding::Int8),
        coded(card, narrow, Coding::Nf4),
    ];
    each.concat()
}

/// What the machine code of an entry point says.
#[derive(Clone, Copy, Debug, Default)]
struct Code {
    registers: u32,
    /// Loads from and stores to local memory: spilled registers and arrays that are indexed.
    local: u32,
    /// Instructions of the tensor cores.
    tensor: u32,
    /// Bytes of the widest load from memory.
    widest: u32,
    /// Products of f32, and those that are one instruction with a sum.
    products: [u32; 2],
    /// Comparisons of a pointer with null before it is there: see [`early`].
    early: u32,
}

/// Cycles that a zero of 64 bits takes until it may be read, as far as is known: ptxas leaves as many or more wherever nothing replaces the zero
/// under a predicate, and a card read address 0 where it had left five.
const CYCLES_OF_ZERO: u32 = 6;

/// A number within an instruction.
fn bits(word: u128, first: u32, count: u32) -> u32 {
    (word >> first & ((1 << count) - 1)) as u32
}

/// Comparisons of what may be a zero of 64 bits, by CS2R, that was to be replaced under a predicate, before the zero is there. ptxas 13.0 makes
/// such code for Hopper of a pointer that is null or not: a card read address 0.
///
/// Of an instruction of 16 bytes, bits 12 to 14 are the predicate (7: none), 16 to 23 the register that is written, 24 to 31 the first that is
/// read, and 105 to 108 the cycles until the next one.
fn early(words: &[u128]) -> u32 {
    let is_zero = |word: u128| bits(word, 0, 12) == 0x805 && bits(word, 72, 8) == 0xff;
    let is_early = |at: usize| {
        let (register, mut cycles, mut is_replaced) = (bits(words[at], 16, 8), bits(words[at], 105, 4), false);
        for &word in &words[at + 1..] {
            let operation = bits(word, 0, 12);
            // Branches and the like end it, and so do so many cycles.
            if cycles >= CYCLES_OF_ZERO || matches!(operation, 0x941..=0x95f) {
                return false;
            }
            // ISETP of two registers, or of one and a number.
            if matches!(operation, 0x20c | 0x80c) && is_replaced && bits(word, 24, 8) == register {
                return true;
            }
            is_replaced |= bits(word, 12, 3) != 7 && bits(word, 16, 8) == register;
            cycles += bits(word, 105, 4);
        }
        false
    };
    (0..words.len()).filter(|&at| is_zero(words[at]) && is_early(at)).count() as u32
}

impl Code {
    /// Of instructions of 16 bytes each, as all cards from Volta on have them: the operation in bits 0 to 11, the width of an access to
    /// memory in bits 73 to 75.
    fn of(text: &[u8]) -> Code {
        let words = text.chunks_exact(16).map(|instruction| u128::from_le_bytes(instruction.try_into().unwrap()));
        let words: Vec<u128> = words.collect();
        let mut code = Code { early: early(&words), ..Code::default() };
        for word in words {
            let bytes = [1, 1, 2, 2, 4, 8, 16, 32][(word >> 73 & 7) as usize];
            match word & 0xfff {
                // LDG and LDGSTS.
                0x381 | 0x981 | 0xfae => code.widest = code.widest.max(bytes),
                // LDL and STL.
                0x983 | 0x387 | 0x987 => code.local += 1,
                // HMMA.
                0x23c => code.tensor += 1,
                // FMUL and FFMA, whatever their operands are.
                _ => match word & 0x1ff {
                    0x20 => code.products[0] += 1,
                    0x23 => code.products[1] += 1,
                    _ => {}
                },
            }
        }
        code
    }
}

/// The entry points of a file of machine code.
fn codes(elf: &[u8]) -> BTreeMap<String, Code> {
    let file = object::File::parse(elf).unwrap();
    let mut codes = BTreeMap::new();
    for section in file.sections() {
        if let Some(entry) = section.name().unwrap().strip_prefix(".text.") {
            codes.insert(entry.to_string(), Code::of(section.data().unwrap()));
        }
    }
    // Attributes: a format, a name and two bytes, which for format 4 are the length of what follows.
    let mut info = file.section_by_name(".nv.info").unwrap().data().unwrap();
    while let [format, name, low, high, rest @ ..] = info {
        let length = if *format == 4 { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let (value, rest) = rest.split_at(length);
        // The registers of a function: its symbol and their count.
        if *name == 0x2f {
            let number = |at: usize| u32::from_le_bytes(value[at..at + 4].try_into().unwrap());
            let symbol = file.symbol_by_index(SymbolIndex(number(0) as usize)).unwrap();
            if let Some(code) = codes.get_mut(symbol.name().unwrap()) {
                code.registers = number(4);
            }
        }
        info = rest;
    }
    codes
}

/// All launches of one entry point on one card: the worst of each figure.
#[derive(Debug)]
struct Line {
    kernels: Vec<Vec<(&'static str, String)>>,
    threads: u32,
    code: Code,
    has_tensor_cores: bool,
}

/// Blocks of a kernel that fit a multiprocessor at once, by registers, which a warp gets in eights for each thread, and by threads.
fn blocks(card: &Card, threads: u32, registers: u32) -> u32 {
    let by_registers = REGISTERS / (registers.next_multiple_of(8) * threads.next_multiple_of(32));
    by_registers.min(card.threads_per_multiprocessor() / threads)
}

fn lines(card: &Card) -> BTreeMap<(&'static str, &'static str), Line> {
    let launches = all_launches(card);
    let kernels: Vec<_> = launches.iter().map(|launch| launch.kernel.clone()).collect();
    let (major, minor) = card.compute_capability;
    let capability = (i32::from(major), i32::from(minor));
    let compiled = compile_all(&kernels, capability, &Cache::at(None), &Progress::silent()).unwrap();
    let mut lines: BTreeMap<_, Line> = BTreeMap::new();
    for (launch, compiled) in launches.iter().zip(compiled) {
        let kernel = &launch.kernel;
        let code = codes(&compiled.code)[kernel.entry];
        let threads = launch.block.iter().product::<u32>();
        let has_terms = kernel.constants.iter().any(|(name, value)| *name == "TENSOR_CORES" && value != "0");
        let has_tensor_cores = has_terms && !NO_PRODUCTS.contains(&kernel.entry);
        let first = || Line { kernels: Vec::new(), threads, code, has_tensor_cores };
        let line = lines.entry((kernel.file, kernel.entry)).or_insert_with(first);
        if !line.kernels.contains(&kernel.constants) {
            line.kernels.push(kernel.constants.clone());
        }
        line.threads = line.threads.max(threads);
        line.has_tensor_cores |= has_tensor_cores;
        line.code.registers = line.code.registers.max(code.registers);
        line.code.local = line.code.local.max(code.local);
        line.code.early = line.code.early.max(code.early);
        line.code.tensor = line.code.tensor.min(code.tensor);
        line.code.widest = line.code.widest.min(code.widest);
    }
    lines
}

/// Whether the compiler is there that the file is of.
fn has_compiler() -> bool {
    let is_there = preflight::compiler() == Some(COMPILER);
    if !is_there {
        assert!(
            std::env::var_os("GPUMEM_REQUIRE_NVRTC").is_none() || preflight::compiler().is_some(),
            "NVRTC was to be there"
        );
        eprintln!("NVRTC {}.{} is not installed: nothing was compiled", COMPILER.0, COMPILER.1);
    }
    is_there
}

/// What the project's own kernels depend on, for a card of this compute capability.
fn own(batch: u64, precision: Precision, capability: (i32, i32)) -> LaunchContext {
    LaunchContext {
        rank: 0,
        batch,
        precision,
        optimizer: Optimizer::Sgd(Sgd::DEFAULT),
        capability,
        multiprocessors: 0,
        tf32: false,
        deterministic: false,
        library: false,
        cudnn: false,
        operations: &Operations::NONE,
    }
}

/// The kernels of a training step, in bf16, in which all maps are channels last: every layer that has kernels for such maps.
fn of_channels_last(size: u64, batch: u64, multiprocessors: u32) -> Vec<Kernel> {
    let mut graph = Graph::default();
    let input = graph.input(graphs::numbers(&[3, size, size])).unwrap();
    let whole = graphs::layer(&mut graph, input, "Conv2d(64, 1, bias = false)");
    let x = graphs::chain(&mut graph, whole, "BatchNorm2d | Relu | BatchNorm2d");
    let sum = graphs::join(&mut graph, &[x, whole], "Add");
    let x = graphs::chain(&mut graph, sum, "Relu | MaxPool2d(3, 2, padding = 1)");
    let texts = [
        "AvgPool2d(3, 1, padding = 1) | BatchNorm2d",
        "BatchNorm2d(affine = false)",
        "AdaptiveAvgPool2d(2) | Upsample(7)",
    ];
    let branches = texts.map(|text| graphs::chain(&mut graph, x, text));
    let all = graphs::join(&mut graph, &branches, "Concat");
    let output = graphs::chain(&mut graph, all, "Conv2d(8, 1) | GlobalAvgPool");
    let mut program = lower(&graph, &[output], &graphs::training(0)).unwrap();
    layouts::arrange(&mut program, 0);
    let placed = place(&graphs::plan(&program, batch, Precision::Bf16)).unwrap();
    let setting = LaunchContext { multiprocessors, library: true, cudnn: true, ..own(batch, Precision::Bf16, (9, 0)) };
    let calls = steps(&placed, setting).unwrap().into_iter().flat_map(|step| step.calls);
    calls.filter_map(|call| if let Call::Kernel(launch) = call { Some(launch.kernel) } else { None }).collect()
}

#[test]
fn channels_side_by_side_are_read_16_bytes_at_a_time() {
    if !has_compiler() {
        return;
    }
    const FILES: [&str; 6] =
        ["average_pool.cu", "average_pool_adaptive.cu", "batch_norm_last.cu", "concat.cu", "max_pool.cu", "resize.cu"];
    // Batch normalisation in one part, and in several, whose blocks wait for each other or do not.
    let all = [of_channels_last(27, 1, 0), of_channels_last(27, 64, 0), of_channels_last(27, 64, 132)].concat();
    let kernels: Vec<Kernel> = all.into_iter().filter(|it| FILES.contains(&it.file)).collect();
    let found: BTreeSet<_> = kernels.iter().map(|it| (it.file, it.entry)).collect();
    assert_eq!(found.len(), 8 + 5 * 2, "{found:?}");
    for capability in [(8, 0), (9, 0)] {
        let compiled = compile_all(&kernels, capability, &Cache::at(None), &Progress::silent()).unwrap();
        for (kernel, compiled) in kernels.iter().zip(compiled) {
            let code = codes(&compiled.code)[kernel.entry];
            assert_eq!((code.widest, code.local), (16, 0), "{kernel:?} on {capability:?}");
        }
    }
}

/// A product and the sum behind it in one launch round twice, as in two: the compiler may not make one instruction of them.
#[test]
fn products_of_a_chain_are_rounded_before_sums() {
    if !has_compiler() {
        return;
    }
    let mut graph = Graph::default();
    let [a, b, c] = [0; 3].map(|_| graph.input(graphs::numbers(&[64, 64])).unwrap());
    let product = graphs::join(&mut graph, &[a, b], "Mul");
    let output = graphs::join(&mut graph, &[product, c], "Add");
    let program = lower(&graph, &[output], &Options { training: None }).unwrap();
    let placed = place(&graphs::plan(&program, 2, Precision::F32)).unwrap();
    for card in CARDS {
        let (major, minor) = card.compute_capability;
        let capability = (i32::from(major), i32::from(minor));
        let [Call::Kernel(launch)] = &steps(&placed, own(2, Precision::F32, capability)).unwrap()[0].calls[..] else {
            panic!("not one launch")
        };
        assert_eq!(launch.kernel.entry, "chain");
        let compiled =
            compile_all(std::slice::from_ref(&launch.kernel), capability, &Cache::at(None), &Progress::silent())
                .unwrap();
        let code = codes(&compiled[0].code)["chain"];
        assert_eq!((code.widest, code.local, code.products), (16, 0, [4, 0]), "{}", card.slug);
    }
}

/// What ptxas 13.0 made for Hopper of a pointer that is null or not: `CS2R R22, SRZ`, `@!P2 IMAD.WIDE.U32 R22, R49, 0x2, R32`, `PRMT`, and
/// `ISETP.NE.U32.AND P3, PT, R22, RZ, PT` five cycles behind the first.
#[test]
fn pointers_that_are_compared_too_early_are_found() {
    let found: [u128; 4] = [
        0x000fe4000001ff000000000000167805,
        0x000fe200078e0020000000023116a825,
        0x000fc4000000002d00007610ff2d7816,
        0x000fc80003f65070000000ff1600720c,
    ];
    assert_eq!(early(&found), 1);
    // A cycle later; not replaced; replaced without a predicate; another register.
    let later = found[2] + (1 << 105);
    assert_eq!(early(&[found[0], found[1], later, found[3]]), 0);
    assert_eq!(early(&[found[0], found[2], found[2], found[3]]), 0);
    assert_eq!(early(&[found[0], found[1] | 7 << 12, found[2], found[3]]), 0);
    assert_eq!(early(&[found[0], found[1], found[2], found[3] ^ 1 << 24]), 0);
}

#[test]
fn kernels_of_whole_networks() {
    if !has_compiler() {
        return;
    }
    let (mut text, mut wrong) = (String::new(), String::new());
    for card in &CARDS {
        let lines = lines(card);
        for name in STREAMING {
            assert!(lines.keys().any(|(_, entry)| *entry == name), "nothing launches {name}");
        }
        for ((file, entry), Line { kernels, threads, code, has_tensor_cores }) in lines {
            let (major, minor) = card.compute_capability;
            let blocks = blocks(card, threads, code.registers);
            let mut line = format!("sm_{major}{minor} {file} {entry}: {} of up to {threads} threads, ", kernels.len());
            let _ = write!(line, "{} registers, {blocks} blocks", code.registers);
            if has_tensor_cores {
                let _ = write!(line, ", {} HMMA", code.tensor);
            }
            let _ = writeln!(line, ", loads of {} bytes", code.widest);
            let is_narrow = STREAMING.contains(&entry) && code.widest < 16;
            // Such launches count on two blocks a multiprocessor, but those that multiply on Turing's tensor cores.
            let is_together = kernels.iter().flatten().any(|(name, _)| *name == "TOGETHER") && !ALONE.contains(&entry);
            let wanted = if is_together && !(has_tensor_cores && (major, minor) == (7, 5)) { 2 } else { 1 };
            if code.local > 0
                || blocks < wanted
                || (has_tensor_cores && code.tensor == 0)
                || is_narrow
                || code.early > 0
            {
                let _ = write!(wrong, "{} accesses to local memory, {} early reads: {line}", code.local, code.early);
            }
            text.push_str(&line);
        }
    }
    if std::env::var_os("UPDATE_FIGURES").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert_eq!(text, kept, "write the file anew with UPDATE_FIGURES=1, and look at the difference");
}
