//! Launches of updates of parameters, checks of gradients, and the step counter: `kernels/optimizer/optimizer.cu`, `kernels/optimizer/check.cu`, `kernels/optimizer/state.cu`.
//!
//! Tensors and their numbers of elements are plain numbers of a launch, so that each file is compiled once.

pub(crate) mod average;
pub(in crate::operations) mod factored;
pub(crate) mod gradient_norm;
pub(in crate::operations) mod muon;
mod shards;
mod text;

use super::context::{Context, LaunchContext};
use super::optimizer::average::counting;

use crate::calls::{Argument, Kernel, Launch, type_name};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Operation, Piece, Slot, TensorId};
use gpumem_core::train::optim::{AdamW8bit, Corrections, Extent, Optimizer, extent_of, has_extent, state_count};
use gpumem_core::train::{Clip, Descent, Schedule};
use gpumem_core::{Format, Precision, Role};
pub(in crate::operations) use shards::distances;
use shards::{distance_of_piece, own_distances, with_shards};
use text::Text;

/// Elements of a block: `BLOCK` of `multi_tensor.cuh`.
const BLOCK: u64 = 1024;
/// The word for a master copy that does not exist: `NONE` of `optimizer.cu`.
pub(super) const NONE: u32 = u32::MAX;
/// Bytes of a kernel's parameters that every card allows, and bytes of a pointer.
const PARAMETERS: usize = 4096;
const POINTER: usize = 8;
/// Tensors of a launch with fewer numbers: `FEW` of `multi_tensor.cuh`.
pub(super) const FEW: usize = 24;
/// The most blocks of an update that may end the step as well: each block counts itself in one word.
pub(super) const READERS: u32 = 1024;

pub(super) fn update(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    match Kind::new(context)? {
        Kind::Rows => return factored::launches(context, std::slice::from_ref(context.operation), false),
        Kind::Matrices if muon::is_of_matrix(context.operation) => return muon::launches(context),
        Kind::Elements | Kind::Matrices => {}
    }
    launch(context, std::slice::from_ref(context.operation), false).map(|launch| vec![launch])
}

/// Fuses the updates from the first of `rest` on, as many as a launch takes. If they are the step's last and have few blocks, the end of the step
/// is fused too.
///
/// Returns the number of operations and their launches; `None` if there is only one operation. The updates [may run](crate::fuse) in any order.
///
/// # Errors
/// As for [`update`].
pub(crate) fn updates(
    placed: &Placed,
    rest: &[Operation],
    setting: LaunchContext,
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let Some(operation) = rest.first().filter(|operation| operation.action == Action::Update) else { return Ok(None) };
    let context = Context { placed, operation, setting };
    match Kind::new(&context)? {
        Kind::Rows => return factored::updates(&context, rest),
        Kind::Matrices => return with_matrices(&context, rest).map(Some),
        Kind::Elements => {}
    }
    let count = following(rest, &Action::Update).min(Rule::new(&context, operation).most());
    if has_own_rules(&context) {
        return with_own_rules(&context, rest, count).map(Some);
    }
    let ends = rest.get(count).is_some_and(|next| next.action == Action::Advance);
    if ends {
        let launch = launch(&context, &rest[..count], true)?;
        if launch.grid[0] <= READERS {
            return Ok(Some((count + 1, vec![launch])));
        }
    }
    if count < 2 {
        return Ok(None);
    }
    Ok(Some((count, vec![launch(&context, &rest[..count], false)?])))
}

/// Returns the launches of the updates from the first on: those of matrices one after the other, then all others, as many as a launch takes. Also
/// returns their number.
fn with_matrices(context: &Context<'_>, rest: &[Operation]) -> Result<(usize, Vec<Launch>), Error> {
    let mut count = following(rest, &Action::Update);
    let is_other = |update: &&Operation| !muon::is_of_matrix(update);
    if let Some(first) = rest[..count].iter().find(is_other) {
        let most = Rule::new(context, first).most();
        let beyond = rest[..count].iter().enumerate().filter(|(_, update)| is_other(update)).nth(most);
        count = beyond.map_or(count, |(at, _)| at);
    }
    let (others, matrices): (Vec<&Operation>, Vec<&Operation>) = rest[..count].iter().partition(is_other);
    let mut launches = Vec::new();
    for operation in matrices {
        launches.extend(muon::launches(&Context { operation, ..*context })?);
    }
    let Some(&operation) = others.first() else { return Ok((count, launches)) };
    let others: Vec<Operation> = others.into_iter().cloned().collect();
    let is_last = rest.get(count).is_some_and(|next| next.action == Action::Advance);
    let all = |ends| launch(&Context { operation, ..*context }, &others, ends);
    let last = all(false)?;
    if is_last && last.grid[0] <= READERS {
        launches.push(all(true)?);
        return Ok((count + 1, launches));
    }
    launches.push(last);
    Ok((count, launches))
}

/// True if parameter groups change hyperparameters that a kernel has as constants.
fn has_own_rules(context: &Context<'_>) -> bool {
    context.setting.optimizer.groups().iter().any(|group| group.changes_rule())
}

/// Returns the rule of an update, with the hyperparameters of its parameter group.
fn rule_of(context: &Context<'_>, update: &Operation) -> Optimizer {
    let name = update.written(Slot::Parameter).map_or("", |id| context.tensor(id).name.as_str());
    context.setting.optimizer.rule_of(false, name)
}

/// Returns the launches of the first `count` updates, one for each rule. The last launch may end the step as well. Also returns the number of
/// operations.
fn with_own_rules(context: &Context<'_>, rest: &[Operation], mut count: usize) -> Result<(usize, Vec<Launch>), Error> {
    let mut rules: Vec<(Optimizer, Vec<Operation>)> = Vec::new();
    for update in &rest[..count] {
        let rule = rule_of(context, update);
        match rules.iter_mut().find(|(other, _)| *other == rule) {
            Some((_, updates)) => updates.push(update.clone()),
            None => rules.push((rule, vec![update.clone()])),
        }
    }
    let is_last = rest.get(count).is_some_and(|next| next.action == Action::Advance);
    let mut launches = Vec::new();
    for (index, (_, updates)) in rules.iter().enumerate() {
        let of = |ends| launch(&Context { operation: &updates[0], ..*context }, updates, ends);
        let mut made = of(false)?;
        if is_last && index + 1 == rules.len() && made.grid[0] <= READERS {
            made = of(true)?;
            count += 1;
        }
        launches.push(made);
    }
    Ok((count, launches))
}

/// The way in which the updates of a program treat a parameter.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Each element by itself, in one pass.
    Elements,
    /// By the means of its rows and columns.
    Rows,
    /// As a matrix, or element by element if it is not a matrix of a hidden layer.
    Matrices,
}

impl Kind {
    fn of(moments: u64) -> Kind {
        match (has_extent(moments, Extent::Rows), has_extent(moments, Extent::Others)) {
            (true, _) => Kind::Rows,
            (false, true) => Kind::Matrices,
            (false, false) => Kind::Elements,
        }
    }

    /// Returns the kind of the program's updates.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the optimizer's kind differs.
    fn new(context: &Context<'_>) -> Result<Kind, Error> {
        let kind = Kind::of(context.placed.program.moments);
        if kind != Kind::of(context.setting.optimizer.moments()) {
            let what = "another optimizer than that of the network; name the optimizer in `TRAIN`".into();
            return Err(Error::Unsupported { device: "CUDA", what });
        }
        Ok(kind)
    }
}

pub(super) fn check(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    look(context, std::slice::from_ref(context.operation)).map(|launch| vec![launch])
}

/// Fuses checks of gradients, as [`updates`] does with updates.
///
/// # Errors
/// As for [`check`].
pub(crate) fn checks(
    placed: &Placed,
    first: usize,
    setting: LaunchContext,
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let rest = placed.program.operations.get(first..).unwrap_or_default();
    let count = following(rest, &Action::Check).min(most(CHECK_POINTERS, CHECK_FIELDS));
    if count < 2 {
        return Ok(None);
    }
    let context = Context { placed, operation: &rest[0], setting };
    Ok(Some((count, vec![look(&context, &rest[..count])?])))
}

/// Returns the number of operations with this action, from the first on.
pub(crate) fn following(operations: &[Operation], action: &Action) -> usize {
    operations.iter().take_while(|operation| operation.action == *action).count()
}

/// Returns the constant `MOST` of `multi_tensor.cuh`: the most tensors of a launch with these numbers of pointers, and of words of each tensor.
pub(super) fn most(pointers: usize, fields: usize) -> usize {
    // Two words for the launch, and half a word for each tensor besides its fields.
    (PARAMETERS - POINTER * pointers - 8) / (4 * fields + 2) / 2 * 2
}

/// Returns a launch for many tensors, with the plain numbers of `multi_tensor.cuh` for each: its first block, `fields`, and one bit.
pub(super) fn many(
    context: &Context<'_>,
    [file, few, many]: [&'static str; 3],
    tensors: &[TensorId],
    (fields, bits): (&[Vec<u32>], &[bool]),
    arguments: Vec<Option<Argument>>,
) -> Result<Launch, Error> {
    let works: Vec<Work> = tensors.iter().map(|&id| Work::of_elements(context.own(id))).collect();
    let most = most(arguments.len(), fields.len() + 1);
    let (entry, limit) = if tensors.len() <= FEW { (few, FEW) } else { (many, most) };
    let kernel = context.kernel(file, entry).with("FIELDS", fields.len() + 1).with("MOST", most);
    spread(kernel, limit, &works, (fields, bits), arguments)
}

/// A tensor's share of a launch.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// Blocks that work on it.
    pub(super) blocks: u64,
    /// Elements by which the last block falls short of 1024.
    pub(super) missing: u32,
}

impl Work {
    /// Returns the share of a tensor of `count` elements, in blocks of 1024 elements.
    pub(super) fn of_elements(count: u64) -> Work {
        let blocks = count.div_ceil(BLOCK);
        Work { blocks, missing: blocks.saturating_mul(BLOCK).saturating_sub(count) as u32 }
    }
}

/// Returns one launch for several tensors. The kernel takes at most `limit`.
pub(super) fn spread(
    kernel: Kernel,
    limit: usize,
    works: &[Work],
    (fields, bits): (&[Vec<u32>], &[bool]),
    arguments: Vec<Option<Argument>>,
) -> Result<Launch, Error> {
    let (mut first_blocks, mut halves) = (Vec::new(), Vec::new());
    let mut grid = 0u64;
    for (index, work) in works.iter().enumerate() {
        first_blocks.push(grid as u32);
        halves.push(work.missing | if bits.get(index) == Some(&true) { BLOCK as u32 } else { 0 });
        grid = grid.saturating_add(work.blocks);
    }
    let too_large = || Error::Unsupported { device: "CUDA", what: "an update of 2^41 elements or more".into() };
    let grid = u32::try_from(grid).ok().filter(|&grid| grid < 1 << 31).ok_or_else(too_large)?;
    let mut numbers = vec![works.len() as u32, 0];
    for field in std::iter::once(&first_blocks).chain(fields) {
        numbers.extend(field);
        numbers.resize(numbers.len() + limit - field.len(), 0);
    }
    halves.resize(limit, 0);
    numbers.extend(halves.chunks(2).map(|pair| pair[0] | pair[1] << 16));
    Ok(Launch { kernel, grid: [grid, 1, 1], block: [256, 1, 1], arguments, numbers })
}

/// Pointers of `check.cu`, and its words for each gradient.
const CHECK_POINTERS: usize = 2;
const CHECK_FIELDS: usize = 2;

/// Returns one launch that checks gradients. The kernel gets the gradient with the lowest address, and the distances of the others from it.
fn look(context: &Context<'_>, checks: &[Operation]) -> Result<Launch, Error> {
    let gradients: Vec<_> = checks.iter().map(|check| check.read(Slot::ParameterGradient)).collect();
    let missing = Error::Damaged("a look at a gradient lacks the gradient");
    let ids = gradients.iter().copied().collect::<Option<Vec<TensorId>>>().ok_or(missing)?;
    let format = |&id: &TensorId| context.tensor(id).role.format(context.setting.precision);
    let whole: Vec<bool> = ids.iter().map(|id| format(id) == Format::F32).collect();
    let (base, distances) = own_distances(context, &gradients, 0)?;
    let arguments = vec![base, Some(context.written(Slot::State)?)];
    let launch = many(context, ["check.cu", "check", "check_many"], &ids, (&[distances], &whole), arguments)?;
    Ok(Launch { kernel: with_shards(launch.kernel, context), ..launch })
}

/// Facts that all parameters of a launch share.
struct Rule {
    /// True if some have master copies.
    mixed: bool,
    /// Number of optimizer states of each parameter.
    states: usize,
    /// True if some have a learning rate or a weight decay of their own.
    grouped: bool,
    /// True if two of the states are codes, and the other two their block scales.
    has_codes: bool,
    /// True if some weights with codes have their channels last.
    turned: bool,
}

impl Rule {
    fn new(context: &Context<'_>, update: &Operation) -> Rule {
        let mixed = matches!(context.setting.precision, Precision::Mixed(_));
        let grouped = is_grouped(context);
        if extent_of(context.setting.optimizer.moments(), 0) == Extent::Codes {
            // Equal for all launches of a step, so that they share one kernel.
            let mut all = context.placed.program.operations.iter().filter(|it| it.action == Action::Update);
            let turned = all.any(|update| channels_last(context, update).is_some());
            return Rule { mixed, states: 4, grouped, has_codes: true, turned };
        }
        let states = (0..Optimizer::MOST_STATES as u8)
            .take_while(|&state| update.written(Slot::Moment(state)).is_some())
            .count();
        Rule { mixed, states, grouped, has_codes: false, turned: false }
    }

    /// Returns the words of each parameter: first block, weight and gradient; and if there are any, master copy, states, channels and taps,
    /// learning rate and weight decay.
    fn fields(&self) -> usize {
        3 + usize::from(self.mixed) + self.states + 2 * usize::from(self.turned) + 2 * usize::from(self.grouped)
    }

    /// Returns the pointers of a launch: weights, master copies, gradients, at least two optimizer states, and the state of the step.
    fn pointers(&self) -> usize {
        4 + self.states.max(2)
    }

    /// Returns the most parameters of a launch.
    fn most(&self) -> usize {
        most(self.pointers(), self.fields())
    }
}

/// Returns one launch for updates, which may end the step as well. The kernel gets the tensor of each kind with the lowest address, and the
/// distances of the others from it.
fn launch(context: &Context<'_>, updates: &[Operation], ends: bool) -> Result<Launch, Error> {
    let missing = Error::Damaged("an update lacks a tensor");
    let all = |find: &dyn Fn(&Operation) -> Option<TensorId>| updates.iter().map(find).collect::<Vec<_>>();
    let parameters = all(&|update| update.written(Slot::Parameter));
    let gradients = all(&|update| update.read(Slot::ParameterGradient));
    if parameters.iter().chain(&gradients).any(Option::is_none) {
        return Err(missing);
    }
    let rule = Rule::new(context, context.operation);
    let moments: Vec<_> =
        (0..Optimizer::MOST_STATES as u8).map(|moment| all(&|update| update.written(Slot::Moment(moment)))).collect();
    // Each must have as many states as the first one; of codes, those that it has elements for.
    let is_there = |index: usize, parameter: Option<TensorId>| match rule.has_codes {
        true => parameter.is_some_and(|id| has_state(context, index, id)),
        false => index < rule.states,
    };
    let is_other = |index, (it, &parameter): (&Option<TensorId>, _)| it.is_some() != is_there(index, parameter);
    if moments.iter().enumerate().any(|(index, all)| all.iter().zip(&parameters).any(|pair| is_other(index, pair))) {
        return Err(missing);
    }
    is_prepared(context)?;
    let tensors = context.placed.program.tensors.len() as Argument;
    let master = |id: &Option<TensorId>| id.filter(|&id| rule.mixed && context.placed.masters[id as usize].is_some());
    let masters: Vec<_> = parameters.iter().map(|id| master(id).map(|id| tensors + id)).collect();
    let ids: Vec<TensorId> = parameters.iter().flatten().copied().collect();
    let at = |kind: &[Option<Argument>], absent| own_distances(context, kind, absent);
    let (weights, of_weights) = at(&parameters, 0)?;
    let (copies, of_copies) = at(&masters, NONE)?;
    let (gradients, of_gradients) = at(&gradients, 0)?;
    let mut arguments = vec![weights, copies, gradients];
    let mut fields = vec![of_weights, of_gradients];
    fields.extend(rule.mixed.then_some(of_copies));
    for (index, moment) in moments.iter().enumerate().take(rule.states.max(2)) {
        let (first, of_moments) = at(moment, 0)?;
        arguments.push(first);
        fields.extend((index < rule.states).then_some(of_moments));
    }
    if rule.turned {
        let all = updates.iter().map(|update| channels_last(context, update).unwrap_or(Ok([1, 1])));
        let all = all.collect::<Result<Vec<[u32; 2]>, Error>>()?;
        fields.extend([0, 1].map(|number| all.iter().map(|numbers| numbers[number]).collect()));
    }
    if rule.grouped {
        fields.extend(own(context, &ids));
    }
    let is_small = |it: &Option<TensorId>| it.is_some_and(|id| context.tensor(id).role != Role::Code);
    let small: Vec<bool> = moments[0].iter().filter(|_| rule.has_codes).map(is_small).collect();
    arguments.push(Some(context.read(Slot::State)?));
    let mut launch = many(context, ["optimizer.cu", "update", "update_many"], &ids, (&fields, &small), arguments)?;
    launch.numbers[1] = u32::from(ends);
    launch.kernel = finished(launch.kernel, context, &rule)?;
    Ok(launch)
}

/// Returns the launch that updates a piece of a parameter whose states and master copy are at the start of staging buffers. It is the launch of a
/// whole parameter, with the offset of the piece added to weights and gradients.
///
/// # Errors
/// As for [`update`], and an error for a piece that does not begin at a multiple of 256 bytes, or of 128 bytes on several ranks.
pub(super) fn update_piece(context: &Context<'_>, piece: Piece) -> Result<Launch, Error> {
    if Kind::new(context)? != Kind::Elements {
        return Err(Error::Damaged("a piece of a parameter whose elements are updated together"));
    }
    is_prepared(context)?;
    let (parameter, gradient) = (context.written(Slot::Parameter)?, context.read(Slot::ParameterGradient)?);
    let outside = Error::Damaged("a piece of a parameter is none of its elements");
    piece.end().filter(|&end| end <= context.own(parameter).min(context.own(gradient))).ok_or(outside)?;
    let rule = Rule::new(context, context.operation);
    let master = context.operation.written(Slot::Master);
    let master = master.filter(|_| rule.mixed && context.placed.masters[parameter as usize].is_some());
    let after = |id: TensorId| distance_of_piece(context, id, piece.first);
    let mut arguments = vec![Some(parameter), master, Some(gradient)];
    let mut fields = vec![vec![after(parameter)?], vec![after(gradient)?]];
    fields.extend(rule.mixed.then(|| vec![if master.is_some() { 0 } else { NONE }]));
    for index in 0..rule.states.max(2) {
        arguments.push(context.operation.written(Slot::Moment(index as u8)));
        fields.extend((index < rule.states).then(|| vec![0]));
    }
    if rule.grouped {
        fields.extend(own(context, &[parameter]));
    }
    arguments.push(Some(context.read(Slot::State)?));
    let most = most(arguments.len(), fields.len() + 1);
    let kernel = context.kernel("optimizer.cu", "update").with("FIELDS", fields.len() + 1).with("MOST", most);
    let mut launch = spread(kernel, FEW, &[Work::of_elements(piece.count)], (&fields, &[]), arguments)?;
    launch.kernel = finished(launch.kernel, context, &rule)?;
    Ok(launch)
}

/// Adds the rule and its constants to a kernel that updates elements.
fn finished(kernel: Kernel, context: &Context<'_>, rule: &Rule) -> Result<Kernel, Error> {
    let kernel = with_shards(kernel, context).with("MIXED", u8::from(rule.mixed));
    let own = rule_of(context, context.operation);
    let kernel = match rule.has_codes {
        true => with_codes(kernel, rule.turned),
        false => kernel.with("MOMENT_REAL", super::grid::norm_real(context)).with("STATES", rule.states),
    };
    let kernel = ruled(kernel, own, rule.grouped)?;
    let kernel = with_own_betas(kernel, own, context.setting.optimizer.rule(false));
    let kernel = if rule.grouped { kernel.with("GROUPS", 1) } else { kernel };
    Ok(descending(kernel, context))
}

/// Returns the decay rates of a rule with [`Corrections::Betas`].
fn betas(optimizer: Optimizer) -> [f64; 2] {
    ["beta1", "beta2"].map(|name| optimizer.value(name))
}

/// Adds the logarithms of a parameter group's decay rates to a kernel. The values prepared by a step are for the optimizer's own rates.
fn with_own_betas(kernel: Kernel, own: Optimizer, all: Optimizer) -> Kernel {
    if own.row().corrections != Corrections::Betas || betas(own) == betas(all) {
        return kernel;
    }
    // The logarithm of 0 is infinite. The powers of this substitute are 0 as well.
    let [first, second] = betas(own).map(|beta| beta.ln().max(-1e30));
    kernel.with("LOG_BETAS", format!("{{{first:e},{second:e}}}"))
}

/// True if a parameter has the optimizer state of this index, by its shape.
fn has_state(context: &Context<'_>, index: usize, parameter: TensorId) -> bool {
    let (moments, index) = (context.setting.optimizer.moments(), index as u64);
    index < state_count(moments) && extent_of(moments, index).shape(context.tensor(parameter).shape).is_some()
}

/// Returns the channels and the taps of a weight with codes that has its channels last; `None` for other weights.
///
/// # Errors
/// A filter of 2^32 elements or more.
fn channels_last(context: &Context<'_>, update: &Operation) -> Option<Result<[u32; 2], Error>> {
    let weight = context.tensor(update.written(Slot::Parameter)?);
    let has_codes = context.tensor(update.written(Slot::Moment(0))?).role == Role::Code;
    let &[_, channels, height, width] = weight.shape.dims() else { return None };
    if !weight.is_turned() || !has_codes {
        return None;
    }
    let taps = height.saturating_mul(width);
    let is_small = channels.checked_mul(taps).is_some_and(|filter| u32::try_from(filter).is_ok());
    let what = "an update of filters of 2^32 elements or more".into();
    Some(if is_small { Ok([channels as u32, taps as u32]) } else { Err(Error::Unsupported { device: "CUDA", what }) })
}

/// Adds states that are codes to a kernel, with the tables of their values.
fn with_codes(kernel: Kernel, turned: bool) -> Kernel {
    let [signed, unsigned] = AdamW8bit::MAPS.map(|map| {
        let words: Vec<String> = map.entries().iter().map(|entry| format!("{:#x}u", entry.to_bits())).collect();
        format!("{{{}}}", words.join(","))
    });
    let kernel = kernel.with("MOMENT_REAL", type_name(Format::F32)).with("STATES", 2).with("CODES", 1);
    let kernel = kernel.with("SIGNED_MAP", signed).with("UNSIGNED_MAP", unsigned);
    if turned { kernel.with("TURNED", 1) } else { kernel }
}

/// Adds to an update's kernel the source of its learning rate and the clipping of its gradient: see `descent.cuh`.
pub(super) fn descending(kernel: Kernel, context: &Context<'_>) -> Kernel {
    let Descent { clip, schedule, wide_sums, .. } = context.placed.program.descent;
    let kernel = if is_constant(schedule) { kernel } else { kernel.with("SCHEDULED", 1) };
    let kernel = if wide_sums { kernel.with("WIDE", 1) } else { kernel };
    match clip {
        Some(Clip::GlobalNorm(_)) => kernel.with("CLIP_NORM", 1),
        Some(Clip::Value(most)) => kernel.with_float("CLIP_VALUE", most),
        _ => kernel,
    }
}

/// True if the learning rate is the same in every step. No number of such a schedule can be set while a program runs.
fn is_constant(schedule: Schedule) -> bool {
    schedule == Schedule::PLAIN
}

/// Checks that something computes the bias corrections of a rule that has some, and a learning rate that changes.
pub(super) fn is_prepared(context: &Context<'_>) -> Result<(), Error> {
    let is_loss = |operation: &Operation| matches!(operation.action, Action::Loss(_));
    let is_scheduled = !is_constant(context.placed.program.descent.schedule);
    let needs = is_scheduled || context.setting.optimizer.row().corrections != Corrections::None;
    if needs && !context.placed.program.operations.iter().any(is_loss) {
        return Err(Error::Damaged("an update without a loss, which prepares it"));
    }
    Ok(())
}

/// True if some parameters have a learning rate or a weight decay of their own. Matrices with a rule of their own do not count.
pub(super) fn is_grouped(context: &Context<'_>) -> bool {
    let optimizer = context.setting.optimizer;
    !optimizer.groups().is_empty() || optimizer.factor(false) != 1.0
}

/// Returns the factor of the learning rate of each parameter, and its weight decay, as the bits of f32.
pub(super) fn own(context: &Context<'_>, parameters: &[TensorId]) -> [Vec<u32>; 2] {
    let optimizer = context.setting.optimizer;
    let own = |&id: &TensorId| optimizer.own_as(false, &context.tensor(id).name);
    let (factors, decays): (Vec<f64>, Vec<f64>) = parameters.iter().map(own).unzip();
    [factors, decays].map(|numbers| numbers.iter().map(|&number| (number as f32).to_bits()).collect())
}

/// Adds to the kernel of a step's first loss the values that it prepares for the updates.
pub(super) fn prepared(kernel: Kernel, context: &Context<'_>) -> Kernel {
    let schedule = context.placed.program.descent.schedule;
    let kernel = match is_constant(schedule) {
        true => kernel,
        false => kernel.with("SCHEDULE", format!("{}Rate", schedule.name())),
    };
    // Updates of matrices need none.
    let optimizer = context.setting.optimizer.rule(false);
    match optimizer.row().corrections {
        Corrections::None => kernel,
        Corrections::Betas => {
            let [first, second] = betas(optimizer);
            kernel.with("BETAS", format!("{{{first:e},{second:e}}}"))
        }
        Corrections::Own => {
            let Text { statements, variables } = text::corrections(&optimizer);
            kernel.with("CORRECTIONS", statements).with("VARIABLES", variables)
        }
    }
}

/// Adds the optimizer's rule to a kernel. If the rule is `grouped`, each parameter has a weight decay of its own.
fn ruled(kernel: Kernel, optimizer: Optimizer, grouped: bool) -> Result<Kernel, Error> {
    let weight_decay = (!grouped).then(|| optimizer.weight_decay());
    let text = text::update(&optimizer, weight_decay).ok_or(Error::Damaged("an update of elements without a rule"))?;
    Ok(kernel.with("RULE", text.statements).with("VARIABLES", text.variables))
}

/// Returns the hyperparameters of a rule, as a list in C++.
pub(super) fn values(optimizer: Optimizer) -> String {
    let mut values = Vec::new();
    optimizer.for_each_value(|_, value| values.push(format!("{value:e}")));
    format!("{{{}}}", values.join(","))
}

pub(super) fn advance(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let state = context.written(Slot::State)?;
    let kernel = counting(context.kernel("state.cu", "advance"), context);
    Ok(vec![Launch { kernel, grid: [1, 1, 1], block: [32, 1, 1], arguments: vec![Some(state)], numbers: Vec::new() }])
}
