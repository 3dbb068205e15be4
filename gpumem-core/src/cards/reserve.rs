//! The reserve: memory of a card that a process needs besides its arena.
//!
//! | part | size | basis |
//! | --- | --- | --- |
//! | local memory of a context | 1,536 bytes a thread that a card can hold | the driver's stack of 1 KiB and own frame for each; figures below |
//! | the rest of a context | 48 MiB, from Ampere on 80 MiB | as above |
//! | libraries, modules, graphs | 128 MiB | handles of cuBLASLt and cuDNN with the kernels that they load, and the graph that records a step |
//! | a margin | a twentieth of the context | |
//!
//! `data/contexts.csv` has sizes of contexts that were published, or read on a card.

use super::{ALL, Card};

const MIB: u64 = 1 << 20;

/// Bytes of local memory for each resident thread.
const LOCAL: u64 = 1536;

/// Bytes for cuBLASLt, cuDNN, modules and graphs.
const LIBRARIES: u64 = 128 * MIB;

/// Bytes of the reserve if nothing is known of a card.
pub const UNKNOWN_RESERVE: u64 = 512 * MIB;

/// Returns the number of threads that a multiprocessor holds at once. Source: "Technical specifications per compute capability" in
/// NVIDIA's CUDA C++ Programming Guide.
pub(super) const fn threads_per_multiprocessor(capability: (u8, u8)) -> u32 {
    match capability {
        (7, 5) => 1024,
        (8, 6 | 7 | 9) | (11 | 12, _) => 1536,
        _ => 2048,
    }
}

/// Returns the bytes of a bare context.
pub(super) const fn context(multiprocessors: u32, capability: (u8, u8)) -> u64 {
    let rest = if capability.0 < 8 { 48 * MIB } else { 80 * MIB };
    rest + LOCAL * multiprocessors as u64 * threads_per_multiprocessor(capability) as u64
}

/// Returns the bytes of the reserve for a context of this size, in whole MiB.
pub(super) const fn with(context: u64) -> u64 {
    (context + context / 20 + LIBRARIES).next_multiple_of(MIB)
}

/// Returns the bytes of the reserve for a card of which only the memory size is known. It is the largest reserve among cards with at most
/// an eighth more memory.
pub const fn of_size(bytes: u64) -> u64 {
    let mut largest = 0;
    let mut index = 0;
    while index < ALL.len() {
        let card: &Card = &ALL[index];
        if card.usable() <= bytes.saturating_add(bytes / 8) && !card.is_slice() && card.reserve() > largest {
            largest = card.reserve();
        }
        index += 1;
    }
    if largest == 0 { UNKNOWN_RESERVE } else { largest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::{A100_40GB, H200, RTX_3060, RTX_4090, T4, find};

    #[test]
    fn contexts_are_as_large_as_they_were_found_to_be() {
        let contexts = include_str!("../../data/contexts.csv").lines().skip(1);
        for line in contexts {
            let mut cells = line.split(',');
            let card = find(cells.next().unwrap()).unwrap();
            let [least, most] = [cells.next(), cells.next()].map(|cell| cell.unwrap().parse::<f64>().unwrap());
            let context = card.context().unwrap() as f64 / MIB as f64;
            assert!(context >= 0.95 * least && context <= 1.05 * most, "{}: {context} MiB", card.slug);
        }
    }

    #[test]
    fn reserves_follow_the_cards() {
        let mib = |card: &Card| card.reserve() / MIB;
        assert_eq!([&T4, &RTX_3060, &RTX_4090, &A100_40GB, &H200].map(mib), [242, 279, 515, 553, 628]);
        for card in ALL {
            assert!((170..=700).contains(&mib(card)), "{}: {} MiB", card.slug, mib(card));
        }
    }

    #[test]
    fn sizes_are_taken_for_the_cards_that_have_them() {
        assert_eq!(of_size(0), UNKNOWN_RESERVE);
        assert!(of_size(12 << 30) >= RTX_3060.reserve());
        assert!(of_size(80 << 30) >= A100_40GB.reserve());
        assert!(of_size(12 << 30) <= of_size(24 << 30));
    }
}
