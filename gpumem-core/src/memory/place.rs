//! The places of a program's tensors, in the arena or in host memory.

use crate::error::Error;
use crate::memory::Compiled;
use crate::memory::budget::{Line, padded};
use crate::number::{Format, Precision};
use crate::program::{Class, Evaluation, Program, Tensor, TensorId};
use crate::train::ranks::Sharding;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The bit that marks a place in host memory: the other bits are the offset there. No arena is as large.
pub const HOST: u64 = 1 << 63;

/// Returns the offset of a place in host memory; `None` if the place is in the arena.
pub const fn on_host(place: u64) -> Option<u64> {
    if place & HOST == 0 { None } else { Some(place ^ HOST) }
}

/// A program with a place for each of its tensors, in the arena or in host memory.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The program.
    pub program: Program,
    /// Byte offset of each tensor in the arena, or with [`HOST`] in host memory: a multiple of 256.
    pub offsets: Vec<u64>,
    /// Bytes of each tensor, without padding.
    pub bytes: Vec<u64>,
    /// Byte offset of the f32 master copy of each tensor, as in `offsets`; `None` for a tensor without one.
    pub masters: Vec<Option<u64>>,
}

impl Placed {
    /// Returns the bytes of host memory that tensors and master copies take.
    pub fn host(&self) -> u64 {
        let tensors = self.offsets.iter().zip(&self.bytes).map(|(&place, &bytes)| (place, bytes));
        let ends = tensors
            .chain(self.copies())
            .filter_map(|(place, bytes)| Some(on_host(place)?.saturating_add(padded(bytes))));
        ends.max().unwrap_or(0)
    }
}

impl Placed {
    /// Returns the program with its tensors at these offsets, with whole workspaces and without master copies.
    pub fn new(mut program: Program, offsets: Vec<u64>, batch: u64, precision: Precision) -> Placed {
        program.lay_out(precision);
        let size = |tensor: &Tensor| tensor.stored(batch)?.checked_mul(tensor.role.bytes(precision));
        // Bytes that cannot be counted are more than any arena has.
        let bytes = program.tensors.iter().map(|tensor| size(tensor).unwrap_or(u64::MAX)).collect();
        let masters = alloc::vec![None; program.tensors.len()];
        Placed { program, offsets, bytes, masters }
    }

    /// Returns the program without offsets, for counting what its operations move. A tensor in host memory has an offset there, and workspaces
    /// have at most the bytes that `sizes` gives them. `sizes` is of one micro-batch of one rank.
    #[cfg(feature = "lower")]
    pub(crate) fn unplaced(program: Program, sizes: &crate::lower::Sizes) -> Placed {
        let is_parked = |tensor: &Tensor| match tensor.class {
            Class::Host => true,
            Class::Moment => program.descent.offloads(),
            _ => false,
        };
        let offsets = program.tensors.iter().map(|tensor| if is_parked(tensor) { HOST } else { 0 }).collect();
        let of_masters = if program.descent.offloads() { HOST } else { 0 };
        let has_master = |tensor: &Tensor| {
            bytes_in(Line::Master, tensor, (program.training, sizes.batch), sizes.precision).is_some()
        };
        let masters = program.tensors.iter().map(|tensor| has_master(tensor).then_some(of_masters)).collect();
        let mut placed = Placed::new(program, offsets, sizes.batch, sizes.precision);
        for (tensor, bytes) in placed.program.tensors.iter().zip(&mut placed.bytes) {
            *bytes = sizes.workspaces.cap(tensor.role, *bytes);
        }
        placed.masters = masters;
        placed
    }

    /// Returns the loss of this training step without its update: see [`Program::evaluation`]. Every tensor keeps its place.
    ///
    /// # Errors
    /// A program without a loss.
    pub fn evaluation(&self) -> Result<Placed, Error> {
        let without = Error::Damaged("the training step has no loss");
        let Evaluation { program, tensors } = self.program.evaluation().ok_or(without)?;
        let number = |id: &TensorId| *id as usize;
        Ok(Placed {
            program,
            offsets: tensors.iter().map(|id| self.offsets[number(id)]).collect(),
            bytes: tensors.iter().map(|id| self.bytes[number(id)]).collect(),
            masters: tensors.iter().map(|id| self.masters[number(id)]).collect(),
        })
    }

    /// Returns the program with 4 bytes for every element, in an arena of twice the size. Each tensor is at twice its offset, so that tensors of
    /// 16 bits have enough memory and none overlap that did not before. A parameter is then its own master copy.
    ///
    /// # Errors
    /// Offsets beyond 64 bits.
    pub fn stretched(self, batch: u64) -> Result<Placed, Error> {
        let twice = |&place: &u64| {
            let (offset, host) = on_host(place).map_or((place, 0), |offset| (offset, HOST));
            let twice = offset.checked_mul(2).filter(|&twice| on_host(twice).is_none());
            Ok(twice.ok_or(Error::Damaged("a tensor's place exceeds 63 bits"))? | host)
        };
        let offsets = self.offsets.iter().map(twice).collect::<Result<_, _>>()?;
        let mut placed = Placed::new(self.program, offsets, batch, Precision::F32);
        for ((tensor, bytes), planned) in placed.program.tensors.iter().zip(&mut placed.bytes).zip(self.bytes) {
            if tensor.role.is_workspace() {
                *bytes = planned;
            }
        }
        Ok(placed)
    }
}

impl Placed {
    /// Returns the bytes from the beginning of the arena to the end of what lasts from step to step. Gradients do not, even if they live until
    /// the end of the step.
    pub fn lasting(&self) -> u64 {
        let tensors = self.program.tensors.iter().zip(self.offsets.iter().zip(&self.bytes));
        let own = tensors.filter(|(tensor, _)| lasts(tensor.class)).map(|(_, (&place, &bytes))| (place, bytes));
        let ends = own.chain(self.copies()).filter(|(place, _)| on_host(*place).is_none());
        ends.map(|(place, bytes)| place.saturating_add(padded(bytes))).max().unwrap_or(0)
    }

    /// Returns the place and the bytes of each master copy.
    fn copies(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.program.tensors.iter().zip(&self.masters);
        all.filter_map(|(tensor, &master)| Some((master?, tensor.own_shard()?.saturating_mul(Format::F32.bytes()))))
    }

    /// True if the lasting tensors of another step of the network have the places that they have here.
    pub fn lasts_as(&self, other: &Placed) -> bool {
        let lasting = |placed: &Placed| -> Vec<(Class, String, u64, u64, Option<u64>)> {
            let all = placed.program.tensors.iter().zip(&placed.offsets).zip(placed.bytes.iter().zip(&placed.masters));
            all.filter(|((tensor, _), _)| lasts(tensor.class))
                .map(|((tensor, &offset), (&bytes, &master))| {
                    (tensor.class, tensor.name.clone(), offset, bytes, master)
                })
                .collect()
        };
        lasting(self) == lasting(other)
    }

    /// Returns another program with the places of this one's tensors: see [`Program::covers`].
    ///
    /// # Errors
    /// A program that has other tensors.
    pub fn covering(&self, program: &[u8], batch: u64, precision: Precision) -> Result<Placed, Error> {
        let damaged = || Error::Damaged("a program is not in the places of the one beside it");
        let program = Program::decode(program).filter(|program| self.program.covers(program)).ok_or_else(damaged)?;
        let mut placed = Placed::new(program, self.offsets.clone(), batch, precision);
        for ((tensor, bytes), room) in placed.program.tensors.iter().zip(&mut placed.bytes).zip(&self.bytes) {
            if tensor.role.is_workspace() {
                *bytes = (*bytes).min(*room);
            } else if *bytes > *room {
                return Err(damaged());
            }
        }
        placed.masters.clone_from(&self.masters);
        Ok(placed)
    }
}

/// True if tensors of this class live from step to step, and steps of one network share them.
const fn lasts(class: Class) -> bool {
    matches!(class, Class::Parameter | Class::Moment | Class::Average | Class::Buffer | Class::State)
}

/// Decodes a program and places its tensors: lasting ones part by part, transient ones at the offsets of the plan.
///
/// # Errors
/// A program that does not match its plan.
pub fn place(compiled: &Compiled<'_>) -> Result<Placed, Error> {
    let damaged = || Error::Damaged("the embedded program does not match its plan");
    let program = Program::decode(compiled.program).ok_or_else(damaged)?;
    let (Compiled { budget, precision, .. }, batch) = (*compiled, compiled.samples());
    let mut offsets = vec![0; program.tensors.len()];
    let mut masters = vec![None; program.tensors.len()];
    let (mut end, mut host) = (0u64, HOST);
    for part in Line::parts() {
        let start = end;
        for (id, tensor) in program.tensors.iter().enumerate() {
            let Some(bytes) = bytes_in(part, tensor, (program.training, batch), precision) else { continue };
            let is_state = matches!(part, Line::Master | Line::Optimizer);
            let end = if is_state && program.descent.offloads() { &mut host } else { &mut end };
            // A master copy has a place besides that of its parameter, which is the one that operations name.
            if part == Line::Master {
                masters[id] = Some(*end);
            } else {
                offsets[id] = *end;
            }
            *end = end.checked_add(padded(bytes)).ok_or_else(damaged)?;
        }
        if part == Line::BatchIo && program.training {
            end = end.checked_add(end - start).ok_or_else(damaged)?;
        }
    }
    for (tensor, offset) in program.tensors.iter().zip(&mut offsets).filter(|(tensor, _)| tensor.class == Class::Host) {
        *offset = host;
        let bytes = tensor.stored(batch).and_then(|elements| elements.checked_mul(tensor.role.bytes(precision)));
        host = bytes.and_then(|bytes| host.checked_add(padded(bytes))).ok_or_else(damaged)?;
    }
    let mut planned = compiled.offsets.iter();
    for (tensor, offset) in program.tensors.iter().zip(&mut offsets) {
        if tensor.class == Class::Transient {
            *offset = planned.next().and_then(|planned| end.checked_add(*planned)).ok_or_else(damaged)?;
        }
    }
    let matches = planned.next().is_none()
        && on_host(host) == Some(budget.host)
        && end.checked_add(budget[Line::Activations]) == Some(budget[Line::Arena]);
    if !matches {
        return Err(damaged());
    }
    let mut placed = Placed::new(program, offsets, batch, precision);
    let program = &placed.program;
    if program.tensors.iter().any(|tensor| tensor.stored(batch).is_none()) {
        return Err(Error::Damaged("a tensor's layout has no room for its shape"));
    }
    // Tensors that the host reads and writes have the host's layout; a device converts weights.
    let is_inside = |tensor: &Tensor| matches!(tensor.class, Class::Transient | Class::Host | Class::Gradient);
    let is_weight = |tensor: &Tensor| {
        matches!(tensor.class, Class::Parameter | Class::Moment | Class::Average) && tensor.is_turned()
    };
    let outlives = program.tensors.iter().filter(|tensor| !is_inside(tensor));
    let results = program.results.iter().map(|&id| program.tensor(id));
    if outlives.filter(|tensor| !is_weight(tensor)).chain(results).any(|tensor| !tensor.layout.is_dense()) {
        return Err(Error::Damaged("a tensor that the host sees is not stored as the host has it"));
    }
    for (tensor, bytes) in placed.program.tensors.iter().zip(&mut placed.bytes) {
        *bytes = compiled.tables.workspaces.cap(tensor.role, *bytes);
    }
    placed.masters = masters;
    Ok(placed)
}

/// Lets the forward pass use the training step's parameters, buffers and inputs, found by their names. Both passes use the activations' part of
/// the arena, one after the other. Returns the arena's size, which is `arena` unless the forward pass, with `activations` bytes of them, needs
/// more.
///
/// # Errors
/// Two programs that are not of the same network.
pub fn share(train: &Placed, infer: &mut Placed, arena: u64, activations: u64) -> Result<u64, Error> {
    // Tensors that only training reads are no part of the forward pass.
    take_places(train, infer, &[Class::Parameter, Class::Buffer, Class::Input])?;
    let base = |placed: &Placed| placed.program.transients().map(|id| placed.offsets[id as usize]).min().unwrap_or(0);
    let (from, to) = (base(infer), base(train));
    move_from(infer, &[Class::Transient], from, to);
    Ok(arena.max(to + activations))
}

/// Lets the forward pass of a network with several steps use the parameters and buffers of all of them. `train` is any of these steps: each has
/// them all. The inputs and activations of the forward pass come after those tensors, where those of steps do. Returns the arena's size, which is
/// `arena` unless the forward pass, which alone has an arena of `whole` bytes, needs more.
///
/// # Errors
/// Two programs that are not of the same network.
pub fn share_lasting(train: &Placed, infer: &mut Placed, arena: u64, whole: u64) -> Result<u64, Error> {
    take_places(train, infer, &[Class::Parameter, Class::Buffer])?;
    let moved = [Class::Input, Class::Transient];
    let tensors = infer.program.tensors.iter().zip(&infer.offsets);
    let from = tensors.filter(|(tensor, _)| moved.contains(&tensor.class)).map(|(_, &offset)| offset).min();
    let (from, to) = (from.unwrap_or(whole), train.lasting());
    move_from(infer, &moved, from, to);
    let end = to.checked_add(whole.saturating_sub(from));
    Ok(arena.max(end.ok_or(Error::Damaged("the arena's size exceeds 64 bits"))?))
}

/// Moves the tensors of these classes so that `from` becomes `to`.
fn move_from(placed: &mut Placed, classes: &[Class], from: u64, to: u64) {
    let tensors = placed.program.tensors.iter().zip(&mut placed.offsets);
    tensors.filter(|(tensor, _)| classes.contains(&tensor.class)).for_each(|(_, offset)| *offset = *offset - from + to);
}

/// Gives tensors of these classes in the forward pass the places of the training step's tensors of equal names.
fn take_places(train: &Placed, infer: &mut Placed, classes: &[Class]) -> Result<(), Error> {
    let is_shared = |tensor: &Tensor| classes.contains(&tensor.class);
    let of = |tensor: &Tensor| {
        let is_sharded = matches!(tensor.sharding, Sharding::Sharded(_));
        (tensor.class, tensor.role, tensor.shape, tensor.layout, is_sharded)
    };
    let is_same = |one: &Tensor, other: &Tensor| of(one) == of(other);
    let places = train.offsets.iter().zip(&train.masters);
    let theirs: BTreeMap<&str, (&Tensor, (&u64, &Option<u64>))> = (train.program.tensors.iter().zip(places))
        .filter(|(tensor, _)| is_shared(tensor))
        .map(|(tensor, places)| (tensor.name.as_str(), (tensor, places)))
        .collect();
    let places = infer.offsets.iter_mut().zip(&mut infer.masters);
    for (own, (offset, master)) in infer.program.tensors.iter().zip(places).filter(|(own, _)| is_shared(own)) {
        match theirs.get(own.name.as_str()) {
            // Master copies may lie in host memory.
            Some((tensor, theirs)) if is_same(tensor, own) => (*offset, *master) = (*theirs.0, *theirs.1),
            _ => return Err(Error::Damaged("training and inference disagree on the network's tensors")),
        }
    }
    Ok(())
}

/// Returns the bytes that a tensor has in a part of the arena; `None` if it is not there. Activations are placed by the plan.
fn bytes_in(part: Line, tensor: &Tensor, (training, batch): (bool, u64), precision: Precision) -> Option<u64> {
    let each = match (part, tensor.class) {
        (Line::Weights, Class::Parameter)
        | (Line::Gradients, Class::Gradient)
        | (Line::Optimizer, Class::Moment)
        | (Line::Ema, Class::Average)
        | (Line::Buffers, Class::Buffer | Class::State)
        | (Line::BatchIo, Class::Input | Class::Target)
        | (Line::Cache, Class::Cache) => tensor.role.bytes(precision),
        (Line::Master, Class::Parameter) if training && tensor.trained => tensor.role.master(precision)?.bytes(),
        _ => return None,
    };
    // Ranks keep master copies of their own shards alone.
    let elements = if part == Line::Master { tensor.own_shard() } else { tensor.stored(batch) };
    elements?.checked_mul(each)
}
