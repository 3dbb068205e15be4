//! What a step makes the card do, counted: launches, the bytes that each moves, what it multiplies.
//!
//! Nothing runs and nothing is asked of a library. A launch reads and writes each tensor that it is given once; tensors between
//! operations that run as one are not moved at all.

use crate::calls::convolution::Pass;
use crate::calls::product::Epilogue;
use crate::calls::{Argument, Attention, Call, Convolution, Kernel, Product, SOURCES, attention, recurrence};
use crate::operations::Setting;
use crate::steps::{Step, steps};
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Layout, Operation, Order, Phase, Slot, TensorId};
use gpumem_core::report::roofline::{flops, traffic};
use std::collections::BTreeMap;

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The layer's path; empty for what belongs to no layer.
    pub path: String,
    /// What it does for the layer.
    pub phase: Phase,
    /// What is launched.
    pub call: Call,
    /// Bytes of each tensor that it reads.
    pub reads: Vec<u64>,
    /// Bytes of each tensor that it writes.
    pub writes: Vec<u64>,
    /// Floating-point operations of products, convolutions and attention.
    pub flops: u64,
    /// How its tensors lie: `dense`, in the order of their shapes without gaps; `padded`, where rows of one have gaps; `channels_last`.
    pub layout: &'static str,
    /// Number format of activations.
    pub format: Format,
    /// Bytes of scratch memory.
    pub workspace: u64,
}

impl Counted {
    /// Bytes that are moved.
    pub fn bytes(&self) -> u64 {
        self.reads.iter().chain(&self.writes).fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// What kind of launch it is: `kernel`, `product`, `convolution`, `attention`, `recurrence` or `copy`.
    pub fn kind(&self) -> &'static str {
        match &self.call {
            Call::Kernel(launch) if launch.kernel.file == "attention.cu" => "attention",
            Call::Kernel(_) => "kernel",
            Call::Product(_) => "product",
            Call::Convolution(_) => "convolution",
            Call::Attention(_) => "attention",
            Call::Recurrence(_) => "recurrence",
            Call::Passage(_) => "copy",
        }
    }
}

/// The launches of a program, in order.
///
/// # Errors
/// As for [`steps`].
pub fn launches(placed: &Placed, setting: Setting) -> Result<Vec<Counted>, Error> {
    let steps = steps(placed, setting)?;
    Ok(steps.iter().flat_map(|step| counted(placed, setting, step)).collect())
}

/// What operations that run as one step do to tensors.
struct Moved {
    /// Bytes that are read of each tensor and written to it, seen from outside the step.
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
                // What an operation of the step has written comes from there.
                if !moved.writes.contains_key(&id) {
                    moved.reads.insert(id, bytes);
                }
            }
            let mut written: BTreeMap<TensorId, u64> = BTreeMap::new();
            for (id, bytes) in writes {
                *written.entry(id).or_default() += bytes;
            }
            // What a later operation overwrites is written once.
            moved.writes.extend(written);
            if let Some(id) = operation.written(Slot::Workspace) {
                moved.workspaces.insert(id, placed.bytes[id as usize]);
            }
        }
        moved
    }
}

/// What a call is given: tensors that it only reads, and tensors that it writes.
struct Given {
    constant: Vec<TensorId>,
    written: Vec<TensorId>,
}

impl Given {
    /// Master copies and halves count as their tensors.
    fn new(placed: &Placed, call: &Call) -> Given {
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
        Given { constant, written }
    }

    fn all(&self) -> impl Iterator<Item = TensorId> + '_ {
        let others = self.written.iter().filter(|id| !self.constant.contains(id));
        self.constant.iter().chain(others).copied()
    }
}

/// Returns the tensors that a call writes.
pub(crate) fn written_tensors(placed: &Placed, call: &Call) -> Vec<TensorId> {
    Given::new(placed, call).written
}

/// The launches of one step of a program.
pub(crate) fn counted(placed: &Placed, setting: Setting, step: &Step) -> Vec<Counted> {
    let operations = step.operations().into_iter().map(|index| &placed.program.operations[index]);
    let operations: Vec<&Operation> = operations.collect();
    let moved = Moved::new(placed, &operations);
    let total = operations.iter().map(|operation| flops(operation, setting.batch)).fold(0, u64::saturating_add);
    let of_libraries: Vec<Option<u64>> = step.calls.iter().map(library_flops).collect();
    let left = total.saturating_sub(of_libraries.iter().flatten().sum());
    let parts: Vec<u64> = step.calls.iter().map(|call| part(step, call)).collect();
    let all_parts = parts.iter().sum::<u64>().max(1);
    let leading = &placed.program.operations[step.first];
    // One launch for many parameters finds them by their distances from the first.
    let finds_others = leading.action.is_of_many() && step.calls.len() == 1;
    let calls = step.calls.iter().zip(of_libraries).zip(parts);
    let count = |((call, of_library), part): ((&Call, Option<u64>), u64)| {
        let given = Given::new(placed, call);
        let (mut reads, mut writes) = if finds_others {
            (moved.reads.values().copied().collect(), moved.writes.values().copied().collect())
        } else {
            let updates = (leading.action == Action::Update).then(|| of_updates(call, &operations, &moved)).flatten();
            updates.unwrap_or_else(|| (read(placed, &moved, &given), written(&moved, &given)))
        };
        reads.extend(again(call, &reads));
        // A launch for each step of a sequence has a part of everything; weights are in the cache from the second one on.
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

/// What launches that are one update of many parameters together read of each, and write.
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
        // Beside the updates of matrices, which have a state fewer.
        ("update", ALL, WRITTEN),
        ("update_many", ALL, WRITTEN),
    ]
};

/// Bytes of each tensor that such a launch reads, and writes: of all its parameters, which it finds by their distances from the first.
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

/// Launches of a step that are for one step of a sequence each, as this one is; 1 for any other.
fn alike(step: &Step, call: &Call) -> u64 {
    let kernel = |call: &Call| match call {
        Call::Kernel(launch) if STEPWISE.contains(&launch.kernel.entry) => Some(launch.kernel.entry),
        _ => None,
    };
    match kernel(call) {
        Some(entry) => step.calls.iter().filter(|other| kernel(other) == Some(entry)).count() as u64,
        None => 1,
    }
}

/// Kernels that are launched for each step of a sequence.
const STEPWISE: [&str; 4] = ["recurrence_forward", "recurrence_project", "recurrence_hand_on", "recurrence_backward"];

/// The part that a call has in what its step multiplies: as many of them have one each, but for those of a recurrence. The gradients of its
/// weights together multiply as much as all steps of the way back, and its projection a quarter of what its four gates do.
fn part(step: &Step, call: &Call) -> u64 {
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

/// Bytes that caches keep between two looks at them: less than what those of an A100 (40 MB) and an H200 (50 MB) have.
const CACHE: u64 = 32 << 20;

/// Blocks of 1024 threads that run at once on large cards of today.
const AT_ONCE: u64 = 264;

/// Bytes that a batch normalisation in one launch reads again for its second look at each channel, where the channels that are worked
/// on at once are more than a cache keeps.
fn again(call: &Call, reads: &[u64]) -> Vec<u64> {
    let Call::Kernel(launch) = call else { return Vec::new() };
    let maps = match launch.kernel.entry {
        "batch_norm_forward" | "batch_norm_forward_drop" | "batch_norm_forward_parts" => 1,
        "batch_norm_backward" | "batch_norm_backward_drop" | "batch_norm_backward_parts" => 2,
        _ => return Vec::new(),
    };
    let (channels, map) = (u64::from(launch.grid[0]).max(1), reads.iter().copied().max().unwrap_or(0));
    // Blocks that wait for each other work on all channels.
    let at_once = if launch.kernel.is_cooperative() { channels } else { AT_ONCE };
    let kept = (map / channels).saturating_mul(maps).saturating_mul(channels.min(at_once)) <= CACHE;
    if kept { Vec::new() } else { vec![map; maps as usize] }
}

/// What several tensors' layouts come to.
fn layout(all: impl Iterator<Item = Layout>) -> &'static str {
    let all: Vec<Layout> = all.collect();
    if all.iter().any(|layout| layout.order == Order::ChannelsLast) {
        return "channels_last";
    }
    if all.iter().all(Layout::is_dense) { "dense" } else { "padded" }
}

/// Bytes of each tensor that a call reads: those it may not change, and those it adds to.
fn read(placed: &Placed, moved: &Moved, given: &Given) -> Vec<u64> {
    let is_scratch = |id: &TensorId| moved.workspaces.contains_key(id);
    let whole = |id: TensorId| moved.reads.get(&id).copied().unwrap_or(placed.bytes[id as usize]);
    let constant = given.constant.iter().filter(|id| !is_scratch(id)).map(|&id| whole(id));
    let others = given.written.iter().filter(|id| !given.constant.contains(id));
    constant.chain(others.filter_map(|id| moved.reads.get(id).copied())).collect()
}

/// Bytes of each tensor that a call writes.
fn written(moved: &Moved, given: &Given) -> Vec<u64> {
    given.written.iter().filter_map(|id| moved.writes.get(id).copied()).collect()
}

/// Numbers of the arguments that a kernel touches only where channels of a convolution are computed apart from their sums of products, which is
/// seldom: `kernels/normalized_direct.cuh`.
fn unread(entry: &str) -> &'static [usize] {
    match entry {
        "normalized_direct_output" => &[0, 1, 2, 3, 5, 6, 7, 8, 9, 10],
        "normalized_direct_parameters" => &[0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11],
        "normalized_direct_gradient" => &[0, 1, 2, 3, 6, 7, 8, 9],
        _ => &[],
    }
}

/// The tensors that a call is given, each with whether it only reads it.
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

/// Whether each parameter of a kernel points to what it only reads, as its source says.
fn constants(kernel: &Kernel) -> Vec<bool> {
    // `KERNEL(name)` or `KERNEL(__launch_bounds__(256, 1) name)`, in the file or one that it includes.
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

/// Floating-point operations of a library's call.
fn library_flops(call: &Call) -> Option<u64> {
    let count = |sizes: &[u64]| sizes.iter().fold(2u64, |product, &size| product.saturating_mul(size));
    match call {
        // What is left of the operation's.
        Call::Kernel(_) | Call::Attention(_) | Call::Recurrence(_) | Call::Passage(_) => None,
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

/// Whether a kernel of the project's own is one that multiplies, in a step that does, and not one that adds up what others left.
fn multiplies(call: &Call) -> bool {
    let adds_up = |entry: &str| ["_sum", "_sums", "_bias", "_states"].iter().any(|end| entry.ends_with(end));
    match call {
        Call::Kernel(launch) => !adds_up(launch.kernel.entry),
        Call::Attention(_) | Call::Recurrence(_) => true,
        Call::Product(_) | Call::Convolution(_) | Call::Passage(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name in `name)(..` or `__launch_bounds__(256, 1) name)(..`.
    fn entry_of(line: &str) -> &str {
        let line = line.strip_prefix("__launch_bounds__(").map_or(line, |rest| rest.split_once(") ").unwrap().1);
        line.split_once(')').unwrap().0
    }

    /// Every parameter of every kernel is a pointer of one of these forms, but for plain numbers at the end.
    #[test]
    fn parameters_are_read_from_the_sources() {
        let mut entries = 0;
        for (file, text) in SOURCES {
            for part in text.split("\nKERNEL(").skip(1) {
                let line = part.lines().next().unwrap();
                let entry = entry_of(line);
                let kernel = Kernel::new(file, String::from(entry).leak());
                let found = constants(&kernel);
                let (_, rest) = part.split_once(&format!("{entry})")).unwrap();
                let parameters = rest.split_once('(').unwrap().1.split_once(')').unwrap().0;
                assert_eq!(found.len(), parameters.split(',').count(), "{file} {entry}");
                let is_plain = |parameter: &&str| {
                    ["IN_PLACE", "u32 row", "u32 step"].iter().any(|plain| parameter.contains(plain))
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
