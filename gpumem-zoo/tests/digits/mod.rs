//! Numbers of the tables of pages.

/// Returns a whole number with commas between groups of three digits.
pub fn grouped(number: f64) -> String {
    let mut digits = format!("{number:.0}");
    for place in (1..digits.len()).rev().filter(|place| (digits.len() - place).is_multiple_of(3)).collect::<Vec<_>>() {
        digits.insert(place, ',');
    }
    digits
}
