//! Bytes: what each tensor of a step takes, where it lies in the arena, and what it all adds up to.

use crate::plan::{ALIGNMENT, LiveRange, Overflow, Packing, pack, pack_slice, verify};
use crate::role::{Precision, Role};
use crate::step::{Part, Persistent, Step};
use alloc::vec;

/// The parts of an arena, in the order in which they lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The parameters.
    Weights = 0,
    /// f32 copies of 16-bit parameters under mixed precision.
    Master = 1,
    /// Gradients of all parameters, where they are held until the end of the step.
    Gradients = 2,
    /// Optimizer state: for each parameter its state tensors, one after the other.
    Optimizer = 3,
    /// Running statistics, step counter, random state.
    Buffers = 4,
    /// Inputs and targets. In training two halves of equal size: one is filled while the other is read.
    Batch = 5,
    /// Everything that lives inside a step, packed by lifetime.
    Activations = 6,
}

impl Region {
    /// Every region, in order.
    pub const ALL: [Region; 7] = [
        Region::Weights,
        Region::Master,
        Region::Gradients,
        Region::Optimizer,
        Region::Buffers,
        Region::Batch,
        Region::Activations,
    ];
}

/// Bytes that a tensor of `bytes` bytes takes in an arena: the next multiple of [`ALIGNMENT`].
pub const fn padded(bytes: u64) -> u64 {
    match bytes.checked_next_multiple_of(ALIGNMENT) {
        Some(padded) => padded,
        // Never reached for a tensor of a plan: those are below 2^62 bytes.
        None => u64::MAX,
    }
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The batch is 0.
    ZeroBatch,
    /// The step has no operation.
    EmptyNetwork,
    /// A sum of bytes does not fit 63 bits.
    Overflow,
    /// The step's tables contradict each other: a role without a number, a table of another length.
    Malformed,
}

/// What a step needs, in bytes.
///
/// The lines are exact; `arena` also has the padding of each tensor, so it is at least their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The parameters.
    pub weights: u64,
    /// f32 copies of 16-bit parameters under mixed precision.
    pub master: u64,
    /// Gradients that are held until the end of the step. Others are activations.
    pub gradients: u64,
    /// Optimizer state.
    pub optimizer: u64,
    /// Running statistics, step counter, random state.
    pub buffers: u64,
    /// Inputs and targets; twice in training.
    pub batch: u64,
    /// Everything that lives inside a step, packed by lifetime, with padding.
    pub activations: u64,
    /// One allocation that holds all of the above.
    pub arena: u64,
    /// What context, modules, library handles and graph take beside the arena. A property of the card.
    pub reserve: u64,
    /// `arena + reserve`.
    pub total: u64,
    /// What `arena` would be if activations were packed to the largest sum of live bytes. No plan is smaller.
    pub lower_bound: u64,
    /// Samples in a step.
    pub batch_size: u64,
    /// Number format.
    pub precision: Precision,
    /// The first operation at which the most bytes are live.
    pub peak: u32,
    /// Index of the largest tensor that lives inside a step.
    pub largest: u32,
    /// Its bytes, without padding.
    pub largest_bytes: u64,
    /// Bytes of the largest workspace, without padding. Part of `activations`.
    pub workspace: u64,
}

impl Budget {
    const fn empty(batch_size: u64, precision: Precision) -> Budget {
        Budget {
            weights: 0,
            master: 0,
            gradients: 0,
            optimizer: 0,
            buffers: 0,
            batch: 0,
            activations: 0,
            arena: 0,
            reserve: 0,
            total: 0,
            lower_bound: 0,
            batch_size,
            precision,
            peak: 0,
            largest: 0,
            largest_bytes: 0,
            workspace: 0,
        }
    }

    /// The lines by their names, in bytes, in the order in which they stand everywhere.
    pub const fn lines(&self) -> [(&'static str, u64); 10] {
        [
            ("weights", self.weights),
            ("master", self.master),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("buffers", self.buffers),
            ("batch", self.batch),
            ("activations", self.activations),
            ("arena", self.arena),
            ("reserve", self.reserve),
            ("total", self.total),
        ]
    }

    /// The same budget on a card that takes `reserve` bytes beside the arena.
    pub const fn with_reserve(mut self, reserve: u64) -> Budget {
        self.reserve = reserve;
        // An arena is below 2^63 bytes; a sum past 2^64 is more than any card has, and so is the largest number.
        self.total = self.arena.saturating_add(reserve);
        self
    }
}

/// Where everything of a step lies in one arena. `N` is the number of tensors that live inside the step.
///
/// A plan that could not be made has its `error` set and everything else 0: the refusal reports it with its own words.
#[derive(Clone, Copy, Debug)]
pub struct Plan<const N: usize> {
    /// Why there is no plan, if there is none.
    pub error: Option<PlanError>,
    /// Offsets inside [`Region::Activations`].
    pub packing: Packing<N>,
    /// Bytes from the beginning of the arena to each [`Region`], in the order of [`Region::ALL`].
    pub starts: [u64; 7],
    /// Bytes, with a reserve of 0.
    pub budget: Budget,
}

impl<const N: usize> Plan<N> {
    /// Bytes of the arena.
    pub const fn arena(&self) -> u64 {
        self.budget.arena
    }

    /// Bytes from the beginning of the arena to `region`.
    pub const fn start(&self, region: Region) -> u64 {
        self.starts[region as usize]
    }

    /// Bytes from the beginning of the arena to transient tensor `index`.
    pub const fn offset(&self, index: usize) -> u64 {
        self.start(Region::Activations) + self.packing.offsets[index]
    }

    /// The budget on a card that takes `reserve` bytes beside the arena.
    pub const fn budget(&self, reserve: u64) -> Budget {
        self.budget.with_reserve(reserve)
    }
}

/// The most elements of one tensor: 4 bytes each and padding stay far below 2^64.
const MOST_ELEMENTS: u64 = 1 << 59;

/// The largest arena: adding any card's reserve stays below 2^64.
const MOST_BYTES: u64 = u64::MAX / 2;

const ROLES: usize = Role::ALL.len();

/// Bytes of an element, by role.
const fn element_bytes(precision: Precision) -> [u64; ROLES] {
    let mut bytes = [0; ROLES];
    let mut i = 0;
    while i < ROLES {
        bytes[i] = Role::ALL[i].bytes(precision);
        i += 1;
    }
    bytes
}

/// Exact bytes of a tensor of `fixed + per_sample * batch` elements.
const fn tensor_bytes(
    element: &[u64; ROLES],
    role: u64,
    fixed: u64,
    per_sample: u64,
    batch: u64,
) -> Result<u64, PlanError> {
    if role >= ROLES as u64 {
        return Err(PlanError::Malformed);
    }
    let elements = fixed as u128 + per_sample as u128 * batch as u128;
    if elements > MOST_ELEMENTS as u128 {
        return Err(PlanError::Overflow);
    }
    Ok(elements as u64 * element[role as usize])
}

/// The live ranges of a step's transient tensors at `batch` samples, padded to [`ALIGNMENT`].
pub const fn live_ranges<const N: usize>(
    step: &Step,
    batch: u64,
    precision: Precision,
) -> Result<[LiveRange; N], PlanError> {
    let mut ranges = [LiveRange { bytes: 0, first: 0, last: 0 }; N];
    match largest(step, batch, precision, &mut ranges) {
        Ok(_) => Ok(ranges),
        Err(error) => Err(error),
    }
}

/// The largest transient tensors of a step, without padding.
#[derive(Clone, Copy)]
struct Largest {
    index: u32,
    bytes: u64,
    workspace: u64,
}

/// Whether a transient tensor is a workspace.
const fn is_workspace(step: &Step, index: usize) -> bool {
    let tags = step.transient_tags;
    4 * index < tags.len() && tags[4 * index] == Part::Workspace as u8
}

/// Fills `ranges` and finds the largest tensors.
const fn largest(
    step: &Step,
    batch: u64,
    precision: Precision,
    ranges: &mut [LiveRange],
) -> Result<Largest, PlanError> {
    if step.transients.len() != ranges.len() {
        return Err(PlanError::Malformed);
    }
    let element = element_bytes(precision);
    let mut largest = Largest { index: 0, bytes: 0, workspace: 0 };
    let mut i = 0;
    while i < ranges.len() {
        let [role, fixed, per_sample, first, last] = step.transients[i];
        let bytes = match tensor_bytes(&element, role, fixed, per_sample, batch) {
            Ok(bytes) => step.workspaces.cap(Role::ALL[role as usize], bytes),
            Err(error) => return Err(error),
        };
        if last >= step.operations || first > last || last > u32::MAX as u64 {
            return Err(PlanError::Malformed);
        }
        if bytes > largest.bytes {
            largest = Largest { index: i as u32, bytes, ..largest };
        }
        if bytes > largest.workspace && is_workspace(step, i) {
            largest.workspace = bytes;
        }
        ranges[i] = LiveRange { bytes: padded(bytes), first: first as u32, last: last as u32 };
        i += 1;
    }
    Ok(largest)
}

/// Exact and padded bytes of one region.
#[derive(Clone, Copy)]
struct Bytes {
    exact: u64,
    padded: u64,
}

impl Bytes {
    /// Adds `times` tensors of `bytes` bytes.
    const fn add(&mut self, bytes: u64, times: u64) -> Result<(), PlanError> {
        // The padded sum is the larger one: if it fits, so does the other.
        match padded(bytes).checked_mul(times) {
            Some(more) => match self.padded.checked_add(more) {
                Some(sum) if sum <= MOST_BYTES => {
                    self.padded = sum;
                    self.exact += bytes * times;
                    Ok(())
                }
                _ => Err(PlanError::Overflow),
            },
            None => Err(PlanError::Overflow),
        }
    }
}

/// The regions that do not depend on how activations are packed; those are 0 here.
#[derive(Clone, Copy)]
pub(crate) struct Lasting {
    regions: [Bytes; 7],
}

impl Lasting {
    /// Parameters and what belongs to them, buffers and the batch.
    pub(crate) const fn new(step: &Step, batch: u64, precision: Precision) -> Result<Lasting, PlanError> {
        let mut lasting = Lasting { regions: [Bytes { exact: 0, padded: 0 }; 7] };
        match lasting.add_parameters(step, precision) {
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        match lasting.add_tensors(Region::Buffers, step.buffers, precision) {
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        lasting.at_batch(step, batch, precision)
    }

    /// The same at another batch.
    pub(crate) const fn at_batch(
        mut self,
        step: &Step,
        batch: u64,
        precision: Precision,
    ) -> Result<Lasting, PlanError> {
        let element = element_bytes(precision);
        let halves = if step.training { 2 } else { 1 };
        let mut sum = Bytes { exact: 0, padded: 0 };
        let mut i = 0;
        while i < step.batch.len() {
            let [role, per_sample] = step.batch[i];
            let added = match tensor_bytes(&element, role, 0, per_sample, batch) {
                Ok(bytes) => sum.add(bytes, halves),
                Err(error) => Err(error),
            };
            match added {
                Ok(()) => {}
                Err(error) => return Err(error),
            }
            i += 1;
        }
        self.regions[Region::Batch as usize] = sum;
        Ok(self)
    }

    const fn add_parameters(&mut self, step: &Step, precision: Precision) -> Result<(), PlanError> {
        let weights = self.add_tensors(Region::Weights, step.parameters, precision);
        if weights.is_err() {
            return weights;
        }
        if step.holds_gradients {
            self.regions[Region::Gradients as usize] = self.regions[Region::Weights as usize];
        }
        let moment = Role::Moment.bytes(precision);
        let mut i = 0;
        while i < step.parameters.len() {
            let [role, elements] = step.parameters[i];
            let Some(role) = Role::from_number(role) else {
                return Err(PlanError::Malformed);
            };
            let master = self.regions[Region::Master as usize].add(elements * role.master_bytes(precision), 1);
            if master.is_err() {
                return master;
            }
            let moments = self.regions[Region::Optimizer as usize].add(elements * moment, step.moments);
            if moments.is_err() {
                return moments;
            }
            i += 1;
        }
        Ok(())
    }

    const fn add_tensors(
        &mut self,
        region: Region,
        tensors: &[Persistent],
        precision: Precision,
    ) -> Result<(), PlanError> {
        let element = element_bytes(precision);
        let mut i = 0;
        while i < tensors.len() {
            let [role, elements] = tensors[i];
            let added = match tensor_bytes(&element, role, elements, 0, 0) {
                Ok(bytes) => self.regions[region as usize].add(bytes, 1),
                Err(error) => Err(error),
            };
            if added.is_err() {
                return added;
            }
            i += 1;
        }
        Ok(())
    }

    const fn exact(&self, region: Region) -> u64 {
        self.regions[region as usize].exact
    }

    /// The arena with `activations` bytes of activations.
    pub(crate) const fn arena(&self, activations: u64) -> Result<u64, PlanError> {
        let mut sum = activations;
        let mut i = 0;
        while i < 6 {
            sum = match sum.checked_add(self.regions[i].padded) {
                Some(sum) if sum <= MOST_BYTES => sum,
                _ => return Err(PlanError::Overflow),
            };
            i += 1;
        }
        Ok(sum)
    }
}

/// Plans `step` at `batch` samples. A plan that cannot be made says why in [`Plan::error`].
pub const fn plan<const N: usize>(step: &Step, batch: u64, precision: Precision) -> Plan<N> {
    match try_plan(step, batch, precision) {
        Ok(plan) => plan,
        Err(error) => Plan {
            error: Some(error),
            packing: Packing { offsets: [0; N], size: 0, lower_bound: 0, peak: 0 },
            starts: [0; 7],
            budget: Budget::empty(batch, precision),
        },
    }
}

const fn try_plan<const N: usize>(step: &Step, batch: u64, precision: Precision) -> Result<Plan<N>, PlanError> {
    if batch == 0 {
        return Err(PlanError::ZeroBatch);
    }
    if step.operations == 0 {
        return Err(PlanError::EmptyNetwork);
    }
    let lasting = match Lasting::new(step, batch, precision) {
        Ok(lasting) => lasting,
        Err(error) => return Err(error),
    };
    let mut ranges = [LiveRange { bytes: 0, first: 0, last: 0 }; N];
    let largest = match largest(step, batch, precision, &mut ranges) {
        Ok(largest) => largest,
        Err(error) => return Err(error),
    };
    let packing = match pack(&ranges) {
        Ok(packing) => packing,
        Err(Overflow) => return Err(PlanError::Overflow),
    };
    let mut starts = [0; 7];
    let mut i = 1;
    while i < 7 {
        starts[i] = starts[i - 1] + lasting.regions[i - 1].padded;
        i += 1;
    }
    let packed = Packed { size: packing.size, lower_bound: packing.lower_bound, peak: packing.peak };
    match lasting.budget(packed, largest, batch, precision) {
        Ok(budget) => Ok(Plan { error: None, packing, starts, budget }),
        Err(error) => Err(error),
    }
}

/// Fails to compile if two tensors that are alive at once overlap, one lies outside its region, or one is misaligned. It
/// shares no code with the planners. A plan that could not be made is the refusal's to report.
pub const fn assert_packed<const N: usize>(step: &Step, plan: &Plan<N>) {
    if plan.error.is_some() {
        return;
    }
    match live_ranges::<N>(step, plan.budget.batch_size, plan.budget.precision) {
        Ok(ranges) => assert!(
            verify(&ranges, &plan.packing, ALIGNMENT),
            "the plan places living tensors on top of each other: a defect of gpumem, please report it"
        ),
        Err(_) => panic!("the plan was made from other tables: a defect of gpumem, please report it"),
    }
}

/// What a budget says of a packing.
#[derive(Clone, Copy)]
struct Packed {
    size: u64,
    lower_bound: u64,
    peak: u32,
}

impl Lasting {
    /// Every line of the budget, with a reserve of 0.
    const fn budget(
        &self,
        packed: Packed,
        largest: Largest,
        batch_size: u64,
        precision: Precision,
    ) -> Result<Budget, PlanError> {
        let (arena, lower_bound) = match (self.arena(packed.size), self.arena(packed.lower_bound)) {
            (Ok(arena), Ok(lower_bound)) => (arena, lower_bound),
            _ => return Err(PlanError::Overflow),
        };
        Ok(Budget {
            weights: self.exact(Region::Weights),
            master: self.exact(Region::Master),
            gradients: self.exact(Region::Gradients),
            optimizer: self.exact(Region::Optimizer),
            buffers: self.exact(Region::Buffers),
            batch: self.exact(Region::Batch),
            activations: packed.size,
            arena,
            reserve: 0,
            total: arena,
            lower_bound,
            batch_size,
            precision,
            peak: packed.peak,
            largest: largest.index,
            largest_bytes: largest.bytes,
            workspace: largest.workspace,
        })
    }
}

/// The budget of `step` at `batch` samples, planned at run time, with a reserve of 0.
///
/// # Errors
/// See [`PlanError`].
pub fn budget_at(step: &Step, batch: u64, precision: Precision) -> Result<Budget, PlanError> {
    if batch == 0 {
        return Err(PlanError::ZeroBatch);
    }
    if step.operations == 0 {
        return Err(PlanError::EmptyNetwork);
    }
    let mut ranges = vec![LiveRange { bytes: 0, first: 0, last: 0 }; step.transients.len()];
    let largest = largest(step, batch, precision, &mut ranges)?;
    let packed = pack_slice(&ranges).map_err(|Overflow| PlanError::Overflow)?;
    let packed = Packed { size: packed.size, lower_bound: packed.lower_bound, peak: packed.peak };
    Lasting::new(step, batch, precision)?.budget(packed, largest, batch, precision)
}
