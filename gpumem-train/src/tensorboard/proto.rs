//! The protocol buffers of TensorBoard's events, encoded field by field.

use super::Picture;

/// Bytes of a message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// The wire types of fields.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

impl Message {
    pub fn new() -> Message {
        Message::default()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    pub fn integer(mut self, field: u64, value: u64) -> Message {
        self.key(field, VARINT);
        self.varint(value);
        self
    }

    pub fn double(mut self, field: u64, value: f64) -> Message {
        self.key(field, FIXED_64);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn float(mut self, field: u64, value: f32) -> Message {
        self.key(field, FIXED_32);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// Adds a packed field of doubles.
    pub fn doubles(self, field: u64, values: &[f64]) -> Message {
        let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(field, &packed)
    }

    pub fn message(self, field: u64, value: &Message) -> Message {
        self.bytes(field, &value.0)
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Returns an `Event` of a time in seconds since 1970 and a step, without content.
pub(super) fn event(time: f64, step: u64) -> Message {
    Message::new().double(1, time).integer(2, step)
}

/// Returns a `Summary` of one value, whose content `put` adds.
pub(super) fn summary(tag: &str, put: impl FnOnce(Message) -> Message) -> Message {
    Message::new().message(1, &put(Message::new().bytes(1, tag.as_bytes())))
}

/// Returns a `SessionLog` for the start of a run.
///
/// TensorBoard then ignores events of this step and later ones in earlier files.
pub(super) fn start() -> Message {
    Message::new().integer(1, 1)
}

/// Returns a `Summary.Image` of a PNG.
pub(super) fn image(image: Picture<'_>, png: &[u8]) -> Message {
    let Picture { width, height, channels, .. } = image;
    Message::new().integer(1, height as u64).integer(2, width as u64).integer(3, channels as u64).bytes(4, png)
}
