//! The data of a page, as JSON: format `gpumem-timeline`, version 1.
//!
//! Operations and tensors are columns of equal length. Texts that occur often are numbers, which index a list. Keys may be added within a version.
//! [`docs/reference/timeline.md`](https://github.com/gpumem/gpumem/blob/main/docs/reference/timeline.md) describes all of them.

use super::Picture;
use super::category::Category;
use super::step::{Live, PlacedStep, TensorPart, TimedOperation};
use gpumem_core::graph::SourceLine;
use gpumem_core::memory::budget::{BUS_BYTES, Budget, Line};
use gpumem_core::report::Advice;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The grain of offsets.
const GRAIN: u64 = 256;

/// Returns the data of a picture.
pub fn of(picture: &Picture) -> Value {
    let step = &picture.step;
    let mut names = Names::default();
    let mut shapes = Names::default();
    let mut verbs = Names::default();
    let operations = operations(&step.operations, &mut verbs);
    let tensors = tensors(step, &mut names, &mut shapes);
    let device = step.card.map(|(device, headroom)| {
        json!({
            "name": step.card_name(),
            "slug": crate::text::slug(device),
            "usable": device.usable(),
            "headroom": headroom,
            "reserve": device.reserve(),
        })
    });
    json!({
        "format": "gpumem-timeline",
        "version": 1,
        "made_by": concat!("gpumem ", env!("CARGO_PKG_VERSION")),
        "network": step.network,
        "title": step.title,
        "program": if step.is_training { "train" } else { "infer" },
        "batch": step.batch,
        "samples": step.samples,
        "micro_batches": step.micro_batches,
        "ranks": step.ranks,
        "precision": step.precision,
        "settings": step.settings,
        "card": device,
        "lines": Line::ALL.map(Line::name),
        "budget": budget(&step.budget),
        "bus": step.card.map_or(BUS_BYTES, |(device, _)| device.host_rate()),
        "least_us": step.least_us().round() as u64,
        "repeated": step.repeated,
        "categories": Category::ALL.map(category),
        "parts": (0..TensorPart::COUNT).map(TensorPart::name).collect::<Vec<_>>(),
        "sources": {
            "files": step.lines.files,
            "lines": step.lines.lines.iter().map(line).collect::<Vec<_>>(),
        },
        "layers": {
            "path": column(&step.layers, |layer| layer.path.clone().into()),
            "kind": column(&step.layers, |layer| layer.kind.clone().into()),
            "source": (0..step.layers.len()).map(|row| number(step.lines.rows.get(row).copied().flatten())).collect::<Value>(),
        },
        "verbs": verbs.all,
        "names": names.all,
        "shapes": shapes.all,
        "operations": operations,
        "tensors": tensors,
        "parked": step.parked,
        "alternatives": picture.alternatives.iter().map(alternative).collect::<Vec<_>>(),
        "reference": picture.reference.as_ref().map(|reference| json!({
            "name": reference.name,
            "live": reference.live,
            "reserved": reference.reserved,
        })),
    })
}

/// Texts by their numbers.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, usize>,
    all: Vec<String>,
}

impl Names {
    fn number(&mut self, text: &str) -> Value {
        let next = self.all.len();
        let number = *self.numbers.entry(text.to_string()).or_insert(next);
        if number == next {
            self.all.push(text.to_string());
        }
        number.into()
    }
}

/// Returns an index; -1 for none.
fn number(index: Option<usize>) -> Value {
    index.map_or_else(|| (-1).into(), Value::from)
}

fn column<T>(all: &[T], value: impl FnMut(&T) -> Value) -> Value {
    all.iter().map(value).collect()
}

fn line(&SourceLine { file, line, caller }: &SourceLine) -> Value {
    json!([file, line, number(caller)])
}

fn category(category: Category) -> Value {
    let look = category.look();
    json!({
        "name": look.name,
        "meaning": look.meaning,
        "light": look.light,
        "dark": look.dark,
        "hatched": look.is_hatched,
        "where": if category.is_on_host() { "host" } else if category.is_inside() { "step" } else { "lasting" },
    })
}

fn budget(budget: &Budget) -> Value {
    json!({
        "bytes": budget.lines,
        "peak": budget.peak,
        "lower_bound": budget.lower_bound,
        "host": budget.host,
        "fetched": budget.fetched,
    })
}

fn operations(all: &[TimedOperation], verbs: &mut Names) -> Value {
    // Tenths of a microsecond matter for short operations alone.
    let rounded = |us: f64| if us < 10.0 { (us * 10.0).round() / 10.0 } else { us.round() };
    json!({
        "verb": column(all, |operation| verbs.number(&operation.verb)),
        "layer": column(all, |operation| number(operation.layer)),
        "phase": column(all, |operation| (operation.stretch as usize).into()),
        "us": column(all, |operation| rounded(operation.least_us).into()),
    })
}

fn tensors(step: &PlacedStep, names: &mut Names, shapes: &mut Names) -> Value {
    let all = &step.tensors;
    // Most tensors have the name of their layer with their part after it.
    let mut name = |tensor: &Live| {
        let is_usual = tensor.layer.is_some()
            && tensor.name == format!("{} {}", step.path(tensor.layer), TensorPart::name(tensor.role.number()));
        if is_usual { (-1).into() } else { names.number(&tensor.name) }
    };
    json!({
        "category": column(all, |tensor| (tensor.category as usize).into()),
        "part": column(all, |tensor| tensor.role.number().into()),
        "layer": column(all, |tensor| number(tensor.layer)),
        "name": column(all, &mut name),
        "shape": column(all, |tensor| shapes.number(&tensor.shape)),
        "bytes": column(all, |tensor| tensor.bytes.into()),
        "offset": column(all, |tensor| (tensor.offset / GRAIN).into()),
        "first": column(all, |tensor| tensor.first.into()),
        "last": column(all, |tensor| tensor.last.into()),
        "uses": column(all, |tensor| uses(&tensor.uses)),
    })
}

/// Returns uses as numbers: four times the operations since the last use, plus 1 for a read and 2 for a write.
fn uses(all: &[(usize, u8)]) -> Value {
    let mut before = 0;
    let step = |&(at, bits): &(usize, u8)| {
        let step = (at - before) * 4 + usize::from(bits);
        before = at;
        Value::from(step)
    };
    all.iter().map(step).collect()
}

fn alternative(Advice { change, note, cost }: &Advice) -> Value {
    let us = |ms: f64| (ms * 1e3).round() as u64;
    json!({
        "change": change,
        "note": note,
        "batch": cost.batch,
        "bytes": cost.budget.lines,
        "host": cost.budget.host,
        "fetched": cost.budget.fetched,
        "recomputed": cost.recomputed,
        "least_us": us(cost.ms),
        "bus_us": us(cost.bus_ms),
    })
}
