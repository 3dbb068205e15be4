//! Networks of texts with all that their plans are made from: what the compiler leaves of them in a record.

use super::evaluate::number;
use super::overrides::Overrides;
use super::{Mistake, Text, mistakes};
use crate::expand::{self, Readings};
use crate::resolve;
use crate::settings::reading::Reading;
use crate::syntax::{Constant, Source};
use gpumem_core::cards::find;
use gpumem_core::lower::{Blueprint, LowerError};
use gpumem_core::memory::budget::Line;
use gpumem_core::report::{Device, NotPlanned, Planned, Written};
use syn::ext::IdentExt as _;

/// A network with all that its plans are made from. A build leaves the same in the record of the network.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The name of the struct.
    pub name: String,
    /// True if the network is generic over its batch.
    pub is_generic: bool,
    /// The line of the batch, or of the name if there is no batch.
    pub line: usize,
    /// The graph, and the settings that change the program.
    pub blueprint: Blueprint,
    /// True if `blueprint` is that of the largest of several training steps.
    pub is_largest: bool,
    /// The settings of `TRAIN`. `None` if the network is not trained.
    pub train: Option<Written>,
    /// The settings of `INFER`. `None` for a network that is only trained.
    pub infer: Option<Written>,
}

/// Reads the only network in a text, with these fields instead of its own.
///
/// # Errors
/// All mistakes that the macro would report, and numbers that only a compiler can evaluate.
pub fn declared(text: &str, overrides: &Overrides) -> Result<Declared, Vec<Mistake>> {
    Text::read(text)?.declared(None, overrides)
}

impl Text {
    /// Reads the network of this name, or the only one, with these fields instead of its own.
    ///
    /// # Errors
    /// There is no such network, it has mistakes, or a number of its settings is an expression that only a compiler can evaluate.
    pub fn declared(&self, name: Option<&str>, overrides: &Overrides) -> Result<Declared, Vec<Mistake>> {
        let (mut source, mut errors) = self.source(name)?;
        let was_generic = source.declaration.batch.is_some();
        overrides.apply(&mut source);
        let resolved = resolve::resolve(&source, &mut errors);
        let mut readings = crate::read(&source, &resolved, &mut errors);
        readings.trains.iter_mut().chain(&mut readings.infer).for_each(|reading| reading.is_alone = true);
        mistakes(&errors)?;
        let blueprint = expand::blueprint(&source, &resolved, &readings, &mut errors);
        mistakes(&errors)?;
        let declared = &source.declaration.name;
        let mut blueprint =
            blueprint.ok_or_else(|| vec![Mistake::at(declared.span(), format!("`{declared}` has no outputs"))])?;
        self.name_files(&mut blueprint.graph.lines);
        // The compiler lowers a generic network once, whatever batch is given here.
        if was_generic {
            blueprint.order_for(Some(expand::NOMINAL));
        }
        of_readings(&source, &readings, blueprint, overrides)
    }
}

/// Adds the settings of its constants to the blueprint of a network. Of several training steps, the largest is chosen.
fn of_readings(
    source: &Source,
    readings: &Readings<'_>,
    blueprint: Blueprint,
    overrides: &Overrides,
) -> Result<Declared, Vec<Mistake>> {
    let name = &source.declaration.name;
    let is_generic = source.declaration.batch.is_some();
    let at_name = |message: String| vec![Mistake::at(name.span(), message)];
    let written = |reading: &Reading<'_>, blueprint: &Blueprint, training: bool| {
        let mut written = written(reading, &source.module.constants, (is_generic, overrides.samples()))?;
        if reading.takes_largest || is_generic && overrides.takes_largest() {
            let batch = largest(readings, reading, (blueprint, &written), training);
            written.batch = Some(batch.map_err(|error| at_name(error.to_string()))?);
        }
        Ok::<Written, Vec<Mistake>>(written)
    };
    let mut train = None;
    let mut chosen: Option<(u64, Blueprint)> = None;
    for (step, reading) in blueprint.steps().into_iter().zip(&readings.trains) {
        let of_step = written(reading, &step, true)?;
        if blueprint.parts.all.is_empty() || of_step.batch.is_none() {
            train = Some(of_step);
            break;
        }
        let arena = arena(&step, &of_step).map_err(|error| at_name(error.to_string()))?;
        if chosen.as_ref().is_none_or(|(most, _)| arena > *most) {
            (train, chosen) = (Some(of_step), Some((arena, step)));
        }
    }
    let own = Reading::new("INFER");
    let infers = readings.infer.is_some() || readings.trains.is_empty();
    let infer = infers.then(|| written(readings.infer.as_ref().unwrap_or(&own), &blueprint, false)).transpose()?;
    let place = expand::refusal_place(source, readings.primary());
    Ok(Declared {
        name: name.unraw().to_string(),
        is_generic,
        line: place.start.start().line,
        is_largest: chosen.is_some(),
        blueprint: chosen.map_or(blueprint, |(_, step)| step),
        train,
        infer,
    })
}

/// Returns the arena bytes of a training step, planned as the compiler does for the cards that it names.
fn arena(step: &Blueprint, written: &Written) -> Result<u64, NotPlanned> {
    let plan = Planned::new(step, written, written.batch.unwrap_or(1), [true, false])?;
    Ok(plan.budget(&plan.cards)?[Line::Arena])
}

/// Returns the settings of a constant. Fails if one of them is an expression that only a compiler evaluates.
///
/// `given` is a batch for a generic network, or for one whose own batch is such an expression.
fn written(
    reading: &Reading<'_>,
    constants: &[Constant],
    (is_generic, given): (bool, Option<u64>),
) -> Result<Written, Vec<Mistake>> {
    let number = |known: Option<u64>, name: &str| {
        let field = || reading.settings?.fields.iter().find(|field| field.name == name);
        let evaluated = known.or_else(|| number(&field()?.value, constants));
        let message =
            || format!("`{name}` is an expression, which only the compiler evaluates; here it must be a number");
        evaluated.ok_or_else(|| vec![Mistake::at(reading.place_of(name).start, message())])
    };
    let batch = match reading.known_batch {
        _ if is_generic => given,
        _ if reading.takes_largest => None,
        known => Some(number(known, "batch").or_else(|mistakes| given.ok_or(mistakes))?),
    };
    let mut cards = Vec::new();
    for card in reading.cards.iter().chain(crate::settings::cards::SELECTED) {
        cards.extend(find(card.slug).filter(|card| !cards.contains(card)));
    }
    Ok(Written {
        batch,
        precision: reading.precision,
        headroom: number(reading.headroom, "headroom")?,
        convolution_workspace: number(reading.conv_workspace, "conv_workspace")?,
        cards,
    })
}

/// Returns the largest batch that fits the target cards of a constant. 1 if no sample fits: its plan then says what is missing.
fn largest(
    readings: &Readings<'_>,
    reading: &Reading<'_>,
    (blueprint, written): (&Blueprint, &Written),
    training: bool,
) -> Result<u64, NotPlanned> {
    let room = expand::room_of(reading).filter(|&room| room < u64::MAX);
    let no_card = || {
        let message = "the largest batch is asked for, and no card is named".to_string();
        NotPlanned::Lower(LowerError { row: None, message })
    };
    let room = room.ok_or_else(no_card)?;
    if training {
        return Ok(expand::largest_batch(&readings.only(reading), blueprint, room)?);
    }
    let plan = Planned::new(blueprint, written, 1, [training, readings.infer.is_some()])?;
    Ok(plan.largest_batch(&plan.cards, room).max(1))
}

impl Declared {
    /// Lowers the training step, or the forward pass of a network without one. The program is then planned for any cards.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn plan(&self) -> Result<Planned, NotPlanned> {
        let (written, training) = match (&self.train, &self.infer) {
            (Some(train), _) => (train, true),
            (None, Some(infer)) => (infer, false),
            (None, None) => return Err(NotPlanned::Untrained),
        };
        let batch = written.batch.ok_or(NotPlanned::NoBatch)?;
        Planned::new(&self.blueprint, written, batch, [training, self.infer.is_some()])
    }

    /// Compares the program of [`Declared::plan`] with devices, each planned for itself alone.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn facts(&self, devices: &[Device]) -> Result<Facts, NotPlanned> {
        let plan = self.plan()?;
        let fit = |&device: &Device| {
            let (budget, largest_batch) = plan.within(&device.aim(), device, plan.headroom)?;
            let budget = budget.with_reserve(device.reserve()).with_communication(device.communication(plan.ranks()));
            let total = budget[Line::Total];
            let needs = total.saturating_add(plan.headroom);
            Ok(Fit {
                device,
                arena: budget[Line::Arena],
                workspace: budget.workspace,
                total,
                left: device.usable().checked_sub(needs),
                largest_batch,
            })
        };
        let fits = devices.iter().map(fit).collect::<Result<Vec<Fit>, NotPlanned>>()?;
        Ok(Facts { parameters: plan.parameters(), flops_forward: plan.macs().saturating_mul(2), fits })
    }
}

/// The needs of a network.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Elements of all parameters.
    pub parameters: u64,
    /// Floating-point operations of one sample's forward pass: two for each multiply-accumulate.
    pub flops_forward: u64,
    /// The answer for each device, in their order.
    pub fits: Vec<Fit>,
}

/// A program on a device.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// The card, or a size.
    pub device: Device,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes of the largest scratch memory in it.
    pub workspace: u64,
    /// Bytes of the arena and the reserve of the device.
    pub total: u64,
    /// Bytes that stay free. `None` if the program does not fit.
    pub left: Option<u64>,
    /// The largest batch that fits; 0 if not even one sample does.
    pub largest_batch: u64,
}
