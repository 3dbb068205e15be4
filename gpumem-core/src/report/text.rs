//! Figures for people.

use crate::message::Message;
use alloc::format;
use alloc::string::{String, ToString};

/// Returns a size in the largest unit that it reaches: `527.8 MiB`.
pub fn bytes(value: u64) -> String {
    Message::<32>::new().bytes(value).as_str().to_string()
}

/// Returns a count with spaces between groups of three digits; an empty text for 0.
pub fn count(value: u64) -> String {
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

/// Returns `part / whole` in percent, rounded down to one digit, so that only an exact fit reads 100.0.
pub fn percent(part: u64, whole: u64) -> String {
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
