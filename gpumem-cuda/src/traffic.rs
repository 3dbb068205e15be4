//! Counts of a program's launches: the bytes that each moves, and its floating-point operations.
//!
//! Nothing runs and no library is called. A launch is counted as reading and writing each of its tensors once; tensors inside a fusion group are
//! not moved at all.

use crate::calls::convolution::Pass;
use crate::calls::product::Epilogue;
use crate::calls::{Argument, Attention, Call, Convolution, Exchange, Kernel, Product, SOURCES, attention, recurrence};
use crate::operations::LaunchContext;
use crate::program_calls::{OperationCalls, steps};
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, ChannelOrder, Layout, Operation, Phase, Slot, TensorId};
use gpumem_core::report::roofline::{flops, traffic};
use std::collections::BTreeMap;

/// Counts of one launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The layer's path; empty if the launch belongs to no layer.
    pub path: String,
    /// The phase of the training step that it belongs to.
    pub phase: Phase,
    /// The call.
    pub call: Call,
    /// Bytes of each tensor that it reads.
    pub reads: Vec<u64>,
    /// Bytes of each tensor that it writes.
    pub writes: Vec<u64>,
    /// Floating-point operations of products, convolutions and attention.
    pub flops: u64,
    /// The layout of its tensors: `dense`, in the order of their shapes without gaps; `padded` if the rows of one have gaps; `channels_last`.
    pub layout: &'static str,
    /// Number format of activations.
    pub format: Format,
    /// Bytes of scratch memory.
    pub workspace: u64,
}

impl Counted {
    /// Returns the bytes that are read and written.
    pub fn bytes(&self) -> u64 {
        self.reads.iter().chain(&self.writes).fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the kind of launch: `kernel`, `product`, `convolution`, `attention`, `recurrence`, `copy` or `exchange`.
    pub fn kind(&self) -> &'static str {
        match &self.call {
            Call::Kernel(launch) if launch.kernel.file == "attention.cu" => "attention",
            Call::Kernel(_) => "kernel",
            Call::Product(_) => "product",
            Call::Convolution(_) => "convolution",
            Call::Attention(_) => "attention",
            Call::Recurrence(_) => "recurrence",
            Call::Passage(_) => "copy",
            Call::Exchange(_) => "exchange",
        }
    }
}

/// Returns the launches of a program, in order.
///
/// # Errors
/// As for [`steps`].
pub fn launches(placed: &Placed, setting: LaunchContext) -> Result<Vec<Counted>, Error> {
    let steps = steps(placed, setting)?;
    Ok(steps.iter().flat_map(|step| counted(placed, setting, step)).collect())
}

/// Bytes of the tensors that a fusion group moves.
struct Moved {
    /// Bytes that the group reads of each tensor and writes to it. Tensors that only the group itself uses are not included.
    reads: BTreeMap<TensorId, u64>,
    writes: BTreeMap<TensorId, u64>,
    workspaces: BTreeMap<TensorId, u64>,
}

impl Moved {
    fn new(placed: &Placed, operations: &[&Operation]) -> Moved {
        let mut moved = Moved { reads: BTreeMap::new(), writes: BTreeMap::new(), workspaces: BTreeMap::new() };
        for operation in operations {
            let [reads, writes] = traffic(placed, operation);
            for (id, bytes) in reads {
                // A tensor that the group itself has written is not read from outside.
                if !moved.writes.contains_key(&id) {
                    moved.reads.insert(id, bytes);
                }
            }
            let mut written: BTreeMap<TensorId, u64> = BTreeMap::new();
            for (id, bytes) in writes {
                *written.entry(id).or_default() += bytes;
            }
            // A tensor that a later operation overwrites is written once.
            moved.writes.extend(written);
            if let Some(id) = operation.written(Slot::Workspace) {
                moved.workspaces.insert(id, placed.bytes[id as usize]);
            }
        }
        moved
    }
}

/// The tensors of a call: those that it only reads, and those that it writes.
struct CallTensors {
    constant: Vec<TensorId>,
    written: Vec<TensorId>,
}

impl CallTensors {
    /// Returns the tensors of a call. Master copies and second halves count as their tensors.
    fn new(placed: &Placed, call: &Call) -> CallTensors {
        let tensors = placed.program.tensors.len().max(1) as TensorId;
        let (mut constant, mut written) = (Vec::new(), Vec::new());
        for (argument, is_constant) in arguments(call) {
            let list = if is_constant { &mut constant } else { &mut written };
            list.push(argument % tensors);
        }
        for list in [&mut constant, &mut written] {
            list.sort_unstable();
            list.dedup();
        }
        CallTensors { constant, written }
    }

    fn all(&self) -> impl Iterator<Item = TensorId> + '_ {
        let others = self.written.iter().filter(|id| !self.constant.contains(id));
        self.constant.iter().chain(others).copied()
    }
}

/// Returns the tensors that a call writes.
pub(crate) fn written_tensors(placed: &Placed, call: &Call) -> Vec<TensorId> {
    CallTensors::new(placed, call).written
}

/// Returns the launches of one step of a program.
pub(crate) fn counted(placed: &Placed, setting: LaunchContext, step: &OperationCalls) -> Vec<Counted> {
    let operations = step.operations().into_iter().map(|index| &placed.program.operations[index]);
    let operations: Vec<&Operation> = operations.collect();
    let moved = Moved::new(placed, &operations);
    let total = operations.iter().map(|operation| flops(operation, setting.batch)).fold(0, u64::saturating_add);
    let of_libraries: Vec<Option<u64>> = step.calls.iter().map(library_flops).collect();
    let left = total.saturating_sub(of_libraries.iter().flatten().sum());
    let parts: Vec<u64> = step.calls.iter().map(|call| part(step, call)).collect();
    let all_parts = parts.iter().sum::<u64>().max(1);
    let leading = &placed.program.operations[step.first];
    // A single launch for many parameters finds the others by their distances from the first.
    let finds_others = leading.action.is_of_many() && step.calls.len() == 1;
    let calls = step.calls.iter().zip(of_libraries).zip(parts);
    let count = |((call, of_library), part): ((&Call, Option<u64>), u64)| {
        let given = CallTensors::new(placed, call);
        let (mut reads, mut writes) = if finds_others {
            (moved.reads.values().copied().collect(), moved.writes.values().copied().collect())
        } else {
            let updates = (leading.action == Action::Update).then(|| of_updates(call, &operations, &moved)).flatten();
            updates.unwrap_or_else(|| (read(placed, &moved, &given), written(&moved, &given)))
        };
        reads.extend(again(call, &reads));
        // A launch for each time step does an equal part of everything. From the second time step on, weights are in the cache.
        let steps = alike(step, call);
        reads.iter_mut().chain(&mut writes).for_each(|bytes| *bytes /= steps);
        let layouts = given.all().map(|id| placed.program.tensor(id).layout);
        Counted {
            path: placed.program.paths.get(leading.row as usize).cloned().unwrap_or_default(),
            phase: step.phase(&placed.program),
            call: call.clone(),
            reads,
            writes,
            flops: of_library.unwrap_or((u128::from(left) * u128::from(part) / u128::from(all_parts)) as u64),
            layout: layout(layouts),
            format: setting.precision.narrow(),
            workspace: given.all().filter_map(|id| moved.workspaces.get(&id)).sum(),
        }
    };
    calls.map(count).collect()
}

/// The slots that launches of a fused update of many parameters read and write, by entry point.
const UPDATES: [(&str, &[Slot], &[Slot]); 8] = {
    const ALL: &[Slot] = &[Slot::Parameter, Slot::ParameterGradient, Slot::Moment(0), Slot::Moment(1)];
    const WRITTEN: &[Slot] = &[Slot::Parameter, Slot::Moment(0), Slot::Moment(1)];
    [
        ("factored_rows", &[Slot::ParameterGradient, Slot::Moment(0)], &[Slot::Moment(0)]),
        ("factored_columns", &[Slot::ParameterGradient, Slot::Moment(1)], &[Slot::Moment(1)]),
        ("factored_means", &[Slot::Moment(0)], &[]),
        ("factored_squares", ALL, &[]),
        ("factored_totals", &[], &[]),
        ("factored_update", ALL, &[Slot::Parameter]),
        // These also update matrices, which have one state less.
        ("update", ALL, WRITTEN),
        ("update_many", ALL, WRITTEN),
    ]
};

/// Returns the bytes of each tensor that such a launch reads and writes, for all its parameters. `None` for other calls.
fn of_updates(call: &Call, operations: &[&Operation], moved: &Moved) -> Option<(Vec<u64>, Vec<u64>)> {
    let Call::Kernel(launch) = call else { return None };
    let (entry, reads, writes) = UPDATES.iter().find(|(entry, ..)| *entry == launch.kernel.entry)?;
    let is_element_by_element = entry.starts_with("update");
    let all = operations.iter().filter(|it| it.action == Action::Update);
    let own = all.filter(|it| !is_element_by_element || it.written(Slot::Moment(1)).is_some());
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for operation in own {
        read.extend(reads.iter().filter_map(|&slot| moved.reads.get(&operation.read(slot)?).copied()));
        written.extend(writes.iter().filter_map(|&slot| moved.writes.get(&operation.written(slot)?).copied()));
    }
    Some((read, written))
}

/// Returns the number of launches in `step` that are, like this one, for one time step each; 1 for any other launch.
fn alike(step: &OperationCalls, call: &Call) -> u64 {
    let kernel = |call: &Call| match call {
        Call::Kernel(launch) if STEPWISE.contains(&launch.kernel.entry) => Some(launch.kernel.entry),
        _ => None,
    };
    match kernel(call) {
        Some(entry) => step.calls.iter().filter(|other| kernel(other) == Some(entry)).count() as u64,
        None => 1,
    }
}

/// Kernels that are launched once for each time step of a sequence.
const STEPWISE: [&str; 4] = ["recurrence_forward", "recurrence_project", "recurrence_hand_on", "recurrence_backward"];

/// Returns the share of a call in the multiplications of its step, relative to the other calls.
///
/// Calls that multiply have equal shares, except those of a recurrence. There, the gradients of the weights together multiply as much as all time
/// steps of the backward pass, and the projection a quarter of what the four gates multiply.
fn part(step: &OperationCalls, call: &Call) -> u64 {
    let is_called = |other: &&Call, entry| matches!(other, Call::Kernel(launch) if launch.kernel.entry == entry);
    let count = |entry| step.calls.iter().filter(|other| is_called(other, entry)).count() as u64;
    let Call::Kernel(launch) = call else { return u64::from(multiplies(call)) };
    let (steps, weights) = (count("recurrence_backward"), count("recurrence_weight").max(1));
    match launch.kernel.entry {
        "recurrence_forward" | "cached_recurrence" => 4,
        "recurrence_weight" => 4 * steps,
        "recurrence_projection_weight" => steps,
        "recurrence_hand_on" => 4 * weights,
        "recurrence_backward" if count("recurrence_hand_on") > 0 => weights,
        "recurrence_backward" => 4 * weights,
        _ => u64::from(multiplies(call)),
    }
}

/// Bytes that a cache keeps between two reads: less than the caches of an A100 (40 MB) and an H200 (50 MB).
const CACHE: u64 = 32 << 20;

/// Blocks of 1024 threads that large cards run at once.
const AT_ONCE: u64 = 264;

/// Returns the bytes that a batch normalisation in one launch reads a second time. Empty if a cache holds all channels that are worked on at once.
fn again(call: &Call, reads: &[u64]) -> Vec<u64> {
    let Call::Kernel(launch) = call else { return Vec::new() };
    let maps = match launch.kernel.entry {
        "batch_norm_forward" | "batch_norm_forward_drop" | "batch_norm_forward_parts" => 1,
        "batch_norm_backward" | "batch_norm_backward_drop" | "batch_norm_backward_parts" => 2,
        _ => return Vec::new(),
    };
    let (channels, map) = (u64::from(launch.grid[0]).max(1), reads.iter().copied().max().unwrap_or(0));
    // With a grid barrier, blocks work on all channels at once.
    let at_once = if launch.kernel.is_cooperative() { channels } else { AT_ONCE };
    let kept = (map / channels).saturating_mul(maps).saturating_mul(channels.min(at_once)) <= CACHE;
    if kept { Vec::new() } else { vec![map; maps as usize] }
}

/// Returns one word for the layouts of several tensors.
fn layout(all: impl Iterator<Item = Layout>) -> &'static str {
    let all: Vec<Layout> = all.collect();
    if all.iter().any(|layout| layout.order == ChannelOrder::ChannelsLast) {
        return "channels_last";
    }
    if all.iter().all(Layout::is_dense) { "dense" } else { "padded" }
}

/// Returns the bytes of each tensor that a call reads: those that it may not change, and those that it adds to.
fn read(placed: &Placed, moved: &Moved, given: &CallTensors) -> Vec<u64> {
    let is_scratch = |id: &TensorId| moved.workspaces.contains_key(id);
    let whole = |id: TensorId| moved.reads.get(&id).copied().unwrap_or(placed.bytes[id as usize]);
    let constant = given.constant.iter().filter(|id| !is_scratch(id)).map(|&id| whole(id));
    let others = given.written.iter().filter(|id| !given.constant.contains(id));
    constant.chain(others.filter_map(|id| moved.reads.get(id).copied())).collect()
}

/// Returns the bytes of each tensor that a call writes.
fn written(moved: &Moved, given: &CallTensors) -> Vec<u64> {
    given.written.iter().filter_map(|id| moved.writes.get(id).copied()).collect()
}

/// Returns the indices of arguments that a kernel rarely touches: only if it computes channels of a convolution directly, not from their sums of
/// products. See `kernels/conv/normalized_direct.cuh`.
fn unread(entry: &str) -> &'static [usize] {
    match entry {
        "normalized_direct_output" => &[0, 1, 2, 3, 5, 6, 7, 8, 9, 10],
        "normalized_direct_parameters" => &[0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11],
        "normalized_direct_gradient" => &[0, 1, 2, 3, 6, 7, 8, 9],
        _ => &[],
    }
}

/// Returns the tensors of a call, each with true if the call only reads it.
fn arguments(call: &Call) -> Vec<(Argument, bool)> {
    match call {
        Call::Kernel(launch) => {
            let constants = constants(&launch.kernel);
            let given = launch.arguments.iter().enumerate();
            let known = |index: usize| constants.get(index).copied().unwrap_or(false);
            let unread = unread(launch.kernel.entry);
            let is_used = |index: &usize| !unread.contains(index);
            given.filter(|(index, _)| is_used(index)).filter_map(|(index, it)| Some(((*it)?, known(index)))).collect()
        }
        Call::Product(product) => {
            let Product { a, b, c, d, epilogue, workspace, .. } = product;
            let reads_vector = !matches!(
                epilogue,
                Epilogue::BiasGradientA(_) | Epilogue::BiasGradientB(_) | Epilogue::GeluGradient { .. }
            );
            let reads_matrix = matches!(epilogue, Epilogue::GeluGradient { .. });
            let mut all = vec![(a.tensor, true), (b.tensor, true), (*d, false)];
            all.extend(c.map(|c| (c, true)));
            all.extend(epilogue.vector().map(|vector| (vector, reads_vector)));
            all.extend(epilogue.auxiliary().map(|matrix| (matrix.tensor, reads_matrix)));
            all.extend(workspace.map(|scratch| (scratch.tensor, false)));
            all
        }
        Call::Passage(passage) => passage.copies().iter().map(|copy| (copy.arena, !passage.arrives())).collect(),
        Call::Exchange(Exchange::Start(all)) => all.iter().map(|it| (it.sent.tensor, true)).collect(),
        // Received numbers are complete after the wait.
        Call::Exchange(Exchange::Wait(received)) => received.iter().map(|&tensor| (tensor, false)).collect(),
        Call::Attention(attention) => {
            let Attention { pass, x, y, logs, workspace, .. } = attention;
            let is_backward = *pass != attention::Pass::Forward;
            let mut all = vec![(*x, true), (*y, is_backward)];
            all.extend(logs.map(|logs| (logs, is_backward)));
            if let attention::Pass::Backward { dy, dx } = *pass {
                all.extend([(dy, true), (dx, false)]);
            }
            all.extend(workspace.map(|scratch| (scratch.tensor, false)));
            all
        }
        Call::Recurrence(it) => {
            let is_backward = it.pass != recurrence::Pass::Forward;
            let mut all = vec![(it.x, true), (it.y, is_backward)];
            all.extend([it.reserve, it.workspace].map(|scratch| (scratch.tensor, false)));
            all.extend(it.weights.into_iter().flatten().flatten().map(|weight| (weight, true)));
            if let recurrence::Pass::Backward { dy, dx, sums } = it.pass {
                all.push((dy, true));
                all.extend(dx.map(|dx| (dx, false)));
                all.extend(sums.into_iter().flatten().flatten().map(|(sum, _)| (sum, false)));
            }
            all
        }
        Call::Convolution(convolution) => {
            let Convolution { pass, x, w, y, bias, addend, workspace, .. } = convolution;
            let mut all = vec![
                (*x, *pass != Pass::BackwardData),
                (*w, *pass != Pass::BackwardFilter),
                (*y, *pass != Pass::Forward),
            ];
            all.extend(bias.iter().chain(addend).map(|&vector| (vector, true)));
            all.extend(workspace.map(|scratch| (scratch.tensor, false)));
            all
        }
    }
}

/// Returns true for each parameter of a kernel that is a pointer to constants in its source.
fn constants(kernel: &Kernel) -> Vec<bool> {
    // Matches `KERNEL(name)` or `KERNEL(__launch_bounds__(256, 1) name)`, in the file or one that it includes.
    let signature = |text: &str| -> Option<Vec<bool>> {
        let name = format!("{})", kernel.entry);
        let mut ends = text.match_indices("KERNEL(").filter_map(|(at, _)| {
            let line = text[at..].lines().next()?;
            let (before, _) = line.split_once(&name)?;
            before.ends_with(['(', ' ']).then_some(at + before.len() + name.len())
        });
        let at = ends.next()?;
        let (parameters, _) = text[at..].split_once('(')?.1.split_once(')')?;
        Some(parameters.split(',').map(|parameter| parameter.trim_start().starts_with("const ")).collect())
    };
    let text = kernel.source().unwrap_or_default();
    let included = SOURCES.iter().filter(|(file, _)| text.contains(&format!("#include \"{file}\"")));
    signature(text).or_else(|| included.into_iter().find_map(|(_, text)| signature(text))).unwrap_or_default()
}

/// Returns the floating-point operations of a library's call; `None` if they are to be taken from the operation.
fn library_flops(call: &Call) -> Option<u64> {
    let count = |sizes: &[u64]| sizes.iter().fold(2u64, |product, &size| product.saturating_mul(size));
    match call {
        // They are the rest of the operation's.
        Call::Kernel(_) | Call::Attention(_) | Call::Recurrence(_) | Call::Passage(_) | Call::Exchange(_) => None,
        Call::Product(product) => {
            let times = product.batch.map_or(1, |batch| batch.count);
            Some(count(&[product.m, product.n, product.k, times]))
        }
        Call::Convolution(convolution) => {
            let Convolution { batch, in_channels, out_channels, output, kernel, groups, .. } = *convolution;
            let channels = in_channels / groups.max(1);
            Some(count(&[batch, out_channels, output[0], output[1], channels, kernel[0], kernel[1]]))
        }
    }
}

/// True if a kernel of gpumem multiplies and does not only add up partial results. Its step must be one that multiplies.
fn multiplies(call: &Call) -> bool {
    let adds_up = |entry: &str| ["_sum", "_sums", "_bias", "_states"].iter().any(|end| entry.ends_with(end));
    match call {
        Call::Kernel(launch) => !adds_up(launch.kernel.entry),
        Call::Attention(_) | Call::Recurrence(_) => true,
        Call::Product(_) | Call::Convolution(_) | Call::Passage(_) | Call::Exchange(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name in `name)(..` or `__launch_bounds__(256, 1) name)(..`.
    fn entry_of(line: &'static str) -> &'static str {
        let line = line.strip_prefix("__launch_bounds__(").map_or(line, |rest| rest.split_once(") ").unwrap().1);
        line.split_once(')').unwrap().0
    }

    /// Checks that every parameter of every kernel is a pointer of one of these forms, except for plain numbers at the end.
    #[test]
    fn parameters_are_read_from_the_sources() {
        let mut entries = 0;
        for (file, text) in SOURCES.iter() {
            for part in text.split("\nKERNEL(").skip(1) {
                let line = part.lines().next().unwrap();
                let entry = entry_of(line);
                let kernel = Kernel::new(file, entry);
                let found = constants(&kernel);
                let (_, rest) = part.split_once(&format!("{entry})")).unwrap();
                let parameters = rest.split_once('(').unwrap().1.split_once(')').unwrap().0;
                assert_eq!(found.len(), parameters.split(',').count(), "{file} {entry}");
                let is_plain = |parameter: &&str| {
                    ["IN_PLACE", "u32 row", "u32 start", "u32 step"].iter().any(|plain| parameter.contains(plain))
                };
                let last = parameters.split(',').filter(is_plain).count();
                let pointers = parameters.split(',').filter(|parameter| parameter.contains('*')).count();
                assert_eq!(pointers + last, found.len(), "{file} {entry}: {parameters}");
                assert!(found.contains(&false), "{file} {entry} writes nothing");
                entries += 1;
            }
        }
        assert!(entries > 60, "{entries}");
    }
}
