use super::{EventWriter, Picture, masked, record};
use std::fs;

/// Returns the events of a file, each after a check of its two checksums.
fn events(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut events = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_at(8);
        let (checksum, after) = after.split_at(4);
        assert_eq!(checksum, masked(length));
        let (event, after) = after.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (checksum, after) = after.split_at(4);
        assert_eq!(checksum, masked(event));
        events.push(event.to_vec());
        rest = after;
    }
    events
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, after) = bytes.split_first().unwrap();
        *bytes = after;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Returns the fields of a message: the number of each, and its bytes, or the bytes of its value if that is a number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            5 => 4,
            _ => varint(&mut bytes) as usize,
        };
        let (value, after) = bytes.split_at(length);
        fields.push((key >> 3, value.to_vec()));
        bytes = after;
    }
    fields
}

fn field(message: &[u8], number: u64) -> Vec<u8> {
    fields(message).into_iter().find(|field| field.0 == number).expect("the field").1
}

#[test]
fn checksums_are_those_of_tensorflow() {
    // RFC 3720, B.4: 32 bytes of zeros.
    assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    // An event that `RecordWriter` of TensorBoard 2.21 wrote.
    let summary = super::summary("loss", |entry| entry.float(2, 0.25));
    let golden = [
        27, 0, 0, 0, 0, 0, 0, 0, 26, 13, 158, 19, 9, 0, 0, 0, 0, 0, 0, 248, 63, 16, 172, 2, 42, 13, 10, 11, 10, 4, 108,
        111, 115, 115, 21, 0, 0, 128, 62, 153, 8, 222, 237,
    ];
    assert_eq!(record(&super::event(1.5, 300).message(5, &summary).finish()), golden);
}

#[test]
fn a_file_has_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path()).unwrap();
    writer.start(3).unwrap();
    writer.scalar("loss", 300, 0.25).unwrap();
    writer.histogram("weight", 4, &[1.0, 2.0]).unwrap();
    writer.histogram("nothing", 4, &[f32::NAN]).unwrap();
    let pixels = [0, 128, 255, 1, 2, 3];
    writer.image("picture", 5, Picture { width: 2, height: 1, channels: 3, pixels: &pixels }).unwrap();
    let events = events(&fs::read(writer.path()).unwrap());
    assert_eq!(events.len(), 5);
    assert_eq!(field(&events[0], 3), b"brain.Event:2");
    assert_eq!((field(&events[1], 2)[0], field(&field(&events[1], 7), 1)[0]), (3, 1));

    let scalar = field(&field(&events[2], 5), 1);
    assert_eq!((field(&scalar, 1), field(&scalar, 2)), (b"loss".to_vec(), 0.25_f32.to_le_bytes().to_vec()));
    assert_eq!(field(&events[2], 2), 300_u64.to_le_bytes());
    assert!(f64::from_le_bytes(field(&events[2], 1).try_into().unwrap()) > 1.7e9);

    let histogram = field(&field(&field(&events[3], 5), 1), 5);
    let number = |index| f64::from_le_bytes(field(&histogram, index).try_into().unwrap());
    assert_eq!([1, 2, 3, 4, 5].map(number), [1.0, 2.0, 2.0, 3.0, 5.0]);
    assert_eq!(field(&histogram, 6).len(), field(&histogram, 7).len());

    let image = field(&field(&field(&events[4], 5), 1), 4);
    assert_eq!([1, 2, 3].map(|index| field(&image, index)[0]), [1, 2, 3]);
    let png = field(&image, 4);
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut decoded).unwrap();
    assert_eq!(decoded, pixels);
}

#[test]
fn later_files_have_later_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths: Vec<_> = (0..3).map(|_| EventWriter::create(folder.path()).unwrap().path().to_path_buf()).collect();
    let made = paths.clone();
    paths.sort();
    paths.dedup();
    assert_eq!(paths, made);
}

#[test]
fn impossible_images_and_folders_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path()).unwrap();
    let mut error = |width, height, channels, pixels: &[u8]| {
        writer.image("picture", 1, Picture { width, height, channels, pixels }).unwrap_err().to_string()
    };
    assert_eq!(error(1, 1, 2, &[0, 0]), "an image of 2 channels cannot be shown; give it 1, 3 or 4");
    assert_eq!(
        error(2, 2, 1, &[0]),
        "an image of 2 x 2 pixels with 1 channels does not go with 1 bytes; give width * height * channels bytes, and at most 67108864 pixels"
    );
    assert!(error(0, 5, 1, &[]).contains("0 x 5") && error(usize::MAX, 2, 1, &[]).contains("does not go with"));

    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let message = EventWriter::create(&file).unwrap_err().to_string();
    assert!(message.starts_with(&format!("`{}`: cannot be written (", file.display())), "{message}");
    assert!(
        message.ends_with("); check that the folder exists, that you may write to it, and that the disk has room"),
        "{message}"
    );
}
