//! Writes event files of TensorBoard. For all values, their records and checksums must be right.

use super::{READ, path};
use gpumem_train::tensorboard::{EventWriter, Picture};

/// Calls a writer. For each call, one byte chooses the function, the next one has the length of the name, then come the name and the numbers.
pub fn events(data: &[u8]) {
    let folder = path("events");
    let mut writer = EventWriter::create(&folder).expect("a folder for temporary files");
    let mut rest = data;
    let mut step = 0;
    while let [call, length, after @ ..] = rest {
        let (name, after) = after.split_at(usize::from(*length % 16).min(after.len()));
        let (numbers, after) = after.split_at(usize::from(*length).min(after.len()));
        put(&mut writer, *call, step, &String::from_utf8_lossy(name), numbers);
        (rest, step) = (after, step + u64::from(*call));
    }
    check(&std::fs::read(writer.path()).expect("the file"));
    std::fs::remove_dir_all(folder).expect("a folder for temporary files");
}

fn put(writer: &mut EventWriter, call: u8, step: u64, name: &str, numbers: &[u8]) {
    let values: Vec<f32> = numbers.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect();
    let written = match call % 4 {
        0 => writer.scalar(name, step, values.first().copied().unwrap_or_default().into()),
        1 => writer.histogram(name, step, &values),
        2 => writer.start(step),
        _ => {
            let [width, height, channels] = [0, 1, 2].map(|at| numbers.get(at).map_or(0, |&byte| usize::from(byte)));
            let size = width * height * channels;
            let pixels: Vec<u8> = numbers.iter().copied().cycle().take(size.min(1 << 16)).collect();
            // An image of another size than its bytes is refused with words.
            match writer.image(name, step, Picture { width, height, channels, pixels: &pixels }) {
                Err(error) if size != pixels.len() || size == 0 || ![1, 3, 4].contains(&channels) => {
                    assert!(error.to_string().len() > 20, "an error without words: {error}");
                    Ok(())
                }
                written => written,
            }
        }
    };
    written.expect("space for temporary files");
}

/// Panics unless a file is a sequence of whole records with right checksums.
fn check(mut rest: &[u8]) {
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    while !rest.is_empty() {
        let (length, after) = rest.split_at(8);
        let (sum, after) = after.split_at(4);
        assert_eq!(sum, masked(length), "the checksum of a length");
        let length = u64::from_le_bytes(length.try_into().expect("8 bytes")) as usize;
        let (event, after) = after.split_at(length);
        let (sum, after) = after.split_at(4);
        assert_eq!(sum, masked(event), "the checksum of an event");
        rest = after;
    }
    READ.set(READ.get() + 1);
}
