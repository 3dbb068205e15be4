//! Implements `cargo gpumem timeline`, which draws the memory of one step over its operations.

pub(crate) mod category;
mod changes;
mod csv;
mod html;
mod json;
mod pickle;
mod reference;
mod step;
mod svg;

use crate::Failure;
use crate::chosen;
use crate::files;
use crate::models::pytorch::Prediction;
use crate::models::read::{self, USUAL_OPTIMIZER};
use crate::models::{USUAL_BATCH, table};
use crate::network::Network;
use crate::options::{FileOptions, Target, Timeline, TimelineFormat, is_file, is_source};
use crate::output::{print_bytes, say};
use crate::outputs::{Staged, keep, refuse};
use crate::plan::advice;
use changes::Variant;
use gpumem_core::report::{Advice, Device, Extent};
use gpumem_import::torch::Report;
use gpumem_import::tree;
use gpumem_language::source::{Mistake, Overrides, declared};
use reference::Reference;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use step::PlacedStep;

/// A step with everything that a page shows beside it.
pub struct Picture {
    pub step: PlacedStep,
    /// Single changes of the step, as `cargo gpumem advise` lists them.
    pub alternatives: Vec<Advice>,
    /// The curve of the step in PyTorch. `None` unless the network was read from a model of PyTorch.
    pub reference: Option<Reference>,
}

pub fn run(arguments: &Timeline) -> Result<ExitCode, Failure> {
    arguments.settings.refuse_largest()?;
    let format = arguments.format()?;
    if let Some(Target::File(path)) = arguments.target() {
        refuse(&[path], &[], arguments.force)?;
    }
    let (network, report) = network(arguments)?;
    let contents = contents(arguments, format, &network, report)?;
    let path = match arguments.target() {
        Some(Target::Output) => {
            print_bytes(&contents)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Target::File(path)) => path.to_path_buf(),
        None => format!("{}-timeline.{}", plain(&network.name), format.ending()).into(),
    };
    refuse(&[&path], &[], arguments.force)?;
    let staged = Staged::new(&path)?;
    staged.write(&contents)?;
    keep(vec![staged.told(format!("the timeline of `{}`", network.name))], arguments.force)?;
    if arguments.open {
        open(&path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a network's name as the name of a file: `Vgg16<64>` becomes `Vgg16-64`.
fn plain(name: &str) -> String {
    name.trim_end_matches('>').replace(|letter: char| !letter.is_alphanumeric() && letter != '_', "-")
}

/// Returns the network of the command line. For a model of PyTorch, returns the prediction of its memory there too.
fn network(arguments: &Timeline) -> Result<(Network, Option<Rc<Report>>), Failure> {
    let name = arguments.network.as_deref();
    match name.filter(|name| is_file(name) && !is_source(name)) {
        Some(model) => of_model(model, arguments),
        None => Ok((chosen::network(name, &arguments.build)?, None)),
    }
}

/// Returns the network that a model is, with the prediction of its memory in PyTorch if there is one.
fn of_model(file: &str, arguments: &Timeline) -> Result<(Network, Option<Rc<Report>>), Failure> {
    let path = Path::new(file);
    let samples = arguments.settings.samples().unwrap_or(USUAL_BATCH);
    let options = tree::Options {
        name: path.file_name().and_then(|name| name.to_str()).unwrap_or(file).to_string(),
        batch: samples,
        optimizer: USUAL_OPTIMIZER.into(),
        loss: None,
        fields: Vec::new(),
    };
    let imported = read::model(path, &options, false)?;
    let Some(source) = &imported.source else {
        let missing = table::missing(&imported.missing, imported.operations);
        return Err(format!("{file} has no timeline, since it cannot be written as a network\n{missing}").into());
    };
    let failure = |all: Vec<Mistake>| all.iter().map(|it| format!("{file}: {it}")).collect::<Vec<_>>().join("\n");
    let network = files::network(file, declared(source, &Overrides::default()).map_err(failure)?);
    let prediction =
        Prediction::new(&imported.model, (arguments.settings.precision, USUAL_OPTIMIZER), &FileOptions::default());
    let report = match prediction.and_then(|prediction| prediction.report(samples)) {
        Ok(report) => Some(report),
        Err(why) => {
            say(&format!("PyTorch's curve is left out: {why}"));
            None
        }
    };
    Ok((network, report))
}

/// Returns the contents of the file.
fn contents(
    arguments: &Timeline,
    format: TimelineFormat,
    network: &Network,
    report: Option<Rc<Report>>,
) -> Result<Vec<u8>, Failure> {
    let (written, is_training) = network.program(arguments.inference)?;
    let device = written.cards.first().copied().map(Device::Known);
    let (network, written, settings) = (network.clone(), written.clone(), arguments.settings.clone());
    let mut variant = Variant { network, written, is_training, settings, device };
    if let Some(device) = arguments.card {
        variant = variant.on(device);
    }
    let program = variant.plan()?;
    let step = variant.placed(&program)?;
    let text = match format {
        TimelineFormat::Svg => svg::of(&step),
        TimelineFormat::Csv => csv::of(&step),
        TimelineFormat::Pickle => return Ok(pickle::of(&step)),
        TimelineFormat::Html | TimelineFormat::Json => {
            let title = format!("{}: memory of a step", step.title);
            let reference = report.filter(|_| is_training).map(|report| Reference::new(&report, &step));
            let adviser = program.plan.adviser(&program.plan.cards, variant.device, program.plan.headroom);
            let now = adviser.now().map_err(|error| format!("`{}`: {error}", program.label))?;
            let alternatives = advice(&adviser, &now, Extent::Single);
            let mut pictures = vec![Picture { step, alternatives, reference }];
            if !arguments.against.is_empty() {
                let other = arguments.against.iter().try_fold(variant, |variant, &change| variant.with(change))?;
                pictures.push(Picture {
                    step: other.placed(&other.plan()?)?,
                    alternatives: Vec::new(),
                    reference: None,
                });
            }
            let data: Vec<serde_json::Value> = pictures.iter().map(json::of).collect();
            match (format, data.as_slice()) {
                (TimelineFormat::Html, all) => html::page(&title, all),
                (_, [one]) => format!("{one}\n"),
                (_, all) => format!("{}\n", serde_json::Value::from(all)),
            }
        }
    };
    Ok(text.into_bytes())
}

/// Opens a file in the browser of the user: that of `BROWSER`, or that of the system.
fn open(path: &Path) -> Result<(), Failure> {
    let path = path.canonicalize()?;
    let mut command = match std::env::var_os("BROWSER") {
        Some(browser) if !browser.is_empty() => Command::new(browser),
        _ if cfg!(target_os = "macos") => Command::new("open"),
        _ if cfg!(windows) => Command::new("explorer"),
        _ => Command::new("xdg-open"),
    };
    let opened = command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match opened {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "no browser could be started ({}: {error}); open {} yourself, or name one in `BROWSER`",
            command.get_program().to_string_lossy(),
            path.display()
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn files_have_plain_names() {
        assert_eq!(["Vgg16", "Vgg16<64>", "Serving<Net>"].map(plain), ["Vgg16", "Vgg16-64", "Serving-Net"]);
    }
}
