//! A step as a snapshot of PyTorch's allocator, which <https://docs.pytorch.org/memory_viz> and `torch.cuda._memory_viz` show.
//!
//! Such a file is a pickle of lists and dictionaries. The arena is one segment, and each tensor an allocation with its layer as the stack.

use super::step::{Live, PlacedStep};
use gpumem_core::memory::budget::Line;

/// The address of the arena. Any would do, but viewers expect one of this size.
const BASE: u64 = 0x7f00_0000_0000;

/// Returns the snapshot as a pickle of protocol 4.
pub fn of(step: &PlacedStep) -> Vec<u8> {
    let arena = step.budget[Line::Arena];
    let mut out = Pickle(vec![0x80, 4]);
    out.dictionary(|out| {
        out.entry("segments", |out| out.list(|out| segment(out, step, arena)));
        out.entry("device_traces", |out| out.list(|out| out.list(|out| trace(out, step, arena))));
        out.entry("allocator_settings", |out| out.dictionary(|_| ()));
        out.entry("external_annotations", |out| out.list(|_| ()));
    });
    out.0.push(b'.');
    out.0
}

/// Writes the arena, with the tensors that last from step to step as blocks in use.
fn segment(out: &mut Pickle, step: &PlacedStep, arena: u64) {
    let mut lasting: Vec<&Live> = lasting(step).collect();
    lasting.sort_by_key(|tensor| tensor.offset);
    let used: u64 = lasting.iter().map(|tensor| tensor.room()).sum();
    out.dictionary(|out| {
        for (key, value) in [
            ("device", 0),
            ("address", BASE),
            ("total_size", arena),
            ("allocated_size", used),
            ("active_size", used),
            ("requested_size", used),
            ("stream", 0),
        ] {
            out.number_entry(key, value);
        }
        out.entry("segment_type", |out| out.text("large"));
        out.entry("segment_pool_id", Pickle::two_zeros);
        out.entry("is_expandable", Pickle::no);
        out.entry("frames", |out| out.list(|_| ()));
        out.entry("blocks", |out| out.list(|out| blocks(out, step, &lasting, arena)));
    });
}

/// Writes blocks that cover the arena: tensors in the order of their offsets, and free memory between them.
fn blocks(out: &mut Pickle, step: &PlacedStep, lasting: &[&Live], arena: u64) {
    let mut free_from = 0;
    for tensor in lasting {
        free(out, free_from, tensor.offset);
        block(out, (tensor.offset, tensor.room(), tensor.bytes), "active_allocated", |out| frame(out, step, tensor));
        free_from = tensor.offset + tensor.room();
    }
    free(out, free_from, arena);
}

fn free(out: &mut Pickle, from: u64, to: u64) {
    if to > from {
        block(out, (from, to - from, 0), "inactive", |_| ());
    }
}

fn block(out: &mut Pickle, (offset, size, requested): (u64, u64, u64), state: &str, frames: impl FnOnce(&mut Pickle)) {
    out.dictionary(|out| {
        out.number_entry("address", BASE + offset);
        out.number_entry("size", size);
        out.number_entry("requested_size", requested);
        out.entry("state", |out| out.text(state));
        out.entry("frames", |out| out.list(frames));
    });
}

/// Writes the events of a step: an allocation before the first operation of a tensor, and a release after its last one.
fn trace(out: &mut Pickle, step: &PlacedStep, arena: u64) {
    event(out, "segment_alloc", (0, arena), 0, |_| ());
    for tensor in lasting(step) {
        of_tensor(out, "alloc", step, tensor, 0);
    }
    let inside: Vec<&Live> = step.tensors.iter().filter(|tensor| tensor.category.is_inside()).collect();
    let count = step.operations.len();
    let (mut begin, mut end) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for tensor in inside {
        begin[tensor.first].push(tensor);
        end[tensor.last].push(tensor);
    }
    for (index, (begin, end)) in begin.iter().zip(&end).enumerate() {
        let time = index as u64 + 1;
        for tensor in begin {
            of_tensor(out, "alloc", step, tensor, time);
        }
        for tensor in end {
            of_tensor(out, "free_requested", step, tensor, time);
            of_tensor(out, "free_completed", step, tensor, time);
        }
    }
}

fn of_tensor(out: &mut Pickle, action: &str, step: &PlacedStep, tensor: &Live, time: u64) {
    event(out, action, (tensor.offset, tensor.room()), time, |out| frame(out, step, tensor));
}

fn event(out: &mut Pickle, action: &str, (offset, size): (u64, u64), time: u64, frames: impl FnOnce(&mut Pickle)) {
    out.dictionary(|out| {
        out.entry("action", |out| out.text(action));
        out.number_entry("addr", BASE + offset);
        out.number_entry("size", size);
        out.number_entry("stream", 0);
        out.number_entry("time_us", time);
        out.entry("frames", |out| out.list(frames));
    });
}

/// Writes the stack of a tensor: its name at the line of its layer, and the calls of blocks around that.
fn frame(out: &mut Pickle, step: &PlacedStep, tensor: &Live) {
    let places: Vec<(&str, u32)> = tensor.layer.map(|layer| step.lines.of_row(layer).collect()).unwrap_or_default();
    let mut one = |name: &str, (file, line): (&str, u32)| {
        out.dictionary(|out| {
            out.entry("name", |out| out.text(name));
            out.entry("filename", |out| out.text(file));
            out.number_entry("line", line.into());
        });
    };
    one(&tensor.name, places.first().copied().unwrap_or_default());
    for &place in places.iter().skip(1) {
        one("called", place);
    }
}

/// Iterates over the tensors of the arena that last from step to step.
fn lasting(step: &PlacedStep) -> impl Iterator<Item = &Live> {
    step.tensors.iter().filter(|tensor| !tensor.category.is_inside() && !tensor.category.is_on_host())
}

/// A pickle that is being written. See `pickletools` of Python for the opcodes.
struct Pickle(Vec<u8>);

impl Pickle {
    fn list(&mut self, items: impl FnOnce(&mut Pickle)) {
        self.0.extend(b"](");
        items(self);
        self.0.push(b'e');
    }

    fn dictionary(&mut self, entries: impl FnOnce(&mut Pickle)) {
        self.0.extend(b"}(");
        entries(self);
        self.0.push(b'u');
    }

    fn entry(&mut self, key: &str, value: impl FnOnce(&mut Pickle)) {
        self.text(key);
        value(self);
    }

    fn number_entry(&mut self, key: &str, value: u64) {
        self.entry(key, |out| out.number(value));
    }

    fn text(&mut self, text: &str) {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.0.push(b'X');
        self.0.extend(length.to_le_bytes());
        self.0.extend(&text.as_bytes()[..length as usize]);
    }

    /// Writes a number as 32 bits with a sign, or else as nine bytes of which the last is its sign.
    fn number(&mut self, number: u64) {
        match i32::try_from(number) {
            Ok(small) => {
                self.0.push(b'J');
                self.0.extend(small.to_le_bytes());
            }
            Err(_) => {
                self.0.extend([0x8a, 9]);
                self.0.extend(number.to_le_bytes());
                self.0.push(0);
            }
        }
    }

    fn two_zeros(&mut self) {
        self.0.extend([b'K', 0, b'K', 0, 0x86]);
    }

    fn no(&mut self) {
        self.0.push(0x89);
    }
}
