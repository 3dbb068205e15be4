//! The cards that a network can be checked against, and the memory that a process can have on each.

mod find;
mod reserve;
#[rustfmt::skip]
mod table;
mod vram;

pub use find::find;
pub use reserve::{UNKNOWN_RESERVE, of_size as reserve_of_size};
pub use table::*;
pub use vram::{VramError, parse_vram};

use crate::message::Message;

/// A card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Lower-case name with dashes; also the name of the Cargo feature.
    pub slug: &'static str,
    /// Name of the constant in this module.
    pub constant: &'static str,
    /// Name in messages.
    pub short_name: &'static str,
    /// The vendor's name.
    pub name: &'static str,
    /// Architecture.
    pub architecture: Architecture,
    /// CUDA compute capability, major and minor.
    pub compute_capability: (u8, u8),
    /// Memory that the vendor states, in MiB.
    pub spec_mib: u32,
    /// Memory that a CUDA process sees as total on Linux, in MiB: the smallest credible figure of current drivers.
    pub usable_mib: u32,
    /// The basis of `usable_mib`.
    pub basis: Basis,
    /// The source of `usable_mib`.
    pub source: &'static str,
    /// Share of `usable_mib` that the operating system and the host's part of programs take, in MiB. 0 for a card with memory of
    /// its own.
    pub host_mib: u32,
    /// The source of `host_mib`.
    pub host_source: &'static str,
    /// Kind of memory.
    pub memory: &'static str,
    /// Width of the memory bus, in bits.
    pub bus_bits: Option<u32>,
    /// Memory bandwidth, in 10^9 bytes a second.
    pub bandwidth_gbs: Option<f64>,
    /// Connection with the host at its widest, such as `PCIe 4.0 x16`. A slot may have less.
    pub host_link: &'static str,
    /// Rate of copies between page-locked memory of the host and the card, each way, in 10^9 bytes a second. About four fifths of what the
    /// connection is rated at.
    pub host_gbs: f64,
    /// Number of multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Number of CUDA cores.
    pub cuda_cores: Option<u32>,
    /// f32 throughput, in 10^12 operations a second.
    pub fp32_tflops: Option<f64>,
    /// Dense f16 tensor-core throughput with f32 accumulation, in 10^12 operations a second.
    pub tensor_fp16_tflops: Option<f64>,
    /// True if such cards are usually connected by a switch that multicasts (NVLink SHARP). NCCL takes memory of its own for it.
    pub has_multicast: bool,
    /// Other facts about the figures.
    pub notes: &'static str,
}

/// Another name of a card. It stands for the smallest card that the name can mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alias {
    /// Lower-case name with dashes; also the name of the Cargo feature.
    pub slug: &'static str,
    /// Name of the constant in this module.
    pub constant: &'static str,
    /// The card.
    pub card: &'static Card,
}

/// The basis of a card's figure of usable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
    /// Read on such a card.
    Measured,
    /// Derived from cards of the same class.
    Estimated,
}

/// A family of cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "names of architectures")]
pub enum Architecture {
    Kepler,
    Pascal,
    Volta,
    Turing,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
    /// Not known, as for a card given as a number of bytes.
    Unknown,
}

impl Architecture {
    /// Returns the vendor's name.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::Kepler => "Kepler",
            Architecture::Pascal => "Pascal",
            Architecture::Volta => "Volta",
            Architecture::Turing => "Turing",
            Architecture::Ampere => "Ampere",
            Architecture::Ada => "Ada Lovelace",
            Architecture::Hopper => "Hopper",
            Architecture::Blackwell => "Blackwell",
            Architecture::Unknown => "unknown",
        }
    }
}

/// Lowest compute capability of the CUDA backend, that of Pascal. The backend needs CUDA 12, which does not support Kepler.
pub const LEAST_COMPUTE_CAPABILITY: (u8, u8) = (6, 0);

const MIB: u64 = 1 << 20;

impl Card {
    /// Returns the bytes that a process can have, reserve included: the memory that a CUDA process sees, without the host's share.
    pub const fn usable(&self) -> u64 {
        self.usable_mib.saturating_sub(self.host_mib) as u64 * MIB
    }

    /// True if the CUDA backend runs on it: its compute capability is [`LEAST_COMPUTE_CAPABILITY`] or higher.
    pub const fn runs(&self) -> bool {
        let ((major, minor), (least, least_minor)) = (self.compute_capability, LEAST_COMPUTE_CAPABILITY);
        major > least || major == least && minor >= least_minor
    }

    /// Appends the reason why a network cannot name this card if the backend does not run on it.
    pub const fn append_too_old<const CAP: usize>(&self, text: &mut Message<CAP>) {
        let ((major, minor), (least, least_minor)) = (self.compute_capability, LEAST_COMPUTE_CAPABILITY);
        text.text(self.article()).text(" ").text(self.short_name).text(" has compute capability ");
        text.number(major as u64).text(".").number(minor as u64).text(", and the CUDA backend needs ");
        text.number(least as u64).text(".").number(least_minor as u64).text(" or newer: name another card");
    }

    /// True if it is a MIG slice of a card.
    pub const fn is_slice(&self) -> bool {
        let mut rest = self.slug.as_bytes();
        while let [_, after @ ..] = rest {
            if let [b'-', b'm', b'i', b'g', b'-', ..] = rest {
                return true;
            }
            rest = after;
        }
        false
    }

    /// True if it shares its memory with the host, as a Jetson does.
    pub const fn is_unified(&self) -> bool {
        self.host_mib > 0
    }

    /// Returns the bytes of its memory that the host takes; 0 for a card with memory of its own.
    pub const fn host(&self) -> u64 {
        self.host_mib as u64 * MIB
    }

    /// Returns the number of threads that one of its multiprocessors holds at once.
    pub const fn threads_per_multiprocessor(&self) -> u32 {
        reserve::threads_per_multiprocessor(self.compute_capability)
    }

    /// Returns the bytes of a bare CUDA context, estimated from the threads that the card holds at once. `None` if the table does not
    /// know its number of multiprocessors.
    pub const fn context(&self) -> Option<u64> {
        match self.multiprocessors {
            Some(multiprocessors) => Some(reserve::context(multiprocessors, self.compute_capability)),
            None => None,
        }
    }

    /// Returns the bytes that a process needs besides its arena, for context, modules, library handles and graphs. It is an estimate, and
    /// [`UNKNOWN_RESERVE`] if the number of multiprocessors is not known.
    pub const fn reserve(&self) -> u64 {
        match self.context() {
            Some(context) => reserve::with(context),
            None => UNKNOWN_RESERVE,
        }
    }

    /// Returns the article before the short name, which depends on how its first letter is pronounced: a GTX, but an RTX.
    pub const fn article(&self) -> &'static str {
        match self.short_name.as_bytes() {
            [b'A' | b'E' | b'F' | b'H' | b'I' | b'L' | b'M' | b'N' | b'O' | b'R' | b'S' | b'X', ..] => "an",
            _ => "a",
        }
    }
}
