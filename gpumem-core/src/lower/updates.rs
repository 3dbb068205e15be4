//! Updates that wait for each other, so that a backend makes many at once.
//!
//! An update comes right behind the last piece of its gradient, which then dies. Where memory is not scarce the gradient can as well
//! live on: most of a step needs much less than its peak. So updates wait as long as they can, each only if no position that its
//! gradient lives through grows beyond what the peak needs, at any batch and in any number format.

use crate::number::{Half, Precision, Role};
use crate::program::{Action, Class, Operand, Operation, Part, Slot, Tensor, TensorId};
use crate::shape::Shape;
use crate::train::optim;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Formats in which elements of every role have all the sizes that they can have.
const MODELS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Mixed(Half::Bf16)];

/// What is alive at a position: bytes for each sample, and bytes that are there once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    each: i128,
    once: i128,
}

impl Load {
    fn plus(self, other: Load) -> Load {
        Load { each: self.each + other.each, once: self.once + other.once }
    }

    fn minus(self, other: Load) -> Load {
        Load { each: self.each - other.each, once: self.once - other.once }
    }

    /// Bytes with one sample.
    fn of_one(self) -> i128 {
        self.each + self.once
    }
}

/// What a placement ends a tensor with at most: every one begins at a multiple of this.
const ALIGNMENT: i128 = 256;

/// Bytes that a tensor has for each sample, or if it is not batched, in all, but for those that scratch memory has once.
fn bytes(tensor: &Tensor, model: Precision) -> i128 {
    i128::from(tensor.stored_of_each().unwrap_or(u64::MAX)) * i128::from(tensor.role.bytes(model))
}

/// The first and the last operation of each transient tensor.
pub(super) fn lives(operations: &[Operation], tensors: &[Tensor]) -> Vec<Option<[usize; 2]>> {
    let mut lives: Vec<Option<[usize; 2]>> = vec![None; tensors.len()];
    for (at, operation) in operations.iter().enumerate() {
        for id in operation.tensors().filter(|&id| tensors[id as usize].class == Class::Transient) {
            lives[id as usize].get_or_insert([at, at])[1] = at;
        }
    }
    lives
}

fn load(tensor: &Tensor, model: Precision) -> Load {
    let (size, once) = (bytes(tensor, model), i128::from(tensor.once) * i128::from(tensor.role.bytes(model)));
    if tensor.batched { Load { each: size, once } } else { Load { each: 0, once: size + once } }
}

/// What is alive at each operation, without scratch memory that may be cut short. `room` is added to what is there once, for each
/// tensor.
fn loads(tensors: &[Tensor], lives: &[Option<[usize; 2]>], count: usize, model: Precision, room: i128) -> Vec<Load> {
    // What begins at a position, less what ended at the one before it.
    let mut changes = vec![Load::default(); count + 1];
    for (tensor, life) in tensors.iter().zip(lives) {
        let Some([first, last]) = life.filter(|_| !tensor.role.is_workspace()) else { continue };
        let load = load(tensor, model).plus(Load { each: 0, once: room });
        changes[first] = changes[first].plus(load);
        changes[last + 1] = changes[last + 1].minus(load);
    }
    let mut alive = Load::default();
    let sums = changes.into_iter().take(count).map(|change| {
        alive = alive.plus(change);
        alive
    });
    sums.collect()
}

/// The scratch memory of an operation, if it is of the kind that may be cut short.
fn scratch(operation: &Operation, tensors: &[Tensor]) -> Option<(Role, Load)> {
    let tensor = &tensors[operation.written(Slot::Workspace)? as usize];
    tensor.role.is_workspace().then(|| (tensor.role, load(tensor, Precision::F32)))
}

/// What one operation may have of scratch memory beside what another has, wherever that is cut short. Each kind is cut by itself.
fn beside(one: Option<(Role, Load)>, other: Option<(Role, Load)>) -> Load {
    let Some((role, one)) = one else { return Load::default() };
    let other = other.filter(|(kind, _)| *kind == role).map_or(Load::default(), |(_, load)| load);
    let Load { each, once } = one.minus(other);
    let more = Load { each: each.max(0), once: once.max(0) };
    if more == Load::default() { more } else { more.plus(Load { each: 0, once: ALIGNMENT }) }
}

/// Scratch memory of all operations, and the positions that have the same.
struct Scratches {
    at: Vec<Option<(Role, Load)>>,
    /// The kind of each position, and how many kinds there are.
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

/// What may be added at each position so that no peak rises, at any batch.
pub(super) struct Room {
    exact: Vec<Load>,
    /// With room for what a placement ends each tensor with.
    padded: Vec<Load>,
    scratch: Rc<Scratches>,
    /// Among the positions with the same scratch memory the one where a sample takes most: scratch memory may be cut short, nobody
    /// knows here to what. Those at which one sample takes most come first.
    peaks: Vec<usize>,
}

impl Room {
    /// In each number format.
    pub(super) fn of_all(operations: &[Operation], tensors: &[Tensor]) -> [Room; MODELS.len()] {
        let (lives, scratch) = (lives(operations, tensors), Rc::new(Scratches::new(operations, tensors)));
        MODELS.map(|model| {
            let loads = |room| loads(tensors, &lives, operations.len(), model, room);
            let exact = loads(0);
            let mut most: Vec<Option<usize>> = vec![None; scratch.count];
            for (at, &kind) in scratch.kinds.iter().enumerate() {
                if most[kind].is_none_or(|peak| exact[peak] < exact[at]) {
                    most[kind] = Some(at);
                }
            }
            let mut peaks: Vec<usize> = most.into_iter().flatten().collect();
            peaks.sort_by_key(|&peak| Reverse(exact[peak].of_one()));
            Room { exact, padded: loads(ALIGNMENT), scratch: scratch.clone(), peaks }
        })
    }

    /// Bytes that may be added at a position beside `more`, so that it stays below another one with one sample, and so with any
    /// number of them: below 0 where a sample takes more than it does at any other. The other one has no less scratch memory; with `may_exceed`
    /// it may have less, where what is missing has room as well, and of what is left [a part](PART) counts.
    fn spare(&self, at: usize, more: Load, may_exceed: bool) -> i128 {
        let load = self.padded[at].plus(more);
        let mut best = None;
        for &peak in &self.peaks {
            let most = self.exact[peak];
            // Scratch memory leaves no more, and of later ones less is left.
            if best.is_some_and(|best| best >= (most.of_one() - load.of_one()).max(0)) {
                break;
            }
            best = best.max(Some(self.below(at, load, peak, may_exceed)));
        }
        best.unwrap_or(-1)
    }

    /// Returns the bytes that may be added at `at` without more than `peak` has; -1 if none may.
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

/// Of what is left beside large scratch memory one part in so many is taken: what lives past it is hard to pack.
const PART: i128 = 16;

/// Whether these tensors may live at a position, too, and leave a quarter of what is there with them to spare: what is nearly full is
/// hard to pack.
pub(super) fn may_live(rooms: &[Room; MODELS.len()], at: usize, all: &[&Tensor]) -> bool {
    rooms.iter().zip(MODELS).all(|(room, model)| {
        let padded = |tensor: &&Tensor| load(tensor, model).plus(Load { each: 0, once: ALIGNMENT });
        let more = all.iter().map(padded).fold(Load::default(), Load::plus);
        let with = room.padded[at].plus(more);
        room.spare(at, more.plus(Load { each: with.each / 4, once: with.once / 4 }), false) >= 0
    })
}

/// The most bytes that are alive at once, of what each sample has, in each number format.
pub(super) fn most_of_sample(operations: &[Operation], tensors: &[Tensor]) -> [i128; MODELS.len()] {
    let lives = lives(operations, tensors);
    let each = |model| loads(tensors, &lives, operations.len(), model, 0).into_iter().map(|load| load.each);
    MODELS.map(|model| each(model).max().unwrap_or(0))
}

/// Numbers of f32 that an update has as scratch memory, where these are the states of optimizers: see
/// [`scratch`](optim::scratch).
fn needed(update: &Operation, tensors: &[Tensor], moments: u64) -> u64 {
    // What has one state only is a matrix, if there is a difference.
    let is_matrix = update.written(Slot::Moment(1)).is_none();
    update.written(Slot::Parameter).map_or(0, |id| optim::scratch(moments, tensors[id as usize].shape, is_matrix))
}

/// Gives updates the scratch memory that they need. Those that follow each other and may run side by side share a tensor in which
/// each has a part, in their order; those that run one after the other share all of it.
pub(super) fn with_scratch(operations: &mut [Operation], tensors: &mut Vec<Tensor>, moments: u64) {
    let is_update = |operation: &Operation| operation.action == Action::Update;
    for run in operations.chunk_by_mut(|one, next| is_update(one) && is_update(next)) {
        let each: Vec<u64> = run.iter().map(|update| needed(update, tensors, moments)).collect();
        let elements = optim::scratch_of_all(moments, each.iter().copied());
        if !is_update(&run[0]) || elements == 0 {
            continue;
        }
        let tensor = tensors.len() as TensorId;
        tensors.push(Tensor::transient(Part::Workspace, Role::Statistic, run[0].row, Shape::new(&[elements])));
        let operand = Operand { slot: Slot::Workspace, tensor };
        run.iter_mut().zip(each).filter(|(_, each)| *each > 0).for_each(|(update, _)| update.writes.push(operand));
    }
}

/// Gathers the updates of a training step, which has these states of optimizers.
pub(super) fn gather(operations: Vec<Operation>, tensors: &[Tensor], moments: u64) -> Vec<Operation> {
    let is_update = |operation: &Operation| operation.action == Action::Update;
    let updates: Vec<usize> = (0..operations.len()).filter(|&at| is_update(&operations[at])).collect();
    let held = |at: usize| operations[at].read(Slot::ParameterGradient).map(|id| &tensors[id as usize]);
    if updates.len() < 2 || updates.iter().any(|&at| held(at).is_none_or(|held| held.class != Class::Transient)) {
        return operations;
    }
    let spares = Room::of_all(&operations, tensors).map(|room| {
        let spare = |at| room.spare(at, Load::default(), true);
        (0..operations.len()).map(spare).collect::<Vec<i128>>()
    });
    // The position before which an update comes, itself where it stays.
    let mut places: Vec<usize> = (0..operations.len()).collect();
    let (mut place, mut from) = (operations.len() - 1, operations.len());
    // The least that is spare between the updates that wait and their place.
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
            // It lives through all of these positions, beside those that wait already.
            least.iter_mut().zip(sizes).for_each(|(least, size)| *least -= size);
            places[at] = place;
        } else {
            // What waits for it is there beside its scratch memory.
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

    /// A training step of layers with numbers.
    fn step(shape: &[u64], layers: &[(&str, &[u64])]) -> Program {
        trained(shape, layers, 1)
    }

    /// The same with these states of optimizers.
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

    /// The most bytes that are alive at once, as plans count them.
    fn peak(program: &Program, precision: Precision, batch: u64, workspaces: Workspaces) -> u64 {
        let tables = tables(program).leak().with_workspaces(workspaces);
        pack_at(&tables, batch, precision).unwrap().0.lower_bound
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

    /// The same operations with each update behind those of its layer.
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
        let lives = lives(&operations, &tensors);
        for (tensor, life) in tensors.iter_mut().zip(lives).filter(|(tensor, _)| tensor.class == Class::Transient) {
            // Scratch memory of updates is now another tensor.
            let Some([first, last]) = life else {
                tensor.shape = Shape::new(&[0]);
                continue;
            };
            [tensor.first, tensor.last] = [first as u32, last as u32];
        }
        // What the host is given is there until the end.
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
        // The update of a matrix that stays has scratch memory, beside which others would wait.
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
                    // Of both kinds at most as much, and of one all.
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
