//! A program with its addresses: launched call by call, captured into a graph, replayed.

use super::arena::Arena;
use super::modules::Modules;
use crate::calls::{Argument, Call, Launch, place};
use crate::card::Card;
use crate::error::failure;
use crate::libraries::cublaslt::{Library, Plan};
use crate::libraries::cudnn;
use crate::libraries::plans::Plans;
use crate::operations::Setting;
use crate::steps::{Step, steps_where};
use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph, CudaStream};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Class};
use std::ffi::c_void;
use std::sync::Arc;

/// A call with its addresses.
#[derive(Debug)]
enum Bound {
    Kernel(BoundKernel),
    Product(Arc<Plan>),
    Convolution(Arc<cudnn::Plan>),

    Attention(Arc<cudnn::Plan>),
}

impl Bound {
    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        match self {
            Bound::Kernel(kernel) => kernel.launch(stream),
            Bound::Product(plan) => plan.launch(stream),
            // Its library works on the session's stream, which this is.
            Bound::Convolution(plan) | Bound::Attention(plan) => plan.launch(),
        }
    }
}

#[derive(Debug)]
struct BoundKernel {
    function: CUfunction,
    /// Whether its blocks wait for each other.
    is_cooperative: bool,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    addresses: Vec<CUdeviceptr>,
    numbers: Vec<u32>,
}

impl BoundKernel {
    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let mut addresses = self.addresses.clone();
        let mut parameters: Vec<*mut c_void> =
            addresses.iter_mut().map(|address| std::ptr::from_mut(address).cast()).collect();
        let mut numbers = self.numbers.clone();
        if !numbers.is_empty() {
            parameters.push(numbers.as_mut_ptr().cast());
        }
        // SAFETY: the function belongs to a module that outlives this; its parameters are as many pointers into the arena as
        // the operation's launch lists, each to a tensor of the length that the kernel was compiled for, or, in an update of
        // many parameters, to the first of tensors at the distances that the numbers say, all of them in the arena; and behind
        // them, where there are numbers, one of plain words, as many as these, which the tests check of every launch; the driver
        // copies the parameters before it returns.
        let launched = unsafe {
            let launch = if self.is_cooperative { result::launch_cooperative_kernel } else { result::launch_kernel };
            launch(self.function, self.grid, self.block, 0, stream.cu_stream(), &mut parameters)
        };
        launched.map_err(failure("launching a kernel"))
    }
}

/// The calls of one or several operations.
#[derive(Debug)]
struct Group {
    /// What to call it in messages.
    name: String,
    calls: Vec<Bound>,
}

/// Where the loss goes on the host, beside what comes behind it: nothing waits for the copy but the end of the program.
#[derive(Debug)]
pub(super) struct LossCopy {
    from: CUdeviceptr,
    /// A word of pinned memory that outlives the program.
    to: *mut u32,
    stream: Arc<CudaStream>,
    computed: CudaEvent,
    copied: CudaEvent,
}

impl LossCopy {
    /// From the arena to a word of pinned memory, on a stream of its own.
    pub(super) fn new(from: CUdeviceptr, to: *mut u32, stream: &Arc<CudaStream>) -> Result<LossCopy, Error> {
        let event = || stream.context().new_event(None).map_err(failure("making an event"));
        Ok(LossCopy { from, to, stream: stream.clone(), computed: event()?, copied: event()? })
    }

    /// Enqueues the copy behind what `stream` has been given.
    fn start(&self, stream: &CudaStream) -> Result<(), Error> {
        self.computed.record(stream).map_err(failure("recording an event"))?;
        self.stream.wait(&self.computed).map_err(failure("waiting for the loss"))?;
        // SAFETY: the word lies in pinned memory that the session keeps until the stream has ended, and the host only reads it, as
        // a volatile word, until then.
        let to = unsafe { std::slice::from_raw_parts_mut(self.to, 1) };
        // SAFETY: the loss is a 4-byte tensor in the arena that lives until the end of the program, and `to` is as long.
        unsafe { result::memcpy_dtoh_async(to, self.from, self.stream.cu_stream()) }
            .map_err(failure("copying the loss"))?;
        self.copied.record(&self.stream).map_err(failure("recording an event"))
    }

    /// Lets what `stream` is given from now on come after the copy.
    fn join(&self, stream: &CudaStream) -> Result<(), Error> {
        stream.wait(&self.copied).map_err(failure("waiting for the copy of the loss"))
    }
}

/// What all programs of a network have in common.
#[derive(Clone, Copy)]
pub(super) struct Binding<'a> {
    pub(super) card: &'a Card,
    pub(super) arena: &'a Arena,
    pub(super) modules: &'a Modules,
    pub(super) libraries: Libraries<'a>,
}

/// Libraries that something goes to.
#[derive(Clone, Copy)]
pub(super) struct Libraries<'a> {
    /// cuBLASLt, if matrix products go there.
    pub(super) products: Option<&'a Library>,
    /// cuDNN, if convolutions go there.
    pub(super) convolutions: Option<&'a cudnn::Library>,
}

/// The calls of a program, with those of libraries only that there are algorithms for.
pub(super) fn possible_steps(
    placed: &Placed,
    setting: Setting,
    arena: &Arena,
    libraries: Libraries<'_>,
) -> Result<Vec<Step>, Error> {
    let at = |argument| address(arena, placed, argument, 0);
    let mut plans = Plans::new(libraries.products, &at);
    let mut convolutions = Plans::new(libraries.convolutions, &at);
    let mut attentions = Plans::new(libraries.convolutions, &at);
    let mut can = |call: &Call| {
        Ok(match call {
            Call::Kernel(_) => true,
            Call::Product(product) => plans.get(product)?.is_some(),
            Call::Convolution(convolution) => convolutions.get(convolution)?.is_some(),
            Call::Attention(attention) => attentions.get(attention)?.is_some(),
        })
    };
    steps_where(placed, setting, &mut can)
}

/// A program, ready to run.
pub(super) struct Prepared {
    graph: Option<CudaGraph>,
    groups: Vec<Group>,
    /// The group that computes the loss, and where the loss is copied behind it.
    loss: Option<(usize, LossCopy)>,
    blocking: bool,
}

// SAFETY: functions, graphs and addresses are handles that the driver takes from any thread whose context is bound, which
// the session sees to; `LossCopy::to` is written by the card only.
unsafe impl Send for Prepared {}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("groups", &self.groups.len()).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Binds the calls of a program to addresses. Its inputs and targets lie `shift` bytes behind their first places.
    pub(super) fn new(
        binding: Binding<'_>,
        placed: &Placed,
        steps: &[Step],
        shift: u64,
        loss: Option<LossCopy>,
    ) -> Result<Prepared, Error> {
        let program = &placed.program;
        let mut groups = Vec::new();
        let mut loss_group = None;
        let at = |argument| address(binding.arena, placed, argument, shift);
        let mut plans = Plans::new(binding.libraries.products, &at);
        let mut convolutions = Plans::new(binding.libraries.convolutions, &at);
        let mut attentions = Plans::new(binding.libraries.convolutions, &at);
        for step in steps {
            let operations = &program.operations[step.first..step.first + step.count];
            if operations.iter().any(|operation| matches!(operation.action, Action::Loss(_))) {
                loss_group = Some(groups.len());
            }
            let bind = |call: &Call| match call {
                Call::Kernel(launch) => bind(launch, binding, placed, shift),
                Call::Product(product) => {
                    let plan = plans.get(product)?;
                    plan.map(Bound::Product).ok_or(Error::Damaged("a product was chosen without an algorithm"))
                }
                Call::Attention(attention) => {
                    let plan = attentions.get(attention)?;
                    plan.map(Bound::Attention).ok_or(Error::Damaged("attention was chosen without an engine"))
                }
                Call::Convolution(convolution) => {
                    let plan = convolutions.get(convolution)?;
                    plan.map(Bound::Convolution).ok_or(Error::Damaged("a convolution was chosen without an algorithm"))
                }
            };
            let calls = step.calls.iter().map(bind).collect::<Result<Vec<Bound>, Error>>()?;
            let row = operations[0].row as usize;
            let path = program.paths.get(row).map_or("network", String::as_str);
            groups.push(Group { name: format!("{:?} of `{path}`", operations[0].phase()).to_lowercase(), calls });
        }
        let blocking = std::env::var_os("GPUMEM_LAUNCH_BLOCKING").is_some_and(|value| value == "1");
        Ok(Prepared { graph: None, groups, loss: loss_group.zip(loss), blocking })
    }

    /// Matrix products that go to cuBLASLt.
    pub(super) fn products(&self) -> usize {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Product(_))).count()
    }

    /// Convolutions that go to cuDNN.
    pub(super) fn convolutions(&self) -> usize {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Convolution(_))).count()
    }

    /// Attention that goes to cuDNN.
    pub(super) fn attentions(&self) -> usize {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Attention(_))).count()
    }

    /// Enqueues the program.
    pub(super) fn run(&self, stream: &CudaStream) -> Result<(), Error> {
        match &self.graph {
            Some(graph) => graph.launch().map_err(failure("replaying the graph")),
            None => self.launch(stream),
        }
    }

    /// Launches call by call; with `GPUMEM_LAUNCH_BLOCKING=1` waits after each group, so that a failure has a name.
    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        for (index, group) in self.groups.iter().enumerate() {
            group.calls.iter().try_for_each(|call| call.launch(stream))?;
            if let Some((_, copy)) = self.loss.as_ref().filter(|(at, _)| *at == index) {
                copy.start(stream)?;
            }
            if self.blocking {
                stream.synchronize().map_err(failure(&group.name))?;
            }
        }
        self.loss.as_ref().map_or(Ok(()), |(_, copy)| copy.join(stream))
    }

    /// Captures the program into a graph, which is replayed from then on, and brings it to the card. Nothing runs for that,
    /// so whatever is loaded when it first runs must have been loaded before. With `GPUMEM_LAUNCH_BLOCKING=1` there is no graph.
    pub(super) fn capture(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        if !self.blocking {
            let graph = self.captured(stream)?;
            graph.upload().map_err(failure("bringing the graph to the card"))?;
            self.graph = Some(graph);
        }
        Ok(())
    }

    /// Back to launching call by call.
    pub(super) fn discard_graph(&mut self) {
        self.graph = None;
    }

    fn captured(&self, stream: &Arc<CudaStream>) -> Result<CudaGraph, Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(failure("capturing the graph"))?;
        let launched = self.launch(stream);
        // The capture ends even if a launch failed: the stream is of no use otherwise.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).map_err(failure("instantiating the graph"));
        launched?;
        graph?.ok_or(Error::failed("CUDA", "the captured graph is empty"))
    }
}

fn bind(launch: &Launch, binding: Binding<'_>, placed: &Placed, shift: u64) -> Result<Bound, Error> {
    let address = |argument: &Option<Argument>| match argument {
        None => Ok(0),
        Some(argument) => address(binding.arena, placed, *argument, shift),
    };
    let [grid, block] = [launch.grid, launch.block].map(|[x, y, z]| (x, y, z));
    let addresses = launch.arguments.iter().map(address).collect::<Result<_, _>>()?;
    let function = binding.modules.function(&launch.kernel)?;
    let is_cooperative = launch.kernel.is_cooperative();
    let numbers = launch.numbers.clone();
    Ok(Bound::Kernel(BoundKernel { function, is_cooperative, grid, block, addresses, numbers }))
}

/// Where an argument lies. Inputs and targets are `shift` bytes behind their first places.
fn address(arena: &Arena, placed: &Placed, argument: Argument, shift: u64) -> Result<CUdeviceptr, Error> {
    let (offset, bytes) = place(placed, argument)?;
    let class = placed.program.tensors.get(argument as usize).map(|tensor| tensor.class);
    let shifted = matches!(class, Some(Class::Input | Class::Target));
    arena.address(offset.saturating_add(if shifted { shift } else { 0 }), bytes)
}
