//! A network on a card: one allocation, kernels compiled for its shapes, and each program as one replayed graph.

use crate::compile::compile;
use crate::cublaslt::{Library, Plan, Plans};
use crate::device::{Cuda, failure};
use crate::launch::{Argument, Call, Kernel, Launch, place};
use crate::operations::{Setting, steps_where};
use cudarc::driver::result::{self, module};
use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUgraphInstantiate_flags, CUmodule, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream};
use gpumem_core::device::{Job, Placed, Runner};
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;
use gpumem_core::optim::Optimizer;
use gpumem_core::program::{Action, Class, Measure, Operation, Slot, StateWord};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;

/// A network loaded onto a card.
#[derive(Debug)]
pub struct Session {
    // Fields are dropped in this order: graphs before the modules and the memory that they use.
    train: Option<Prepared>,
    infer: Prepared,
    modules: Modules,
    products: usize,
    arena: Arena,
    stream: Arc<CudaStream>,
    state: Option<u64>,
    optimizer: Optimizer,
    checks: Vec<IndexCheck>,
}

impl Session {
    pub(crate) fn new(card: &Cuda, job: Job) -> Result<Session, Error> {
        let stream = card.context.new_stream().map_err(failure("making a stream"))?;
        let arena = Arena::new(card, job.arena)?;
        let mut modules = Modules { context: card.context.clone(), loaded: BTreeMap::new() };
        let library = card.library.then(|| Library::new(&card.context)).transpose()?;
        let library = library.as_ref();
        let mut prepare = |placed: &Placed| Prepared::new(card, placed, &job, &arena, &mut modules, library);
        let train = job.train.as_ref().map(&mut prepare).transpose()?;
        let infer = prepare(&job.infer)?;
        let programs = job.train.iter().chain([&job.infer]);
        let checks = programs.flat_map(|placed| index_checks(placed, job.batch)).collect();
        let state = job
            .train
            .as_ref()
            .and_then(|placed| placed.program.of_class(Class::State).next().map(|id| placed.offsets[id as usize]));
        let products = train.iter().chain([&infer]).map(Prepared::products).sum();
        Ok(Session { train, infer, modules, products, arena, stream, state, optimizer: job.optimizer, checks })
    }

    /// The number of kernels that were compiled for this network.
    pub fn kernels(&self) -> usize {
        self.modules.loaded.len()
    }

    /// The number of matrix products that go to cuBLASLt.
    pub fn products(&self) -> usize {
        self.products
    }
}

impl Runner for Session {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.checks.iter().filter(|check| check.offset == offset).try_for_each(|check| check.run(bytes))?;
        let address = self.arena.address(offset, bytes.len() as u64)?;
        self.stream.context().bind_to_thread().map_err(failure("binding the context"))?;
        self.stream.synchronize().map_err(failure("waiting for the card"))?;
        // SAFETY: `address` checked that the range lies inside the arena, and nothing runs on the stream.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(failure("copying to the card"))
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let address = self.arena.address(offset, bytes.len() as u64)?;
        self.stream.context().bind_to_thread().map_err(failure("binding the context"))?;
        self.stream.synchronize().map_err(failure("waiting for the card"))?;
        // SAFETY: as in `write`.
        unsafe { result::memcpy_dtoh_sync(bytes, address) }.map_err(failure("copying from the card"))
    }

    fn train(&mut self) -> Result<(), Error> {
        let Some(train) = &mut self.train else {
            let what = "the network has no training step; add `const TRAIN`".into();
            return Err(Error::Unsupported { device: "CUDA", what });
        };
        train.run(&self.stream)
    }

    fn infer(&mut self) -> Result<(), Error> {
        self.infer.run(&self.stream)
    }

    fn set_optimizer(&mut self, optimizer: Optimizer) {
        // Only the learning rate changes between steps; it is read from device memory.
        self.optimizer = optimizer;
        if let Some(state) = self.state {
            let rate = (optimizer.lr() as f32).to_le_bytes();
            // A failure shows at the next step: the context keeps it.
            let _ = self.write(state + 4 * StateWord::LearningRate as u64, &rate);
        }
    }
}

/// The one allocation.
#[derive(Debug)]
struct Arena {
    start: CUdeviceptr,
    bytes: u64,
    context: Arc<CudaContext>,
}

impl Arena {
    fn new(card: &Cuda, bytes: u64) -> Result<Arena, Error> {
        card.context.bind_to_thread().map_err(failure("binding the context"))?;
        let needed = Error::Memory { device: "CUDA", needed: bytes, free: card.memory().ok().map(|(free, _)| free) };
        let size = usize::try_from(bytes).map_err(|_| needed.clone())?;
        // SAFETY: the context is bound; what is allocated is freed in `drop` and nowhere else.
        let start = unsafe { result::malloc_sync(size) }.map_err(|_| needed)?;
        Ok(Arena { start, bytes, context: card.context.clone() })
    }

    /// The address of a range that lies inside the arena.
    fn address(&self, offset: u64, length: u64) -> Result<CUdeviceptr, Error> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(self.start + offset),
            _ => Err(Error::Range { offset, length, arena: self.bytes }),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated in `new`; graphs and launches that use it were dropped before, and freeing waits for them.
            let _ = unsafe { result::free_sync(self.start) };
        }
    }
}

/// Kernels on the card.
#[derive(Debug)]
struct Modules {
    context: Arc<CudaContext>,
    loaded: BTreeMap<Kernel, (CUmodule, CUfunction)>,
}

impl Modules {
    fn function(&mut self, card: &Cuda, kernel: &Kernel) -> Result<CUfunction, Error> {
        if let Some((_, function)) = self.loaded.get(kernel) {
            return Ok(*function);
        }
        let compiled = compile(kernel, card.capability, &card.cache)?;
        let loading = format!("loading kernel `{}`", kernel.entry);
        // SAFETY: the code is a cubin that NVRTC made, whole as the cache checked; the driver copies it.
        let module = unsafe { module::load_data(compiled.code.as_ptr().cast()) }.map_err(failure(&loading))?;
        // SAFETY: the module was loaded above; it is unloaded in `drop` only.
        let function = unsafe { module::get_function(module, compiled.entry) }.map_err(failure(&loading))?;
        self.loaded.insert(kernel.clone(), (module, function));
        Ok(function)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            for (module, _) in self.loaded.values() {
                // SAFETY: loaded in `function`; what was launched from it was dropped before.
                let _ = unsafe { module::unload(*module) };
            }
        }
    }
}

/// A call with its addresses.
#[derive(Debug)]
enum Bound {
    Kernel(BoundKernel),
    Product(Rc<Plan>),
}

impl Bound {
    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        match self {
            Bound::Kernel(kernel) => kernel.launch(stream),
            Bound::Product(plan) => plan.launch(stream),
        }
    }
}

#[derive(Debug)]
struct BoundKernel {
    function: CUfunction,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    addresses: Vec<CUdeviceptr>,
}

impl BoundKernel {
    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let mut addresses = self.addresses.clone();
        let mut parameters: Vec<*mut c_void> =
            addresses.iter_mut().map(|address| std::ptr::from_mut(address).cast()).collect();
        // SAFETY: the function belongs to a module that outlives this; its parameters are as many pointers into the arena as
        // the operation's launch lists, each to a tensor of the length that the kernel was compiled for; the driver copies
        // the parameters before it returns.
        unsafe { result::launch_kernel(self.function, self.grid, self.block, 0, stream.cu_stream(), &mut parameters) }
            .map_err(failure("launching a kernel"))
    }
}

/// A program, ready to run.
struct Prepared {
    graph: Option<CudaGraph>,
    /// The launches of each operation, with what to call it in messages.
    operations: Vec<(String, Vec<Bound>)>,
    has_run: bool,
    blocking: bool,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("operations", &self.operations.len()).finish_non_exhaustive()
    }
}

impl Prepared {
    fn new(
        card: &Cuda,
        placed: &Placed,
        job: &Job,
        arena: &Arena,
        modules: &mut Modules,
        library: Option<&Library>,
    ) -> Result<Prepared, Error> {
        let program = &placed.program;
        let mut operations = Vec::new();
        let Job { batch, precision, optimizer, tf32, deterministic, .. } = *job;
        let capability = card.capability;
        let setting =
            Setting { batch, precision, optimizer, capability, tf32, deterministic, library: library.is_some() };
        let address = |tensor| place(placed, tensor).and_then(|(offset, bytes)| arena.address(offset, bytes));
        let mut plans = Plans::new(library, &address);
        for step in steps_where(placed, setting, &mut |product| Ok(plans.get(product)?.is_some()))? {
            let operation = &program.operations[step.first];
            let mut bind = |call: &Call| match call {
                Call::Kernel(launch) => bind(launch, card, placed, arena, modules),
                Call::Product(product) => {
                    let plan = plans.get(product)?.ok_or(Error::Damaged("a product has no algorithm"))?;
                    Ok(Bound::Product(plan))
                }
            };
            let bound = step.calls.iter().map(&mut bind).collect::<Result<Vec<Bound>, Error>>()?;
            let path = program.paths.get(operation.row as usize).map_or("network", String::as_str);
            operations.push((format!("{:?} of `{path}`", operation.phase()).to_lowercase(), bound));
        }
        let blocking = std::env::var_os("GPUMEM_LAUNCH_BLOCKING").is_some_and(|value| value == "1");
        Ok(Prepared { graph: None, operations, has_run: false, blocking })
    }

    /// Products that go to cuBLASLt.
    fn products(&self) -> usize {
        let calls = self.operations.iter().flat_map(|(_, calls)| calls);
        calls.filter(|call| matches!(call, Bound::Product(_))).count()
    }

    /// Runs operation by operation the first time, so that everything is loaded; captures the second run into a graph; and
    /// replays it from then on.
    fn run(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        stream.context().bind_to_thread().map_err(failure("binding the context"))?;
        if self.blocking {
            return self.run_one_by_one(stream);
        }
        if !self.has_run {
            self.has_run = true;
            return self.launch_all(stream);
        }
        if self.graph.is_none() {
            self.graph = Some(self.capture(stream)?);
        }
        match &self.graph {
            Some(graph) => graph.launch().map_err(failure("replaying the graph")),
            None => self.launch_all(stream),
        }
    }

    fn launch_all(&self, stream: &CudaStream) -> Result<(), Error> {
        self.operations.iter().flat_map(|(_, launches)| launches).try_for_each(|launch| launch.launch(stream))
    }

    /// Waits after each operation, so that a failure has a name.
    fn run_one_by_one(&self, stream: &CudaStream) -> Result<(), Error> {
        for (name, launches) in &self.operations {
            launches.iter().try_for_each(|launch| launch.launch(stream))?;
            stream.synchronize().map_err(failure(name))?;
        }
        Ok(())
    }

    fn capture(&self, stream: &Arc<CudaStream>) -> Result<CudaGraph, Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(failure("capturing the graph"))?;
        let launched = self.launch_all(stream);
        // The capture ends even if a launch failed: the stream is of no use otherwise.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).map_err(failure("instantiating the graph"));
        launched?;
        graph?.ok_or(Error::Device { device: "CUDA", what: "the captured graph is empty".into() })
    }
}

fn bind(launch: &Launch, card: &Cuda, placed: &Placed, arena: &Arena, modules: &mut Modules) -> Result<Bound, Error> {
    let address = |argument: &Option<Argument>| match argument {
        None => Ok(0),
        Some(argument) => place(placed, *argument).and_then(|(offset, bytes)| arena.address(offset, bytes)),
    };
    let [grid, block] = [launch.grid, launch.block].map(|[x, y, z]| (x, y, z));
    let addresses = launch.arguments.iter().map(address).collect::<Result<_, _>>()?;
    Ok(Bound::Kernel(BoundKernel { function: modules.function(card, &launch.kernel)?, grid, block, addresses }))
}

/// Indices from outside, checked before they reach the card: a kernel that follows one that is too large would read whatever
/// is there.
#[derive(Debug)]
struct IndexCheck {
    offset: u64,
    bytes: u64,
    what: &'static str,
    limit: u64,
}

impl IndexCheck {
    fn run(&self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() as u64 != self.bytes {
            let found = bytes.len() as u64 / 4;
            return Err(Error::Length { what: format!("a batch of {}s", self.what), expected: self.bytes / 4, found });
        }
        let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        match words.enumerate().find(|(_, value)| u64::from(*value) >= self.limit) {
            None => Ok(()),
            Some((position, value)) => {
                Err(Error::Index { what: self.what, position: position as u64, value, limit: self.limit })
            }
        }
    }
}

fn index_checks(placed: &Placed, batch: u64) -> Vec<IndexCheck> {
    let check = |operation: &Operation| -> Option<IndexCheck> {
        let (slot, what, limit) = match &operation.action {
            Action::Forward(Layer::Embedding(layer)) => (Slot::Input(0), "token", layer.num_embeddings),
            Action::Loss(criterion) if criterion.kind == Measure::CrossEntropy => {
                (Slot::Target, "label", criterion.classes)
            }
            _ => return None,
        };
        let id = operation.read(slot)?;
        let tensor = placed.program.tensor(id);
        let is_given = matches!(tensor.class, Class::Input | Class::Target);
        is_given.then_some(())?;
        Some(IndexCheck { offset: placed.offsets[id as usize], bytes: tensor.elements(batch)? * 4, what, limit })
    };
    placed.program.operations.iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_checked_before_they_reach_the_card() {
        let check = IndexCheck { offset: 0, bytes: 8, what: "label", limit: 10 };
        let bytes = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(check.run(&bytes(&[0, 9])), Ok(()));
        let error = check.run(&bytes(&[3, 10])).unwrap_err();
        assert_eq!(error, Error::Index { what: "label", position: 1, value: 10, limit: 10 });
        let error = check.run(&bytes(&[3])).unwrap_err();
        assert_eq!(error.to_string(), "a batch of labels has 2 elements, but 1 were given");
    }
}
