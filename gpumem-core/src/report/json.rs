use super::max_batch::Arenas;
use super::recomputation::Recomputation;
use crate::cards;
use crate::memory::Compiled;
use crate::memory::budget::Line;
use crate::memory::levels::Level;
use crate::network::{LayerInfo, Network};
use crate::program::Program;
use crate::train::Train;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Returns the needs of a network as a JSON object.
///
/// Its keys are `version` (1; keys may be added, but the meaning of one changes only with it), `name`, `parameters`, `flops_forward`,
/// `layers`, `train` (`null` without `TRAIN`), `steps` (if training steps have names), `infer`, and `cards`: for every known card whether
/// the network fits, and the largest batch that fits. All sizes are in bytes. `flops_forward` counts two for each multiply-accumulate of
/// one sample up to the network's outputs, without layers that the loss alone reads, such as an auxiliary head. `output_shape` is without
/// the batch; `kept_bytes` is for the whole batch.
///
/// `checkpoint` of `train` describes recomputation: `level` of `levels`, `recomputed` operations, `extra_flops`, `extra_bytes_moved`, and
/// `activations_without` it, `null` if there is no other level. `clip`, `null` without clipping, and `schedule` have a `name` and their
/// numbers. `chunks` is the number of chunks of the logits, if there are several. With `offload`, `train` has `host`, bytes in host memory, `host_each_way`, bytes that a step copies from there and back, and
/// `host_ms`, the least milliseconds of these copies at [`BUS_BYTES`](crate::memory::budget::BUS_BYTES).
pub fn json<N: Network>() -> String {
    let layers: Vec<String> = N::LAYERS
        .iter()
        .zip(super::kept::<N>())
        .enumerate()
        .map(|(index, (info, kept))| layer(index, info, kept))
        .collect();
    let descent = N::TRAINED.as_ref().map(descent).unwrap_or_default();
    let train = N::TRAINING.map_or("null".into(), |compiled| program(compiled, &descent));
    let steps = N::STEPS.iter().map(|step| program(step.compiled, &self::descent(&step.train)));
    let steps: Vec<String> = steps.collect();
    let steps = if steps.is_empty() { String::new() } else { format!(",\"steps\":[{}]", steps.join(",")) };
    format!(
        "{{\"version\":1,\"name\":{},\"parameters\":{},\"flops_forward\":{},\"layers\":[{}],\"train\":{train}{steps},\"infer\":{},\"cards\":[{}]}}",
        quoted(N::NAME),
        super::parameters::<N>(),
        2 * super::macs::<N>(),
        layers.join(","),
        program(N::INFERENCE, ""),
        fits::<N>().join(","),
    )
}

fn layer(index: usize, info: &LayerInfo, kept: u64) -> String {
    let shape: Vec<String> = info.output_shape.iter().map(|dim| format!("{dim}")).collect();
    format!(
        "{{\"index\":{index},\"path\":{},\"kind\":{},\"output_shape\":[{}],\"parameters\":{},\"kept_bytes\":{kept}}}",
        quoted(info.path),
        quoted(info.kind),
        shape.join(","),
        info.parameters,
    )
}

/// Returns the JSON of a program. `said` are its further keys.
fn program(compiled: &Compiled<'_>, said: &str) -> String {
    let Compiled { budget, batch, .. } = compiled;
    let checkpoint = if compiled.tables.training { format!(",{}", checkpoint(compiled)) } else { String::new() };
    let lines = budget.shown().map(|line| (line.name(), budget[line]));
    let others = [("batch", *batch), ("workspace", budget.workspace), ("lower_bound", budget.lower_bound)];
    let (micro_batches, ranks) = (compiled.tables.micro_batches, compiled.tables.ranks);
    let parts = [("micro_batches", micro_batches), ("ranks", ranks.count)];
    let parts = parts.into_iter().filter(|&(_, parts)| parts > 1);
    let shard = if ranks.is_alone() { String::new() } else { format!(",\"shard\":{}", quoted(ranks.shard.name())) };
    let chunks = Program::decode(compiled.program).map_or(1, |program| program.logit_chunks());
    let chunks = Some(chunks).filter(|&chunks| chunks > 1).map(|chunks| ("chunks", chunks));
    let offloaded = [("host", budget.host), ("host_each_way", budget.fetched), ("host_ms", budget.bus_ms())];
    let offloaded = offloaded.into_iter().filter(|_| compiled.tables.has_host());
    let fields = others
        .into_iter()
        .chain(parts)
        .chain(chunks)
        .chain(offloaded)
        .chain(lines)
        .map(|(name, value)| format!("\"{name}\":{value}"));
    let step = compiled.tables.step;
    let step = if step.is_empty() { String::new() } else { format!(",\"step\":{}", quoted(step)) };
    format!("{{{}{shard}{step}{checkpoint}{said}}}", fields.collect::<Vec<String>>().join(","))
}

/// Returns the JSON of clipping and of the learning-rate schedule.
fn descent(train: &Train) -> String {
    let clip = match train.clip {
        Some(clip) => format!("{{\"name\":{},\"value\":{:?}}}", quoted(clip.name()), clip.number()),
        None => "null".into(),
    };
    let schedule = train.schedule;
    let numbers = schedule.fields().iter().zip(schedule.numbers()).map(|(field, number)| match field.is_whole {
        true if field.name == "total" && number == 0.0 => format!(",{}:null", quoted(field.name)),
        true => format!(",{}:{}", quoted(field.name), number as u64),
        false => format!(",{}:{number:?}", quoted(field.name)),
    });
    let numbers: String = numbers.collect();
    format!(",\"clip\":{clip},\"schedule\":{{\"name\":{}{numbers}}}", quoted(schedule.name()))
}

/// Returns the JSON of recomputation in a training step. FLOPs and bytes are those of the whole batch.
fn checkpoint(compiled: &Compiled<'_>) -> String {
    let Recomputation { operations, flops, moved } = Recomputation::of(compiled);
    let Level { number, count, activations_without } = compiled.level;
    // With a single level, the activations without it are not known.
    let without = if count > 1 { format!("{activations_without}") } else { "null".into() };
    format!(
        "\"checkpoint\":{{\"level\":{number},\"levels\":{count},\"recomputed\":{operations},\"extra_flops\":{flops},\
         \"extra_bytes_moved\":{moved},\"activations_without\":{without}}}"
    )
}

fn fits<N: Network>() -> Vec<String> {
    let mut arenas = Arenas::new(*N::PROGRAM.tables, N::PROGRAM.precision);
    let line = |card: &cards::Card| {
        let room = super::room(card, N::HEADROOM, N::PROGRAM.tables.ranks);
        format!(
            "{{\"slug\":{},\"usable\":{},\"fits\":{},\"max_batch\":{}}}",
            quoted(card.slug),
            card.usable(),
            N::BUDGET[Line::Arena] <= room,
            arenas.largest(room),
        )
    };
    cards::ALL.iter().map(line).collect()
}

/// Returns a text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_is_quoted() {
        assert_eq!(super::quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
