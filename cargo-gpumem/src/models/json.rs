//! Answers for models in files as JSON: the keys of networks in crates, and those of the file.

use super::{AtLeast, Found, Missing, Model, PyTorch};
use crate::answer::Answer;
use crate::fit::json::{VERSION, answer, left_out};
use gpumem_core::memory::budget::{Budget, Line};
use serde_json::{Value, json};

/// Returns all answers, in bytes. Each has the keys of its file too.
pub fn as_json(found: &Found) -> Value {
    let Found { models, answers, .. } = found;
    let row = |it: &Answer| {
        let mut row = answer(it);
        let model = models.iter().find(|model| model.file == it.file);
        if let (Some(model), Some(row)) = (model, row.as_object_mut())
            && let Value::Object(keys) = of_model(model)
        {
            row.extend(keys.into_iter().filter(|(key, _)| key != "file"));
        }
        row
    };
    json!({
        "version": VERSION,
        "fits": answers.answers.iter().map(row).collect::<Vec<_>>(),
        "left_out": answers.left_out.iter().chain(&found.left_out).map(left_out).collect::<Vec<_>>(),
        "unreadable": 0,
        "files": models.iter().map(of_model).collect::<Vec<_>>(),
    })
}

fn of_model(model: &Model) -> Value {
    let list = |all: &[Missing]| {
        let one =
            |it: &Missing| json!({ "operation": it.operation, "count": it.count, "first": it.first, "why": it.why });
        all.iter().map(one).collect::<Vec<_>>()
    };
    json!({
        "file": model.file,
        "name": model.name,
        "origin": model.origin,
        "parameters": model.parameters,
        "flops_forward": model.flops_forward,
        "operations": model.operations,
        "expressible": model.missing.is_empty(),
        "not_expressible": list(&model.missing),
        "at_least": model.at_least.as_ref().map(at_least),
        "budget": model.budget.as_ref().map(budget),
        "differences": list(&model.notes),
        "pytorch": match &model.pytorch {
            Ok(pytorch) => of_pytorch(model, pytorch),
            Err(why) => json!({ "why": why }),
        },
    })
}

/// Returns the bytes that a network needs at least. On a card that has more, it is not known if the network fits.
fn at_least(at_least: &AtLeast) -> Value {
    let on = at_least.on.iter().map(|&(device, total, is_above)| {
        json!({ "card": crate::text::slug(device), "total": total, "fits": if is_above { json!(false) } else { Value::Null } })
    });
    json!({ "arena": at_least.arena, "cards": on.collect::<Vec<_>>() })
}

/// Returns the parts of the arena on the first card, and their sum, in bytes. What a card takes besides the arena is in its own entry.
fn budget(budget: &Budget) -> Value {
    let beside = [Line::Reserve, Line::Communication, Line::Total];
    let lines = budget.shown().filter(|line| !beside.contains(line));
    Value::Object(lines.map(|line| (line.name().to_string(), json!(budget[line]))).collect())
}

fn of_pytorch(model: &Model, pytorch: &PyTorch) -> Value {
    let report = &pytorch.report;
    let on = pytorch.on.iter().map(|on| {
        json!({
            "card": crate::text::slug(on.device),
            "usable": on.device.usable(),
            "total": pytorch.reserved.saturating_add(on.device.reserve()),
            "fits": on.fits,
            "fits_expandable": on.fits_expandable,
            "max_batch": on.largest_batch.unwrap_or(0),
        })
    });
    let purposes = report.by_purpose.iter().map(|(purpose, bytes)| (purpose.name().to_string(), json!(bytes)));
    let modules = report.by_module.iter().map(|(module, bytes)| json!({ "module": module, "bytes": bytes }));
    let phases = report.phases.iter().map(|(phase, bytes)| (phase.name().to_string(), json!(bytes)));
    let unknown = report
        .unknown
        .iter()
        .map(|unknown| json!({ "operation": unknown.operation, "count": unknown.count, "first": unknown.first }));
    json!({
        "batch": model.batch,
        "optimizer": model.optimizer,
        "allocated": report.allocated,
        "at_least": report.at_least,
        "reserved": pytorch.reserved,
        "reserved_expandable": pytorch.reserved_expandable,
        "states": report.states,
        "at": report.at.to_string(),
        "phases": phases.collect::<serde_json::Map<_, _>>(),
        "categories": purposes.collect::<serde_json::Map<_, _>>(),
        "modules": modules.collect::<Vec<_>>(),
        "unknown": unknown.collect::<Vec<_>>(),
        "cards": on.collect::<Vec<_>>(),
    })
}
