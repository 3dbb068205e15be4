//! After the first step, a step allocates nothing.
//!
//! The steps run on the thread of a pool that has no other. From outside of it, rayon's queue takes a block of memory for every 63 steps. With several
//! threads, chance decides which tasks meet on a thread, and thereby how much scratch memory each thread needs.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::run::device::Runner;
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Adafactor, AdamW, Optimizer, Sgd};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::graphs::{chain, inputs};
use rayon::ThreadPoolBuilder;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

impl Counting {
    fn count() {
        // The thread may be ending, which is no step.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    }
}

// SAFETY: everything is left to `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller keeps the conditions of `alloc`, which are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` comes from `System`, with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count();
        // SAFETY: `at` comes from `System`, with this layout.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the allocations of steps after the first.
fn allocations(steps: usize, mut step: impl FnMut()) -> usize {
    step();
    let before = ALLOCATIONS.get();
    (0..steps).for_each(|_| step());
    ALLOCATIONS.get() - before
}

/// Networks: their input, and their layers.
const NETWORKS: [(&str, &str, &str); 8] = [
    ("perceptron", "300", "Linear(280) | Relu | Dropout(0.2) | Linear(70) | Gelu | Linear(5)"),
    ("functions", "4096", "Scale | Gelu | Scale | Gelu | Scale | Gelu | Scale | Gelu"),
    (
        "convolution",
        "3x20x20",
        "Conv2d(20, 3, padding = 1) | BatchNorm2d | Relu | MaxPool2d(2) | Conv2d(24, 3, stride = 2, padding = 1) | Relu | \
         Conv2d(24, 5, padding = 2, groups = 24) | Conv2d(8, 1) | AdaptiveAvgPool2d(1) | Flatten | Linear(5)",
    ),
    ("large kernels", "16x24x24", "Conv2d(16, 7, padding = 3) | Silu | ConvTranspose2d(8, 4, stride = 2, padding = 1)"),
    ("attention", "24x64", "LayerNorm | CausalSelfAttention(4) | LayerNorm | Linear(128) | Gelu | Linear(32)"),
    ("tokens", "tokens 24", "Embedding(50, 48) | MultiHeadAttention(3) | RmsNorm | Linear(50)"),
    ("long memory", "12x40", "Lstm(36, layers = 2, bidirectional = true) | Linear(3)"),
    ("gates", "12x40", "Gru(36) | Softmax | Linear(3)"),
];

/// Runs a network's steps after the first, and returns the names of those that allocate.
fn allocating((name, input, layers): (&str, &str, &str), optimizer: Optimizer) -> Vec<String> {
    let mut graph = Graph::default();
    let node = inputs(&mut graph, input)[0];
    let output = chain(&mut graph, node, layers);
    let training = Training {
        loss: &[Term::MSE],
        moments: optimizer.moments(),
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: Descent::PLAIN,
    };
    let mut found = Vec::new();
    for (kind, training) in [("training", Some(training)), ("inference", None)] {
        let program = lower(&graph, &[output], &Options { training }).unwrap();
        let mut loaded = Loaded::of(&Cpu::new(), &program, 3, optimizer).unwrap();
        loaded.initialise(1);
        let count = allocations(70, || match kind {
            "training" => assert!(loaded.step().unwrap().is_finite()),
            _ => loaded.runner_mut().infer().unwrap(),
        });
        if count > 0 {
            found.push(format!("{name}, {kind}: {count}"));
        }
    }
    found
}

#[test]
fn steps_after_the_first_allocate_nothing() {
    let sgd = Optimizer::Sgd(Sgd { lr: 1e-3, momentum: 0.9, ..Sgd::DEFAULT });
    let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let found = pool.install(|| {
        let mut found: Vec<String> = NETWORKS.into_iter().flat_map(|network| allocating(network, sgd)).collect();
        for optimizer in [Optimizer::AdamW(AdamW::DEFAULT), Optimizer::Adafactor(Adafactor::DEFAULT)] {
            found.extend(allocating(NETWORKS[0], optimizer));
        }
        found
    });
    assert!(found.is_empty(), "{found:#?}");
}

/// A step that is started outside of the pool takes at most a block of the queue, and the counter counts.
#[test]
fn a_pool_of_one_thread_takes_a_block_of_its_queue() {
    assert_eq!(allocations(1, || drop(std::hint::black_box(vec![1u8]))), 1);
    let mut graph = Graph::default();
    let node = inputs(&mut graph, "40")[0];
    let output = chain(&mut graph, node, "Linear(8) | Relu | Linear(5)");
    let program = lower(&graph, &[output], &Options { training: None }).unwrap();
    let cpu = Cpu::with_threads(1).unwrap();
    let mut loaded = Loaded::of(&cpu, &program, 3, Optimizer::Sgd(Sgd::DEFAULT)).unwrap();
    let count = allocations(630, || loaded.runner_mut().infer().unwrap());
    assert!(count <= 11, "{count}");
}
