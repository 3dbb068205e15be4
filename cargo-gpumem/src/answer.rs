//! Computes if networks fit cards, and lists the networks without an answer.

use crate::Failure;
use crate::built::Built;
use crate::network::{LeftOut, Network, has_instance};
use crate::options::Fit;
use crate::output::warn;
use crate::plan::{Alternative, PlannedProgram, steps};
use crate::together::Together;
use gpumem_core::cards::{self, Card};
use gpumem_core::memory::budget::Line;
use gpumem_core::report::{Cheaper, Device};
use gpumem_core::train::Ranks;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A program, or several at once, on a card.
pub struct Answer {
    /// The network's name, as [`PlannedProgram::title`] has it.
    pub title: String,
    /// The name in tables.
    pub label: String,
    /// `train`, `infer`, or `together` of several networks.
    pub program: &'static str,
    /// The networks of a `fits!` with several. `None` for one network.
    pub networks: Option<Vec<String>>,
    pub package: Option<String>,
    pub file: String,
    pub line: u64,
    /// Samples in a step. The next field is the name of the precision. Both are `None` for several networks.
    pub batch: Option<u64>,
    pub precision: Option<&'static str>,
    pub device: Device,
    /// The ranks that share the step. Each has such a device.
    pub ranks: Ranks,
    /// Bytes of the arena, the reserve and the communication library.
    pub total: u64,
    /// Bytes that the user leaves to other processes.
    pub headroom: u64,
    /// The largest batch that fits. `None` for several networks.
    pub largest_batch: Option<u64>,
    /// The longest cache that fits, in time steps. `None` unless the network keeps a cache.
    pub longest_cache: Option<u64>,
    /// A change with which less is recomputed. `None` if there is none, or nothing is recomputed by choice.
    pub cheaper: Option<Cheaper>,
    /// Changes with which it fits. Empty if it fits, and for a card that nobody named.
    pub alternatives: Vec<Alternative>,
}

impl Answer {
    /// Returns the bytes that stay free, or as an `Err` the bytes that are missing.
    pub fn left(&self) -> Result<u64, u64> {
        let (needs, has) = (self.total.saturating_add(self.headroom), self.device.usable());
        has.checked_sub(needs).ok_or(needs - has.min(needs))
    }
}

/// All answers, and the networks or programs without one.
pub struct Answers {
    pub answers: Vec<Answer>,
    pub left_out: Vec<LeftOut>,
}

/// The error for networks of which none has an answer.
pub const NO_CARD: &str = "no card is named: give some with `--cards t4,l4`, or all with `--all`";

/// Compares the programs of networks with cards: those of the command line, or those that each network names.
///
/// A network that the command line names must have an answer. `planned` has the programs of networks that are planned already, by their place
/// among all.
///
/// # Errors
/// There is no answer.
pub fn answers(
    built: Built,
    planned: BTreeMap<usize, Vec<PlannedProgram>>,
    arguments: &Fit,
) -> Result<Answers, Failure> {
    let found = found(built, planned, arguments)?;
    if found.answers.is_empty() {
        let left_out = found.left_out.iter();
        left_out.for_each(|it| warn(&format!("left out: `{}` at {}:{}: {}", it.label, it.file, it.line, it.why)));
        return Err(NO_CARD.into());
    }
    Ok(found)
}

/// Compares the programs of networks with cards as [`answers`] does. There may be no answer.
pub fn found(
    built: Built,
    mut planned: BTreeMap<usize, Vec<PlannedProgram>>,
    arguments: &Fit,
) -> Result<Answers, Failure> {
    let Built { networks, together, mut left_out, .. } = built;
    let asked = asked(arguments);
    let mut answers = Vec::new();
    // Plans networks side by side, and each on its own: a few take much longer than all others.
    let is_planned: BTreeSet<usize> = planned.keys().copied().collect();
    let not_planned = |(index, network): (usize, &Network)| {
        let found = || of_network(network, None, (&networks, &together), (arguments, asked.as_deref()));
        (!is_planned.contains(&index)).then(|| found().map_err(|failure| failure.to_string()))
    };
    let found: Vec<_> = networks.par_iter().with_max_len(1).enumerate().map(not_planned).collect();
    for (index, (network, found)) in networks.iter().zip(found).enumerate() {
        let found = match found {
            Some(found) => found?,
            None => of_network(network, planned.remove(&index), (&networks, &together), (arguments, asked.as_deref()))?,
        };
        answers.extend(found.answers);
        left_out.extend(found.left_out);
    }
    for together in &together {
        match at_once(together, arguments, asked.as_deref()) {
            Ok(_) if asked.is_none() && together.cards.is_empty() => {
                left_out.push(together.left_out("names no card".into()))
            }
            Ok(found) => answers.extend(found),
            Err(failure) if arguments.networks.is_empty() => left_out.push(together.left_out(failure.to_string())),
            Err(failure) => return Err(failure),
        }
    }
    Ok(Answers { answers, left_out })
}

/// Returns the answers for the programs of one network, and those without one. `planned` has its programs, if they are planned already.
///
/// # Errors
/// The command line names the network, and it has no answer.
fn of_network(
    network: &Network,
    planned: Option<Vec<PlannedProgram>>,
    (networks, together): (&[Network], &[Together]),
    (arguments, asked): (&Fit, Option<&[Device]>),
) -> Result<Answers, Failure> {
    let steps = match planned.map_or_else(|| steps(network, &arguments.settings), Ok) {
        Ok(steps) => steps,
        // A network that the user did not name does not stop the answers for others.
        Err(failure) if arguments.networks.is_empty() => {
            // The instances of a generic network have answers instead of it.
            let has_answer = has_instance(networks, network);
            let left_out = (!has_answer).then(|| LeftOut::network(network, failure.to_string()));
            return Ok(Answers { answers: Vec::new(), left_out: left_out.into_iter().collect() });
        }
        Err(failure) => return Err(failure),
    };
    let found = of_steps(network, &steps, together, (arguments, asked))?;
    if !arguments.networks.is_empty() && found.left_out.len() == steps.len() {
        let name = &network.name;
        return Err(format!("`{name}` names no card: give some with `--cards t4,l4`, or all with `--all`").into());
    }
    Ok(found)
}

/// Returns the answers for these programs of a network, and the programs that no card is named for.
fn of_steps(
    network: &Network,
    steps: &[PlannedProgram],
    together: &[Together],
    (arguments, asked): (&Fit, Option<&[Device]>),
) -> Result<Answers, Failure> {
    let (mut answers, mut without) = (Vec::new(), Vec::new());
    for step in steps {
        let before = answers.len();
        let headroom = arguments.headroom.unwrap_or(step.plan.headroom);
        // As the compiler does, plans once for all cards that the network names, but separately for each card of the command line.
        let largest = arguments.settings.takes_largest();
        let Some(asked) = asked else {
            let cards = &step.plan.cards;
            let devices: Vec<Device> = cards.iter().map(|card| Device::Known(card)).collect();
            let most =
                (largest && !devices.is_empty()).then(|| step.at_largest(cards, &devices, headroom)).transpose()?;
            for device in devices {
                answers.push(answer(most.as_ref().unwrap_or(step), device, (cards, true), headroom)?);
            }
            let is_covered =
                together.iter().any(|together| !together.cards.is_empty() && asks_about(together, network, step));
            if answers.len() == before && !is_covered {
                without.push(LeftOut {
                    label: step.label.clone(),
                    name: step.title.clone(),
                    program: Some(step.program_name()),
                    ..LeftOut::network(network, "names no card".into())
                });
            }
            continue;
        };
        for device in asked {
            let most = largest.then(|| step.at_largest(&device.aim(), &[*device], headroom)).transpose()?;
            let aim = (&device.aim()[..], !arguments.all);
            answers.push(answer(most.as_ref().unwrap_or(step), *device, aim, headroom)?);
        }
    }
    Ok(Answers { answers, left_out: without })
}

/// True if a `fits!` asks about this program of a network: about its first one, or as `Serving<Net>` about its forward pass.
fn asks_about(together: &Together, network: &Network, step: &PlannedProgram) -> bool {
    together.members.iter().any(|member| {
        let is_it = member.name == network.name && step.is_primary;
        let serves = member.name == format!("Serving<{}>", network.name) && !step.plan.training;
        member.declared == network.declared && (is_it || serves)
    })
}

/// Returns all cards that a network can run on.
pub fn all_cards() -> Vec<Device> {
    cards::ALL.iter().filter(|card| card.runs()).map(Device::Known).collect()
}

/// Returns the cards of the command line, which replace those of networks. `None` if there are none.
pub fn asked(arguments: &Fit) -> Option<Vec<Device>> {
    if arguments.all {
        return Some(all_cards());
    }
    (!arguments.cards.is_empty()).then(|| arguments.cards.clone())
}

/// Returns the answer for a step on a device, planned for the target cards `aim`. Has alternatives if `is_named`: they take long to plan.
fn answer(
    step: &PlannedProgram,
    device: Device,
    (aim, is_named): (&[&'static Card], bool),
    headroom: u64,
) -> Result<Answer, Failure> {
    let (budget, largest_batch) = step.within(aim, device, headroom)?;
    let total = step.total(budget, device);
    let longest_cache = step.longest_cache(aim, step.room(device, headroom));
    let cheaper = step.cheaper_within(aim, device, headroom)?;
    let mut answer = Answer { cheaper, ..of_step(step, device, (total, headroom), (largest_batch, longest_cache))? };
    if is_named && answer.left().is_err() {
        answer.alternatives = step.alternatives_within(aim, device, headroom);
    }
    Ok(answer)
}

/// Returns the answer for a step on a device, planned as the compiler did for the cards of the network.
fn as_written(step: &PlannedProgram, device: Device, headroom: u64) -> Result<Answer, Failure> {
    let (budget, largest_batch) = step.as_written(device, headroom)?;
    let total = step.total(budget, device);
    let longest_cache = step.longest_cache(&step.plan.cards, step.room(device, headroom));
    let cheaper = step.cheaper_as_written()?;
    Ok(Answer { cheaper, ..of_step(step, device, (total, headroom), (largest_batch, longest_cache))? })
}

fn of_step(
    step: &PlannedProgram,
    device: Device,
    (total, headroom): (u64, u64),
    (largest_batch, longest_cache): (u64, Option<u64>),
) -> Result<Answer, Failure> {
    runs(&step.label, device)?;
    Ok(Answer {
        title: step.title.clone(),
        label: step.label.clone(),
        program: step.program_name(),
        networks: None,
        package: step.package.clone(),
        file: step.file.clone(),
        line: step.line,
        batch: Some(step.plan.batch),
        precision: Some(step.plan.precision.name()),
        device,
        ranks: step.plan.ranks(),
        total,
        headroom,
        largest_batch: Some(largest_batch),
        longest_cache,
        cheaper: None,
        alternatives: Vec::new(),
    })
}

/// Fails for a card that no backend runs on. The compiler refuses such a card in a network.
fn runs(label: &str, device: Device) -> Result<(), Failure> {
    match device {
        Device::Known(card) if !card.runs() => Err(format!("`{label}`: {}", crate::values::too_old(card)).into()),
        _ => Ok(()),
    }
}

/// Returns answers for the networks of a `fits!` on each of its cards, or of the command line's. An answer has their arenas, and one reserve.
///
/// For a `fits!` of one network, only cards that the network itself does not name are answered.
fn at_once(together: &Together, arguments: &Fit, asked: Option<&[Device]>) -> Result<Vec<Answer>, Failure> {
    if arguments.settings.takes_largest() && together.members.len() > 1 {
        return Err("`--batch largest` is the batch of one network, and this `fits!` asks about several".into());
    }
    let mut primary = Vec::new();
    for member in &together.members {
        primary.extend(steps(member, &arguments.settings)?.into_iter().next());
    }
    let headroom =
        arguments.headroom.or_else(|| primary.iter().map(|step| step.plan.headroom).max()).unwrap_or_default();
    if let [step] = primary.as_slice() {
        let others = together.cards.iter().filter(|card| !step.plan.cards.iter().any(|own| own.slug == card.slug));
        let others = others.filter(|_| asked.is_none());
        return others.map(|card| as_written(step, Device::Known(card), headroom)).collect();
    }
    let written = || together.cards.iter().map(|card| Device::Known(card)).collect();
    let mut answers = Vec::new();
    for device in asked.map_or_else(written, <[Device]>::to_vec) {
        runs(&together.title(), device)?;
        let mut arenas = 0u64;
        // Each network of several ranks has a communicator of its own.
        let beside = primary.iter().map(|step| device.communication(step.plan.ranks())).fold(0, u64::saturating_add);
        for step in &primary {
            let budget = if asked.is_some() {
                step.within(&device.aim(), device, headroom)?.0
            } else {
                step.as_written(device, headroom)?.0
            };
            arenas = arenas.saturating_add(budget[Line::Arena]);
        }
        answers.push(Answer {
            title: together.title(),
            label: together.title(),
            program: "together",
            networks: Some(together.members.iter().map(|member| member.name.clone()).collect()),
            package: primary[0].package.clone(),
            file: together.file.clone(),
            line: together.line,
            batch: None,
            precision: None,
            device,
            ranks: Ranks::ALONE,
            total: arenas.saturating_add(device.reserve()).saturating_add(beside),
            headroom,
            largest_batch: None,
            longest_cache: None,
            cheaper: None,
            alternatives: Vec::new(),
        });
    }
    Ok(answers)
}
