//! Formats tables for people.

use gpumem_core::report::Device;
pub use gpumem_core::report::text::{bytes, count, percent};

/// Returns the name of a device in tables: that of the card, or the size.
pub fn name(device: Device) -> String {
    match device {
        Device::Known(card) => card.short_name.to_string(),
        Device::Size(size) => bytes(size),
    }
}

/// Returns the slug of a card, or a size in bytes.
pub fn slug(device: Device) -> String {
    match device {
        Device::Known(card) => card.slug.to_string(),
        Device::Size(bytes) => bytes.to_string(),
    }
}

/// Formats a difference in bytes: `+1.2 MiB`, `-3 B`, or `=`.
pub fn difference(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Equal => "=".into(),
        std::cmp::Ordering::Greater => format!("+{}", bytes(after - before)),
        std::cmp::Ordering::Less => format!("-{}", bytes(before - after)),
    }
}

/// Formats milliseconds with about three digits, in the unit that suits them.
pub fn time(ms: f64) -> String {
    match ms {
        _ if ms >= 1000.0 => format!("{:.2} s", ms / 1000.0),
        _ if ms >= 100.0 => format!("{ms:.0} ms"),
        _ if ms >= 10.0 => format!("{ms:.1} ms"),
        _ if ms >= 1.0 => format!("{ms:.2} ms"),
        _ => format!("{:.1} us", ms * 1000.0),
    }
}

/// Formats rows as columns. Columns whose indices are in `right` are aligned to the right, others to the left. The first row is a heading.
pub fn table<const N: usize>(rows: &[[String; N]], right: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match right.contains(&column) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
        if index == 0 {
            text += &"-".repeat(widths.iter().sum::<usize>() + 2 * (N - 1));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(
            (difference(1 << 20, 3 << 20), difference(5, 2), difference(7, 7)),
            ("+2.0 MiB".into(), "-3 B".into(), "=".into())
        );
    }

    #[test]
    fn times_have_three_digits() {
        let all = [1234.5, 123.4, 12.34, 1.234, 0.0012].map(time);
        assert_eq!(all, ["1.23 s", "123 ms", "12.3 ms", "1.23 ms", "1.2 us"]);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["name", "bytes"], ["a", "10"], ["long", "5"]].map(|row| row.map(String::from));
        assert_eq!(table(&rows, &[1]), "name  bytes\n-----------\na        10\nlong      5\n");
    }
}
