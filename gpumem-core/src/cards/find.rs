//! Cards by the names that users write.

use super::{ALIASES, ALL, Card};

/// Returns the card called `name`: by its [`slug`](Card::slug), its constant, or another name of [`ALIASES`]. Ignores case, `-`,
/// `_`, `.` and spaces. Returns `None` if no card has that name.
///
/// ```
/// use gpumem_core::cards::{self, find};
///
/// const CARD: Option<&cards::Card> = find("rtx 4070 Ti");
/// assert_eq!(CARD, Some(&cards::RTX_4070_TI));
/// assert_eq!(find("A100"), Some(&cards::A100_40GB));
/// assert_eq!(find("a100-40gb-mig-1g.5gb"), Some(&cards::A100_40GB_MIG_1G_5GB));
/// assert_eq!(find("toaster"), None);
/// ```
pub const fn find(name: &str) -> Option<&'static Card> {
    let mut i = 0;
    while i < ALL.len() {
        if is_same(name, ALL[i].slug) {
            return Some(&ALL[i]);
        }
        i += 1;
    }
    let mut i = 0;
    while i < ALIASES.len() {
        if is_same(name, ALIASES[i].slug) {
            return Some(ALIASES[i].card);
        }
        i += 1;
    }
    None
}

/// True if two names differ only in case and in word separators. A constant and its slug differ in no more.
const fn is_same(left: &str, right: &str) -> bool {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    loop {
        left = without_separators(left);
        right = without_separators(right);
        match (left, right) {
            ([], []) => return true,
            ([first, rest @ ..], [other, others @ ..]) if first.eq_ignore_ascii_case(other) => {
                left = rest;
                right = others;
            }
            _ => return false,
        }
    }
}

/// Returns `name` from its first letter or digit on.
const fn without_separators(mut name: &[u8]) -> &[u8] {
    while let [b'-' | b'_' | b'.' | b' ', rest @ ..] = name {
        name = rest;
    }
    name
}
