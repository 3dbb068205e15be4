use crate::memory::budget::Line;
use crate::message::Message;
use crate::network::Network;
use crate::shape::Shape;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// What a network needs, as a table: each layer's output shape, parameters, multiply-accumulates (of one sample) and what
/// its backward pass keeps (of the whole batch); then the lines of the budget.
pub fn table<N: Network>() -> String {
    let budget = N::BUDGET;
    let doing = if N::TRAINING.is_some() { "training" } else { "inference" };
    let mut text = format!("{}: {doing}, batch {}, {}\n\n", N::NAME, super::batch::<N>(), N::PROGRAM.precision.name());
    let mut rows = Vec::from([["#", "layer", "kind", "output", "parameters", "MACs", "kept"].map(String::from)]);
    for (index, layer) in N::LAYERS.iter().enumerate() {
        rows.push([
            index.to_string(),
            layer.path.to_string(),
            layer.kind.to_string(),
            Shape::new(layer.output_shape).to_string(),
            count(layer.parameters),
            count(layer.macs),
            size(super::kept::<N>(index)),
        ]);
    }
    let kept = (0..N::LAYERS.len()).map(super::kept::<N>).sum();
    let (parameters, macs) = (count(super::parameters::<N>()), count(super::macs::<N>()));
    rows.push([String::new(), "total".into(), String::new(), String::new(), parameters, macs, size(kept)]);
    text += &aligned(&rows);
    text.push('\n');
    for line in Line::ALL {
        text += &format!("{:<12} {:>12}\n", line.name(), bytes_text(budget[line]));
        if line == Line::Activations && budget.workspace > 0 {
            text += &format!("  of which a workspace of at most {}\n", bytes_text(budget.workspace));
        }
    }
    text + &format!("{:<12} {:>10} %\n", "packed", percent(budget.lower_bound, budget[Line::Arena]))
}

/// Left-aligned texts and right-aligned figures, with a rule under the heading and above the total.
fn aligned(rows: &[[String; 7]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 7] = core::array::from_fn(width);
    let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index == 1 || index + 1 == rows.len() {
            text += &rule;
            text.push('\n');
        }
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if (1..4).contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<String>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A count with spaces between groups of three digits; nothing for 0.
fn count(value: u64) -> String {
    if value == 0 {
        return String::new();
    }
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn size(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { bytes_text(bytes) }
}

fn bytes_text(bytes: u64) -> String {
    Message::<32>::new().bytes(bytes).as_str().to_string()
}

/// `part / whole` in percent, rounded down to one digit, so that only an exact fit reads 100.0.
fn percent(part: u64, whole: u64) -> String {
    let thousandths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{}", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(count(138_357_544), "138 357 544");
        assert_eq!(count(0), "");
        assert_eq!(percent(1000, 1000), "100.0");
        assert_eq!(percent(9_999, 10_000), "99.9");
    }
}
