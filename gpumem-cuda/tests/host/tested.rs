//! What runs a program and can be compared: the kernels through the shim, a card, the CPU backend.

use super::harness::layouts::{dense, is_turned, turned};
use super::*;
use gpumem_core::program::Tensor;
use gpumem_cuda::operations::order;

/// Something that runs the kernels.
pub trait Tested {
    fn put(&mut self, id: usize, words: &[u32]);
    /// What a tensor holds, in the order that its shape is written in.
    fn get(&mut self, id: usize) -> Vec<u32>;
    /// Part of a step, not the last, of a batch that is split.
    fn accumulate(&mut self, part: u64);
    fn step(&mut self);

    /// How far from another one's its numbers may be, where that is `tolerance` for sums in whatever order.
    fn allowed(&self, tolerance: f64) -> f64 {
        tolerance
    }
}

impl Tested for Simulated {
    fn put(&mut self, id: usize, words: &[u32]) {
        let tensor = &self.placed.program.tensors[id];
        // As a session does.
        let turned = is_turned(tensor).then(|| turned(tensor, words));
        self.write(id, turned.as_deref().unwrap_or(words));
    }

    fn get(&mut self, id: usize) -> Vec<u32> {
        let stored = self.read(id);
        in_order(&self.placed.program.tensors[id], stored)
    }

    fn accumulate(&mut self, part: u64) {
        Simulated::accumulate(self, part);
    }

    fn step(&mut self) {
        Simulated::step(self);
    }
}

/// A network on a card.
struct OnCard {
    session: Session,
    placed: Placed,
    precision: Precision,
    trains: bool,
}

impl OnCard {
    fn width(&self, id: usize) -> u64 {
        self.placed.program.tensors[id].role.bytes(self.precision)
    }
}

/// 32-bit words as elements of so many bytes: words that are 16-bit floats then, or bytes.
pub fn stored(width: u64, precision: Precision, words: &[u32]) -> Vec<u8> {
    match width {
        1 => words.iter().map(|&word| word as u8).collect(),
        2 => words.iter().flat_map(|&word| narrow(precision, word).to_le_bytes()).collect(),
        _ => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
    }
}

/// Elements of so many bytes as 32-bit words.
pub fn seen(width: u64, precision: Precision, bytes: &[u8]) -> Vec<u32> {
    match width {
        1 => bytes.iter().map(|&byte| u32::from(byte)).collect(),
        2 => {
            let halves = bytes.chunks_exact(2).map(|half| u16::from_le_bytes(half.try_into().unwrap()));
            halves.map(|half| widen(precision, half)).collect()
        }
        _ => bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect(),
    }
}

impl Tested for OnCard {
    fn put(&mut self, id: usize, words: &[u32]) {
        if let Some(master) = self.placed.masters[id] {
            self.session.write(master, &stored(4, self.precision, words)).unwrap();
        }
        self.session.write(self.placed.offsets[id], &stored(self.width(id), self.precision, words)).unwrap();
    }

    fn get(&mut self, id: usize) -> Vec<u32> {
        let mut bytes = vec![0; self.placed.bytes[id] as usize];
        self.session.read(self.placed.offsets[id], &mut bytes).unwrap();
        let words = seen(self.width(id), self.precision, &bytes);
        let tensor = &self.placed.program.tensors[id];
        // A session has turned weights already.
        if is_turned(tensor) { words } else { in_order(tensor, words) }
    }

    fn accumulate(&mut self, part: u64) {
        self.session.accumulate(part).unwrap();
    }

    fn step(&mut self) {
        if self.trains { self.session.train() } else { self.session.infer() }.unwrap();
    }

    // A card multiplies and adds in one instruction where the host rounds in between, libraries go by transforms or round to 16 bits where the
    // own kernels go on with 32, and a sum whose terms cancel shows it: on an H100 up to 4e-5 in f32 and 2.2e-2 in 16 bits.
    fn allowed(&self, tolerance: f64) -> f64 {
        tolerance.max(if self.precision == Precision::F32 { 1e-4 } else { 3e-2 })
    }
}

fn in_order(tensor: &Tensor, stored: Vec<u32>) -> Vec<u32> {
    if tensor.layout.is_dense() { stored } else { dense(tensor, &stored) }
}

/// A network on the CPU backend, in f32.
pub struct OnCpu {
    session: gpumem_cpu::Session,
    placed: Placed,
}

impl OnCpu {
    fn width(&self, id: usize) -> u64 {
        self.placed.program.tensors[id].role.bytes(Precision::F32)
    }
}

impl OnCpu {
    pub fn boxed(job: Job) -> Box<dyn Tested> {
        let placed = job.infer.clone();
        Box::new(Self { session: Cpu::with_threads(1).unwrap().with_poison(true).load(job).unwrap(), placed })
    }
}

impl Tested for OnCpu {
    fn put(&mut self, id: usize, words: &[u32]) {
        let bytes = stored(self.width(id), Precision::F32, words);
        self.session.write(self.placed.offsets[id], &bytes).unwrap();
    }

    fn get(&mut self, id: usize) -> Vec<u32> {
        let mut bytes = vec![0; self.placed.bytes[id] as usize];
        self.session.read(self.placed.offsets[id], &mut bytes).unwrap();
        seen(self.width(id), Precision::F32, &bytes)
    }

    fn accumulate(&mut self, part: u64) {
        self.session.accumulate(part).unwrap();
    }

    fn step(&mut self) {
        self.session.train().unwrap();
    }
}

/// The steps of a job's program by each way in which they differ, beginning with the project's own kernels.
pub fn ways(job: &Job, capability: (i32, i32)) -> Vec<(Products, Vec<OperationCalls>)> {
    let steps = |products: Products| products.steps(&job.infer, job.batch, (job.precision, capability), job.optimizer);
    let [own, library, without, poor] =
        [Products::Own, Products::Library, Products::WithoutCudnn, Products::Poor].map(steps);
    let warpgroups = steps(Products::Warpgroups);
    if capability == HOPPER {
        // Other kernels run in the tests of another card.
        assert_ne!(warpgroups, own, "nothing runs on warpgroup instructions");
        return vec![(Products::Warpgroups, warpgroups)];
    }
    let products = |steps: &[OperationCalls]| {
        let calls = steps.iter().flat_map(|step| &step.calls);
        calls.filter(|call| matches!(call, Call::Product(_))).count()
    };
    let differs = [library != own, products(&without) > products(&library), poor != library];
    let others = [(Products::Library, library), (Products::WithoutCudnn, without), (Products::Poor, poor)];
    let others = others.into_iter().zip(differs).filter(|(_, differs)| *differs).map(|(other, _)| other);
    [(Products::Own, own)].into_iter().chain(others).collect()
}

/// The steps with a launch for each operation of what is otherwise a chain, if there is one.
pub fn steps_without_chains(job: &Job, capability: (i32, i32)) -> Option<Vec<OperationCalls>> {
    let steps = |products: Products| products.steps(&job.infer, job.batch, (job.precision, capability), job.optimizer);
    let [own, apart] = [Products::Own, Products::Apart].map(steps);
    Some(apart).filter(|apart| own != *apart)
}

/// The host shim that runs these steps, its warps in this order.
fn simulated(job: &Job, steps: &[OperationCalls], order: i32) -> Box<dyn Tested> {
    Box::new(Simulated::with_steps(job.infer.clone(), steps.to_vec(), job.batch, job.arena, job.precision, order))
}

/// The host shim without chains, if there are any.
pub fn without_chains(job: &Job, capability: (i32, i32)) -> Option<(String, Box<dyn Tested>)> {
    let steps = steps_without_chains(job, capability).filter(|_| std::env::var_os("GPUMEM_SKIP_HOST").is_none())?;
    Some(("without chains".into(), simulated(job, &steps, 0)))
}

/// The first card, if there is one, and it has such a compute capability.
fn first_card(has: impl Fn((i32, i32)) -> bool) -> Option<Cuda> {
    match Cuda::new(0) {
        Ok(card) => Some(card).filter(|card| has(card.capability())),
        Err(error) => {
            assert!(std::env::var_os("GPUMEM_REQUIRE_GPU").is_none(), "{error}");
            None
        }
    }
}

/// A job's network on a card.
fn on(card: Cuda, job: &Job) -> OnCard {
    // A forward pass has one place for its inputs, and a training step two.
    let trains = job.infer.program.operations.iter().any(|it| matches!(it.action, Action::Loss(_)));
    let mut job = job.clone();
    job.train = job.train.filter(|_| trains);
    let (mut placed, precision) = (job.infer.clone(), job.precision);
    // As a session does.
    order(&mut [&mut placed], precision, card.capability());
    OnCard { session: card.load(job).unwrap(), placed, precision, trains }
}

/// Everything that can run the kernels here: the host shim in several orders of warps, with the library's products played by
/// the host where there are any, and the first card with and without the library. On a machine with
/// a card and no C++ compiler, `GPUMEM_SKIP_HOST` leaves the shim out; `GPUMEM_REQUIRE_GPU` makes a missing card a failure.
pub fn everyone(job: &Job, capability: (i32, i32), orders: std::ops::Range<i32>) -> Vec<(String, Box<dyn Tested>)> {
    let mut all: Vec<(String, Box<dyn Tested>)> = Vec::new();
    if std::env::var_os("GPUMEM_SKIP_HOST").is_none() {
        for (products, steps) in ways(job, capability) {
            match products {
                // Every order touches the same bytes.
                Products::Own | Products::Warpgroups => {
                    let orders = if is_apart() { orders.end - 1..orders.end } else { orders.clone() };
                    all.extend(orders.map(|order| (format!("order {order}"), simulated(job, &steps, order))));
                }
                other => all.push((format!("{other:?}"), simulated(job, &steps, 0))),
            }
        }
    }
    let boxed = |who: String, tested: OnCard| -> (String, Box<dyn Tested>) { (who, Box::new(tested)) };
    // Pieces without anything in them, which the language refuses.
    let streams = job.infer.program.operations.iter().any(|it| matches!(it.action, Action::Settle));
    // A card has the compute capability that it has.
    if capability == CAPABILITY
        && !(streams && job.infer.host() == 0)
        && let Some(card) = first_card(|_| true)
    {
        let run = |library| on(card.clone().with_library(library).with_cudnn(library), job);
        all.extend([true, false].map(|library| boxed(format!("card, libraries: {library}"), run(library))));
    }
    if capability == HOPPER {
        let chosen = |card: Cuda| card.with_library(false).with_cudnn(false).with_wgmma(true);
        let run = |card| {
            let tested = on(chosen(card), job);
            assert!(tested.session.warpgroup_attentions() > 0, "the card runs another kernel");
            boxed("card, warpgroup instructions".into(), tested)
        };
        all.extend(first_card(|capability| capability == HOPPER).map(run));
    }
    all
}
