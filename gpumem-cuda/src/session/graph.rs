//! A program bound to addresses: launched call by call, or captured into a graph and replayed.

use super::arena::Arena;
use super::copy_streams::{BoundPassage, Lanes, Passages};
use super::exchanges::{BoundExchange, Exchanges};
use super::losses::{LossCopy, LossTransfer};
use super::modules::Modules;
use crate::calls::exchange::Place;
use crate::calls::{Argument, Call, Launch, place};
use crate::card::Card;
use crate::error::failure;
use crate::libraries::cublaslt::{Library, Plan};
use crate::libraries::cudnn;
use crate::libraries::driver::{node_name, node_types};
use crate::libraries::nccl::Communicator;
use crate::libraries::plan_cache::Plans;
use crate::operations::{LaunchContext, loss};
use crate::profile::{Choice, Nodes};
use crate::program_calls::{OperationCalls, steps_where};
use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph, CudaStream};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Class, Program};
use std::ffi::c_void;
use std::sync::Arc;

/// A call with its addresses.
#[derive(Debug)]
enum Bound {
    Kernel(BoundKernel),
    Product(Arc<Plan>),
    Convolution(Arc<cudnn::Plan>),
    Attention(Arc<cudnn::Plan>),
    Recurrence(Arc<cudnn::recurrence::Plan>),
    Passage(BoundPassage),
    Exchange(BoundExchange),
}

impl Bound {
    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        match self {
            Bound::Kernel(kernel) => kernel.launch(stream),
            Bound::Product(plan) => plan.launch(stream),
            // The library's stream is the session's, which is this one.
            Bound::Convolution(plan) | Bound::Attention(plan) => plan.launch(),
            Bound::Recurrence(plan) => plan.launch(stream),
            Bound::Passage(passage) => passage.launch(stream),
            Bound::Exchange(exchange) => exchange.launch(stream),
        }
    }

    fn choice(&self) -> Option<Choice> {
        match self {
            Bound::Kernel(_) | Bound::Passage(_) | Bound::Exchange(_) => None,
            Bound::Product(plan) => Some(plan.choice()),
            Bound::Convolution(plan) | Bound::Attention(plan) => Some(plan.choice()),
            Bound::Recurrence(plan) => Some(plan.choice()),
        }
    }
}

/// A launch of a kernel with its addresses.
#[derive(Debug)]
pub(super) struct BoundKernel {
    function: CUfunction,
    /// True if the kernel has a grid barrier.
    is_cooperative: bool,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    /// Bytes of shared memory that the launch asks for.
    shared: u32,
    addresses: Vec<CUdeviceptr>,
    numbers: Vec<u32>,
}

impl BoundKernel {
    /// Binds a launch to its addresses. Inputs and targets are `shift` bytes above their places in the first half.
    pub(super) fn new(
        launch: &Launch,
        modules: &Modules,
        (arena, placed): (&Arena, &Placed),
        shift: u64,
    ) -> Result<BoundKernel, Error> {
        let address = |argument: &Option<Argument>| match argument {
            None => Ok(0),
            Some(argument) => address(arena, placed, *argument, shift),
        };
        let [grid, block] = [launch.grid, launch.block].map(|[x, y, z]| (x, y, z));
        Ok(BoundKernel {
            function: modules.function(&launch.kernel)?,
            is_cooperative: launch.kernel.is_cooperative(),
            grid,
            block,
            shared: launch.kernel.shared_bytes(),
            addresses: launch.arguments.iter().map(address).collect::<Result<_, _>>()?,
            numbers: launch.numbers.clone(),
        })
    }

    pub(super) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let mut addresses = self.addresses.clone();
        let mut parameters: Vec<*mut c_void> =
            addresses.iter_mut().map(|address| std::ptr::from_mut(address).cast()).collect();
        let mut numbers = self.numbers.clone();
        if !numbers.is_empty() {
            parameters.push(numbers.as_mut_ptr().cast());
        }
        // SAFETY: the function belongs to a module that outlives this; its parameters are as many pointers into the arena, or to the ring of
        // losses, which lives as long, as the operation's launch lists, each to a tensor of the length that the kernel was compiled for, or, in an
        // update of many parameters, to the first of tensors at the distances given by the numbers, all of them in the arena; and after them, if
        // there are numbers, one of plain words, as many as these, which the tests check for every launch; the driver copies the parameters before
        // it returns.
        let launched = unsafe {
            let launch = if self.is_cooperative { result::launch_cooperative_kernel } else { result::launch_kernel };
            launch(self.function, self.grid, self.block, self.shared, stream.cu_stream(), &mut parameters)
        };
        launched.map_err(failure("launching a kernel"))
    }
}

/// The calls of one or several operations.
#[derive(Debug)]
struct Group {
    /// The name of the group in messages.
    name: String,
    calls: Vec<Bound>,
}

/// Facts and resources that all programs of a network share.
#[derive(Clone, Copy)]
pub(super) struct Binding<'a> {
    pub(super) card: &'a Card,
    pub(super) arena: &'a Arena,
    pub(super) modules: &'a Modules,
    pub(super) libraries: Libraries<'a>,
    pub(super) lanes: Option<&'a Arc<Lanes>>,
    /// The other ranks; `None` if there are none.
    pub(super) group: Option<&'a Arc<Communicator>>,
}

/// The libraries that are in use.
#[derive(Clone, Copy)]
pub(super) struct Libraries<'a> {
    /// cuBLASLt; `None` if it computes no matrix products.
    pub(super) products: Option<&'a Library>,
    /// cuDNN; `None` if it is not used.
    pub(super) convolutions: Option<&'a cudnn::Library>,
}

/// Returns the calls of a program, with only those library calls that the libraries have algorithms for.
pub(super) fn possible_steps(
    placed: &Placed,
    setting: LaunchContext,
    arena: &Arena,
    libraries: Libraries<'_>,
) -> Result<Vec<OperationCalls>, Error> {
    let at = |argument| address(arena, placed, argument, 0);
    let mut plans = Plans::new(libraries.products, &at);
    let mut convolutions = Plans::new(libraries.convolutions, &at);
    let mut attentions = Plans::new(libraries.convolutions, &at);
    let mut recurrences = Plans::new(libraries.convolutions, &at);
    let mut can = |call: &Call| {
        Ok(match call {
            Call::Kernel(_) | Call::Passage(_) | Call::Exchange(_) => true,
            Call::Product(product) => plans.get(product)?.is_some(),
            Call::Convolution(convolution) => convolutions.get(convolution)?.is_some(),
            Call::Attention(attention) => attentions.get(attention)?.is_some(),
            Call::Recurrence(recurrence) => recurrences.get(recurrence)?.is_some(),
        })
    };
    steps_where(placed, setting, &mut can)
}

/// A program, ready to run.
pub(super) struct Prepared {
    graph: Option<CudaGraph>,
    groups: Vec<Group>,
    /// The group that computes the loss, and the copy of the loss that starts after it; `None` if the loss is not copied.
    copy: Option<(usize, LossCopy)>,
    blocking: bool,
}

// SAFETY: functions, graphs and addresses are handles that the driver accepts from any thread whose context is bound, which the session ensures;
// the target of a `LossCopy` is written by the card only.
unsafe impl Send for Prepared {}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("groups", &self.groups.len()).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Binds the calls of a program to addresses. Its inputs and targets are `shift` bytes above their places in the first half.
    pub(super) fn new(
        binding: Binding<'_>,
        placed: &Placed,
        steps: &[OperationCalls],
        shift: u64,
        way: Option<LossTransfer>,
    ) -> Result<Prepared, Error> {
        let program = &placed.program;
        let mut groups = Vec::new();
        let has_loss = |step: &OperationCalls| step.operations().iter().any(|&index| completes_loss(program, index));
        // The group of the loss's last term, or of the wait for its sum over ranks.
        let loss_group = steps.iter().rposition(has_loss);
        let (ring, copy) = match way {
            Some(LossTransfer::Ring(address)) => (Some(address), None),
            Some(LossTransfer::Copy(copy)) => (None, Some(copy)),
            None => (None, None),
        };
        let at = |argument| address(binding.arena, placed, argument, shift);
        let mut plans = Plans::new(binding.libraries.products, &at);
        let mut convolutions = Plans::new(binding.libraries.convolutions, &at);
        let mut attentions = Plans::new(binding.libraries.convolutions, &at);
        let mut recurrences = Plans::new(binding.libraries.convolutions, &at);
        let mut passages = Passages::default();
        let mut exchanges = Exchanges::default();
        for step in steps {
            let ring = ring.filter(|_| loss_group == Some(groups.len()));
            let bind = |call: &Call| match call {
                Call::Kernel(launch) => bind(launch, binding, placed, shift, ring),
                Call::Passage(passage) => {
                    let bound = passages.bind(passage, binding.lanes, (binding.arena, placed));
                    bound.map(Bound::Passage)
                }
                Call::Exchange(exchange) => {
                    let bytes = |place: Place, bytes: u64| {
                        let beginning = address(binding.arena, placed, place.tensor, shift)?;
                        is_inside(placed, place, bytes)?;
                        Ok(beginning + place.at)
                    };
                    exchanges.bind(exchange, binding.group, &bytes).map(Bound::Exchange)
                }
                Call::Product(product) => {
                    let plan = plans.get(product)?;
                    plan.map(Bound::Product).ok_or(Error::Damaged("a product was chosen without an algorithm"))
                }
                Call::Attention(attention) => {
                    let plan = attentions.get(attention)?;
                    plan.map(Bound::Attention).ok_or(Error::Damaged("attention was chosen without an engine"))
                }
                Call::Recurrence(recurrence) => {
                    let plan = recurrences.get(recurrence)?;
                    plan.map(Bound::Recurrence).ok_or(Error::Damaged("a recurrence was chosen without the library"))
                }
                Call::Convolution(convolution) => {
                    let plan = convolutions.get(convolution)?;
                    plan.map(Bound::Convolution).ok_or(Error::Damaged("a convolution was chosen without an algorithm"))
                }
            };
            let calls = step.calls.iter().map(bind).collect::<Result<Vec<Bound>, Error>>()?;
            let leading = &program.operations[step.first];
            let path = program.paths.get(leading.row as usize).map_or("network", String::as_str);
            groups.push(Group { name: format!("{:?} of `{path}`", step.phase(program)).to_lowercase(), calls });
        }
        passages.end()?;
        exchanges.end()?;
        let blocking = std::env::var_os("GPUMEM_LAUNCH_BLOCKING").is_some_and(|value| value == "1");
        Ok(Prepared { graph: None, groups, copy: loss_group.zip(copy), blocking })
    }

    /// Returns the number of matrix products that cuBLASLt computes.
    pub(super) fn products(&self) -> usize {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Product(_))).count()
    }

    /// Returns the number of convolutions that cuDNN computes.
    pub(super) fn convolutions(&self) -> usize {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Convolution(_))).count()
    }

    /// Returns the number of attention calls that cuDNN computes.
    pub(super) fn attentions(&self) -> usize {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Attention(_))).count()
    }

    /// Returns the number of passes of recurrent layers that cuDNN computes.
    pub(super) fn recurrences(&self) -> usize {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Recurrence(_))).count()
    }

    /// Returns the library's choice for each call, in order; `None` for gpumem's own kernels.
    pub(super) fn choices(&self) -> Vec<Option<Choice>> {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.map(Bound::choice).collect()
    }

    /// Returns the nodes of the graph; `None` without a graph.
    pub(super) fn nodes(&self) -> Result<Option<Nodes>, Error> {
        let Some(graph) = &self.graph else { return Ok(None) };
        // SAFETY: the graph belongs to this program, and is alive.
        let kinds = unsafe { node_types(graph.cu_graph()) }?;
        let mut nodes = Nodes::new();
        kinds.into_iter().for_each(|kind| *nodes.entry(node_name(kind)).or_default() += 1);
        Ok(Some(nodes))
    }

    /// Launches call by call, each between its two events, after `hold`.
    pub(super) fn launch_between(
        &self,
        stream: &CudaStream,
        events: &[[CudaEvent; 2]],
        hold: &dyn Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let record = |event: &CudaEvent| event.record(stream).map_err(failure("recording an event"));
        let mut events = events.iter();
        for (index, group) in self.groups.iter().enumerate() {
            for call in &group.calls {
                let [start, end] = events.next().ok_or(Error::Damaged("a launch has no events"))?;
                hold()?;
                record(start)?;
                call.launch(stream)?;
                record(end)?;
            }
            if let Some((_, copy)) = self.copy.as_ref().filter(|(at, _)| *at == index) {
                copy.start(stream)?;
            }
        }
        self.copy.as_ref().map_or(Ok(()), |(_, copy)| copy.join(stream))
    }

    /// Launches group by group, and calls `look` with the index of each group after its calls were launched.
    pub(super) fn launch_each(
        &self,
        stream: &CudaStream,
        look: &mut dyn FnMut(usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (index, group) in self.groups.iter().enumerate() {
            group.calls.iter().try_for_each(|call| call.launch(stream))?;
            if let Some((_, copy)) = self.copy.as_ref().filter(|(at, _)| *at == index) {
                copy.start(stream)?;
            }
            stream.synchronize().map_err(failure(&group.name))?;
            look(index)?;
        }
        self.copy.as_ref().map_or(Ok(()), |(_, copy)| copy.join(stream))
    }

    /// Runs its exchanges alone, which allocates what they need. All ranks call it, and the contents of its tensors are then undefined.
    pub(super) fn connect(&self, stream: &CudaStream) -> Result<(), Error> {
        let calls = self.groups.iter().flat_map(|group| &group.calls);
        calls.filter(|call| matches!(call, Bound::Exchange(_))).try_for_each(|call| call.launch(stream))
    }

    /// Enqueues the program.
    pub(super) fn run(&self, stream: &CudaStream) -> Result<(), Error> {
        match &self.graph {
            Some(graph) => graph.launch().map_err(failure("replaying the graph")),
            None => self.launch(stream),
        }
    }

    /// Launches call by call. With `GPUMEM_LAUNCH_BLOCKING=1` it waits after each group, so that a failure can be attributed to the group.
    fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        for (index, group) in self.groups.iter().enumerate() {
            group.calls.iter().try_for_each(|call| call.launch(stream))?;
            if let Some((_, copy)) = self.copy.as_ref().filter(|(at, _)| *at == index) {
                copy.start(stream)?;
            }
            if self.blocking {
                stream.synchronize().map_err(failure(&group.name))?;
            }
        }
        self.copy.as_ref().map_or(Ok(()), |(_, copy)| copy.join(stream))
    }

    /// Captures the program into a graph, which is replayed from then on, and uploads it to the card. Nothing runs during capture, so everything
    /// that is loaded at the first run must have been loaded before. With `GPUMEM_LAUNCH_BLOCKING=1` there is no graph.
    pub(super) fn capture(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        if !self.blocking {
            let graph = self.captured(stream)?;
            graph.upload().map_err(failure("bringing the graph to the card"))?;
            self.graph = Some(graph);
        }
        Ok(())
    }

    /// True if the program is replayed from a graph.
    pub(super) fn has_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// Discards the graph, so that calls are launched one by one.
    pub(super) fn discard_graph(&mut self) {
        self.graph = None;
    }

    fn captured(&self, stream: &Arc<CudaStream>) -> Result<CudaGraph, Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(failure("capturing the graph"))?;
        let launched = self.launch(stream);
        // The capture ends even if a launch failed, since the stream would be unusable otherwise.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).map_err(failure("instantiating the graph"));
        launched?;
        graph?.ok_or(Error::failed("CUDA", "the captured graph is empty"))
    }
}

/// True if the loss of a step is complete after an operation: after the loss's term, or after the sum over ranks.
fn completes_loss(program: &Program, index: usize) -> bool {
    let operation = &program.operations[index];
    match &operation.action {
        // Logits that are computed a second time bring no other loss.
        Action::Loss(loss) => program.descent.ranks.is_alone() && !loss.again,
        Action::EndExchange(_) => operation.tensors().any(|id| program.results.contains(&id)),
        _ => false,
    }
}

/// Checks that bytes from a place on are inside its tensor.
fn is_inside(placed: &Placed, at: Place, bytes: u64) -> Result<(), Error> {
    let (_, length) = place(placed, at.tensor)?;
    let end = at.at.checked_add(bytes).filter(|&end| end <= length);
    end.map(|_| ()).ok_or(Error::Damaged("ranks exchange more elements than a tensor has"))
}

/// Binds a launch to its addresses. One that ends a loss gets the `ring`, if there is one.
fn bind(
    launch: &Launch,
    binding: Binding<'_>,
    placed: &Placed,
    shift: u64,
    ring: Option<CUdeviceptr>,
) -> Result<Bound, Error> {
    let mut kernel = BoundKernel::new(launch, binding.modules, (binding.arena, placed), shift)?;
    if let Some((ring, at)) = ring.zip(loss::ring(launch)) {
        kernel.addresses[at] = ring;
    }
    Ok(Bound::Kernel(kernel))
}

/// Returns the address of an argument. Inputs and targets are `shift` bytes above their places in the first half.
fn address(arena: &Arena, placed: &Placed, argument: Argument, shift: u64) -> Result<CUdeviceptr, Error> {
    let (offset, bytes) = place(placed, argument)?;
    let class = placed.program.tensors.get(argument as usize).map(|tensor| tensor.class);
    let shifted = matches!(class, Some(Class::Input | Class::Target));
    arena.address(offset.saturating_add(if shifted { shift } else { 0 }), bytes)
}
