//! The programs of networks that were built, each with its plans and its place in reports.

use crate::Failure;
use crate::network::Network;
use crate::options::Settings;
use gpumem_core::cards::Card;
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::report::{Device, NotPlanned, Planned, Written};

/// One of a network's programs, with its settings.
pub struct PlannedProgram {
    /// The network's name, with `(inference)` after it if the network has both programs.
    pub title: String,
    /// The title in tables. It contains the package or the place if another network has the same name.
    pub label: String,
    pub package: Option<String>,
    /// True for the first program of its network, which `fits!` asks about.
    pub is_primary: bool,
    pub file: String,
    pub line: u64,
    pub plan: Planned,
}

/// Returns the programs of a network that its constants ask for.
pub fn steps(network: &Network, settings: &Settings) -> Result<Vec<PlannedProgram>, Failure> {
    let mut steps = Vec::new();
    let both = network.train.is_some() && network.infer.is_some();
    for (written, training) in [(&network.train, true), (&network.infer, false)] {
        if let Some(written) = written {
            let mut step = step(network, written, training, settings)?;
            step.is_primary = steps.is_empty();
            if both && !training {
                step.title += " (inference)";
                step.label += " (inference)";
            }
            steps.push(step);
        }
    }
    Ok(steps)
}

/// Returns one program of a network. Of several training steps, this is the one with the largest arena.
pub fn step(
    network: &Network,
    written: &Written,
    training: bool,
    settings: &Settings,
) -> Result<PlannedProgram, Failure> {
    if !training || network.is_largest || network.blueprint.parts.all.len() < 2 {
        return one_step(network, written, training, settings);
    }
    let mut largest: Option<(u64, PlannedProgram)> = None;
    for blueprint in network.blueprint.steps() {
        let network = Network { blueprint, ..network.clone() };
        let step = one_step(&network, written, training, settings)?;
        let arena = step.budget(&step.plan.cards)?[Line::Arena];
        if largest.as_ref().is_none_or(|(most, _)| arena > *most) {
            largest = Some((arena, step));
        }
    }
    let none = || format!("`{}` has no training step", network.name);
    Ok(largest.ok_or_else(none)?.1)
}

fn one_step(
    network: &Network,
    written: &Written,
    training: bool,
    settings: &Settings,
) -> Result<PlannedProgram, Failure> {
    let name = &network.name;
    // The largest batch is searched from a plan of any.
    let any = settings.takes_largest().then_some(1);
    let batch = settings.samples().or(written.batch).or(any).ok_or_else(|| {
        format!("`{name}` is generic over its batch: give one with `--batch`, or check an instance with `fits!({name}<64>);`")
    })?;
    let written = Written { precision: settings.precision.unwrap_or(written.precision), ..written.clone() };
    let plan = Planned::new(&network.blueprint, &written, batch, [training, network.infer.is_some()])
        .map_err(|error| failure(name, &error))?;
    let label =
        plan.step.as_ref().map_or_else(|| network.label.clone(), |step| format!("{} (step {step})", network.label));
    Ok(PlannedProgram {
        title: name.clone(),
        label,
        package: network.package.clone(),
        is_primary: true,
        file: network.file.clone(),
        line: network.line,
        plan,
    })
}

/// Returns the error for a network that has no plan.
fn failure(name: &str, error: &NotPlanned) -> Failure {
    match error {
        NotPlanned::Lower(_) | NotPlanned::NoBatch => format!("`{name}`: {error}").into(),
        NotPlanned::Untrained => format!("`{name}` has no training step").into(),
        NotPlanned::Plan(..) => format!("`{name}` {error}").into(),
    }
}

impl PlannedProgram {
    /// Returns `train` or `infer`.
    pub fn program_name(&self) -> &'static str {
        if self.plan.training { "train" } else { "infer" }
    }

    /// Returns the budget that the compiler plans for the cards of the network: see [`Planned::written`].
    pub fn written(&self) -> Result<Budget, Failure> {
        self.named(self.plan.written())
    }

    /// Returns the budget for these target cards, with a reserve of 0.
    pub fn budget(&self, aim: &[&Card]) -> Result<Budget, Failure> {
        self.named(self.plan.budget(aim))
    }

    /// Returns the budget and the largest batch on a device, planned for the target cards `aim`: see [`Planned::within`].
    pub fn within(&self, aim: &[&'static Card], device: Device, headroom: u64) -> Result<(Budget, u64), Failure> {
        self.named(self.plan.within(aim, device, headroom))
    }

    /// Returns the budget and the largest batch on a device, planned as the compiler did: see [`Planned::as_written`].
    pub fn as_written(&self, device: Device, headroom: u64) -> Result<(Budget, u64), Failure> {
        self.named(self.plan.as_written(device, headroom))
    }

    /// Returns the longest cache that fits: see [`Planned::longest_cache`].
    pub fn longest_cache(&self, aim: &[&Card], room: u64) -> Option<u64> {
        self.plan.longest_cache(aim, room)
    }

    /// Returns the program at the largest batch that fits all these devices, planned for the target cards `aim`. At batch 1 if none fits.
    pub fn at_largest(
        &self,
        aim: &[&'static Card],
        devices: &[Device],
        headroom: u64,
    ) -> Result<PlannedProgram, Failure> {
        let mut least = u64::MAX;
        for device in devices {
            least = least.min(self.within(aim, *device, headroom)?.1);
        }
        let plan = self.named(self.plan.at(least.max(1)))?;
        Ok(PlannedProgram {
            title: self.title.clone(),
            label: self.label.clone(),
            package: self.package.clone(),
            file: self.file.clone(),
            plan,
            ..*self
        })
    }

    fn named<T>(&self, planned: Result<T, NotPlanned>) -> Result<T, Failure> {
        planned.map_err(|error| failure(&self.title, &error))
    }
}
