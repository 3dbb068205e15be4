//! The layer table in the struct's documentation.

use gpumem_core::lower::LayerLine;
use std::fmt::Write as _;

/// Returns the table as Markdown. The bytes of saved tensors are given for one sample in 32-bit floats.
pub(super) fn layer_table(table: &[LayerLine]) -> String {
    let mut text = String::from(
        "\n# Layers\n\n| # | path | layer | output | parameters | kept a sample (f32) |\n| ---: | --- | --- | --- | ---: | ---: |\n",
    );
    let mut sums = [0u64; 2];
    for (index, line) in table.iter().enumerate() {
        let [_, each, _, wide_each, _, bytes_each] = line.kept;
        let kept = each.saturating_add(wide_each).saturating_mul(4).saturating_add(bytes_each);
        let shape: Vec<String> = line.output_shape.iter().map(u64::to_string).collect();
        let _ = writeln!(
            text,
            "| {index} | `{}` | `{}` | {} | {} | {} |",
            line.path,
            line.kind,
            shape.join(" x "),
            grouped(line.parameters),
            bytes(kept)
        );
        sums = [sums[0].saturating_add(line.parameters), sums[1].saturating_add(kept)];
    }
    let _ = writeln!(text, "| | | | **total** | {} | {} |", grouped(sums[0]), bytes(sums[1]));
    text
}

/// Formats a number with commas, as `138,357,544`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0".into(),
        1..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 138_357_544].map(grouped), ["0", "999", "1,000", "138,357,544"]);
    }
}
