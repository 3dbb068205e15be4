//! Files with random damage: an error or data, but no panic, no endless loop, and no memory beyond the limit.
#![cfg(all(feature = "image", feature = "npz"))]

use flate2::Compression;
use flate2::write::GzEncoder;
use gpumem_core::run::tensor::Tensor;
use gpumem_core::typed::D;
use gpumem_data::sets::{Array, Arrays, ImageFolder};
use gpumem_data::{Draw, ErrorKind, Loader, Result, Transforms};
use std::fs;
use std::io::Write;
use std::path::Path;

type Image = Tensor<u8, (D<2>, D<3>, D<4>, D<4>)>;
type Labels = Tensor<u32, (D<2>,)>;

/// Returns the bytes cut, lengthened, or with some of them changed.
fn damaged(bytes: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match draw.below(4) {
        0 => bytes.truncate(draw.below(bytes.len())),
        1 => bytes.extend((0..draw.below(40)).map(|_| 0xff)),
        _ => {
            // Headers are at the start, and decide the most.
            let end = [40.min(bytes.len()), bytes.len()][draw.below(2)];
            for _ in 0..=draw.below(4) {
                let at = draw.below(end);
                bytes[at] = [draw.word() as u8, 0, 0xff, bytes[at] ^ 1][draw.below(4)];
            }
        }
    }
    bytes
}

/// Reads `rounds` damaged files. `read` makes an epoch of the file.
fn check(path: &Path, whole: &[u8], rounds: usize, read: impl Fn(&Path) -> Result<()>) {
    fs::write(path, whole).unwrap();
    read(path).unwrap();
    let mut errors = 0;
    for round in 0..rounds {
        fs::write(path, damaged(whole, &mut Draw::new(9, 0, round))).unwrap();
        if let Err(error) = read(path) {
            assert!(!matches!(error.kind(), ErrorKind::Panic { .. }), "round {round}: {error}");
            assert_eq!(error.file(), Some(path), "round {round}: {error}");
            errors += 1;
        }
    }
    assert!(errors > rounds / 4, "{errors} of {rounds}");
}

fn epoch(set: impl gpumem_data::Dataset) -> Result<()> {
    Loader::<Image, Labels>::new(set).workers(1).epoch()?.try_for_each(|batch| batch.map(drop))
}

fn npy(dims: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({dims}), }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), elements].concat()
}

#[test]
fn arrays() {
    let folder = tempfile::tempdir().unwrap();
    let elements: Vec<u8> = (0..96).collect();
    let labels = folder.path().join("y.npy");
    fs::write(&labels, npy("2,", &[0, 1])).unwrap();
    let set = |x: Array| Arrays::new([x], [Array::npy(&labels)?]).map_err(|error| error.with_file(&labels));
    let path = folder.path().join("x");
    // Labels are whole: what differs from their number is said of them.
    let of_x = |result: Result<Arrays>| match result {
        Err(error) if error.file() == Some(&labels) => {
            Err(gpumem_data::Error::new(error.kind().clone()).with_file(&path))
        }
        other => other,
    };
    check(&path, &npy("2, 3, 4, 4", &elements), 400, |path| epoch(of_x(Array::npy(path).and_then(set))?));

    let idx = [&[0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 4], &elements[..]].concat();
    check(&path, &idx, 400, |path| epoch(of_x(Array::idx(path).and_then(set))?));
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&idx).unwrap();
    check(&path, &packed.finish().unwrap(), 400, |path| epoch(of_x(Array::idx(path).and_then(set))?));

    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive.start_file("x.npy", zip::write::SimpleFileOptions::default()).unwrap();
    archive.write_all(&npy("2, 3, 4, 4", &elements)).unwrap();
    let archive = archive.finish().unwrap().into_inner();
    check(&path, &archive, 400, |path| epoch(of_x(Array::npz(path, "x").and_then(set))?));
}

#[test]
fn images() {
    let folder = tempfile::tempdir().unwrap();
    let class = folder.path().join("class");
    fs::create_dir(&class).unwrap();
    let image = image::RgbImage::from_fn(24, 18, |x, y| image::Rgb([(x * y) as u8, x as u8, 7 * y as u8]));
    for (name, rounds) in [("a.png", 400), ("a.jpg", 400)] {
        let path = class.join(name);
        image.save(&path).unwrap();
        let whole = fs::read(&path).unwrap();
        check(&path, &whole, rounds, |_| {
            let transforms = Transforms::new().random_resized_crop(6).resize(5).center_crop(4);
            epoch(ImageFolder::open(folder.path())?.limit(1 << 20).transforms(transforms))
        });
        fs::remove_file(path).unwrap();
    }
}
