use super::max_batch::Arenas;
use crate::budget::Budget;
use crate::cards;
use crate::network::{LayerInfo, Network};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What a network needs, as a JSON object: `name`, `parameters`, `flops_forward` (two for each multiply-accumulate of one
/// sample), `layers`, `train` (`null` without `TRAIN`), `infer`, and for every known card whether the network fits and
/// the largest batch that does. All sizes are in bytes; `output_shape` is without the batch; `kept_bytes` is for the
/// whole batch.
pub fn json<N: Network>() -> String {
    let layers: Vec<String> =
        (0..N::LAYERS.len()).map(|index| layer(index, &N::LAYERS[index], super::kept::<N>(index))).collect();
    let train = N::TRAINING.map_or("null".into(), |compiled| budget(&compiled.budget));
    format!(
        "{{\"name\":{},\"parameters\":{},\"flops_forward\":{},\"layers\":[{}],\"train\":{train},\"infer\":{},\"cards\":[{}]}}",
        quoted(N::NAME),
        super::parameters::<N>(),
        2 * super::macs::<N>(),
        layers.join(","),
        budget(&N::INFERENCE.budget),
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

fn budget(budget: &Budget) -> String {
    let fields = [
        ("batch", budget.batch_size),
        ("weights", budget.weights),
        ("master", budget.master),
        ("gradients", budget.gradients),
        ("optimizer", budget.optimizer),
        ("buffers", budget.buffers),
        ("batch_io", budget.batch),
        ("activations", budget.activations),
        ("workspace", budget.workspace),
        ("arena", budget.arena),
        ("lower_bound", budget.lower_bound),
        ("reserve", budget.reserve),
        ("total", budget.total),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn fits<N: Network>() -> Vec<String> {
    let mut arenas = Arenas::new(N::PROGRAM.step, N::BUDGET.precision);
    let line = |card: &cards::Card| {
        let room = card.usable().saturating_sub(card.reserve()).saturating_sub(N::HEADROOM);
        format!(
            "{{\"slug\":{},\"usable\":{},\"fits\":{},\"max_batch\":{}}}",
            quoted(card.slug),
            card.usable(),
            N::BUDGET.arena <= room,
            arenas.largest(room),
        )
    };
    cards::ALL.iter().map(line).collect()
}

/// A JSON string.
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
