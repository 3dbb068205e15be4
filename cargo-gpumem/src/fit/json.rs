//! Answers as JSON.

use crate::answer::{Answer, Answers};
use crate::network::LeftOut;
use crate::text::slug;
use gpumem_core::report::Cheaper;
use serde_json::{Value, json};

/// The version of the JSON.
pub const VERSION: u64 = 1;

/// Returns an answer, in bytes.
pub fn answer(answer: &Answer) -> Value {
    let (left, over) = match answer.left() {
        Ok(left) => (left, 0),
        Err(over) => (0, over),
    };
    json!({
        "network": answer.title,
        "networks": answer.networks,
        "package": answer.package,
        "program": answer.program,
        "file": answer.file,
        "line": answer.line,
        "batch": answer.batch,
        "precision": answer.precision,
        "card": slug(answer.device),
        "usable": answer.device.usable(),
        "headroom": answer.headroom,
        "ranks": answer.ranks.count,
        "shard": answer.ranks.shard.name(),
        "reserve": answer.device.reserve(),
        "communication": answer.device.communication(answer.ranks),
        "total": answer.total,
        "fits": answer.left().is_ok(),
        "left": left,
        "over": over,
        "max_batch": answer.largest_batch,
        "max_cache": answer.longest_cache,
        "cheaper": answer.cheaper.map(cheaper),
        "alternatives": answer.alternatives.iter().map(|it| json!({ "change": it.change, "total": it.total })).collect::<Vec<_>>(),
    })
}

/// Returns a change with which less is recomputed. Times are in thousandths of the step that saves everything.
fn cheaper(Cheaper { with, now }: Cheaper) -> Value {
    json!({ "change": with.text().as_str(), "time": with.time(), "time_now": now })
}

/// Returns a network without an answer.
pub fn left_out(it: &LeftOut) -> Value {
    json!({
        "network": it.name,
        "package": it.package,
        "program": it.program,
        "file": it.file,
        "line": it.line,
        "why": it.why,
    })
}

/// Returns all answers.
pub fn as_json(found: &Answers, unreadable: usize) -> Value {
    json!({
        "version": VERSION,
        "fits": found.answers.iter().map(answer).collect::<Vec<_>>(),
        "left_out": found.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "unreadable": unreadable,
    })
}
