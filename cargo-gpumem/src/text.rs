//! Tables for people.

use gpumem_core::message::Message;

/// `527.8 MiB`
pub fn bytes(value: u64) -> String {
    Message::<32>::new().bytes(value).as_str().to_string()
}

/// `138 357 544`; nothing for 0.
pub fn count(value: u64) -> String {
    if value == 0 {
        return String::new();
    }
    let digits = value.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(" ")
}

/// `+1.2 MiB`, `-3 B`, or `=`.
pub fn difference(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Equal => "=".into(),
        std::cmp::Ordering::Greater => format!("+{}", bytes(after - before)),
        std::cmp::Ordering::Less => format!("-{}", bytes(before - after)),
    }
}

/// Rows in columns: those of `right` to the right, the others to the left. The first row is a heading.
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
        assert_eq!((count(138_357_544), count(42), count(0)), ("138 357 544".into(), "42".into(), String::new()));
        assert_eq!(
            (difference(1 << 20, 3 << 20), difference(5, 2), difference(7, 7)),
            ("+2.0 MiB".into(), "-3 B".into(), "=".into())
        );
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["name", "bytes"], ["a", "10"], ["long", "5"]].map(|row| row.map(String::from));
        assert_eq!(table(&rows, &[1]), "name  bytes\n-----------\na        10\nlong      5\n");
    }
}
