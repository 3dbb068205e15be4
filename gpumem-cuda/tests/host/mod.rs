//! The kernels as C++: compiled unmodified through `simt.h`, launched on a host arena, compared with the CPU backend.
#![allow(dead_code, unused_imports)]

pub mod attention;
pub mod convolution;
#[path = "../../../gpumem-cpu/tests/harness/mod.rs"]
pub mod harness;
pub mod product;

mod beginning;
mod cache;
pub mod card;
pub mod chains;
mod compare;
pub mod filled;
pub mod given;
mod machine;
pub mod ranks;
mod reused;
pub mod tested;
mod warpgroups;

use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::{Placed, on_host};
use gpumem_core::program::{Action, Class, Program, StateWord};
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::optim::Optimizer;
use gpumem_core::{Half, Precision};
use gpumem_cpu::Cpu;
use gpumem_cuda::calls::host_copy::Copy;
use gpumem_cuda::convolution::Pass;
use gpumem_cuda::launch::place;
use gpumem_cuda::operations::{Context, LaunchContext, calls};
use gpumem_cuda::product::Epilogue;
use gpumem_cuda::program_calls::{OperationCalls, steps_where};
use gpumem_cuda::{Argument, Call, Cuda, Kernel, Passage, Session};
use std::collections::BTreeMap;
use std::ffi::c_void;

use beginning::beginning;
pub use beginning::{corrections, spread};
pub use compare::{
    Left, Reference, Run, compare, compare_cached, compare_in, compare_programs, not_a_number, run_with,
};
pub use machine::Machine;
pub use tested::Tested;

/// The card that the shim plays.
pub const CAPABILITY: (i32, i32) = (8, 0);

/// The steps of a program, in order.
pub fn steps_of(placed: &Placed, batch: u64, precision: Precision, optimizer: Optimizer) -> Vec<OperationCalls> {
    Products::Own.planned(placed, batch, (precision, CAPABILITY), optimizer, multiprocessors(CAPABILITY)).1
}

/// The same with each chain as the operations that it is made of.
pub fn steps_without_chains(
    placed: &Placed,
    batch: u64,
    precision: Precision,
    optimizer: Optimizer,
) -> Vec<OperationCalls> {
    Products::Apart.planned(placed, batch, (precision, CAPABILITY), optimizer, multiprocessors(CAPABILITY)).1
}

/// The kernels of a program, in order.
pub fn kernels_in(placed: &Placed, batch: u64, precision: Precision, optimizer: Optimizer) -> Vec<Kernel> {
    kernels(&steps_of(placed, batch, precision, optimizer))
}

/// Whether each tensor has an allocation of its own.
pub fn is_apart() -> bool {
    std::env::var_os("GPUMEM_HOST_APART").is_some()
}

/// The calls of a step. Where each tensor has an allocation of its own, updates and checks have a launch each: one for many
/// parameters finds them by their distances.
fn calls_of(placed: &Placed, setting: LaunchContext, step: OperationCalls) -> OperationCalls {
    let operations = &placed.program.operations[step.first..step.first + step.count];
    if !is_apart() || !operations[0].action.is_of_many() {
        return step;
    }
    let calls = operations.iter().flat_map(|operation| calls(&Context { placed, operation, setting }).unwrap());
    OperationCalls { calls: calls.collect(), ..step }
}

/// The kernels of a program.
pub fn kernels(steps: &[OperationCalls]) -> Vec<Kernel> {
    let calls = steps.iter().flat_map(|step| &step.calls);
    let launch = |call: &Call| match call {
        Call::Kernel(launch) => Some(launch.kernel.clone()),
        Call::Product(_)
        | Call::Convolution(_)
        | Call::Attention(_)
        | Call::Recurrence(_)
        | Call::Passage(_)
        | Call::Exchange(_) => None,
    };
    calls.filter_map(launch).collect()
}

/// Who computes matrix products and convolutions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Products {
    /// The project's own kernel.
    Own,
    /// The libraries.
    Library,
    /// cuBLASLt, without cuDNN.
    WithoutCudnn,
    /// The libraries, with the recurrent layers of cuDNN's, which are played behind a driver alone.
    Recurrent,
    /// Libraries that have no algorithm for anything but a product or a convolution and a bias.
    Poor,
    /// The project's own kernels, with a launch for each operation of what is otherwise a chain.
    Apart,
    /// The project's own kernels, with attention on warpgroup instructions where a card has them.
    Warpgroups,
}

impl Products {
    /// The steps of a program, as they run where its tensors are.
    pub fn steps(self, placed: &Placed, batch: u64, format: Format, optimizer: Optimizer) -> Vec<OperationCalls> {
        self.steps_on(placed, batch, format, optimizer, multiprocessors(format.1))
    }

    /// The steps on a card of so many multiprocessors.
    pub fn steps_on(
        self,
        placed: &Placed,
        batch: u64,
        format: Format,
        optimizer: Optimizer,
        multiprocessors: u32,
    ) -> Vec<OperationCalls> {
        let (setting, steps) = self.planned(placed, batch, format, optimizer, multiprocessors);
        steps.into_iter().map(|step| calls_of(placed, setting, step)).collect()
    }

    /// What its steps depend on, on a card of so many multiprocessors as there are where blocks wait for each other.
    pub fn setting(self, batch: u64, (precision, capability): Format, optimizer: Optimizer) -> LaunchContext {
        let library = !matches!(self, Products::Own | Products::Apart | Products::Warpgroups);
        let (tf32, deterministic, cudnn) = (false, false, library && self != Products::WithoutCudnn);
        LaunchContext {
            rank: 0,
            batch,
            precision,
            optimizer,
            capability,
            multiprocessors: multiprocessors(capability),
            tf32,
            deterministic,
            library,
            cudnn,
            operations: &harness::graphs::own::OPERATIONS,
        }
    }

    /// The steps of a program, as they run in one arena.
    fn planned(
        self,
        placed: &Placed,
        batch: u64,
        format: Format,
        optimizer: Optimizer,
        multiprocessors: u32,
    ) -> (LaunchContext, Vec<OperationCalls>) {
        let setting = LaunchContext { multiprocessors, ..self.setting(batch, format, optimizer) };
        let is_plain = |call: &Call| match call {
            Call::Kernel(_) | Call::Passage(_) | Call::Exchange(_) => true,
            Call::Product(product) => matches!(product.epilogue, Epilogue::None | Epilogue::Bias(_)),
            Call::Convolution(convolution) => convolution.pass == Pass::Forward && !convolution.relu,
            // The gradient is then that of the own kernels, from what the library left.
            Call::Attention(it) => it.pass == attention::Pass::Forward,
            Call::Recurrence(_) => false,
        };
        let recurs = |call: &Call| matches!(call, Call::Recurrence(_));
        let can = |call: &Call| match self {
            Products::Recurrent => Ok(true),
            Products::Poor => Ok(is_plain(call)),
            _ => Ok(!recurs(call)),
        };
        let steps = steps_where(placed, setting, &mut { can }).unwrap_or_else(|error| panic!("{error}"));
        let steps = match self {
            Products::Apart => chains::apart(placed, setting, steps),
            Products::Warpgroups => warpgroups::on_warpgroups(placed, setting, steps),
            _ => steps,
        };
        (setting, steps)
    }
}

/// The card with warpgroup instructions.
pub const HOPPER: (i32, i32) = (9, 0);

/// A card on which so few blocks run at once that each has several parts of what they wait for.
pub const FEW: (i32, i32) = (8, 7);

/// A card with the tensor cores of Turing whose blocks wait for each other.
pub const TURING: (i32, i32) = (7, 6);

/// Blocks wait for each other on newer cards, and on older ones other than [`TURING`] they do not, nor for the sanitizers, which have no shared
/// memory for each.
fn multiprocessors(capability: (i32, i32)) -> u32 {
    match capability {
        _ if is_apart() => 0,
        FEW => 2,
        TURING => 40,
        _ if capability < (8, 0) => 0,
        _ => 132,
    }
}

/// Where tensors are: in one arena at the planned offsets, or, for the sanitizers, each in an allocation of its own, so that
/// touching anything beyond a tensor's last byte shows.
enum Memory {
    Arena(Vec<u64>),
    Apart(Vec<Vec<u8>>),
}

/// A number format, and the compute capability of the card that the host plays.
pub type Format = (Precision, (i32, i32));

/// A training step run by the kernels on the host.
pub struct Simulated {
    machine: Machine,
    steps: Vec<OperationCalls>,
    memory: Memory,
    /// What lies in host memory, where tensors are in one arena.
    host: Vec<u8>,
    pub placed: Placed,
    batch: u64,
    precision: Precision,
    order: i32,
    /// Copies between host memory and the arena that nobody has waited for.
    under_way: Vec<Passage>,
    /// Parts of a batch that were added up for the step that is under way.
    parts: u64,
}

impl Simulated {
    pub fn new(
        placed: Placed,
        batch: u64,
        arena: u64,
        optimizer: Optimizer,
        (precision, capability): Format,
        order: i32,
    ) -> Simulated {
        let steps = Products::Own.steps(&placed, batch, (precision, capability), optimizer);
        Simulated::with_steps(placed, steps, batch, arena, precision, order)
    }

    /// A program with these steps.
    pub fn with_steps(
        placed: Placed,
        steps: Vec<OperationCalls>,
        batch: u64,
        arena: u64,
        precision: Precision,
        order: i32,
    ) -> Simulated {
        let program = &placed.program;
        let apart = is_apart();
        let machine = Machine::new(kernels(&steps));
        let memory = if apart {
            // Tensors, then their master copies.
            let count = 2 * program.tensors.len() as Argument;
            let bytes = |argument| vec![0xff; place(&placed, argument).map_or(0, |(_, bytes)| bytes as usize)];
            Memory::Apart((0..count).map(bytes).collect())
        } else {
            Memory::Arena(vec![u64::MAX; arena as usize / 8])
        };
        let host = vec![0xff; placed.host() as usize];
        Simulated { machine, steps, memory, host, placed, batch, precision, order, under_way: Vec::new(), parts: 0 }
    }

    /// The same with sources that were changed on purpose.
    pub fn change(&mut self, change: impl Fn(&str, &str) -> String) {
        self.machine = Machine::with_sources(kernels(&self.steps), change);
    }

    /// The bytes of a tensor.
    fn bytes(&mut self, id: usize) -> &mut [u8] {
        let (offset, length) = place(&self.placed, id as Argument).unwrap();
        let length = length as usize;
        if let (Some(offset), Memory::Arena(_)) = (on_host(offset), &self.memory) {
            return &mut self.host[offset as usize..][..length];
        }
        let (offset, count) = (offset as usize, 2 * self.placed.program.tensors.len());
        let own = if id < count { id } else { id - count };
        match &mut self.memory {
            // A second half is in the tensor's own.
            Memory::Apart(tensors) => {
                let tensor = &mut tensors[own];
                let start = tensor.len() - length;
                &mut tensor[start..]
            }
            Memory::Arena(arena) => {
                // SAFETY: any bytes are a valid u64 and the other way round; the length is that of the vector.
                let all: &mut [u8] =
                    unsafe { std::slice::from_raw_parts_mut(arena.as_mut_ptr().cast(), arena.len() * 8) };
                &mut all[offset..offset + length]
            }
        }
    }

    fn width(&self, id: usize) -> u64 {
        self.placed.program.tensors[id].role.bytes(self.precision)
    }

    /// The number of the f32 master copy of a tensor that has one.
    fn master(&self, id: usize) -> Option<usize> {
        self.placed.masters[id].map(|_| self.placed.program.tensors.len() + id)
    }

    /// Writes 32-bit words; floats are rounded to what the tensor holds.
    pub fn write(&mut self, id: usize, words: &[u32]) {
        if let Some(master) = self.master(id) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.bytes(master).copy_from_slice(&bytes);
        }
        let bytes = tested::stored(self.width(id), self.precision, words);
        self.bytes(id).copy_from_slice(&bytes);
    }

    /// Reads 32-bit words; 16-bit floats are widened. Of a parameter with a master copy this is the copy, which the parameter
    /// is checked to be equal to, but for its digits.
    pub fn read(&mut self, id: usize) -> Vec<u32> {
        let own = self.read_own(id);
        let Some(master) = self.master(id) else { return own };
        let words = self.bytes(master).chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let words: Vec<u32> = words.collect();
        let rounded: Vec<u32> = words.iter().map(|&word| widen(self.precision, narrow(self.precision, word))).collect();
        assert_eq!(own, rounded, "{} and its master copy", self.placed.program.tensors[id].name);
        words
    }

    fn read_own(&mut self, id: usize) -> Vec<u32> {
        let (width, precision) = (self.width(id), self.precision);
        tested::seen(width, precision, self.bytes(id))
    }

    fn call(&mut self, call: &Call) {
        match call {
            Call::Kernel(launch) => {
                let pointer = |argument: &Option<Argument>| match *argument {
                    None => std::ptr::null_mut(),
                    Some(argument) => self.bytes(argument as usize).as_mut_ptr().cast::<c_void>(),
                };
                let addresses = launch.arguments.iter().map(pointer).collect();
                self.machine.launch(launch, self.order, addresses);
            }
            Call::Product(product) => product::run(product, self),
            Call::Convolution(convolution) => convolution::run(convolution, self),
            Call::Attention(it) => attention::run(it, self),
            Call::Recurrence(it) => panic!("{it}"),
            Call::Passage(passage) => self.pass(passage),
            Call::Exchange(it) => panic!("{it:?}"),
        }
    }

    /// Copies between host memory and the arena: at once in the first order of threads, in others when the step waits for them.
    fn pass(&mut self, passage: &Passage) {
        if self.order == 0 {
            return self.copy(passage);
        }
        let is_waited_for = |other: &mut Passage| match (passage, other) {
            (Passage::Await { buffer }, Passage::Fetch { buffer: other, .. }) => *other == *buffer,
            (Passage::Fetch { buffer, .. }, Passage::Store { buffer: other, .. }) => *other == *buffer,
            (Passage::Settle, Passage::Store { .. }) => true,
            (Passage::Left { host }, Passage::Leave { copy }) => copy.host == *host,
            (Passage::Returned { host }, Passage::Return { copy }) => copy.host == *host,
            _ => false,
        };
        let over: Vec<Passage> = self.under_way.extract_if(.., is_waited_for).collect();
        over.iter().for_each(|passage| self.copy(passage));
        if !passage.copies().is_empty() {
            self.under_way.push(passage.clone());
        }
    }

    fn copy(&mut self, passage: &Passage) {
        let is_fetch = passage.arrives();
        for &Copy { host, at, arena, bytes } in passage.copies() {
            let (start, end) = (at as usize, (at + bytes) as usize);
            if is_fetch {
                let piece = self.bytes(host as usize)[start..end].to_vec();
                self.bytes(arena as usize)[..bytes as usize].copy_from_slice(&piece);
            } else {
                let piece = self.bytes(arena as usize)[..bytes as usize].to_vec();
                self.bytes(host as usize)[start..end].copy_from_slice(&piece);
            }
        }
    }

    /// Brings the state to a part of a batch that is split; before the first, all that is added up becomes 0.
    fn begin(&mut self, part: u64) {
        let program = &self.placed.program;
        let accumulators: Vec<usize> = program.accumulators().map(|id| id as usize).collect();
        let state = program.of_class(Class::State).next().filter(|_| program.descent.accumulates());
        if let Some(state) = state {
            let at = 4 * StateWord::PART;
            self.bytes(state as usize)[at..at + 4].copy_from_slice(&(part as u32).to_le_bytes());
        }
        accumulators.into_iter().filter(|_| part == 0).for_each(|id| self.bytes(id).fill(0));
    }

    /// What a step does with a part of a batch that is not the last.
    pub fn accumulate(&mut self, part: u64) {
        self.begin(part);
        self.run(self.placed.program.repeated(), |_, _, _| {});
        self.parts = part + 1;
    }

    /// One step, with memory that holds no living tensor filled with NaN.
    pub fn step(&mut self) {
        self.step_seen(|_, _, _| {});
    }

    /// The same, with a look at memory behind each of its parts: the number of the operation that comes next, and which ones have run.
    fn step_seen(&mut self, see: impl FnMut(&mut Simulated, usize, &[bool])) {
        let part = std::mem::take(&mut self.parts);
        self.begin(part);
        self.run(self.placed.program.operations.len(), see);
    }

    /// So many of the first operations.
    fn run(&mut self, count: usize, mut see: impl FnMut(&mut Simulated, usize, &[bool])) {
        let program = &self.placed.program;
        let lasting: Vec<u32> = program.outlives_parts().collect();
        let transients = program.transients().filter(|id| !lasting.contains(id));
        let transients: Vec<usize> = transients.map(|id| id as usize).collect();
        let mut touching: Vec<Vec<usize>> = program.tensors.iter().map(|it| vec![it.last as usize]).collect();
        for (index, operation) in program.operations.iter().enumerate() {
            operation.tensors().for_each(|id| touching[id as usize].push(index));
        }
        let mut done = vec![false; program.operations.len()];
        transients.iter().for_each(|&id| self.bytes(id).fill(0xff));
        for step in self.steps.clone() {
            let is_repeated = step.operations().iter().filter(|&&at| at < count).count();
            assert!(is_repeated == 0 || is_repeated == step.operations().len(), "a launch for several parts of a step");
            if is_repeated == 0 {
                continue;
            }
            for call in &step.calls {
                self.call(call);
            }
            let operations = step.operations();
            operations.iter().for_each(|&index| done[index] = true);
            let is_over = |id: usize| touching[id].iter().all(|&index| done[index]);
            // Where several operations run as one, what the first of them used last may be in the place of what the last wrote.
            let lives = |id: usize| touching[id].iter().any(|&index| done[index]) && !is_over(id);
            let range = |id: usize| self.placed.offsets[id]..self.placed.offsets[id] + self.placed.bytes[id];
            let overlap = |a: usize, b: usize| range(a).start < range(b).end && range(b).start < range(a).end;
            let dead = |id: &&usize| {
                let is_taken = || transients.iter().any(|&other| lives(other) && overlap(**id, other));
                let dies = is_over(**id) && touching[**id].iter().any(|index| operations.contains(index));
                dies && !(operations.len() > 1 && is_taken())
            };
            let ends = done.contains(&false);
            let dead: Vec<usize> = transients.iter().filter(dead).filter(|_| ends).copied().collect();
            dead.into_iter().for_each(|id| self.bytes(id).fill(0xff));
            see(self, step.first + step.count, &done);
        }
        assert!(self.under_way.is_empty(), "the step has not waited for {:?}", self.under_way);
    }
}

impl product::Memory for Simulated {
    fn bytes(&mut self, tensor: Argument) -> &mut [u8] {
        Simulated::bytes(self, tensor as usize)
    }

    fn range(&self, tensor: Argument) -> std::ops::Range<u64> {
        let (offset, bytes) = place(&self.placed, tensor).unwrap();
        offset..offset + bytes
    }
}

fn sixteen(precision: Precision) -> Half {
    match precision.narrow() {
        gpumem_core::Format::Bf16 => Half::Bf16,
        gpumem_core::Format::F16 => Half::F16,
        _ => panic!("a network of 32 bits"),
    }
}

/// The bits of an f32 as the bits of this network's 16-bit numbers.
pub fn narrow(precision: Precision, word: u32) -> u16 {
    sixteen(precision).narrow(f32::from_bits(word))
}

/// The bits of this network's 16-bit numbers as those of an f32.
pub fn widen(precision: Precision, half: u16) -> u32 {
    sixteen(precision).widen(half).to_bits()
}

/// A network with its training, batch and optimizer, by name.
pub type Case<'a> = (&'a str, &'a Graph, NodeId, Training<'a>, u64, Optimizer);

/// The program of a network as a job that trains in this number format.
fn job(program: &Program, batch: u64, precision: Precision, optimizer: Optimizer) -> Job {
    // Of a batch that is split, so many samples are a part.
    let compiled = harness::graphs::plan(program, batch * program.descent.parts(), precision);
    let compiled = reused::in_every_second(compiled);
    let placed = gpumem_core::memory::place::place(&compiled).unwrap();
    let (arena, train, infer) = (compiled.budget[Line::Arena], Some(placed.clone()), placed);
    let (tf32, deterministic) = (false, false);
    let (evaluation, served) = (None, None);
    Job {
        name: "test",
        arena,
        reserve: 0,
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
        settings: 0,
        operations: &harness::graphs::own::OPERATIONS,
    }
}

/// Compiles together what a network's kernels are in several formats.
pub fn prepare(formats: &[Format], (_, graph, output, training, batch, optimizer): Case<'_>) {
    let program = lower(graph, &[output], &Options { training: Some(training) }).unwrap();
    prepare_programs(formats, &[program], batch, optimizer);
}

/// Compiles together what the kernels of programs are in several formats.
pub fn prepare_programs(formats: &[Format], programs: &[Program], batch: u64, optimizer: Optimizer) {
    if std::env::var_os("GPUMEM_SKIP_HOST").is_some() {
        return;
    }
    let each = formats.iter().flat_map(|format| programs.iter().map(move |program| (*format, program)));
    let steps = each.flat_map(|((precision, capability), program)| {
        let job = job(program, batch, precision, optimizer);
        let ways = tested::ways(&job, capability).into_iter().map(|(_, steps)| steps);
        ways.chain(tested::steps_without_chains(&job, capability))
    });
    Machine::new(steps.flat_map(|steps| kernels(&steps)));
}
