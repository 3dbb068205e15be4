//! Bars and curves of block characters, an eighth of a character fine.

/// Parts of a character from the left, one eighth to seven.
const LEFT: [char; 7] = ['\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}'];

/// Parts of a character from below, one eighth to all.
const BELOW: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];

/// Returns a bar for `part` of `whole`, where `whole` takes `width` characters. Anything but 0 has at least an eighth of one.
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    let eighths = u128::from(part.min(whole)) * 8 * width as u128 / u128::from(whole.max(1));
    let eighths = usize::try_from(eighths).unwrap_or(0).max(usize::from(part > 0 && whole > 0));
    let rest = (eighths % 8).checked_sub(1).map(|index| LEFT[index]);
    std::iter::repeat_n('\u{2588}', eighths / 8).chain(rest).collect()
}

/// Returns the columns of a curve of `count` values that is at most `width` wide: the first value of each and the one after its last. With fewer
/// values than columns, each value takes as many columns as all can.
pub fn columns(count: usize, width: usize) -> Vec<(usize, usize)> {
    if count == 0 || width == 0 {
        return Vec::new();
    }
    let columns = if count >= width { width } else { count * (width / count) };
    let first = |column: usize| column * count / columns;
    (0..columns).map(|column| (first(column), first(column + 1).max(first(column) + 1))).collect()
}

/// Returns a character as high as `value` is, of `most`. 0 is a space.
pub fn height(value: u64, most: u64) -> char {
    let eighths = (u128::from(value.min(most)) * 8).div_ceil(u128::from(most.max(1)));
    match usize::try_from(eighths).unwrap_or(0).checked_sub(1) {
        Some(index) => BELOW[index],
        None => ' ',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_an_eighth_fine() {
        assert_eq!((bar(8, 16, 4), bar(9, 16, 2)), ("\u{2588}\u{2588}".into(), "\u{2588}\u{258f}".into()));
        assert_eq!((bar(0, 16, 4), bar(1, 1 << 40, 4)), (String::new(), "\u{258f}".into()));
        assert_eq!(
            (bar(99, 16, 2), bar(5, 0, 2), bar(u64::MAX, u64::MAX, 1)),
            ("\u{2588}\u{2588}".into(), String::new(), "\u{2588}".into())
        );
    }

    #[test]
    fn columns_cover_every_value_once_or_more() {
        assert_eq!(columns(4, 8), [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (3, 4), (3, 4)]);
        assert_eq!(columns(5, 2), [(0, 2), (2, 5)]);
        assert_eq!(columns(3, 4).len(), 3);
        for (count, width) in [(1, 80), (79, 80), (81, 80), (1228, 100)] {
            let all = columns(count, width);
            assert!(all.len() <= width && all[0].0 == 0 && all.last().unwrap().1 == count, "{count} in {width}");
            assert!(all.windows(2).all(|pair| pair[1].0 <= pair[0].1), "{count} in {width}");
        }
        assert!(columns(0, 80).is_empty());
    }

    #[test]
    fn heights_are_eighths() {
        let text: String = [0, 1, 4, 8, 100].map(|value| height(value, 8)).into_iter().collect();
        assert_eq!(text, " \u{2581}\u{2584}\u{2588}\u{2588}");
        assert_eq!(height(0, 0), ' ');
    }
}
