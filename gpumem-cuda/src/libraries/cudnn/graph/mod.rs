//! Convolutions and [attention] in 16 bits, by cuDNN's graphs. The library lists its engines, reports the arithmetic and the scratch memory of
//! each, and makes a plan of the chosen one.
//!
//! If gpumem's own kernels could run on tensor cores, only engines on tensor cores are accepted, and never one that sums in less than f32. Engines
//! can also be listed for a card that is absent, given its properties: see [`Target::Card`].

pub(crate) mod absent;
mod attention;
mod backend;
pub(crate) mod property;

use super::{Library, Places, data_type, failure, is_refused};
use crate::calls::Convolution;
use crate::calls::convolution::Pass;
use crate::libraries::autotune::Race;
use crate::libraries::plan_cache::Address;
use crate::profile::Choice;
use backend::{Descriptor, Pointer, Reference};
use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t as Heuristic, cudnnBackendNumericalNote_t as Note, cudnnDataType_t as DataType,
    cudnnPointwiseMode_t as Pointwise, cudnnStatus_t as Status,
};
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

/// The most engines, with their settings, that a heuristic is asked for.
const ASKED: usize = 64;
/// The most engines for which a plan is made before a convolution is left to gpumem's own kernels. Making a plan may compile it, which takes a
/// second.
const TRIED: usize = 16;
/// The most settings of an engine: more than there are kinds of them.
const KNOBS: usize = 64;
/// The heuristics that are asked, in this order.
const HEURISTICS: [Heuristic; 2] = [Heuristic::CUDNN_HEUR_MODE_A, Heuristic::CUDNN_HEUR_MODE_FALLBACK];
/// Alignment of tensors that is promised to engines, in bytes.
const ALIGNED: i64 = 16;

/// Identifiers of tensors for the library.
const X: i64 = 1;
const W: i64 = 2;
const Y: i64 = 3;
const BIAS: i64 = 4;
/// Sums before the bias, with it, and with the addend after it. They exist in registers only.
const SUMS: i64 = 5;
const BIASED: i64 = 6;
const ADDEND: i64 = 7;
const ADDED: i64 = 8;

/// The card that answers are for.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// The card of this handle.
    Handle(sys::cudnnHandle_t),
    /// A card given by its properties: [`absent`].
    Card(&'a Descriptor),
}

impl Target<'_> {
    /// Sets the target on a heuristic or a plan, under the attribute names `handle` and `card`. `None` if it has no such attribute.
    fn tell(self, to: &Descriptor, handle: Option<Name>, card: Option<Name>) -> Result<(), CudnnError> {
        match self {
            Target::Handle(raw) => handle.map_or(Ok(()), |name| to.set(name, &[raw]).map(|_| ())),
            Target::Card(it) => card.map_or(Ok(()), |name| to.set(name, &[it.reference()]).map(|_| ())),
        }
    }
}

fn signed(size: u64) -> Result<i64, CudnnError> {
    i64::try_from(size).map_err(|_| CudnnError(Status::CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND))
}

/// Returns the sizes of a tensor of four axes, and its strides in elements.
fn lie([n, c, h, w]: [u64; 4], channels_last: bool) -> Result<[[i64; 4]; 2], CudnnError> {
    let [row, area, map] = [w.saturating_mul(c), h.saturating_mul(w), h.saturating_mul(w).saturating_mul(c)];
    let strides = if channels_last { [map, 1, row, c] } else { [map, area, w, 1] };
    let [sizes, strides] = [[n, c, h, w], strides].map(|numbers| numbers.map(signed));
    let whole = |[a, b, c, d]: [Result<i64, CudnnError>; 4]| Ok([a?, b?, c?, d?]);
    let [sizes, strides] = [whole(sizes)?, whole(strides)?];
    Ok([sizes, strides])
}

fn tensor(name: i64, data: DataType, [sizes, strides]: [[i64; 4]; 2]) -> Result<Descriptor, CudnnError> {
    let tensor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[name])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNED])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &sizes)?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides)?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[[SUMS, BIASED, ADDED].contains(&name)])?;
    tensor.finalize()
}

fn windows(convolution: &Convolution) -> Result<Descriptor, CudnnError> {
    let pair = |[y, x]: [u64; 2]| Ok::<_, CudnnError>([signed(y)?, signed(x)?]);
    let padding = pair(convolution.padding)?;
    let windows = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
    windows.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[DataType::CUDNN_DATA_FLOAT])?;
    windows.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION])?;
    windows.set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2i64])?;
    windows.set(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &padding)?;
    windows.set(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &padding)?;
    windows.set(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &pair(convolution.stride)?)?;
    windows.set(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &pair(convolution.dilation)?)?;
    windows.finalize()
}

/// The attribute names of a pass.
struct Names {
    kind: Kind,
    windows: Name,
    x: Name,
    w: Name,
    y: Name,
    alpha: Name,
    beta: Name,
}

fn names(pass: Pass) -> Names {
    match pass {
        Pass::Forward => Names {
            kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            windows: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        },
        Pass::BackwardData => Names {
            kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            windows: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        },
        Pass::BackwardFilter => Names {
            kind: Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            windows: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            x: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            w: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            y: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            alpha: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            beta: Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        },
    }
}

/// Descriptors that belong together. They live as long as anything that was made from them.
#[derive(Debug, Default)]
struct OwnedDescriptors(Vec<Descriptor>);

// SAFETY: descriptors are the library's memory that belongs to this value and is not changed once it is finalised.
unsafe impl Send for OwnedDescriptors {}
// SAFETY: as above.
unsafe impl Sync for OwnedDescriptors {}

impl OwnedDescriptors {
    fn keep(&mut self, descriptor: Descriptor) -> Reference {
        let reference = descriptor.reference();
        self.0.push(descriptor);
        reference
    }

    /// Adds an elementwise function of `x`, and of `b` if there is one, that writes `y`. All are tensors of this collection.
    fn pointwise(
        &mut self,
        mode: Pointwise,
        x: Reference,
        b: Option<Reference>,
        y: Reference,
    ) -> Result<Reference, CudnnError> {
        let function = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        function.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?;
        function.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[DataType::CUDNN_DATA_FLOAT])?;
        if mode == Pointwise::CUDNN_POINTWISE_RELU_FWD {
            let keeps = sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
            function.set(Name::CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, &[keeps])?;
        }
        let function = self.keep(function.finalize()?);
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        operation.set(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[function])?;
        operation.set(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])?;
        if let Some(b) = b {
            operation.set(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[b])?;
        }
        operation.set(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])?;
        Ok(self.keep(operation.finalize()?))
    }
}

/// Describes a convolution for the library. The last of the descriptors is the graph of its operations.
fn describe(convolution: &Convolution, target: Target<'_>) -> Result<(OwnedDescriptors, Reference), CudnnError> {
    let Convolution { batch, in_channels, out_channels, groups, element, channels_last, .. } = *convolution;
    let ([height, width], [rows, columns]) = (convolution.input, convolution.output);
    let [kernel_height, kernel_width] = convolution.kernel;
    let (data, sums) = (data_type(element), DataType::CUDNN_DATA_FLOAT);
    let of_x = lie([batch, in_channels, height, width], channels_last)?;
    let of_y = lie([batch, out_channels, rows, columns], channels_last)?;
    let of_w = lie([out_channels, in_channels / groups.max(1), kernel_height, kernel_width], channels_last)?;
    let mut kept = OwnedDescriptors::default();
    let mut x = kept.keep(tensor(X, data, of_x)?);
    let w = kept.keep(tensor(W, data, of_w)?);
    let mut y = kept.keep(tensor(Y, data, of_y)?);
    let windows = kept.keep(windows(convolution)?);
    let mut operations = Vec::new();
    if convolution.bias.is_some() {
        // With a bias, the convolution writes sums in registers, and the last function writes the result.
        let (last, channels, size) = match convolution.pass {
            Pass::BackwardData => (&mut x, in_channels, of_x),
            Pass::Forward => (&mut y, out_channels, of_y),
            Pass::BackwardFilter => return Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)),
        };
        let written = std::mem::replace(last, kept.keep(tensor(SUMS, sums, size)?));
        let bias = kept.keep(tensor(BIAS, data, lie([1, channels, 1, 1], channels_last)?)?);
        let has_addend = convolution.addend.is_some();
        let is_last = !has_addend && !convolution.relu;
        let mut value = if is_last { written } else { kept.keep(tensor(BIASED, sums, size)?) };
        operations.push(kept.pointwise(Pointwise::CUDNN_POINTWISE_ADD, *last, Some(bias), value)?);
        if has_addend {
            let addend = kept.keep(tensor(ADDEND, data, size)?);
            let added = if convolution.relu { kept.keep(tensor(ADDED, sums, size)?) } else { written };
            operations.push(kept.pointwise(Pointwise::CUDNN_POINTWISE_ADD, value, Some(addend), added)?);
            value = added;
        }
        if convolution.relu {
            operations.push(kept.pointwise(Pointwise::CUDNN_POINTWISE_RELU_FWD, value, None, written)?);
        }
    }
    let names = names(convolution.pass);
    let operation = Descriptor::new(names.kind)?;
    operation.set(names.windows, &[windows])?.set(names.x, &[x])?.set(names.w, &[w])?.set(names.y, &[y])?;
    let beta = if convolution.accumulate { 1f32 } else { 0f32 };
    operation.set(names.alpha, &[1f32])?.set(names.beta, &[beta])?;
    operations.insert(0, kept.keep(operation.finalize()?));
    let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
    target.tell(&graph, Some(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE), None)?;
    graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?;
    let graph = kept.keep(graph.finalize()?);
    Ok((kept, graph))
}

/// Returns the engines that a heuristic lists for a graph, the fastest first, each with its settings.
fn ranked(graph: Reference, target: Target<'_>, heuristic: Heuristic) -> Result<Vec<Descriptor>, CudnnError> {
    let asked = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    asked.set(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])?;
    asked.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[heuristic])?;
    target.tell(&asked, None, Some(Name::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))?;
    let asked = asked.finalize()?;
    asked.descriptors(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, ASKED)
}

/// Properties of an engine that the library reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Engine {
    /// Its number in the library.
    number: i64,
    tensor_cores: bool,
    /// True if it rounds its operands, or sums in the format of the tensors.
    rounds: bool,
    deterministic: bool,
}

impl Engine {
    fn of(settings: &Descriptor) -> Result<Engine, CudnnError> {
        let name = Name::CUDNN_ATTR_ENGINECFG_ENGINE;
        let found = settings.descriptors(name, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
        let engine = found.first().ok_or(CudnnError(Status::CUDNN_STATUS_INTERNAL_ERROR))?;
        Ok(Engine::noted(engine.number(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?, &engine.notes()?))
    }

    fn noted(number: i64, notes: &[u32]) -> Engine {
        let has = |note: Note| notes.contains(&(note as u32));
        Engine {
            number,
            tensor_cores: has(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE),
            rounds: has(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
                || has(Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION),
            deterministic: !has(Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC),
        }
    }

    fn is_usable(self, convolution: &Convolution) -> bool {
        let is_fast = self.tensor_cores || !convolution.tensor_cores;
        is_fast && !self.rounds && (self.deterministic || !convolution.deterministic)
    }
}

/// A call that the library can run on any tensors.
#[derive(Debug)]
pub(super) struct Executable {
    // Fields are dropped in this order, so that what the plan was made from is last.
    plan: Descriptor,
    engine: Engine,
    /// Bytes of scratch memory that it needs.
    memory: usize,
    settings: Descriptor,
    _graph: Arc<OwnedDescriptors>,
}

// SAFETY: descriptors are the library's memory that belongs to this value and is not changed once it is finalised.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl Executable {
    /// Returns the plan of an engine with its settings, or the library's error if it cannot make one.
    fn new(
        graph: &Arc<OwnedDescriptors>,
        engine: Engine,
        settings: Descriptor,
        target: Target<'_>,
    ) -> Result<Executable, CudnnError> {
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        let (handle, card) = (Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Name::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
        target.tell(&plan, Some(handle), Some(card))?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[settings.reference()])?;
        let plan = plan.finalize()?;
        let memory = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        let memory = usize::try_from(memory).map_err(|_| CudnnError(Status::CUDNN_STATUS_INTERNAL_ERROR))?;
        Ok(Executable { plan, engine, memory, settings, _graph: graph.clone() })
    }

    /// Returns the settings of the engine: kinds by the library's numbers, and their values.
    fn knobs(&self) -> Result<Vec<(u32, i64)>, CudnnError> {
        let (name, kind) = (Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        let knobs = self.settings.descriptors(name, kind, KNOBS)?;
        knobs.iter().map(|knob| Ok((knob.knob()?, knob.number(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?))).collect()
    }
}

/// A call that the library is asked to choose an engine for.
trait Question: Copy + Ord + Display {
    /// Describes the call for the library. The last of the descriptors is the graph of its operations.
    fn describe(&self, target: Target<'_>) -> Result<(OwnedDescriptors, Reference), CudnnError>;

    /// True if an engine may be used.
    fn accepts(&self, engine: Engine) -> bool;

    /// Returns the bytes of scratch memory that are available.
    fn room(&self) -> u64;

    /// True if every run must give the same bits, so that the choice of an engine must never differ.
    fn is_deterministic(&self) -> bool;
}

impl Question for Convolution {
    fn describe(&self, target: Target<'_>) -> Result<(OwnedDescriptors, Reference), CudnnError> {
        describe(self, target)
    }

    fn accepts(&self, engine: Engine) -> bool {
        engine.is_usable(self)
    }

    fn room(&self) -> u64 {
        self.workspace.map_or(0, |workspace| workspace.bytes)
    }

    fn is_deterministic(&self) -> bool {
        self.deterministic
    }
}

/// Makes plans of the accepted engines that need no more than `room` bytes of scratch, the fastest first, until `first` accepts one. Returns what
/// `first` made of it; `None` if it accepted none.
fn choose<T>(
    question: &impl Question,
    room: u64,
    target: Target<'_>,
    mut first: impl FnMut(Executable) -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let failed = || failure(format!("choosing an engine for {question}"));
    let (kept, graph) = match question.describe(target) {
        Ok(described) => described,
        Err(error) if is_refused(error) => return Ok(None),
        Err(error) => return Err(failed()(error)),
    };
    let (kept, mut tried) = (Arc::new(kept), 0);
    for heuristic in HEURISTICS {
        let ranked = match ranked(graph, target, heuristic) {
            Ok(ranked) => ranked,
            Err(error) if is_refused(error) => continue,
            Err(error) => return Err(failed()(error)),
        };
        for settings in ranked {
            let engine = Engine::of(&settings).map_err(failed())?;
            if !question.accepts(engine) {
                continue;
            }
            if tried == TRIED {
                return Ok(None);
            }
            tried += 1;
            let executable = match Executable::new(&kept, engine, settings, target) {
                Ok(executable) => executable,
                Err(error) if is_refused(error) => continue,
                Err(error) => return Err(failed()(error)),
            };
            if executable.memory as u64 <= room
                && let Some(taken) = first(executable)?
            {
                return Ok(Some(taken));
            }
        }
    }
    Ok(None)
}

/// Results of earlier choices; `None` for calls that the library has no engine for.
pub(super) type Known<Q> = Mutex<BTreeMap<Q, Option<Arc<Executable>>>>;

/// Numbers that the library reads from the host when it is launched.
#[derive(Debug, Default)]
struct Numbers {
    scale: f32,
    bound: i32,
    fill: f32,
}

/// A call with its engine and its addresses.
#[derive(Debug)]
pub(crate) struct Plan {
    // Fields are dropped in this order, so that the handle is last.
    addresses: Descriptor,
    _numbers: Box<Numbers>,
    executable: Arc<Executable>,
    name: String,
    library: Library,
}

// SAFETY: descriptors are the library's memory that belongs to this plan and is not changed after `new`.
unsafe impl Send for Plan {}
// SAFETY: as above; a launch uses the handle only on behalf of the one owner that has borrowed the session mutably.
unsafe impl Sync for Plan {}

impl Plan {
    /// Returns a plan; `None` if the library has no engine for the convolution. The first plan for a kind of convolution is run once.
    pub(super) fn new(
        library: &Library,
        convolution: &Convolution,
        address: &Address<'_>,
    ) -> Result<Option<Plan>, Error> {
        let places = Places::of(convolution, address)?;
        let bind = |_: &Numbers| addresses(&places);
        Plan::of(library, (convolution, convolution.of_any()), &library.0.engines, Numbers::default, bind)
    }

    /// Returns the plan of a call. Earlier choices are looked up by `of_any`, the call without its tensors. `numbers` and `bind` make its
    /// addresses.
    fn of<Q: Question>(
        library: &Library,
        (question, of_any): (&Q, Q),
        known: &Known<Q>,
        numbers: impl Fn() -> Numbers,
        bind: impl Fn(&Numbers) -> Result<Descriptor, CudnnError>,
    ) -> Result<Option<Plan>, Error> {
        let name = question.to_string();
        let bound = |executable: Arc<Executable>| {
            let numbers = Box::new(numbers());
            let addresses = bind(&numbers).map_err(failure(format!("binding {name}")))?;
            let (name, library) = (name.clone(), library.clone());
            Ok::<_, Error>(Plan { addresses, _numbers: numbers, executable, name, library })
        };
        let map = || known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = map().get(&of_any).cloned();
        if let Some(found) = found {
            return found.map(bound).transpose();
        }
        let target = Target::Handle(library.0.handle);
        let mut race = Race::new(&library.0.stream, library.0.autotune && !question.is_deterministic());
        let first = choose(question, question.room(), target, |executable| {
            let plan = bound(Arc::new(executable))?;
            match plan.run() {
                // A kernel that fails has broken the context, so no other engine can be tried.
                Ok(()) => library.wait(&plan.name).and_then(|()| race.enter(plan, Plan::launch)),
                Err(error) if is_refused(error) => {
                    library.note(error);
                    Ok(None)
                }
                Err(error) => Err(failure(format!("trying {}", plan.name))(error)),
            }
        })?;
        let plan = first.or_else(|| race.winner());
        map().insert(of_any, plan.as_ref().map(|plan| plan.executable.clone()));
        Ok(plan)
    }

    /// Returns the engine, without its settings if the library does not report them.
    pub(super) fn choice(&self) -> Choice {
        let Engine { number, tensor_cores, deterministic, .. } = self.executable.engine;
        let mut settings = vec![
            ("tensor_cores".to_string(), i64::from(tensor_cores)),
            ("deterministic".to_string(), i64::from(deterministic)),
        ];
        let knobs = self.executable.knobs().unwrap_or_default();
        settings.extend(knobs.into_iter().map(|(kind, value)| (format!("knob {kind}"), value)));
        let (algorithm, workspace) = (format!("engine {number}"), self.executable.memory as u64);
        Choice { library: "cuDNN", algorithm, settings, workspace }
    }

    /// Enqueues the call on the session's stream.
    ///
    /// # Errors
    /// [`Error::Device`] with the call and the library's error.
    pub(crate) fn launch(&self) -> Result<(), Error> {
        self.run().map_err(|error| failure(self.name.clone())(error))
    }

    fn run(&self) -> Result<(), CudnnError> {
        let Plan { addresses, executable, library, .. } = self;
        // SAFETY: handle, plan, addresses and the numbers that are read from the host live as long as this. The other addresses are of tensors in
        // the arena, which outlives every plan, each of the length that its descriptor says, because `Session` binds a call to the tensors of the
        // program that it was made from; the workspace has the bytes that the plan needs.
        unsafe { sys::cudnnBackendExecute(library.0.handle, executable.plan.raw(), addresses.raw()) }.result()
    }
}

/// Returns the addresses of all tensors, as a descriptor.
fn addresses(places: &Places) -> Result<Descriptor, CudnnError> {
    let Places { x, w, y, bias, addend, workspace } = *places;
    let mut all = vec![(X, x), (W, w), (Y, y)];
    all.extend((bias != 0).then_some((BIAS, bias)));
    all.extend((addend != 0).then_some((ADDEND, addend)));
    let all = all.into_iter().map(|(name, address)| (name, Pointer(address as *mut c_void)));
    pack(&all.collect::<Vec<_>>(), workspace)
}

/// Returns a descriptor of tensors by their identifiers, and of the workspace with its bytes.
fn pack(all: &[(i64, Pointer)], (scratch, bytes): (CUdeviceptr, usize)) -> Result<Descriptor, CudnnError> {
    let (names, pointers): (Vec<i64>, Vec<Pointer>) = all.iter().copied().unzip();
    let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
    pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &names)?;
    pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers)?;
    if bytes > 0 {
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Pointer(scratch as *mut c_void)])?;
    }
    pack.finalize()
}

#[cfg(test)]
mod tests;
