//! Updates that wait for each other, so that a backend can make many of them in one launch.
//!
//! An update comes directly after the last piece of its gradient, whose memory is then free. If memory is not scarce, the gradient can as well
//! stay alive: most of a step needs much less memory than its peak. So updates wait as long as they can. An update waits only if no operation
//! index within the longer live range of its gradient needs more than the peak, at any batch size and in any number format.

use crate::lower::liveness::{Load, MODELS, bytes, load, loads, ranges};
use crate::number::{Precision, Role};
use crate::program::fusion::{GroupKind, groups};
use crate::program::{Action, Class, Operand, Operation, Part, Slot, Tensor, TensorId};
use crate::shape::Shape;
use crate::train::optim;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The alignment of tensors in bytes. Offsets are multiples of it, so that a placement pads each tensor by less than this.
const ALIGNMENT: i128 = 256;

/// Returns the scratch memory of an operation, if it is of a kind that may be limited; `None` otherwise.
fn scratch(operation: &Operation, tensors: &[Tensor]) -> Option<(Role, Load)> {
    let tensor = &tensors[operation.written(Slot::Workspace)? as usize];
    tensor.role.is_workspace().then(|| (tensor.role, load(tensor, Precision::F32)))
}

/// Returns the scratch bytes by which one operation may exceed another, under any limit. Each kind of scratch memory has a limit of its own.
fn beside(one: Option<(Role, Load)>, other: Option<(Role, Load)>) -> Load {
    let Some((role, one)) = one else { return Load::default() };
    let other = other.filter(|(kind, _)| *kind == role).map_or(Load::default(), |(_, load)| load);
    let Load { each, once } = one.minus(other);
    let more = Load { each: each.max(0), once: once.max(0) };
    if more == Load::default() { more } else { more.plus(Load { each: 0, once: ALIGNMENT }) }
}

/// The scratch memory of all operations, and groups of operation indices that have equal amounts of it.
struct Scratches {
    at: Vec<Option<(Role, Load)>>,
    /// The group of each operation index, and the number of groups.
    kinds: Vec<usize>,
    count: usize,
}

impl Scratches {
    fn new(operations: &[Operation], tensors: &[Tensor]) -> Scratches {
        let at: Vec<_> = operations.iter().map(|operation| scratch(operation, tensors)).collect();
        let mut known = BTreeMap::new();
        let mut kind = |scratch: &Option<(Role, Load)>| {
            let next = known.len();
            *known.entry(scratch.map(|(role, load)| (role as u8, load))).or_insert(next)
        };
        let kinds = at.iter().map(&mut kind).collect();
        Scratches { at, kinds, count: known.len() }
    }
}

/// Bytes that may be added at each index without raising the peak. They hold at any batch size, in one number format.
pub(in crate::lower) struct AvailableBytes {
    exact: Vec<Load>,
    /// The live bytes with the padding that a placement may add to each tensor.
    padded: Vec<Load>,
    scratch: Rc<Scratches>,
    /// For each group of indices with equal scratch memory, the one at which a sample takes most. Scratch memory may be limited, and the limit is
    /// not known here, so only indices within a group can be compared. Those at which one sample takes most come first.
    peaks: Vec<usize>,
}

impl AvailableBytes {
    /// Returns the room in each number format.
    pub(in crate::lower) fn of_all(operations: &[Operation], tensors: &[Tensor]) -> [AvailableBytes; MODELS.len()] {
        let (ranges, scratch) = (ranges(operations, tensors.len(), []), Rc::new(Scratches::new(operations, tensors)));
        MODELS.map(|model| {
            let loads = |room| loads(tensors, &ranges, operations.len(), model, room);
            let exact = loads(0);
            let mut most: Vec<Option<usize>> = vec![None; scratch.count];
            for (at, &kind) in scratch.kinds.iter().enumerate() {
                if most[kind].is_none_or(|peak| exact[peak] < exact[at]) {
                    most[kind] = Some(at);
                }
            }
            let mut peaks: Vec<usize> = most.into_iter().flatten().collect();
            peaks.sort_by_key(|&peak| Reverse(exact[peak].of_one()));
            AvailableBytes { exact, padded: loads(ALIGNMENT), scratch: scratch.clone(), peaks }
        })
    }

    /// Returns the bytes that may be added at an index, besides `more`, so that it stays below another one. It does so at one sample, and at any
    /// number of them, since a sample takes no more than at the other index. Negative if no index allows `more`. The other index has no less
    /// scratch memory. With `may_exceed` it may have less, if the difference fits as well; of the bytes that are left then, only [a part](PART)
    /// counts.
    fn spare(&self, at: usize, more: Load, may_exceed: bool) -> i128 {
        let load = self.padded[at].plus(more);
        let mut best = None;
        for &peak in &self.peaks {
            let most = self.exact[peak];
            // Scratch memory only lowers what is left, and later peaks leave less.
            if best.is_some_and(|best| best >= (most.of_one() - load.of_one()).max(0)) {
                break;
            }
            best = best.max(Some(self.below(at, load, peak, may_exceed)));
        }
        best.unwrap_or(-1)
    }

    /// Returns the bytes that may be added at `at` so that it stays below `peak`; negative if none may.
    fn below(&self, at: usize, load: Load, peak: usize, may_exceed: bool) -> i128 {
        let most = self.exact[peak];
        if load.each > most.each {
            return -1;
        }
        let beside = beside(self.scratch.at[at], self.scratch.at[peak]);
        let is_more = beside != Load::default();
        let load = load.plus(beside);
        if load.each > most.each || (is_more && !may_exceed) {
            return -1;
        }
        let left = most.of_one() - load.of_one();
        if is_more { left.div_euclid(PART) } else { left }
    }
}

/// The divisor of the bytes that are left next to large scratch memory. Only this part is used: tensors that live past it are hard to pack.
const PART: i128 = 16;

/// True if these tensors may be alive at an index, too, and leave a quarter of its bytes spare. An index that is nearly full is hard to pack.
pub(in crate::lower) fn may_live(rooms: &[AvailableBytes; MODELS.len()], at: usize, all: &[&Tensor]) -> bool {
    rooms.iter().zip(MODELS).all(|(room, model)| {
        let padded = |tensor: &&Tensor| load(tensor, model).plus(Load { each: 0, once: ALIGNMENT });
        let more = all.iter().map(padded).fold(Load::default(), Load::plus);
        let with = room.padded[at].plus(more);
        room.spare(at, more.plus(Load { each: with.each / 4, once: with.once / 4 }), false) >= 0
    })
}

/// Returns the f32 elements of scratch memory that an update needs. `moments` encodes the states of the optimizer: see
/// [`scratch`](optim::scratch).
fn needed(update: &Operation, tensors: &[Tensor], moments: u64) -> u64 {
    // If the optimizer treats matrices in another way, a parameter with one state only is a matrix.
    let is_matrix = update.written(Slot::Moment(1)).is_none();
    update.written(Slot::Parameter).map_or(0, |id| optim::scratch(moments, tensors[id as usize].shape, is_matrix))
}

/// Gives updates the scratch memory that they need. Updates that follow each other share a tensor. Those that may run side by side each have a
/// part of it, in their order; those that run one after the other each use all of it.
pub(in crate::lower) fn with_scratch(operations: &mut [Operation], tensors: &mut Vec<Tensor>, moments: u64) {
    for group in groups(operations).into_iter().filter(|group| group.kind == GroupKind::Updates) {
        let run = &mut operations[group.first..=group.last()];
        let each: Vec<u64> = run.iter().map(|update| needed(update, tensors, moments)).collect();
        let elements = optim::scratch_of_all(moments, each.iter().copied());
        if elements == 0 {
            continue;
        }
        let tensor = tensors.len() as TensorId;
        tensors.push(Tensor::transient(Part::Workspace, Role::Statistic, run[0].row, Shape::new(&[elements])));
        let operand = Operand { slot: Slot::Workspace, tensor };
        run.iter_mut().zip(each).filter(|(_, each)| *each > 0).for_each(|(update, _)| update.writes.push(operand));
    }
}

/// Gathers the updates of a training step. `moments` encodes the states of its optimizer.
pub(in crate::lower) fn gather(operations: Vec<Operation>, tensors: &[Tensor], moments: u64) -> Vec<Operation> {
    let is_update = |operation: &Operation| operation.action == Action::Update;
    let updates: Vec<usize> = (0..operations.len()).filter(|&at| is_update(&operations[at])).collect();
    let held = |at: usize| operations[at].read(Slot::ParameterGradient).map(|id| &tensors[id as usize]);
    if updates.len() < 2 || updates.iter().any(|&at| held(at).is_none_or(|held| held.class != Class::Transient)) {
        return operations;
    }
    let spares = AvailableBytes::of_all(&operations, tensors).map(|room| {
        let spare = |at| room.spare(at, Load::default(), true);
        (0..operations.len()).map(spare).collect::<Vec<i128>>()
    });
    // The index before which each update comes; its own index if it stays.
    let mut places: Vec<usize> = (0..operations.len()).collect();
    let (mut place, mut from) = (operations.len() - 1, operations.len());
    // The fewest spare bytes between the updates that wait and the index for which they wait, in each format.
    let mut least = [i128::MAX; MODELS.len()];
    for &at in updates.iter().rev() {
        for (least, spare) in least.iter_mut().zip(&spares) {
            *least = spare[at + 1..from.min(place + 1)].iter().copied().fold(*least, i128::min);
        }
        from = at + 1;
        // Scratch memory moves with its update.
        let scratch = 4 * i128::from(needed(&operations[at], tensors, moments));
        let sizes = MODELS.map(|model| held(at).map_or(0, |held| bytes(held, model)) + scratch + ALIGNMENT);
        if least.iter().zip(sizes).all(|(&least, size)| least >= size) {
            // The gradient is alive at all of these indices, next to those that wait already.
            least.iter_mut().zip(sizes).for_each(|(least, size)| *least -= size);
            places[at] = place;
        } else {
            // The gradients that wait for this update are alive next to its scratch memory.
            place = at;
            least.iter_mut().zip(&spares).for_each(|(least, spare)| *least = spare[at] - scratch);
        }
    }
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
    updates.iter().filter(|&&at| places[at] != at).for_each(|&at| waiting[places[at]].push(at));
    let order = (0..operations.len()).flat_map(|at| {
        let stays = (places[at] == at).then_some(at);
        core::mem::take(&mut waiting[at]).into_iter().chain(stays)
    });
    let order: Vec<usize> = order.collect();
    let mut operations: Vec<Option<Operation>> = operations.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| operations[at].take()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::graph::Type;
    use crate::layers::Entry;
    use crate::layers::arguments::Argument;
    use crate::layers::{Built, Written};
    use crate::lower::{Options, Term, Training, lower, tables};
    use crate::memory::budget::pack_at;
    use crate::memory::tables::Workspaces;
    use crate::program::{Phase, Program};
    use crate::train::Update;
    use crate::train::optim::{Adafactor, Muon, Optimizer};
    use alloc::format;
    use alloc::string::String;

    /// Returns a training step of layers, each with its numeric arguments.
    fn step(shape: &[u64], layers: &[(&str, &[u64])]) -> Program {
        trained(shape, layers, 1)
    }

    /// Returns a training step for an optimizer whose states `moments` encodes.
    fn trained(shape: &[u64], layers: &[(&str, &[u64])], moments: u64) -> Program {
        let mut graph = Graph::default();
        let mut value = graph.input(Type::numbers(Shape::new(shape))).unwrap();
        for (name, numbers) in layers {
            let written = numbers.iter().map(|&number| Written::positional(Argument::Integer(number)));
            let written: Vec<Written> = written.collect();
            let Built { value: next, .. } =
                graph.layer(&Entry::find(name).unwrap(), &written, &[value], String::new(), None);
            value = next.unwrap();
        }
        let loss = &[Term::MSE];
        let training = Training {
            loss,
            moments,
            update: Update::Fused,
            skips_overflow: false,
            input_gradient: false,
            descent: crate::train::Descent::PLAIN,
        };
        lower(&graph, &[value], &Options { training: Some(training) }).unwrap()
    }

    fn updates(program: &Program) -> Vec<usize> {
        let is_update = |at: &usize| program.operations[*at].action == Action::Update;
        (0..program.operations.len()).filter(is_update).collect()
    }

    /// Returns the peak in bytes, as plans count it.
    fn peak(program: &Program, precision: Precision, batch: u64, workspaces: Workspaces) -> u64 {
        let tables = tables(program);
        pack_at(&tables.as_tables().with_workspaces(workspaces), batch, precision).unwrap().0.lower_bound
    }

    #[test]
    fn updates_wait_for_those_of_all_layers() {
        let program = step(
            &[64, 64],
            &[("LayerNorm", &[]), ("Tanh", &[]), ("LayerNorm", &[]), ("Tanh", &[]), ("LayerNorm", &[])],
        );
        let groups = |found: &[usize]| 1 + found.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
        let (found, before) = (updates(&program), updates(&scattered(&program)));
        assert_eq!((found.len(), groups(&found), groups(&before)), (6, 1, 3), "{found:?}");
    }

    #[test]
    fn scratch_memory_counts_as_far_as_there_is_none_beside() {
        let of = |role: Role, each, once| Some((role, Load { each, once }));
        let (maps, products) = (Role::ConvolutionWorkspace, Role::ProductWorkspace);
        let more = |each, once| Load { each, once: once + ALIGNMENT };
        assert_eq!(beside(None, of(maps, 2, 4)), Load::default());
        assert_eq!(beside(of(maps, 2, 4), of(maps, 2, 10)), Load::default());
        assert_eq!(beside(of(maps, 5, 4), of(maps, 2, 10)), more(3, 0));
        assert_eq!(beside(of(maps, 1, 10), of(maps, 2, 4)), more(0, 6));
        for other in [None, of(products, 5, 20)] {
            assert_eq!(beside(of(maps, 1, 10), other), more(1, 10));
        }
    }

    #[test]
    fn what_would_raise_the_peak_stays() {
        // The gradients of weights are much larger than a sample's activations.
        let program =
            step(&[8], &[("Linear", &[512]), ("Tanh", &[]), ("Linear", &[512]), ("Tanh", &[]), ("Linear", &[512])]);
        let found = updates(&program);
        assert!(found.windows(2).any(|pair| pair[1] - pair[0] > 1), "{found:?}");
    }

    /// Returns the program with each update after the last operation of its layer.
    fn scattered(program: &Program) -> Program {
        let mut operations: Vec<Operation> = Vec::new();
        let (mut updates, others): (Vec<Operation>, Vec<Operation>) =
            program.operations.iter().cloned().partition(|operation| operation.action == Action::Update);
        updates.iter_mut().for_each(|update| update.writes.retain(|written| written.slot != Slot::Workspace));
        for (at, other) in others.iter().enumerate() {
            operations.push(other.clone());
            let is_last = others.get(at + 1).is_none_or(|next| next.row != other.row);
            let of_layer = |update: &&Operation| update.row == other.row && other.phase() == Phase::Backward;
            operations.extend(updates.iter().filter(of_layer).filter(|_| is_last).cloned());
        }
        assert_eq!(operations.len(), program.operations.len());
        let mut tensors = program.tensors.clone();
        with_scratch(&mut operations, &mut tensors, program.moments);
        let lives = ranges(&operations, tensors.len(), []);
        for (tensor, life) in tensors.iter_mut().zip(lives).filter(|(tensor, _)| tensor.class == Class::Transient) {
            // Scratch memory of updates is now another tensor.
            let Some([first, last]) = life else {
                tensor.shape = Shape::new(&[0]);
                continue;
            };
            [tensor.first, tensor.last] = [first as u32, last as u32];
        }
        // The host reads results after the last operation.
        for &id in &program.results {
            tensors[id as usize].last = operations.len() as u32 - 1;
        }
        Program { operations, tensors, ..program.clone() }
    }

    #[test]
    fn no_peak_rises() {
        let wide: &[(&str, &[u64])] = &[
            ("Linear", &[64]),
            ("Tanh", &[]),
            ("LayerNorm", &[]),
            ("Linear", &[256]),
            ("Tanh", &[]),
            ("Linear", &[16]),
        ];
        let maps: &[(&str, &[u64])] = &[
            ("Conv2d", &[4, 3]),
            ("BatchNorm2d", &[]),
            ("Relu", &[]),
            ("Conv2d", &[32, 1]),
            ("BatchNorm2d", &[]),
            ("MaxPool2d", &[2]),
            ("Conv2d", &[64, 3]),
            ("BatchNorm2d", &[]),
            ("Relu", &[]),
            ("Conv2d", &[8, 5]),
            ("BatchNorm2d", &[]),
        ];
        let both: &[(&str, &[u64])] = &[
            ("Conv2d", &[4, 3]),
            ("Relu", &[]),
            ("Conv2d", &[16, 3]),
            ("Flatten", &[]),
            ("Linear", &[40]),
            ("Tanh", &[]),
            ("Linear", &[900]),
            ("LayerNorm", &[]),
            ("Linear", &[8]),
        ];
        // The update of a matrix that stays has scratch memory, and others would wait next to it.
        let waist: &[(&str, &[u64])] = &[
            ("Linear", &[24]),
            ("Tanh", &[]),
            ("Linear", &[3]),
            ("Tanh", &[]),
            ("Linear", &[90]),
            ("Tanh", &[]),
            ("Linear", &[50]),
        ];
        let shapes: [(&[u64], _); 10] = [
            (&[1], wide),
            (&[7], wide),
            (&[300], wide),
            (&[5000], wide),
            (&[3, 16, 16], maps),
            (&[1, 40, 20], maps),
            (&[64, 14, 14], maps),
            (&[3, 9, 9], both),
            (&[1, 30, 20], both),
            (&[64], waist),
        ];
        let caps = [0, 1 << 10, 1 << 16, 1 << 20, u64::MAX];
        let with_scratch = [Optimizer::Muon(Muon::DEFAULT), Optimizer::Adafactor(Adafactor::DEFAULT)];
        let moments = [1].into_iter().chain(with_scratch.map(|optimizer| optimizer.moments()));
        for ((shape, layers), moments) in shapes.into_iter().flat_map(|case| moments.clone().map(move |it| (case, it)))
        {
            let program = trained(shape, layers, moments);
            let before = scattered(&program);
            for (precision, batch) in MODELS.into_iter().flat_map(|it| [1, 2, 17, 1000].map(|batch| (it, batch))) {
                for (at, product) in caps.into_iter().enumerate() {
                    // Equal limits for both kinds of scratch memory, and opposite ones.
                    for convolution in [product, caps[caps.len() - 1 - at]] {
                        let caps = Workspaces { product, convolution };
                        let of = |program| peak(program, precision, batch, caps);
                        let what = format!("{shape:?}, {moments} states, {precision:?}, batch {batch}, {caps:?}");
                        assert!(of(&program) <= of(&before), "{what}: {} above {}", of(&program), of(&before));
                    }
                }
            }
        }
    }
}
