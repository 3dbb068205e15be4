//! Kernel launches as data: a kernel with its constants, its grid and its tensors.

use super::SOURCES;
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::TensorId;
use gpumem_core::train::ranks::Sharding;
use std::sync::Arc;

/// Returns the name that kernels have for a format: the value of constants such as `REAL`.
pub fn type_name(format: Format) -> &'static str {
    match format {
        Format::F32 => "float",
        Format::Bf16 => "Bf16",
        Format::F16 => "F16",
        Format::U32 => "u32",
        Format::U8 => "unsigned char",
    }
}

/// The constant that marks kernels with a grid barrier, whose blocks must all be resident at once.
pub(crate) const TOGETHER: &str = "TOGETHER";

/// The constant that marks kernels on Hopper's warpgroup instructions, which only machine code for one architecture has.
const WARPGROUPS: &str = "WGMMA";

/// The constant with the bytes of shared memory that a launch asks for, beside those that the kernel declares.
const SHARED_BYTES: &str = "SHARED_BYTES";

/// An entry point of a source file, compiled with constants.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    /// The file in [`SOURCES`], or the name of a user's file.
    pub file: &'static str,
    /// The entry point.
    pub entry: &'static str,
    /// Macros and their values, in the order of the file's header.
    pub constants: Vec<(&'static str, String)>,
    /// The text of a file that is not in [`SOURCES`]; `None` for one that is.
    pub text: Option<Arc<str>>,
}

impl Kernel {
    /// Returns a kernel without constants.
    pub fn new(file: &'static str, entry: &'static str) -> Kernel {
        Kernel { file, entry, constants: Vec::new(), text: None }
    }

    /// Returns this kernel with one more constant.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Kernel {
        self.constants.push((name, value.to_string()));
        self
    }

    /// True if the kernel has a grid barrier and therefore needs a cooperative launch.
    pub fn is_cooperative(&self) -> bool {
        self.constants.iter().any(|(name, _)| *name == TOGETHER)
    }

    /// True if the kernel has instructions of one architecture alone: its code is compiled for `sm_90a`, which no later card runs.
    pub fn is_of_one_architecture(&self) -> bool {
        self.constant(WARPGROUPS).is_some_and(|value| value != "0")
    }

    /// Returns the bytes of shared memory that a launch asks for, beside those that the kernel declares.
    pub fn shared_bytes(&self) -> u32 {
        self.constant(SHARED_BYTES).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }

    fn constant(&self, name: &str) -> Option<&str> {
        self.constants.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns this kernel on warpgroup instructions, with so many bytes of shared memory.
    pub(crate) fn on_warpgroups(self, bytes: u64) -> Kernel {
        self.with(WARPGROUPS, 1u8).with(SHARED_BYTES, bytes)
    }

    /// Returns this kernel with `text` as its source.
    pub fn of(self, text: String) -> Kernel {
        Kernel { text: Some(text.into()), ..self }
    }

    /// Returns the source that contains the entry point.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is no such file.
    pub fn source(&self) -> Result<&str, Error> {
        let known = || SOURCES.iter().find(|(file, _)| *file == self.file).map(|(_, text)| *text);
        self.text.as_deref().or_else(known).ok_or(Error::Damaged("a kernel has no source"))
    }

    /// Returns this kernel with a floating-point constant that is exact to the last bit.
    pub fn with_float(self, name: &'static str, value: f64) -> Kernel {
        // With an exponent it is a floating-point literal in C++ too.
        self.with(name, format!("{value:e}"))
    }
}

/// A tensor whose address a call receives, by its number in the program. With `count` tensors in the program, `count + n` is the f32 master copy of
/// tensor `n`, and `2 * count + n` is its [second half](second_half).
pub type Argument = TensorId;

/// Alignment of the second half of a tensor within the tensor, in bytes.
const HALVES: u64 = 256;

/// Returns the argument for the second half of a tensor. The half begins at the first multiple of 256 bytes at or after the middle.
pub fn second_half(placed: &Placed, id: TensorId) -> Argument {
    let count = placed.program.tensors.len() as TensorId;
    count.saturating_mul(2).saturating_add(id)
}

/// Returns the offset and the length of an argument in the arena, in bytes.
///
/// # Errors
/// [`Error::Damaged`] if the number belongs to no tensor, if the tensor has no master copy, or if it is too small for a second half.
pub fn place(placed: &Placed, argument: Argument) -> Result<(u64, u64), Error> {
    let (id, count) = (argument as usize, placed.program.tensors.len());
    if id < count && id < placed.offsets.len() && id < placed.bytes.len() {
        return Ok((placed.offsets[id], placed.bytes[id]));
    }
    if let Some(whole) = id.checked_sub(count.saturating_mul(2)) {
        let of = (placed.offsets.get(whole).filter(|_| whole < count), placed.bytes.get(whole));
        let (Some(&offset), Some(&bytes)) = of else { return Err(Error::Damaged("an argument is no tensor")) };
        let start = bytes.div_ceil(2).next_multiple_of(HALVES);
        let rest = bytes.checked_sub(start).ok_or(Error::Damaged("a tensor is too small for a second half"))?;
        return Ok((offset.saturating_add(start), rest));
    }
    let own = id.wrapping_sub(count);
    let master = placed.masters.get(own).copied().flatten().ok_or(Error::Damaged("an argument is no tensor"))?;
    // A master copy has the elements that the rank updates, with four bytes each.
    let tensor = &placed.program.tensors[own];
    let elements = if tensor.sharding == Sharding::Replicated { tensor.elements(1) } else { tensor.own_shard() };
    let bytes = elements.and_then(|elements| elements.checked_mul(4));
    Ok((master, bytes.unwrap_or(u64::MAX)))
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z; their product is a multiple of a warp.
    pub block: [u32; 3],
    /// Pointers to tensors, in the order of the entry point's parameters. `None` is a null pointer.
    pub arguments: Vec<Option<Argument>>,
    /// Plain numbers, passed after the pointers as the entry point's last parameter if that is not a pointer. Launches that differ only in them
    /// share one kernel, which is compiled once.
    pub numbers: Vec<u32>,
}

impl Launch {
    /// Returns a launch with one thread for each of `count` elements, in blocks of 256.
    pub fn elementwise(kernel: Kernel, count: u64, arguments: Vec<Option<Argument>>) -> Launch {
        let blocks = count.div_ceil(256).max(1);
        let grid = [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1];
        Launch { kernel, grid, block: [256, 1, 1], arguments, numbers: Vec::new() }
    }

    /// Returns this launch with these plain numbers.
    pub fn with_numbers(self, numbers: Vec<u32>) -> Launch {
        Launch { numbers, ..self }
    }
}
