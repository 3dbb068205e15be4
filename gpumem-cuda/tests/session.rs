//! Whole sessions on a card that the host plays: double-buffered input, the loss that comes early, captured graphs, memory.

#[path = "host/mod.rs"]
mod host;
mod recorded;

#[path = "session/attention.rs"]
mod attention;
#[path = "session/autotune.rs"]
mod autotune;
#[path = "session/cached.rs"]
mod cached;
#[path = "session/convolutions.rs"]
mod convolutions;
#[path = "session/indices.rs"]
mod indices;
#[path = "session/inspected.rs"]
mod inspected;
#[path = "session/lengths.rs"]
mod lengths;
#[path = "session/losses.rs"]
mod losses;
#[path = "session/measured.rs"]
mod measured;
#[path = "session/micro_batches.rs"]
mod micro_batches;
#[path = "session/notices.rs"]
mod notices;
#[path = "session/offload.rs"]
mod offload;
#[path = "session/parked.rs"]
mod parked;
#[path = "session/passes.rs"]
mod passes;
#[path = "session/products.rs"]
mod products;
#[path = "session/profile.rs"]
mod profile;
#[path = "session/rank_settings.rs"]
mod rank_settings;
#[path = "session/ranks.rs"]
mod ranks;
#[path = "session/recurrences.rs"]
mod recurrences;
#[path = "session/rules.rs"]
mod rules;
#[path = "session/sides.rs"]
mod sides;
#[path = "session/steps.rs"]
mod steps;
#[path = "session/together.rs"]
mod together;
#[path = "session/warpgroups.rs"]
mod warpgroups;
#[path = "session/weights.rs"]
mod weights;

use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::Placed;
use gpumem_core::memory::place::{place, share};
use gpumem_core::program::{Class, Program, StateWord};
use gpumem_core::run::device::{Device, Job, Runner, Served};
use gpumem_core::train::optim::{Adafactor, Adam, AdamW8bit, Optimizer, Sgd};
use gpumem_core::{Half, Precision, Role, Update};
use gpumem_cpu::Cpu;
use gpumem_cuda::operations::order;
use gpumem_cuda::{Cuda, Session};

/// Cards and what runs on them can be used from another thread than the one that opened them.
const _: () = {
    const fn can_move<T: Send>() {}
    can_move::<Cuda>();
    can_move::<Session>();
};
use host::card::{counts, on_a_simulated_card, product_counts, register};
use host::harness::graphs::own::OPERATIONS;
use host::harness::graphs::{chain, join, numbers, plan};
use host::{CAPABILITY, Machine, Products, kernels, narrow, spread, widen};
use products::{load_asking, products_job, products_so_far, train_with};
use rules::start_up;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

const BATCH: u64 = 3;
const CLASSES: u32 = 5;

/// A small network with every kind of state, as a job in which both programs use the same parameters.
fn job(precision: Precision) -> Job {
    let layers = "Conv2d(4, 3, padding = 1, bias = false) | BatchNorm2d | Relu(inplace = true) | MaxPool2d(2) | \
                  Flatten | Dropout(0.25) | Linear(5)";
    job_of(&[2, 6, 6], layers, Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT }), precision)
}

fn job_of(dims: &[u64], layers: &str, optimizer: Optimizer, precision: Precision) -> Job {
    job_serving(dims, layers, optimizer, precision, None)
}

/// The same with a forward pass for so many samples beside the two, if for any.
fn job_serving(dims: &[u64], layers: &str, optimizer: Optimizer, precision: Precision, serving: Option<u64>) -> Job {
    let moments = if matches!(optimizer, Optimizer::Sgd(_)) { 1 } else { optimizer.moments() };
    let (loss, update) = (&[Term::CROSS_ENTROPY], Update::Fused);
    let training = Training {
        loss,
        moments,
        update,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    job_training(dims, layers, optimizer, precision, (training, serving))
}

/// A network of sequences of 7 steps of 6 numbers.
fn job_of_sequence(text: &str, precision: Precision, deterministic: bool) -> Job {
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    Job { deterministic, ..job_of(&[7, 6], text, optimizer, precision) }
}

/// Losses of four steps.
fn losses_of_steps(job: &Job, runner: &mut impl Runner) -> Vec<f32> {
    begin(job, runner);
    let step = |step| {
        feed(job, runner, step);
        runner.train().unwrap();
        loss(job, runner)
    };
    (0..4).map(step).collect()
}

fn job_training(
    dims: &[u64],
    layers: &str,
    optimizer: Optimizer,
    precision: Precision,
    (training, serving): (Training<'_>, Option<u64>),
) -> Job {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let output = chain(&mut graph, input, layers);
    job_of_graph(&graph, output, optimizer, precision, (training, serving))
}

fn job_of_graph(
    graph: &Graph,
    output: NodeId,
    optimizer: Optimizer,
    precision: Precision,
    (training, serving): (Training<'_>, Option<u64>),
) -> Job {
    let lowered = |training| lower(graph, &[output], &Options { training }).unwrap();
    job_of_programs([&lowered(Some(training)), &lowered(None)], optimizer, precision, serving)
}

/// A training step and a forward pass of one network.
fn job_of_programs(
    [step, pass]: [&Program; 2],
    optimizer: Optimizer,
    precision: Precision,
    serving: Option<u64>,
) -> Job {
    // Of a batch that is split, so many samples are a part.
    let compiled = |program: &Program, batch| plan(program, batch * program.descent.parts(), precision);
    let (train, infer) = (compiled(step, BATCH), compiled(pass, BATCH));
    let (planned, activations) = (train.budget[Line::Arena], infer.budget[Line::Activations]);
    let (train, mut infer) = (place(&train).unwrap(), place(&infer).unwrap());
    let arena = share(&train, &mut infer, planned, activations).unwrap();
    let served = serving.map(|batch| {
        let compiled = compiled(pass, batch);
        let mut placed = place(&compiled).unwrap();
        assert_eq!(share(&train, &mut placed, arena, compiled.budget[Line::Activations]), Ok(arena));
        Served { placed, batch }
    });
    let (name, reserve, batch, train, evaluation) = ("test", 0, BATCH, Some(train), None);
    let (tf32, deterministic, operations) = (false, false, &OPERATIONS);
    Job {
        name,
        arena,
        batch,
        precision,
        train,
        evaluation,
        others: Vec::new(),
        infer,
        served,
        optimizer,
        tf32,
        deterministic,
        reserve,
        settings: 0,
        operations,
    }
}

/// The job's network on the card, whose kernels are made known to it first.
fn load(job: &Job) -> Session {
    // A machine may have cuDNN where the loader finds it.
    load_on(&Cuda::new(0).unwrap().with_cudnn(false), job).unwrap()
}

fn load_on(card: &Cuda, job: &Job) -> Result<Session, Error> {
    register_kernels(job);
    card.load(job.clone())
}

/// Those of the card that the host plays, and what it is taken for if not all blocks of a launch run at once.
const MULTIPROCESSORS: [u32; 2] = [4, 0];

/// Makes the kernels of a job known to the card.
fn register_kernels(job: &Job) {
    let Job { batch, precision, optimizer, .. } = *job;
    let served = job.served.iter().map(|served| (served.placed.clone(), served.batch));
    let all = job.train.iter().chain(&job.evaluation).chain([&job.infer]);
    let mut programs: Vec<(Placed, u64)> = all.map(|placed| (placed.clone(), batch)).chain(served).collect();
    order(&mut programs.iter_mut().map(|(placed, _)| placed).collect::<Vec<_>>(), precision, CAPABILITY);
    // Whatever the library can do.
    let all = [Products::Own, Products::Library, Products::WithoutCudnn, Products::Recurrent, Products::Poor];
    let all = all.into_iter().flat_map(|products| {
        let on = move |placed: &Placed, batch, multiprocessors| {
            kernels(&products.steps_on(placed, batch, (precision, CAPABILITY), optimizer, multiprocessors))
        };
        programs.iter().flat_map(move |(placed, batch)| {
            MULTIPROCESSORS.into_iter().flat_map(move |count| on(placed, *batch, count))
        })
    });
    let all: Vec<_> = all.collect();
    let machine = Box::leak(Box::new(Machine::new(all.clone())));
    register(machine, all.iter());
}

/// Fills everything that outlives a step.
fn begin(job: &Job, runner: &mut (impl Runner + ?Sized)) {
    let placed = job.train.as_ref().unwrap();
    for (id, tensor) in placed.program.tensors.iter().enumerate() {
        let count = tensor.elements(BATCH).unwrap() as usize;
        let words = match tensor.class {
            Class::Parameter => spread(count, id + 1),
            Class::Buffer => vec![1f32.to_bits(); count],
            Class::Moment | Class::Average => vec![0; count],
            Class::State => {
                let mut words = vec![0; count];
                words[StateWord::Seed as usize] = 7;
                words[StateWord::LearningRate as usize] = 0.01f32.to_bits();
                let scale = if job.precision.scales_loss() { 1024f32 } else { 1.0 };
                words[StateWord::LossScale as usize] = scale.to_bits();
                words
            }
            _ => continue,
        };
        if let Some(master) = placed.masters[id] {
            runner.write(master, &bytes(&words)).unwrap();
        }
        runner.write(placed.offsets[id], &stored(job, tensor.role, &words)).unwrap();
    }
}

/// Words as the arena holds them.
fn stored(job: &Job, role: Role, words: &[u32]) -> Vec<u8> {
    match role.bytes(job.precision) {
        4 => return bytes(words),
        1 => return words.iter().map(|&word| word as u8).collect(),
        _ => {}
    }
    words.iter().flat_map(|&word| narrow(job.precision, word).to_le_bytes()).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn at(placed: &Placed, class: Class) -> (u64, usize) {
    let id = placed.program.of_class(class).next().unwrap();
    (placed.offsets[id as usize], placed.program.tensor(id).elements(BATCH).unwrap() as usize)
}

/// Another input and target for each step.
fn feed(job: &Job, runner: &mut (impl Runner + ?Sized), step: usize) {
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, labels)) = (at(placed, Class::Input), at(placed, Class::Target));
    runner.feed(input, &stored(job, Role::Activation, &spread(count, 100 + step))).unwrap();
    let labels: Vec<u32> = (0..labels).map(|index| (index + step) as u32 % CLASSES).collect();
    runner.feed(target, &bytes(&labels)).unwrap();
}

fn loss(job: &Job, runner: &mut impl Runner) -> f32 {
    let placed = job.train.as_ref().unwrap();
    runner.loss(placed.offsets[placed.program.results[0] as usize]).unwrap()
}

/// The values of everything that outlives a step, by name; without codes, which are bytes.
fn state(job: &Job, runner: &mut impl Runner) -> Vec<(String, Vec<f32>)> {
    let placed = job.train.as_ref().unwrap();
    let lasting = placed.program.tensors.iter().enumerate().filter(|(_, tensor)| {
        matches!(tensor.class, Class::Parameter | Class::Buffer | Class::Moment)
            && !matches!(tensor.role, Role::State | Role::Code)
    });
    let mut read = |(id, tensor): (usize, &gpumem_core::program::Tensor)| {
        let mut bytes = vec![0; tensor.elements(BATCH).unwrap() as usize * 4];
        runner.read(placed.offsets[id], &mut bytes).unwrap();
        let words = bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
        (tensor.name.clone(), words.collect())
    };
    lasting.map(&mut read).collect()
}

fn compare(what: &str, found: &[(String, Vec<f32>)], expected: &[(String, Vec<f32>)]) {
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        host::harness::assert_close(&format!("{what}: {name}"), found, expected, 1e-3);
    }
}

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system's allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A step allocates nothing on the host either.
#[test]
fn steps_allocate_nothing_on_the_host() {
    if !on_a_simulated_card("steps_allocate_nothing_on_the_host", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    begin(&job, &mut card);
    let placed = job.train.as_ref().unwrap();
    let ((input, count), (target, _)) = (at(placed, Class::Input), at(placed, Class::Target));
    let (images, labels) = (bytes(&spread(count, 1)), bytes(&[0, 1, 2]));
    let mut step = || {
        card.feed(input, &images).unwrap();
        card.feed(target, &labels).unwrap();
        card.train().unwrap();
        loss(&job, &mut card)
    };
    // What is fed is listed from the first step on.
    step();
    let before = ALLOCATIONS.get();
    (0..5).for_each(|_| _ = step());
    assert_eq!(ALLOCATIONS.get(), before);
}

/// Losses asked for after each step, and after several; another input for each; nothing is allocated, loaded or captured after
/// the start.
#[test]
fn steps_are_fed_and_replayed() {
    if !on_a_simulated_card("steps_are_fed_and_replayed", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    let (start, made) = (counts(), start_up().0);
    assert_eq!(start[2..], [3, 0], "both halves of the input and the forward pass are captured, and nothing has run");
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    for step in 0..7 {
        feed(&job, &mut cpu, step);
        cpu.train().unwrap();
        feed(&job, &mut card, step);
        card.train().unwrap();
        // Steps 2 to 4 run on without anybody asking.
        if !(2..4).contains(&step) {
            let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
            assert!((found - expected).abs() < 1e-4, "step {step}: {found}, {expected}");
        }
    }
    compare("after 7 steps", &state(&job, &mut card), &state(&job, &mut cpu));
    card.infer().unwrap();
    let end = counts();
    assert_eq!((end[..2].to_vec(), start_up().0), (start[..2].to_vec(), made), "what belongs to the start");
    assert_eq!((end[2] - start[2], end[3] - start[3]), (0, 8), "graphs captured and replayed");
    assert_eq!(end[1], card.arena_bytes());
    drop(card);
    assert_eq!(counts()[1], 0, "bytes on the card");
}

/// An update of several launches, which go on from each other's scratch memory.
#[test]
fn rows_and_columns_are_trained() {
    if !on_a_simulated_card("rows_and_columns_are_trained", &[]) {
        return;
    }
    let optimizer = Optimizer::Adafactor(Adafactor { lr: 0.01, ..Adafactor::DEFAULT });
    let job =
        job_of(&[2, 6, 6], "Conv2d(4, 3) | Tanh | Flatten | Linear(300) | Tanh | Linear(5)", optimizer, Precision::F32);
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    for step in 0..5 {
        feed(&job, &mut cpu, step);
        cpu.train().unwrap();
        feed(&job, &mut card, step);
        card.train().unwrap();
        let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
        assert!((found - expected).abs() < 1e-4 * expected.abs(), "step {step}: {found}, {expected}");
    }
    compare("after 5 steps", &state(&job, &mut card), &state(&job, &mut cpu));
}

/// 16-bit networks learn what the f32 network learns; master copies and weights stay together.
#[test]
fn sixteen_bit_networks_are_trained() {
    if !on_a_simulated_card("sixteen_bit_networks_are_trained", &[]) {
        return;
    }
    let wide = job(Precision::F32);
    let mut cpu = Cpu::with_threads(1).unwrap().load(wide.clone()).unwrap();
    begin(&wide, &mut cpu);
    let mut run = |step| {
        feed(&wide, &mut cpu, step);
        cpu.train().unwrap();
        loss(&wide, &mut cpu)
    };
    let expected: Vec<f32> = (0..5).map(&mut run).collect();
    let halves = [Precision::Bf16, Precision::F16, Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)];
    for precision in halves {
        let job = job(precision);
        let mut card = load(&job);
        begin(&job, &mut card);
        for (step, expected) in expected.iter().enumerate() {
            feed(&job, &mut card, step);
            card.train().unwrap();
            let found = loss(&job, &mut card);
            // Adam divides by the size of a gradient: the first steps go as far for a rounding error as for a slope.
            assert!(
                (found - expected).abs() < 5e-2 * expected.abs(),
                "{precision:?}, step {step}: {found}, {expected}"
            );
        }
        let placed = job.train.as_ref().unwrap();
        let mut copies = 0;
        for (id, tensor) in placed.program.tensors.iter().enumerate() {
            let Some(master) = placed.masters[id] else { continue };
            let count = tensor.elements(BATCH).unwrap() as usize;
            let (mut wide, mut short) = (vec![0; 4 * count], vec![0; 2 * count]);
            card.read(master, &mut wide).unwrap();
            card.read(placed.offsets[id], &mut short).unwrap();
            let wide = wide.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
            let short = short.chunks_exact(2).map(|half| u16::from_le_bytes(half.try_into().unwrap()));
            for (index, (wide, short)) in wide.zip(short).enumerate() {
                assert_eq!(narrow(precision, wide), short, "{precision:?}, {}[{index}]", tensor.name);
                copies += u32::from(widen(precision, short) != wide);
            }
        }
        assert_eq!(copies > 0, precision.has_master(), "{precision:?}: masters are finer than their copies");
    }
}

/// A forward pass between training steps uses the same parameters and leaves them alone.
#[test]
fn inference_between_steps() {
    if !on_a_simulated_card("inference_between_steps", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    let mut cpu = Cpu::with_threads(1).unwrap().load(job.clone()).unwrap();
    begin(&job, &mut card);
    begin(&job, &mut cpu);
    let (input, count) = at(&job.infer, Class::Input);
    let output = job.infer.offsets[job.infer.program.results[0] as usize];
    let infer = |runner: &mut dyn Runner, salt| {
        runner.write(input, &bytes(&spread(count, salt))).unwrap();
        runner.infer().unwrap();
        let mut bytes = vec![0; (BATCH as usize) * CLASSES as usize * 4];
        runner.read(output, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<f32>>()
    };
    for step in 0..4 {
        feed(&job, &mut cpu, step);
        cpu.train().unwrap();
        feed(&job, &mut card, step);
        card.train().unwrap();
        let (found, expected) = (infer(&mut card, step), infer(&mut cpu, step));
        host::harness::assert_close(&format!("output after step {step}"), &found, &expected, 1e-3);
    }
    compare("after 4 steps", &state(&job, &mut card), &state(&job, &mut cpu));
    // What is written stays for any number of steps.
    let placed = job.train.as_ref().unwrap();
    let labels = at(placed, Class::Target);
    for runner in [&mut card as &mut dyn Runner, &mut cpu] {
        runner.write(labels.0, &bytes(&[1, 2, 3])).unwrap();
        (0..3).for_each(|_| runner.train().unwrap());
    }
    let (found, expected) = (loss(&job, &mut card), loss(&job, &mut cpu));
    assert!((found - expected).abs() < 1e-4, "the last of three steps: {found}, {expected}");
    compare("after 7 steps", &state(&job, &mut card), &state(&job, &mut cpu));
}

/// Operation by operation, and as a graph: the same to the bit.
#[test]
fn blocking_launches_give_the_same() {
    if !on_a_simulated_card("blocking_launches_give_the_same", &[]) {
        return;
    }
    let job = job(Precision::F32);
    let run = || {
        let mut card = load(&job);
        begin(&job, &mut card);
        let mut losses = Vec::new();
        for step in 0..3 {
            feed(&job, &mut card, step);
            card.train().unwrap();
            losses.push(loss(&job, &mut card));
        }
        (losses, state(&job, &mut card))
    };
    let replayed = run();
    let before = counts();
    // SAFETY: this process runs this test alone.
    unsafe { std::env::set_var("GPUMEM_LAUNCH_BLOCKING", "1") };
    let blocking = run();
    assert_eq!(replayed, blocking);
    assert_eq!(counts()[2..], before[2..], "no graph");
}

#[test]
fn bad_labels_and_full_cards_are_errors() {
    if !on_a_simulated_card("bad_labels_and_full_cards_are_errors", &[("GPUMEM_SIMULATED_MIB", "1")]) {
        return;
    }
    let job = job(Precision::F32);
    let mut card = load(&job);
    begin(&job, &mut card);
    feed(&job, &mut card, 0);
    card.train().unwrap();
    let before = state(&job, &mut card);
    let (target, _) = at(job.train.as_ref().unwrap(), Class::Target);
    let error = card.feed(target, &bytes(&[0, 9, 1])).unwrap_err();
    assert_eq!(error, Error::Index { what: "label", position: 1, value: 9, limit: 5 });
    let error = card.feed(target, &bytes(&[0])).unwrap_err();
    assert_eq!(error.to_string(), "a batch of labels has 3 elements, but 1 were given");
    assert_eq!(state(&job, &mut card), before);
    // A second network of 1 MiB does not fit beside the first, and nothing is left of the attempt.
    let used = counts()[1];
    let large = Job { arena: 1 << 20, ..job.clone() };
    match Cuda::new(0).unwrap().load(large) {
        Err(Error::Memory { needed, free, .. }) => {
            assert_eq!((needed, free), (1 << 20, Some((1 << 20) - used)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(counts()[1], used);
}

/// The card, with every kernel that a network needs made known to it.
struct Known(Cuda);

impl Device for Known {
    type Runner = Session;

    fn load(&self, job: Job) -> Result<Session, Error> {
        load_on(&self.0, &job)
    }
}

/// Twenty steps of two networks, fused, fed and replayed, against PyTorch's losses and parameters.
#[test]
fn networks_follow_pytorch() {
    if !on_a_simulated_card("networks_follow_pytorch", &[]) {
        return;
    }
    for library in [true, false] {
        let card = Known(Cuda::new(0).unwrap().with_library(library).with_cudnn(false));
        for curve in host::harness::curves::Curve::all() {
            curve.check(&mut curve.network.on(&card).unwrap());
        }
    }
}
